"""Types that libhdf5 or JSON would quietly change on the way back into a file: what is rebuilt is what h5py reads."""

from __future__ import annotations

import base64
import json
import logging

import h5py
import numpy as np
import pytest
from builders.compare import compare_files
from h5py import h5a, h5d, h5s, h5t

import lindi_bridge as lb

PADDINGS = {"null-terminated": h5t.STR_NULLTERM, "null-padded": h5t.STR_NULLPAD, "space-padded": h5t.STR_SPACEPAD}
CHARSETS = {"ascii": h5t.CSET_ASCII, "utf-8": h5t.CSET_UTF8}
WORDS = np.array([b"abc", b"abcdef", b"a b  ", b""], "S6")
THIRD = 1 / np.longdouble(3) + 2j


def fixed(padding, charset):
    out = h5t.C_S1.copy()
    out.set_size(6)
    out.set_strpad(PADDINGS[padding])
    out.set_cset(CHARSETS[charset])
    return out


def record(string):
    """A string with a gap behind it, and a number."""
    out = h5t.create(h5t.COMPOUND, 12)
    out.insert(b"s", 0, string)
    out.insert(b"n", 8, h5t.STD_I32LE)
    return out


def records():
    out = np.zeros(4, {"names": ["s", "n"], "formats": ["S6", "<i4"], "offsets": [0, 8], "itemsize": 12})
    out["s"], out["n"] = WORDS, range(4)
    return out


def put(parent, name, type_id, values):
    """A dataset and an attribute whose bytes in the file are those in memory."""
    space = h5s.create_simple(values.shape)
    h5d.create(parent, name, type_id, space).write(h5s.ALL, h5s.ALL, values, type_id)
    h5a.create(parent, name, type_id, space).write(values, type_id)


def rebuilt_differences(source, profile):
    document = lb.index(str(source), profile=profile).to_json().encode()
    with h5py.File(source) as expected, lb.open(document, prefer="annotations", source=str(source)) as actual:
        return compare_files(expected, actual, storage=False)


def left_out(source, profile):
    """Paths of the document's problems; all that is no problem is as in the file."""
    document = json.loads(lb.index(str(source), profile=profile).to_json())
    problems = {p["path"] for p in document["generationMetadata"]["problems"] if p["kind"] != "attribute"}
    found = {d.path.partition(" ")[0].partition("[")[0].partition("@")[0] for d in rebuilt_differences(source, profile)}
    assert not {path.partition(".")[0] for path in found if path != "/"} - problems
    return problems


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
@pytest.mark.parametrize("charset", CHARSETS)
@pytest.mark.parametrize("padding", PADDINGS)
def test_strings_that_fill_their_room(padding, charset, profile, tmp_path):
    """Plain, as a member of a compound, and as an element of an array; in datasets and in attributes."""
    string = fixed(padding, charset)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        put(file.id, b"plain", string, WORDS)
        put(file.id, b"record", record(string), records())
        pairs = h5t.array_create(string, (2,))
        h5a.create(file.id, b"pairs", pairs, h5s.create_simple((2,))).write(WORDS.reshape(2, 2), pairs)
    assert rebuilt_differences(tmp_path / "a.h5", profile) == []


def test_lists_of_strings_that_end_in_a_null_are_an_attribute_less(tmp_path, caplog):
    """h5py makes such a list of strings of its own, which libhdf5 then cuts: said, and not done."""
    lists = h5t.vlen_create(fixed("null-terminated", "ascii"))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["other"] = 1
    document = json.loads(lb.index(tmp_path / "a.h5").to_json())
    told = {"dtype": {"vlen": {"string": "ascii", "length": 6}}, "shape": [1], "value": [["abcdef"]]}
    told["type"] = base64.b64encode(lists.encode()).decode()
    document["hdf5"]["annotations"].setdefault("/", {}).setdefault("attributes", {})["lists"] = told
    raw = json.dumps(document).encode()
    with lb.open(raw, prefer="annotations", source=str(tmp_path / "a.h5")) as file:
        assert list(file.attrs) == ["other"]
    assert "/: attribute 'lists'" in caplog.text
    assert "left out" in caplog.text


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
def test_complex_numbers_of_long_doubles(profile, tmp_path):
    """No double holds their parts: as an attribute, as a member, and in rows of JSON."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["y"] = np.array([THIRD, complex(np.nan, -np.inf)], "G")
        file["r"] = np.array([(1, THIRD)], [("a", "i1"), ("b", "G")])
        file["l"] = np.array([(1, "x", THIRD)], [("a", "i1"), ("s", h5py.string_dtype()), ("b", "G")])
        file["good"] = 1
    assert left_out(tmp_path / "a.h5", profile) == ({"/l", "/r"} if profile == "zarr" else set())


def test_parts_of_long_doubles_that_are_written_one_by_one(tmp_path):
    """As this package wrote them at first."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["y"] = np.array(THIRD, "G")
    document = json.loads(lb.index(tmp_path / "a.h5").to_json())
    parts = [{"base64": base64.b64encode(np.asarray(part).tobytes()).decode()} for part in (THIRD.real, THIRD.imag)]
    document["hdf5"]["annotations"]["/"]["attributes"]["y"]["value"] = parts
    with lb.open(json.dumps(document).encode(), prefer="annotations", source=str(tmp_path / "a.h5")) as file:
        assert file.attrs["y"] == THIRD


@pytest.mark.parametrize("align", [False, True], ids=["packed", "with a gap"])
def test_arrays_of_compounds_in_the_profile_zarr(align, tmp_path):
    """Their axes are those of the Zarr array, whose elements are the compounds without gaps."""
    element = np.dtype([("a", "i1"), ("b", "f8")], align=align)
    values = np.zeros((3, 2), element)
    values["a"], values["b"] = np.arange(6).reshape(3, 2), 2.5
    pairs = h5t.array_create(h5t.py_create(element), (2,))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        h5d.create(file.id, b"pairs", pairs, h5s.create_simple((3,))).write(h5s.ALL, h5s.ALL, values, pairs)
        file["good"] = 1
    assert rebuilt_differences(tmp_path / "a.h5", "zarr") == []


def test_an_attribute_that_libhdf5_refuses_costs_no_file(tmp_path, caplog):
    """It is a problem that names it; the rest is there."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["other"] = 1
        file["x"] = np.arange(3)
    document = json.loads(lb.index(tmp_path / "a.h5").to_json())
    attribute = {"dtype": "<i4", "shape": [], "value": 5}
    # A name may have 64 KiB.
    document["hdf5"]["annotations"].setdefault("/x", {})["attributes"] = {"n" * 70_000: attribute, "k": attribute}
    with (
        caplog.at_level(logging.WARNING),
        lb.open(json.dumps(document).encode(), prefer="annotations", source=str(tmp_path / "a.h5")) as file,
    ):
        assert dict(file["x"].attrs) == {"k": 5}
        assert file["x"][:].tolist() == [0, 1, 2]
    assert "/x: attribute 'nnn" in caplog.text
    assert "left out" in caplog.text
