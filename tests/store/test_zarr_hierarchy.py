"""Links, names, attributes and fill values of Zarr groups, where more can be said than 'as h5py says'."""

from __future__ import annotations

import json
import pickle
import warnings

import h5py
import numpy as np
import pytest

import lindi_bridge as lb
from lindi_bridge.store import hierarchy


def group_of(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lb.IncompleteWarning)
        return lb.open_zarr(str(path), **options)


def problems(group):
    return {p.path: p.kind for p in group.store.problems}


# -- links ------------------------------------------------------------------------------------------------------------


def test_cycles_end(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f["a/b/x"] = np.arange(3)
        f["a/b/up"] = f["a"]  # a hard link
        f["a/b/root"] = h5py.SoftLink("/")
        f["a/b/side"] = h5py.SoftLink("/c")
        f["c/back"] = h5py.SoftLink("/a")
        f["itself"] = h5py.SoftLink("itself")
    group = group_of(path)
    assert problems(group) == {
        **{"/a/b/up": "link", "/a/b/root": "link", "/itself": "link"},
        **{"/a/b/side/back": "link", "/c/back/b/up": "link", "/c/back/b/root": "link", "/c/back/b/side": "link"},
    }
    assert [name for name, _ in group["c"].members(max_depth=None)] == ["back", "back/b", "back/b/x"]
    np.testing.assert_array_equal(group["c/back/b/x"][:], np.arange(3))


def test_links_cannot_multiply_without_end(tmp_path, monkeypatch):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        inner = f.create_group("0")
        inner["x"] = 1
        for level in range(1, 40):
            outer = f.create_group(str(level))
            outer["left"] = outer["right"] = inner
            inner = outer
    monkeypatch.setattr(hierarchy, "_MOST_ALIASES", 1000)
    group = group_of(path)
    assert len(group.store.hierarchy.nodes) == 1000 + 42  # the root, forty groups, and a dataset
    assert "link" in problems(group).values()


def test_links_to_other_files(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f["inside/x"] = np.arange(5)
        f["inside"].attrs["of"] = "other"
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f["there"] = h5py.ExternalLink("other.h5", "/inside")
        f["value"] = h5py.ExternalLink("other.h5", "/inside/x")
        f["nothing"] = h5py.ExternalLink("other.h5", "/no")
        f["nowhere"] = h5py.ExternalLink("no.h5", "/x")
        f["through"] = h5py.SoftLink("/there/x")
    lb.index(str(path)).save(str(tmp_path / "a.json"))
    for name in ("a.h5", "a.json"):
        group = group_of(tmp_path / name)
        assert problems(group) == {"/nothing": "link", "/nowhere": "link"}
        assert group["there"].attrs == {"of": "other"}
        for alias in ("there/x", "value", "through"):
            np.testing.assert_array_equal(group[alias][:], np.arange(5))
        # One array of it, opened on its own as a worker does.
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(group["through"]))[1:3], [1, 2])
        group.store.close()


def test_an_alias_of_a_dataset_is_read_as_the_dataset(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=np.arange(10), chunks=(3,), compression="gzip")
        f["g/hard"], f["g/soft"] = f["x"], h5py.SoftLink("../x")
        f["g/relative"] = h5py.SoftLink("hard")
    group = group_of(path)
    assert problems(group) == {"/g/soft": "link"}  # HDF5 knows no '..'
    for name in ("x", "g/hard", "g/relative"):
        np.testing.assert_array_equal(group[name][:], np.arange(10))


# -- fill values ------------------------------------------------------------------------------------------------------

ODD_NAN = np.array([0x7FF80000_DEADBEEF], "<u8").view("<f8")[0]
RECORD = np.dtype([("a", "<i4"), ("b", "<f8")])


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("<f8", -0.0),
        ("<f8", np.nan),
        ("<f8", ODD_NAN),
        ("<f4", np.inf),
        (">f8", -np.inf),
        ("<f8", 5e-324),
        ("<f4", np.float32(0.1)),
        (">i2", -7),
        ("<u8", 2**64 - 1),
        ("<i8", -(2**63)),
        ("<c16", complex(np.nan, -0.0)),
        ("<f2", 1.5),
        ("S5", b"abc"),
        ("?", True),
        (RECORD, np.array((3, np.nan), RECORD)[()]),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["chunked", "contiguous"])
@pytest.mark.parametrize("when", ["FILL_TIME_IFSET", "FILL_TIME_ALLOC", "FILL_TIME_NEVER"])
def test_values_that_were_never_written(tmp_path, dtype, fill, layout, when):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        options = {"chunks": (4,), "compression": "gzip"} if layout == "chunked" else {}
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_fill_time(getattr(h5py.h5d, when))
        dataset = f.create_dataset("x", (10,), dtype, fillvalue=fill, dcpl=create, **options)
        if layout == "chunked":
            dataset[5] = dataset.fillvalue
        expected = dataset[:]
    lb.index(str(path)).save(str(tmp_path / "a.json"))
    for name in ("a.h5", "a.json"):
        group = group_of(tmp_path / name)
        found = group["x"][:]
        native = expected.astype(expected.dtype.newbyteorder("="))
        assert found.astype(found.dtype.newbyteorder("=")).tobytes() == native.tobytes()
        # Also for whoever takes the metadata as text, in which there is one NaN only.
        text = json.loads(group.store._text("x"))
        assert text["fill_value"] is not None
        group.store.close()


def test_an_undefined_fill_value(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_chunk((4,))
        create.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        h5py.h5d.create(f.id, b"x", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((10,)), dcpl=create)
        expected = f["x"][:]
    np.testing.assert_array_equal(group_of(path)["x"][:], expected)


# -- chunks that are not what the pipeline says -----------------------------------------------------------------------


def test_chunks_that_skip_filters(tmp_path):
    """Zarr has one pipeline for all chunks, so those that skipped a part of it are encoded anew."""
    path = tmp_path / "a.h5"
    values = np.arange(60, dtype="<i4")
    with h5py.File(path, "w") as f:
        dataset = f.create_dataset("x", (60,), "<i4", chunks=(20,), compression="gzip", shuffle=True)
        dataset[20:] = values[20:]
        dataset.id.write_direct_chunk((0,), values[:20].tobytes(), filter_mask=0b11)
    lb.index(str(path)).save(str(tmp_path / "a.json"))
    for name in ("a.h5", "a.json"):
        np.testing.assert_array_equal(group_of(tmp_path / name)["x"][:], values)


def test_a_damaged_chunk_is_an_error(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=np.arange(60), chunks=(20,), compression="gzip")
        f.create_dataset("y", data=np.arange(60), chunks=(20,), compression="lzf")
        for name in "xy":
            f[name].id.write_direct_chunk((20,), b"no compressed data at all")
    group = group_of(path)
    np.testing.assert_array_equal(group["x"][:20], np.arange(20))
    np.testing.assert_array_equal(group["y"][40:], np.arange(40, 60))
    with pytest.raises(Exception, match=r"decompress|header"):
        group["x"][:]
    with pytest.raises(lb.SourceError, match=r"/y, chunk \(1,\)"):
        group["y"][:]


def test_a_string_that_is_not_utf8_is_an_error(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f["x"] = np.array([b"\xff", b"fine"], h5py.string_dtype("utf-8"))
    with pytest.raises(lb.SourceError, match=r"/x, chunk \(0,\).*not UTF-8"):
        group_of(path)["x"][:]


# -- attributes -------------------------------------------------------------------------------------------------------


def test_references_are_paths(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f["obs/__categories/kind"] = ["a", "b"]
        f["obs/kind"] = np.array([0, 1, 0], "i1")
        # As anndata 0.7 writes it, and reads it relative to the group.
        f["obs/kind"].attrs["categories"] = f["obs/__categories/kind"].ref
        f["obs/kind"].attrs["other"] = f["obs/__categories/kind"].ref
        f["obs/kind"].attrs["several"] = np.array([f["obs"].ref, f["obs/kind"].ref], h5py.ref_dtype)
        f["all"] = np.array([f["obs"].ref, f["obs/kind"].ref, h5py.Reference()], h5py.ref_dtype)
    group = group_of(path)
    assert group["obs/kind"].attrs == {
        "categories": "__categories/kind",
        "other": "/obs/__categories/kind",
        "several": ["/obs", "/obs/kind"],
    }
    assert group["all"][:].tolist() == ["/obs", "/obs/kind", ""]
    assert group["all"].attrs["_HDF5_DTYPE"] == {"reference": "object"}
    assert group[str(group["all"][1])].shape == (3,)


def test_names_that_are_not_utf8(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f[b"\xff"] = np.arange(3)
        space = h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5a.create(f[b"\xff"].id, b"\xfe", h5py.h5t.STD_I8LE, space).write(np.array(5, "i1"))
    group = group_of(path)
    assert problems(group) == {}
    assert group["\udcff"].attrs == {"\udcfe": 5}
    for array in (group["\udcff"], pickle.loads(pickle.dumps(group["\udcff"]))):
        np.testing.assert_array_equal(array[:], np.arange(3))
    assert json.loads(group.store._text(""))["consolidated_metadata"]["metadata"].keys() == {"\udcff"}


def test_a_file_without_a_readable_root(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as f:
        f["x"] = 1
    data = bytearray(path.read_bytes())
    place = data.index(b"OHDR")  # of the root group; its checksum is wrong then
    data[place + 10] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(lb.NotHDF5Error, match="root group"):
        lb.open_zarr(str(path))


def test_what_zarr_has_no_type_for_says_what_it_is(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f["colour"] = np.array([0, 1], h5py.enum_dtype({"RED": 0, "GREEN": 1}, "i1"))
        ragged = f.create_dataset("ragged", (2,), h5py.vlen_dtype("f4"))
        ragged[0], ragged[1] = [1.5, np.nan], []
        f["empty"] = h5py.Empty("f4")
        f["no rows"] = h5py.Empty(np.dtype([("name", h5py.string_dtype()), ("n", ">i4")]))
    group = group_of(path)
    assert group["no rows"].shape == (0,)
    assert group["colour"][:].tolist() == [0, 1]
    assert group["colour"].attrs["_HDF5_DTYPE"] == {"enum": {"GREEN": 1, "RED": 0}, "base": "|i1"}
    assert [json.loads(text) for text in group["ragged"][:]] == [[1.5, "NaN"], []]
    assert group["ragged"].attrs["_HDF5_DTYPE"] == {"vlen": "<f4"}
    assert group["empty"].shape == (0,)
    assert group["empty"].attrs == {"_HDF5_EMPTY": True}


def test_a_table_with_too_many_strings_to_measure(tmp_path):
    path = tmp_path / "a.h5"
    dtype = np.dtype([("name", h5py.string_dtype()), ("n", "i4")])
    with h5py.File(path, "w") as f:
        f.create_dataset("large", (200_000,), dtype, chunks=(1000,))
        f.create_dataset("small", data=np.array([(b"a\xc3\xa9", 1), (b"abc", 2)], dtype))
    with pytest.warns(lb.IncompleteWarning, match=r"1 things.*/large: a table of"):
        group = lb.open_zarr(str(path))
    assert problems(group) == {"/large": "too_large"}
    assert group["small"][:].tolist() == [("aé", 1), ("abc", 2)]


def test_names_that_zarr_does_not_have(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        for name in ("zarr.json", "a\\b", "..", "fine", "c", ".zgroup", "c d"):
            f.require_group("g")[name] = 1
    group = group_of(path)
    assert set(problems(group)) == {"/g/zarr.json", "/g/a\\b", "/g/.."}
    assert list(group["g"].keys()) == [".zgroup", "c", "c d", "fine"]


def test_a_document_of_another_program(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=np.arange(100), chunks=(10,), compression="gzip")
        f["words"] = ["a", "b"]
        f["n"] = 5
        f["lzf"] = f.create_dataset("y", data=np.arange(3000), chunks=(100,), compression="lzf")
    lb.index(str(path)).save(str(tmp_path / "a.json"))
    group = group_of(tmp_path / "a.json", prefer="annotations")
    assert problems(group) == {}
    with h5py.File(path) as f:
        for name in ("x", "n", "lzf", "y"):
            np.testing.assert_array_equal(group[name][...], f[name][...])
        assert group["words"][:].tolist() == ["a", "b"]
    group.store.close()
