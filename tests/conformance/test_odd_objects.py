"""One odd object never costs the file: names that are not UTF-8, types that h5py cannot read, fill values of odd types.

The mount is h5py's own in all that; what a document cannot say is listed, and everything else is said.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from builders.compare import compare_files
from h5py import h5a, h5d, h5i, h5p, h5s, h5t

import lindi_bridge as lb
from lindi_bridge.hdf5 import departures, walk
from lindi_bridge.hdf5.walk import is_stored_here

RAW = b"a\xff"
TEXT = "a\udcff"


def enum_type() -> h5t.TypeEnumID:
    made = h5t.enum_create(h5t.STD_I8LE)
    made.enum_insert(b"x", 1)
    made.enum_insert(b"\xff", 0)
    return made


def raw_enum_type() -> h5t.TypeEnumID:
    made = h5t.enum_create(h5t.STD_I8LE)
    made.enum_insert(b"\xff", 3)
    return made


def compound_type() -> h5t.TypeCompoundID:
    made = h5t.create(h5t.COMPOUND, 4)
    made.insert(b"\xff", 0, h5t.STD_I32LE)
    return made


def opaque_type(tag: bytes) -> h5t.TypeOpaqueID:
    made = h5t.create(h5t.OPAQUE, 8)
    made.set_tag(tag)
    return made


def array_of_arrays() -> h5t.TypeArrayID:
    return h5t.array_create(h5t.array_create(h5t.STD_I32LE, (2,)), (3,))


def list_of_arrays() -> h5t.TypeVlenID:
    return h5t.vlen_create(h5t.array_create(h5t.STD_I32LE, (2,)))


def compound_of(member: h5t.TypeID) -> h5t.TypeCompoundID:
    made = h5t.create(h5t.COMPOUND, member.get_size())
    made.insert(b"m", 0, member)
    return made


TYPES = {
    "enum": enum_type,
    "enum of no text": raw_enum_type,
    "compound": compound_type,
    "M8": lambda: opaque_type(b"NUMPY:M8"),
    "m8": lambda: opaque_type(b"NUMPY:m8"),
    "array of arrays": array_of_arrays,
    "list of arrays": list_of_arrays,
    "compound of arrays of arrays": lambda: compound_of(array_of_arrays()),
    "compound of lists of arrays": lambda: compound_of(list_of_arrays()),
}
SAID = {"enum", "enum of no text"}
"""Types of which a document says everything."""
LINKED = {"list of arrays"}


def answer(ask):
    """What is answered, or the kind of error."""
    try:
        found = ask()
    except (OSError, ValueError, TypeError) as error:
        return type(error)
    return found.dtype, repr(found)


def sound_document(source: Path, profile: str) -> Path:
    document = source.with_suffix(".json")
    lb.index(source, profile=profile).save(document)
    assert lb.check(document) == []
    return document


def problems(document: Path) -> list[tuple[str, str]]:
    listed = json.loads(document.read_text())["generationMetadata"]["problems"]
    return [(problem["path"], problem["kind"]) for problem in listed]


def described(type_id: h5t.TypeID) -> tuple:
    return type_id.get_class(), [
        (type_id.get_member_name(k), type_id.get_member_value(k)) for k in range(type_id.get_nmembers())
    ]


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
@pytest.mark.parametrize("kind", TYPES)
def test_dataset_of_an_odd_type(kind, profile, tmp_path):
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        h5d.create(file.id, b"odd", TYPES[kind](), h5s.create_simple((2,)))
        file["good"] = np.arange(3)
    document = sound_document(source, profile)
    is_said = kind in SAID or (kind in LINKED and profile == "lindi")
    assert [path for path, _ in problems(document)] == ([] if is_said else ["/odd"])
    with h5py.File(source) as expected, lb.open(document) as mounted:
        assert answer(lambda: mounted["odd"][()]) == answer(lambda: expected["odd"][()])
    with h5py.File(source) as expected, lb.open(document, prefer="annotations") as rebuilt:
        assert rebuilt["good"][:].tolist() == [0, 1, 2]
        assert ("odd" in rebuilt) == is_said
        if kind in SAID:
            assert described(rebuilt["odd"].id.get_type()) == described(expected["odd"].id.get_type())
            assert answer(lambda: rebuilt["odd"][()]) == answer(lambda: expected["odd"][()])


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
@pytest.mark.parametrize("kind", TYPES)
def test_attribute_of_an_odd_type(kind, profile, tmp_path):
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        h5a.create(file.create_group("g").id, b"odd", TYPES[kind](), h5s.create_simple((2,)))
        file["g"].attrs["good"] = 1
    document = sound_document(source, profile)
    assert problems(document) == ([] if kind in SAID else [("/g", "attribute")])
    with h5py.File(source) as expected, lb.open(document) as mounted:
        assert answer(lambda: mounted["g"].attrs["odd"]) == answer(lambda: expected["g"].attrs["odd"])
    with h5py.File(source) as expected, lb.open(document, prefer="annotations") as rebuilt:
        assert rebuilt["g"].attrs["good"] == 1
        assert ("odd" in rebuilt["g"].attrs) == (kind in SAID)
        if kind in SAID:
            types = [file["g"].attrs.get_id("odd").get_type() for file in (rebuilt, expected)]
            assert described(types[0]) == described(types[1])


def test_group_that_h5py_cannot_describe_keeps_its_members(tmp_path, monkeypatch):
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file["g/x"] = 1

    def fail(indexer, path, group):
        if path == "/g":
            raise RuntimeError("damaged creation properties")

    monkeypatch.setattr("lindi_bridge.indexer.tree._TreeIndexer._annotate_group", fail)
    document = sound_document(source, "lindi")
    assert problems(document) == [("/g", "unreadable")]
    with lb.open(document, prefer="annotations") as rebuilt:
        assert rebuilt["g/x"][()] == 1


@pytest.mark.parametrize("fill", ["nan", "1.5", "A" * 22 + "==", "A" * 20])
def test_fill_value_of_a_long_double_in_text(fill, tmp_path):
    """Text of other programs is a number, and base64 only where it is as long as an element."""
    dtype = np.dtype("g")
    array = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": dtype.str, "fill_value": fill, "order": "C"}
    array |= {"filters": None, "compressor": None}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"version": 1, "refs": {".zgroup": {"zarr_format": 2}, "x/.zarray": array}}))
    if fill == "A" * 20:
        with pytest.raises(lb.DocumentError, match="fill value"), lb.open(path) as file:
            file["x"][:]
        return
    with lb.open(path) as file:
        expected = 0 if fill.endswith("==") else float(fill)
        assert np.array_equal(file["x"][:], np.full(2, expected, dtype), equal_nan=True)


@pytest.mark.parametrize("scale", [False, True], ids=["plain", "netCDF-4"])
@pytest.mark.parametrize("order", [False, True], ids=["by name", "in order"])
@pytest.mark.parametrize("profile", ["lindi", "zarr"])
def test_names_that_are_not_utf8(profile, order, scale, tmp_path):
    source = tmp_path / "a.h5"
    with h5py.File(source, "w", track_order=order) as file:
        group = file.create_group("g", track_order=order)
        dataset = h5d.create(group.id, RAW, h5t.STD_I32LE, h5s.create_simple((1,)))
        dataset.write(h5s.ALL, h5s.ALL, np.array([7], "i4"))
        group["z"] = 1
        h5a.create(group.id, RAW, h5t.STD_I32LE, h5s.create_simple((1,))).write(np.array([8], "i4"))
        group.attrs["b"] = 2
        if scale:
            file["x"] = np.arange(2)
            file["x"].make_scale()
    document = sound_document(source, profile)
    assert problems(document) == []
    assert list(lb.diff(document, source)) == []
    for options in ({}, {"prefer": "annotations"}):
        with h5py.File(source) as expected, lb.open(document, **options) as actual:
            assert list(actual["g"]) == list(expected["g"])
            assert list(actual["g"].attrs) == list(expected["g"].attrs)
            assert RAW in list(actual["g"].attrs)
            assert actual["g"].attrs[RAW].tolist() == [8]
            assert actual["g"][RAW][:].tolist() == [7]
            assert actual["g"][RAW].name == expected["g"][RAW].name
    attributes = json.loads(document.read_text())["refs"]["g/.zattrs"]
    attributes = json.loads(attributes) if profile == "zarr" else attributes
    assert attributes[TEXT] == (8 if scale and profile == "zarr" else [8])


def odd_integer() -> h5t.TypeIntegerID:
    made = h5t.STD_I32BE.copy()
    made.set_precision(29)
    made.set_offset(2)
    return made


def odd_float() -> h5t.TypeFloatID:
    made = h5t.IEEE_F32LE.copy()
    made.set_ebias(100)
    return made


def padded(length: int) -> h5t.TypeStringID:
    made = h5t.C_S1.copy()
    made.set_size(length)
    made.set_strpad(h5t.STR_SPACEPAD)
    return made


THIRD = np.longdouble(1) / 3
FILLS = {
    "odd integer": (odd_integer, np.array(-3, ">i4")),
    "odd float": (odd_float, np.array(2.5, "f4")),
    "padded string": (lambda: padded(4), np.array(b"abc", h5py.string_dtype("ascii"))),
    "long double": (lambda: h5t.py_create(np.dtype("g")), np.array(THIRD)),
    "long double of few bits": (lambda: h5t.py_create(np.dtype("g")), np.array(np.longdouble(1) / 8)),
    "not a number": (lambda: h5t.py_create(np.dtype("g")), np.array(np.nan, "g")),
    "complex of long doubles": (lambda: h5t.py_create(np.dtype("G")), np.array(THIRD + 2j)),
}


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
@pytest.mark.parametrize("kind", FILLS)
def test_fill_value_of_an_odd_type(kind, profile, tmp_path):
    make, fill = FILLS[kind]
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        create = h5p.create(h5p.DATASET_CREATE)
        create.set_chunk((2,))
        create.set_fill_value(fill)
        h5d.create(file.id, b"x", make(), h5s.create_simple((4,)), create)
        declared = file["x"].fillvalue
        assert np.asarray(declared).tobytes().strip(b"\0")
    document = sound_document(source, profile)
    if problems(document):
        assert (profile, fill.dtype.kind in "fc" and fill.itemsize > 8) == ("zarr", True)
        return
    with h5py.File(source) as expected, lb.open(document, prefer="annotations") as rebuilt:
        assert np.array_equal(rebuilt["x"].fillvalue, declared, equal_nan=fill.dtype.kind in "fc")
        assert np.array_equal(rebuilt["x"][:], expected["x"][:], equal_nan=fill.dtype.kind in "fc")


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
def test_fill_value_that_is_never_written_beside_all_chunks(profile, tmp_path):
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file.create_dataset("x", data=np.arange(4), fillvalue=9, fill_time="never", chunks=(2,), maxshape=(None,))
    document = sound_document(source, profile)
    with lb.open(document, prefer="annotations") as rebuilt:
        assert rebuilt["x"].fillvalue == 9
        assert rebuilt["x"].id.get_create_plist().get_fill_time() == h5d.FILL_TIME_NEVER
        assert rebuilt["x"][:].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
def test_fill_value_of_text_that_is_not_utf8(profile, tmp_path):
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file.create_dataset("x", (4,), h5py.string_dtype(), fillvalue=b"\xff")
        file.create_dataset("y", (4,), h5py.string_dtype(), fillvalue="é")
    document = sound_document(source, profile)
    assert problems(document) == []
    for options in ({}, {"prefer": "annotations"}):
        with lb.open(document, **options) as opened:
            assert opened["x"].fillvalue == b"\xff"
            assert opened["x"][:].tolist() == [b"\xff"] * 4
            assert opened["y"].fillvalue == "é".encode()


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
@pytest.mark.parametrize("kind", ["f8", "M8", "enum", "array", "text"])
def test_fill_value_of_an_empty_dataset(kind, profile, tmp_path):
    types = {
        "f8": (h5t.IEEE_F64BE, np.array(1.5, ">f8")),
        "M8": (opaque_type(b"NUMPY:>M8[ns]"), np.array(5, ">M8[ns]").astype(h5py.opaque_dtype(">M8[ns]"))),
        "enum": (h5t.py_create(h5py.enum_dtype({"a": 0, "b": 5}), logical=True), np.array(5, "i4")),
        "array": (h5t.array_create(h5t.STD_I8LE, (1,)), None),
        "text": (
            h5t.py_create(h5py.string_dtype(), logical=True),
            np.array(b"abc", object).astype(h5py.string_dtype()),
        ),
    }
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        create = h5p.create(h5p.DATASET_CREATE)
        type_id, fill = types[kind]
        if fill is not None:
            create.set_fill_value(fill)
        h5d.create(file.id, b"x", type_id, h5s.create(h5s.NULL), create)
    document = sound_document(source, profile)
    with h5py.File(source) as expected, lb.open(document, prefer="annotations") as rebuilt:
        assert compare_files(expected, rebuilt, storage=False) == []


def _set_fill_value(create, type_id, value):
    """What h5py has no way to set: fill values of arrays, and that there is none."""
    library = ctypes.CDLL(h5p.__file__)
    assert library.H5Pset_fill_value(ctypes.c_int64(create.id), ctypes.c_int64(type_id.id), value) >= 0


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
@pytest.mark.parametrize("kind", ["array", "none"])
def test_fill_value_that_no_annotation_says_is_listed(kind, profile, tmp_path):
    source = tmp_path / "a.h5"
    type_id = h5t.array_create(h5t.STD_I32LE, (2,)) if kind == "array" else h5t.STD_I32LE
    with h5py.File(source, "w") as file:
        create = h5p.create(h5p.DATASET_CREATE)
        _set_fill_value(create, type_id, np.array([3, 4], "i4").tobytes() if kind == "array" else None)
        create.set_chunk((2,))
        made = h5d.create(file.id, b"x", type_id, h5s.create_simple((4,)), create)
        made.write(h5s.ALL, h5s.ALL, np.arange(8 if kind == "array" else 4, dtype="i4"), type_id)
        h5d.create(file.id, b"usual", h5t.array_create(h5t.STD_I32LE, (2,)), h5s.create_simple((4,)))
    document = sound_document(source, profile)
    assert problems(document) == [("/x", "datatype")]
    with h5py.File(source) as expected, lb.open(document, prefer="annotations", source=str(source)) as rebuilt:
        assert np.array_equal(rebuilt["x"][:], expected["x"][:])


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
def test_dataset_of_which_libhdf5_cannot_say_how_it_is_stored(profile, tmp_path, monkeypatch):
    """As of a compound with text in its fill value, which h5py writes, and libhdf5 then takes a pointer for a place."""
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file["odd"] = np.arange(3)
        file["good"] = np.arange(3)

    def fail(dataset):
        if h5i.get_name(dataset) == b"/odd":
            raise RuntimeError("Unable to get dataset creation properties (address of object past end of allocation)")
        return is_stored_here(dataset)

    for module in (walk, departures):
        monkeypatch.setattr(module, "is_stored_here", fail)
    document = source.with_suffix(".json")
    lb.index(source, profile=profile).save(document)
    assert problems(document) == [("/odd", "unreadable")]
    with lb.open(document, prefer="annotations") as rebuilt:
        assert list(rebuilt) == ["good"]


def test_attribute_of_complex_long_doubles(tmp_path):
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file.attrs["x"] = np.array([THIRD + 2j, 1 + 1j], "G")
    document = sound_document(source, "lindi")
    with h5py.File(source) as expected, lb.open(document, prefer="annotations") as rebuilt:
        assert np.array_equal(rebuilt.attrs["x"], expected.attrs["x"])
