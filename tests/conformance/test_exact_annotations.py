"""Bit for bit: what JSON has no word for is in the annotations, and a file built of them is as h5py reads it."""

from __future__ import annotations

import base64
import itertools
import json

import h5py
import numpy as np
import pytest
from builders.compare import compare_files
from builders.documents import unlisted, write_document
from h5py import h5a, h5d, h5p, h5s, h5t

import lindi_bridge as lb
from lindi_bridge.indexer.dtypes import encode_exact_fill, encode_fill
from lindi_bridge.model.floats import UnusualNaN, is_usual_nan, number_bytes

FLOATS = ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c8", "<c16", ">c16"]
LONG = ["<f16", ">f16", "<c32", ">c32"] if np.dtype("g").itemsize == 16 else ["<g"]
BITS = {
    2: [0xFE00, 0x7D05, 0x7E00, 0xFC01],
    4: [0xFFC00000, 0x7F812345, 0x7FC00000, 0xFF800001],
    8: [0xFFF8 << 48, 0x7FF0123456789ABC, 0x7FF8 << 48, (0xFFF0 << 48) + 1],
    10: [0xFFFFC000 << 48, 0x7FFF8123456789ABCDEF, 0x7FFFC000 << 48, (0xFFFF8000 << 48) + 1],
}
"""Negative, signalling, the usual one, both."""


def nans(text):
    """Four NaNs; the parts of complex ones are not the same."""
    dtype = np.dtype(text)
    parts = 2 if dtype.kind == "c" else 1
    width = dtype.itemsize // parts
    raw = b""
    for number, part in itertools.product(range(4), range(parts)):
        nbytes = min(width, 10)
        little = BITS[nbytes][(number + part) % 4].to_bytes(nbytes, "little").ljust(width, b"\0")
        raw += little if dtype.isnative else little[::-1]
    return np.frombuffer(raw, dtype)


def sound(tmp_path, write, profile="lindi"):
    """The file that is written, and a document of it."""
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        write(file)
    if profile == "lindi":
        return source, write_document(source)
    document = source.with_suffix(".zarr.json")
    lb.index(source, profile=profile).save(document)
    assert lb.check(document) == []
    return source, document


def rebuilt_differences(source, document):
    with h5py.File(source) as expected, lb.open(document, prefer="annotations", source=str(source)) as actual:
        return compare_files(expected, actual, storage=False)


def typed(document, path, name):
    return json.loads(document.read_text())["hdf5"]["annotations"][path]["attributes"][name]


# -- NaN --------------------------------------------------------------------------------------------------------------


def with_nans(kind, text):
    """A function that writes them in one place."""
    values, dtype = nans(text), np.dtype(text)
    row = np.dtype([("n", "i4"), ("x", dtype), ("y", dtype, (2,))])
    rows = np.zeros(4, row)
    rows["x"], rows["y"][:, 1] = values, values

    def write(file):
        if kind == "attribute":
            file.attrs["x"] = values.reshape(2, 2)
            file.attrs["one"] = values[0] if dtype.isnative else np.array(values[0], dtype)
        elif kind == "fill value":
            for number, value in enumerate(values):
                for layout, chunks in (("chunked", (2,)), ("contiguous", None)):
                    file.create_dataset(f"{layout} {number}", (4,), dtype, fillvalue=value, chunks=chunks)
        elif kind == "compound":
            file.attrs["x"] = file["x"] = rows
            file.create_dataset("filled", (3,), row, fillvalue=rows[1])
        elif kind == "text rows":
            more = np.zeros(4, [("s", h5py.string_dtype()), ("x", dtype)])
            more["s"], more["x"] = "NaN", values
            file.attrs["x"] = file["x"] = more
        elif kind == "array":
            pairs = h5t.array_create(h5t.py_create(dtype), (2,))
            h5a.create(file.id, b"x", pairs, h5s.create_simple((2,))).write(values.reshape(2, 2), pairs)
            h5d.create(file.id, b"x", pairs, h5s.create_simple((2,))).write(
                h5s.ALL, h5s.ALL, values.reshape(2, 2), pairs
            )
        else:
            lists = np.empty(2, object)
            lists[:] = values[:3], values[3:]
            file.attrs.create("x", lists, dtype=h5py.vlen_dtype(dtype))

    return write


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
@pytest.mark.parametrize("kind", ["attribute", "fill value", "compound", "text rows", "array", "list"])
@pytest.mark.parametrize("text", FLOATS + LONG)
def test_bits_of_a_nan(text, kind, profile, tmp_path):
    if (kind, text) in (("list", ">f16"), ("list", ">c32")):
        pytest.skip("h5py reads what they are padded with")
    source, document = sound(tmp_path, with_nans(kind, text), profile)
    differences = rebuilt_differences(source, document)
    if profile == "zarr":
        paths = {p["path"] for p in json.loads(document.read_text())["generationMetadata"]["problems"]}
        differences = [d for d in differences if d.path.partition(" ")[0] not in paths and "/ (" not in d.path]
        differences = [d for d in differences if d.kind != "missing" or d.path not in paths]
    assert differences == []


def test_other_readers_see_the_text(tmp_path):
    _, document = sound(tmp_path, with_nans("attribute", "<f8"))
    raw = json.loads(document.read_text())
    assert raw["refs"][".zattrs"] == {"one": "NaN", "x": [["NaN", "NaN"], ["NaN", "NaN"]]}
    expected = {base64.b64encode(bits.tobytes()).decode(): [k] for k, bits in enumerate(nans("<f8")) if k != 2}
    assert raw["hdf5"]["annotations"]["/"]["attributes"]["x"]["nan"] == expected
    _, document = sound(tmp_path, with_nans("fill value", "<f4"))
    raw = json.loads(document.read_text())
    assert {raw["refs"][f"chunked {k}/.zarray"]["fill_value"] for k in range(4)} == {"NaN"}
    _, document = sound(tmp_path, with_nans("text rows", "<f4"))
    raw = json.loads(document.read_text())
    assert json.loads(raw["refs"]["x/0"])[:4] == [["NaN", "NaN"]] * 4
    assert sorted(raw["hdf5"]["annotations"]["/x"]["nan"].values()) == [[1], [3], [7]]


def test_the_usual_nan_needs_no_annotation(tmp_path):
    def write(file):
        file.attrs["x"] = np.array([1, np.nan])
        file["x"] = np.array([(1, np.nan)], "i4,f8")
        file.create_dataset("filled", (4,), "f4", fillvalue=np.nan, chunks=(2,))

    _, document = sound(tmp_path, write)
    annotations = json.loads(document.read_text())["hdf5"]["annotations"]
    assert "/" not in annotations
    assert "nan" not in annotations["/x"]
    assert "fill_value" not in annotations["/filled"]


@pytest.mark.parametrize("text", [text for text in FLOATS + LONG if np.dtype(text).kind == "f"])
def test_which_nan_is_the_usual_one(text):
    values = nans(text)
    found = [values[k : k + 1].reshape(()) for k in range(4)]
    assert [is_usual_nan(value) for value in found] == [False, False, True, False]
    assert [encode_exact_fill(value, values.dtype) == "NaN" for value in found] == [False, False, True, False]
    assert {encode_fill(value, values.dtype) for value in found} == {"NaN"}


def test_the_text_knows_its_bits():
    text = UnusualNaN(b"abcd")
    assert (text, text.bits, json.dumps([text])) == ("NaN", b"abcd", '["NaN"]')
    padded = np.frombuffer(bytes(range(32)), "<f16" if np.dtype("g").itemsize == 16 else "g")
    assert number_bytes(padded)[:10] == bytes(range(10))


DAMAGED = {
    "no list": (5, "damaged bits"),
    "no base64": ({"*": [0]}, "damaged bits"),
    "a place that is text": ({"AAAAAAAA+P8=": ["0"]}, "damaged bits"),
    "a place beyond the end": ({"AAAAAAAA+P8=": [7]}, "after the last"),
    "a place of another number": ({"AAAAAAAA+P8=": [0]}, "where 1.0 is"),
    "bits of a number": ({"AAAAAAAA8D8=": [1]}, "that are none"),
    "too few bits": ({"AAD4/w==": [1]}, "4 bytes where"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_bits_that_contradict_the_values_are_refused(kind, tmp_path):
    def write(file):
        file.attrs["x"] = np.array([1, np.nan])

    source, document = sound(tmp_path, write)
    raw = json.loads(document.read_text())
    bits, message = DAMAGED[kind]
    annotation = {"dtype": "<f8", "shape": [2], "nan": bits}
    raw["hdf5"]["annotations"].setdefault("/", {})["attributes"] = {"x": annotation}
    text = json.dumps(raw).encode()
    with pytest.raises(lb.DocumentError, match=message):
        lb.open(text, prefer="annotations", source=str(source))
    assert any(message.split("|")[0] in p.message for p in lb.check(text))
    raw["refs"][".zattrs"]["x"] = [2, 3]  # an edit counts more
    with lb.open(json.dumps(raw).encode(), source=str(source)) as file:
        assert file.attrs["x"].tolist() == [2, 3]


def test_bits_of_rows_that_were_edited_are_left_out_of_account(tmp_path):
    source, document = sound(tmp_path, with_nans("text rows", "<f8"))
    raw = json.loads(document.read_text())
    raw["refs"]["x/0"] = '[["a",1],["b",2],["c",3],["d","NaN"],"|O",[4]]'
    with lb.open(json.dumps(raw).encode(), source=str(source)) as file:
        assert file["x"]["x"][:3].tolist() == [1, 2, 3]


def test_check_tells_bits_that_are_not_those_of_the_file(tmp_path):
    _, document = sound(tmp_path, with_nans("attribute", "<f8"))
    raw = json.loads(document.read_text())
    del raw["hdf5"]["annotations"]["/"]["attributes"]["one"]["nan"]
    (problem,) = lb.check(json.dumps(raw).encode())
    assert (problem.kind, problem.path) == ("contradiction", "/")
    assert "'one'" in problem.message


# -- other values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [">M8[ns]", "<M8[s]", ">m8[us]"])
def test_dates(text, tmp_path):
    """Opaque bytes of HDF5; in lists h5py loses their unit and their order."""
    dtype = h5py.opaque_dtype(text)
    values = np.arange(1000, 1003).astype(np.dtype(text))
    row = np.dtype([("a", dtype), ("s", h5py.string_dtype())])
    rows = np.zeros(3, row)
    rows["a"], rows["s"] = values, "x"

    def write(file):
        file.attrs["x"] = file["x"] = values.astype(dtype)
        file.attrs["rows"] = file["rows"] = rows
        lists = np.empty(1, object)
        lists[0] = values.astype(dtype)
        h5a.create(
            file.id, b"list", h5t.vlen_create(h5t.py_create(dtype, logical=True)), h5s.create_simple((1,))
        ).write(lists.astype(h5py.vlen_dtype(dtype)))

    source, document = sound(tmp_path, write)
    assert rebuilt_differences(source, document) == []


@pytest.mark.skipif(len(LONG) == 1, reason="no padded long doubles")
def test_numbers_of_long_doubles_in_foreign_order(tmp_path):
    def write(file):
        file.attrs["x"] = np.array([1 / np.longdouble(3), 2]).astype(">f16")
        file.attrs["y"] = np.array([1 / np.longdouble(3) + 2j]).astype(">c32")

    assert rebuilt_differences(*sound(tmp_path, write)) == []


def create_filled(file, name, dtype, fill=None, *, never=False):
    create = h5p.create(h5p.DATASET_CREATE)
    create.set_chunk((2,))
    if fill is not None:
        create.set_fill_value(np.array(fill, dtype))
    if never:
        create.set_fill_time(h5d.FILL_TIME_NEVER)
    h5d.create(file.id, name, h5t.py_create(np.dtype(dtype)), h5s.create_simple((4,)), create)


@pytest.mark.parametrize("never", [False, True])
@pytest.mark.parametrize(("text", "profile"), [*itertools.product(["<f8", ">f2", "<c16", "<f4"], ["lindi", "zarr"])])
def test_negative_zero_as_a_fill_value(text, profile, never, tmp_path):
    """Also of a dataset that is never filled, whose fill value in ``.zarray`` is plain zero."""

    def write(file):
        create_filled(file, b"x", text, -0.0, never=never)
        create_filled(file, b"zero", text, never=never)

    assert rebuilt_differences(*sound(tmp_path, write, profile)) == []


@pytest.mark.parametrize("text", LONG)
def test_zero_of_long_doubles_is_zero_whatever_they_are_padded_with(text, tmp_path):
    _, document = sound(tmp_path, lambda file: create_filled(file, b"x", text, never=True))
    for _ in range(5):  # the memory that numpy takes is not always dirty
        with lb.open(document, prefer="annotations") as file:
            assert file["x"].id.get_create_plist().get_fill_time() == h5d.FILL_TIME_NEVER
            assert file["x"].id.get_create_plist().fill_value_defined() == h5d.FILL_VALUE_DEFAULT


# -- what was never written -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", [None, 7])
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("layout", ["contiguous", "early", "chunked", "compressed"])
@pytest.mark.parametrize("kind", ["<i4", "rows"])
@pytest.mark.parametrize("length", [12, 4000])
def test_read_direct_leaves_out_what_was_never_filled(length, kind, layout, written, fill, tmp_path):
    dtype = np.dtype([("a", "<i4"), ("b", "<f8")] if kind == "rows" else kind)

    def write(file):
        create = h5p.create(h5p.DATASET_CREATE)
        create.set_fill_time(h5d.FILL_TIME_NEVER)
        if fill is not None:
            create.set_fill_value(np.full((), fill, dtype))
        if layout == "early":
            create.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        if layout in ("chunked", "compressed"):
            create.set_chunk((length // 4,))
        if layout == "compressed":
            create.set_deflate(4)
        made = h5d.create(file.id, b"x", h5t.py_create(dtype), h5s.create_simple((length,)), create)
        if written:
            part = slice(length // 4, length // 2) if "c" in layout[:3] and layout != "contiguous" else slice(None)
            h5py.Dataset(made)[part] = np.ones(1, dtype)[0]

    source, document = sound(tmp_path, write)
    for options in ({}, {"prefer": "annotations", "source": str(source)}):
        with h5py.File(source) as expected, lb.open(document, **options) as actual:
            assert compare_files(expected, actual, storage=not options) == []
            there, here = (np.full(length, 9, dtype) for _ in range(2))
            expected["x"].read_direct(there)
            actual["x"].read_direct(here)
            assert np.array_equal(here, there)


# -- strings and committed types --------------------------------------------------------------------------------------


def string_type(padding, charset, length):
    out = h5t.C_S1.copy()
    out.set_size(h5t.VARIABLE if length is None else length)
    out.set_strpad(padding)
    out.set_cset(charset)
    return out


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
@pytest.mark.parametrize("length", [None, 6])
@pytest.mark.parametrize("charset", [h5t.CSET_ASCII, h5t.CSET_UTF8])
@pytest.mark.parametrize("padding", [h5t.STR_NULLTERM, h5t.STR_NULLPAD, h5t.STR_SPACEPAD])
def test_padding_and_character_set(padding, charset, length, profile, tmp_path):
    """libhdf5 takes strings of variable length for equal whatever their padding is; those who read the type do not."""
    string = string_type(padding, charset, length)
    words = np.array([b"abc", b"ab"], h5py.string_dtype("utf-8" if charset else "ascii", length))
    memory = string if length else h5t.py_create(words.dtype)
    record = h5t.create(h5t.COMPOUND, string.get_size() + 4)
    record.insert(b"s", 4, string)
    record.insert(b"n", 0, h5t.STD_I32LE)
    pairs, in_memory = h5t.array_create(string, (2,)), h5t.array_create(memory, (2,))

    def write(file):
        space = h5s.create_simple((2,))
        string.copy().commit(file.id, b"type")
        for name, type_id in (("plain", string), ("record", record), ("of a type", h5t.open(file.id, b"type"))):
            h5d.create(file.id, name.encode(), type_id, space)
            h5a.create(file.id, name.encode(), type_id, h5s.create(h5s.NULL))
        h5a.create(file.id, b"words", string, space).write(words, memory)
        h5d.create(file.id, b"words", string, space).write(h5s.ALL, h5s.ALL, words, memory)
        h5a.create(file.id, b"pairs", pairs, h5s.create(h5s.SCALAR)).write(words, in_memory)
        h5a.create(file.id, b"lists", h5t.vlen_create(string), h5s.create(h5s.NULL))
        h5d.create(file.id, b"lists", h5t.vlen_create(string), space)

    source, document = sound(tmp_path, write, profile)
    differences = rebuilt_differences(source, document)
    if profile == "lindi":
        assert unlisted(differences, document) == []
    assert not any(d.kind == "metadata" for d in differences)
    assert not any("type" in d.message for d in differences)


@pytest.mark.parametrize("padding", [h5t.STR_NULLTERM, h5t.STR_NULLPAD, h5t.STR_SPACEPAD])
def test_lists_of_strings(padding, tmp_path):
    """h5py reads them all, and writes those that are padded with nulls."""
    string = string_type(padding, h5t.CSET_ASCII, 6)
    record = h5t.create(h5t.COMPOUND, 24)
    record.insert(b"l", 0, h5t.vlen_create(string))
    record.insert(b"n", 16, h5t.STD_I32LE)
    lists = np.empty(1, object)
    lists[0] = np.array([b"abc", b"ab"], "S6")

    def write(file):
        dtype = h5py.vlen_dtype(np.dtype("S6"))
        made = h5a.create(file.id, b"lists", h5t.vlen_create(string), h5s.create_simple((1,)))
        made.write(lists.astype(dtype), h5t.py_create(dtype))
        for shape in ((2,), (0,)):
            h5d.create(file.id, b"rows %d" % shape, record, h5s.create_simple(shape))
        file["other"] = 1

    source, document = sound(tmp_path, write)
    listed = json.loads(document.read_text())["generationMetadata"]["problems"]
    is_null = padding == h5t.STR_NULLPAD
    told = [] if is_null else [("/", "attribute")]
    with h5py.File(source) as file:
        try:
            file["rows 2"][()]
        except (TypeError, ValueError):  # as h5py 3.11 does
            told += [("/rows 2", "unreadable")] if is_null else []
    assert [(p["path"], p["kind"]) for p in listed] == told
    differences = unlisted(rebuilt_differences(source, document), document)
    assert [str(d) for d in differences if "rows 2" not in d.path] == []


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
@pytest.mark.parametrize("track_order", [False, True])
def test_committed_types(track_order, profile, tmp_path):
    """Of attributes and datasets; their own names may come later than those who have them, and there may be several."""

    def write(file):
        file.create_group("a", track_order=track_order)
        file.create_group("z", track_order=track_order)
        file["z/number"] = np.dtype("i4")
        file["z/word"] = h5py.string_dtype()
        file["z/number"].attrs.create("own", 5, dtype=file["z/number"])
        file["a/second"] = file["z/word"]
        file["a"].create_dataset("d", (3,), file["z/number"])
        file["a"].create_dataset("b", (3,), file["z/number"])
        file["a"].attrs.create("number", [1, 2], dtype=file["z/number"])
        file["a/d"].attrs.create("word", "text", dtype=file["z/word"])
        file.attrs.create("same type", [1, 2], dtype="i4")

    source, document = sound(tmp_path, write, profile)
    with h5py.File(source) as expected, lb.open(document, prefer="annotations") as actual:
        assert compare_files(expected, actual, storage=False) == []
        for path, name in (("a", "number"), ("a/d", "word"), ("z/number", "own")):
            types = [file[path].attrs.get_id(name).get_type() for file in (expected, actual)]
            assert all(type_id.committed() for type_id in types)
            assert len({h5py.h5i.get_name(type_id) for type_id in types}) == 1
        assert h5py.h5o.get_info(actual["z/number"].id).rc == h5py.h5o.get_info(expected["z/number"].id).rc
    assert typed(document, "/a", "number")["committed_type"] == "/z/number"


def test_check_tells_another_committed_type(tmp_path):
    def write(file):
        file["t"], file["u"] = np.dtype("i4"), np.dtype("i4")
        file.create_dataset("x", (3,), file["t"])
        file.attrs.create("k", 1, dtype=file["t"])

    _, document = sound(tmp_path, write)
    raw = json.loads(document.read_text())
    raw["hdf5"]["annotations"]["/x"]["committed_type"] = "/u"
    del raw["hdf5"]["annotations"]["/"]["attributes"]["k"]["committed_type"]
    found = {p.path: p.message for p in lb.check(json.dumps(raw).encode())}
    assert found["/x"].startswith("committed type: /t by the embedded metadata, /u")
    assert found["/"].startswith("committed type of attribute 'k': /t by the embedded metadata, none")


def test_a_committed_type_that_lost_its_name_is_listed(tmp_path):
    def write(file):
        file["t"] = np.dtype("i4")
        file.create_dataset("x", (3,), file["t"])
        file["x"].attrs.create("k", 1, dtype=file["t"])
        del file["t"]

    source, document = sound(tmp_path, write)
    listed = json.loads(document.read_text())["generationMetadata"]["problems"]
    assert {(p["path"], p["kind"]) for p in listed} == {("/x", "attribute"), ("/x", "datatype")}
    assert unlisted(rebuilt_differences(source, document), document) == []


# -- names, and what is annotated -------------------------------------------------------------------------------------


@pytest.mark.parametrize("visit", ["visit", "visititems", "visit_links"])
def test_visiting_names_that_are_not_utf8(visit, tmp_path):
    def write(file):
        outer = h5py.h5g.create(file.id, b"g\xff")
        h5py.h5g.create(outer, b"\xfe")
        file["b"] = np.arange(3)
        file.id.links.create_hard(b"h\xff", file.id, b"b")
        file.id.links.create_soft(b"s\xff", b"b")

    source, document = sound(tmp_path, write)
    seen = []
    for file in (h5py.File(source), lb.open(document), lb.open(document, prefer="annotations"), lb.open(source)):
        with file:
            seen.append([])
            getattr(file, visit)(lambda name, *thing: seen[-1].append((name, *(t.name for t in thing))))
    assert seen[0]
    assert all(found == seen[0] for found in seen[1:])


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
def test_check_tells_annotations_of_nothing(profile, tmp_path):
    def write(file):
        file["x"] = np.arange(3)
        file["y"] = h5py.ExternalLink("other.h5", "/x")
        file["t"] = np.dtype("i4")
        file["s"] = h5py.SoftLink("/nowhere")
        file["g/second"] = file["x"]

    _, document = sound(tmp_path, write, profile)
    raw = json.loads(document.read_text())
    raw["hdf5"]["annotations"] |= {
        "/gone": {"dtype": "<i4"},
        "/x/below": {"attributes": {}},
        "/nowhere/t": {"committed": raw["hdf5"]["annotations"]["/t"]["committed"]},
        "/g/no link": {"soft": "x"},
    }
    found = lb.check(json.dumps(raw).encode())
    assert {(p.kind, p.path) for p in found} == {
        ("annotation", path) for path in ("/gone", "/x/below", "/nowhere/t", "/g/no link")
    }


def test_attributes_of_what_is_listed_may_be_annotated(tmp_path):
    """A dataset that no reference says may have attributes that an annotation says."""

    def write(file):
        type_id = h5t.array_create(h5t.array_create(h5t.STD_I32LE, (2,)), (3,))
        h5py.Dataset(h5d.create(file.id, b"odd", type_id, h5s.create_simple((2,)))).attrs["k"] = np.int8(1)

    _, document = sound(tmp_path, write)
    assert "/odd" in json.loads(document.read_text())["hdf5"]["annotations"]


RECORDS = {
    "an object": [["a", "<i4"], ["s", "|O"]],
    "objects deep down": [["a", [["b", "|O"], ["u", "<U3"]]], ["s", "O", [2]]],
    "UTF-32": [["a", "<U3"]],
    "only objects": "|O",
}
CHUNKS = {"a reference": ["raw", 0, 48], "text": "base64:AAAA", "rows": '[[1,"a"],[2,"b"],[3,"c"],"|O",[3]]'}


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("shape", [[3], [6], []])
@pytest.mark.parametrize("kind", RECORDS)
def test_records_with_objects_cost_no_other_dataset(kind, shape, chunk, tmp_path):
    """As kerchunk writes them of compounds with strings: their bytes are pointers of a process that is gone."""
    plain = {"zarr_format": 2, "dtype": "<i4", "fill_value": 0, "order": "C", "filters": None, "compressor": None}
    odd = plain | {"shape": shape, "chunks": [3] * len(shape), "dtype": RECORDS[kind], "fill_value": None}
    refs = {
        ".zgroup": {"zarr_format": 2},
        "good/.zarray": plain | {"shape": [2], "chunks": [2]},
        "good/0": "base64:AQAAAAIAAAA=",
        "odd/.zarray": odd,
        "odd/.zattrs": {"k": 1},
        "odd/0": CHUNKS[chunk],
    }
    text = json.dumps({"version": 1, "refs": refs}).encode()
    with lb.open(text) as file:
        assert file["good"][:].tolist() == [1, 2]
        assert file["odd"].shape == tuple(shape)
        assert file["odd"].dtype.names == (None if kind == "only objects" else tuple(f[0] for f in RECORDS[kind]))
        assert file["odd"].attrs["k"] == 1
        assert [p.path for p in file._file_object.properties["problems"]] == ["/odd"]
        with pytest.raises(lb.DocumentError, match="/odd: its values cannot be had"):
            file["odd"][()]
    assert lb.check(text) == []


# -- floats that numpy does not have ----------------------------------------------------------------------------------


def brain_float(order):
    """Sixteen bits with the exponent of 32."""
    out = (h5t.IEEE_F32LE if order == "<" else h5t.IEEE_F32BE).copy()
    out.set_fields(15, 7, 8, 0, 7)
    out.set_size(2)
    out.set_precision(16)
    out.set_offset(0)
    return out


@pytest.mark.parametrize("order", "<>")
def test_floats_of_another_width(order, tmp_path):
    """h5py reads them by libhdf5's conversion, which has NaNs of its own."""
    stored = np.array([0x7FC0, 0xFFC0, 0x7F81, 0xFF83, 0x3FC0], order + "u2").view("V2")
    type_id = brain_float(order)

    def write(file):
        space = h5s.create_simple(stored.shape)
        h5d.create(file.id, b"x", type_id, space).write(h5s.ALL, h5s.ALL, stored, type_id)
        h5a.create(file.id, b"x", type_id, space).write(stored, type_id)

    source, document = sound(tmp_path, write)
    with h5py.File(source) as file:
        assert np.isnan(file["x"][:4]).all()
    assert rebuilt_differences(source, document) == []


@pytest.mark.parametrize("profile", ["lindi", "zarr"])
def test_members_that_h5py_has_in_each_other_are_listed(profile, tmp_path):
    """A number of 16 bits that takes 32 in memory, with another one behind it: h5py reads beyond its memory."""
    record = h5t.create(h5t.COMPOUND, 4)
    record.insert(b"x", 0, brain_float("<"))
    record.insert(b"y", 2, h5t.STD_I16LE)

    def write(file):
        h5d.create(file.id, b"odd", record, h5s.create_simple((3,)))
        h5a.create(file.create_group("g").id, b"odd", record, h5s.create_simple((3,)))
        file["good"] = 1

    source, document = sound(tmp_path, write, profile)
    listed = json.loads(document.read_text())["generationMetadata"]["problems"]
    assert [(p["path"], p["kind"]) for p in listed] == [("/g", "attribute"), ("/odd", "unreadable")]
    with lb.open(document, prefer="annotations", source=str(source)) as file:
        assert sorted(file) == ["g", "good"]
        assert not file["g"].attrs
