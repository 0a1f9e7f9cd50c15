"""What was never written is the fill value: of every type, mounted and by annotations, in foreign documents too."""

from __future__ import annotations

import base64
import json

import h5py
import numpy as np
import pytest
from builders.compare import compare_files
from builders.documents import unlisted, write_document

import lindi_bridge as lb

PAIR = np.dtype([("a", "<i4"), ("b", ">f8"), ("c", "S3")])
TYPES = {
    "int8": (np.dtype("i1"), -7),
    "big-endian": (np.dtype(">i4"), 258),
    "unsigned": (np.dtype("u8"), 2**64 - 1),
    "half": (np.dtype("f2"), 1.5),
    "float": (np.dtype("f8"), -0.0),
    "NaN": (np.dtype("f4"), np.nan),
    "infinite": (np.dtype(">f8"), -np.inf),
    "complex": (np.dtype("c16"), complex(np.nan, -2)),
    "boolean": (np.dtype("?"), True),
    "enum": (h5py.enum_dtype({"RED": 0, "BLUE": 42}, "i2"), 42),
    "bytes": (np.dtype("S5"), b"abc"),
    "UTF-8": (h5py.string_dtype("utf-8", 6), "é".encode()),
    "compound": (PAIR, np.array((7, 1.5, b"xy"), PAIR)),
    "nested": (np.dtype([("p", PAIR), ("n", "u2")]), np.array(((7, 1.5, b"xy"), 3), [("p", PAIR), ("n", "u2")])),
    "variable-length": (h5py.string_dtype(), "a text"),
    "opaque": (np.dtype("V3"), np.void(b"abc")),
}
LAYOUTS = {"contiguous": {}, "chunked": {"chunks": (4,)}, "compressed": {"chunks": (4,), "compression": "gzip"}}


@pytest.mark.parametrize("written", [False, True], ids=["nothing written", "a chunk written"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", TYPES)
def test_of_our_documents(kind, layout, written, tmp_path):
    dtype, fill = TYPES[kind]
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        dataset = file.create_dataset("x", (10,), dtype, fillvalue=fill, **LAYOUTS[layout])
        if written:
            dataset[4:7] = np.zeros(3, dtype) if dtype.kind != "O" else ["one", "two", "three"]
    document = write_document(source)
    for options in ({}, {"prefer": "annotations"}):
        with h5py.File(source) as expected, lb.open(document, **options) as actual:
            found = compare_files(expected, actual, storage=not options)
            assert (unlisted(found, document) if options else found) == []


def foreign(dtype, fill, filters=None, **refs):
    """A document of one array of six in chunks of three, of which ``refs`` are there."""
    array = {"zarr_format": 2, "shape": [6], "chunks": [3], "dtype": dtype, "fill_value": fill, "order": "C"}
    keys = {f"x/{key[1:]}": value for key, value in refs.items()}
    array |= {"filters": filters, "compressor": None}
    return json.dumps({"version": 1, "refs": {".zgroup": {"zarr_format": 2}, "x/.zarray": array, **keys}}).encode()


def text(data):
    return base64.b64encode(data).decode()


def strings(*items):
    parts = [len(items).to_bytes(4, "little")]
    for item in items:
        parts += [len(item).to_bytes(4, "little"), item]
    return "base64:" + text(b"".join(parts))


VLEN = [{"id": "vlen-utf8"}]
ROW = np.array([(7, 1.5)], [("a", "<i4"), ("b", "<f8")])
FOREIGN = {
    "compound": (([["a", "<i4"], ["b", "<f8"]], text(ROW.tobytes())), ROW[[0] * 6]),
    "compound of zeros": (([["a", "<i4"], ["b", "<f8"]], 0), np.zeros(6, ROW.dtype)),
    "bytes": (("|S3", text(b"abc")), np.array([b"abc"] * 6)),
    "text": (("|O", "abc", VLEN), np.array([b"abc"] * 6, object)),
    "text in JSON": (("|O", "abc", [{"id": "json2"}]), np.array([b"abc"] * 6, object)),
    "no text": (("|O", "", VLEN), np.array([b""] * 6, object)),
    "UTF-32": (("<U3", "abc"), np.array([b"abc"] * 6, object)),
    "nothing said": (("<f8", None), np.zeros(6)),
    "a number": (("<f8", "-Infinity"), np.full(6, -np.inf)),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_of_foreign_documents(kind):
    arguments, expected = FOREIGN[kind]
    with lb.open(foreign(*arguments)) as file:
        assert np.array_equal(file["x"][:], expected)


def test_text_beside_a_missing_chunk():
    with lb.open(foreign("|O", "abc", VLEN, _0=strings(b"x", b"y", b"z"))) as file:
        assert file["x"].asstr()[:].tolist() == ["x", "y", "z", "abc", "abc", "abc"]


@pytest.mark.parametrize("fill", [None, 0, 5])
def test_text_without_a_fill_value_beside_a_missing_chunk_is_refused(fill):
    with lb.open(foreign("|O", fill, VLEN, _0=strings(b"x", b"y", b"z"))) as file:
        assert file["x"].shape == (6,)
        with pytest.raises(lb.DocumentError, match=r"/x: .*missing"):
            file["x"][:]


@pytest.mark.parametrize(
    ("dtype", "fill"), [("|S3", text(b"a\0b")), ([["a", "<i4"]], text(b"12345")), ([["a", "<i4"]], "?"), ("<i2", "x")]
)
def test_one_that_cannot_be_is_an_error(dtype, fill):
    with pytest.raises(lb.DocumentError, match="/x: the fill value"):
        lb.open(foreign(dtype, fill))


@pytest.mark.parametrize("options", [{}, {"prefer": "annotations"}], ids=["mounted", "by annotations"])
@pytest.mark.parametrize("chunked", [False, True])
def test_what_is_never_filled_is_zeros(chunked, options, tmp_path):
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_fill_value(np.array(7, "i4"))
        create.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        if chunked:
            create.set_chunk((400,))
        space = h5py.h5s.create_simple((1000,))
        dataset = h5py.Dataset(h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, space, create))
        if chunked:
            dataset[400:800] = np.arange(400)
    document = write_document(source)
    assert json.loads(document.read_text())["refs"]["x/.zarray"]["fill_value"] == 0
    with h5py.File(source) as expected, lb.open(document, **options) as actual:
        assert not expected["x"][:400].any()
        assert compare_files(expected, actual, storage=not options) == []
        assert actual["x"].fillvalue == 7
