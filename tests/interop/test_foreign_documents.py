"""Documents by LINDI, kerchunk and VirtualiZarr (scripts/make_foreign_documents) open as the file they were made of."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb

DATA = Path(__file__).parents[1] / "data" / "foreign"
OPENINGS = ["lb.open", "hdf5_file"]


def opened(how, document):
    if how == "lb.open":
        return lb.open(document)
    return h5py.File(lb.hdf5_file(document))


def assert_same_values(expected, actual):
    """Equal as values; bytes and text of strings alike, as programs write down no more."""
    assert (actual.shape, actual.dtype.kind) == (expected.shape, expected.dtype.kind)
    if expected.dtype.names:
        for name in expected.dtype.names:
            assert_same_values(expected[name], actual[name])
    elif expected.dtype.kind == "O":
        for one, other in zip(np.ravel(expected), np.ravel(actual), strict=True):
            assert isinstance(one, h5py.Reference) == isinstance(other, h5py.Reference)
            assert isinstance(one, h5py.Reference) or one == other
    else:
        assert expected.dtype.itemsize == actual.dtype.itemsize
        assert np.array_equal(expected, actual, equal_nan=expected.dtype.kind in "fc")


def names_of(root):
    found = []
    root.visititems(lambda name, thing: found.append(name))
    return sorted(found)


@pytest.mark.parametrize("how", OPENINGS)
def test_a_document_of_lindi(how):
    with h5py.File(DATA / "source.h5") as source, opened(how, DATA / "source.lindi.json") as file:
        assert names_of(source) == names_of(file)
        for name in names_of(source):
            thing = source[name]
            assert type(thing).__name__ == type(file[name]).__name__
            if isinstance(thing, h5py.Dataset) and not (name == "many" and how == "hdf5_file"):
                assert_same_values(np.asarray(thing[()]), np.asarray(file[name][()]))
        for one, other in zip(source["refs"][:], file["refs"][:], strict=True):
            assert source[one].name == file[other].name
        assert file[file["links"][1]["what"]].name == "/small"
        assert file[file["group"].attrs["about"]].name == "/small"
        assert file.get("chain", getlink=True).path == "/soft/deep"
        assert np.array_equal(file["chain/values"][:], source["chain/values"][:])
        for key, value in source.attrs.items():
            assert np.array_equal(np.asarray(value), np.asarray(file.attrs[key]), equal_nan=key in ("nan", "floats"))
            assert type(value) is type(file.attrs[key]), key
        assert file["gzip"].chunks == (20, 50)
        assert (file["gzip"].compression, file["gzip"].shuffle) == ("gzip", True)
        assert file["missing"].fillvalue == -9
        assert file["split"].chunks is None


def test_what_lindi_only_links_to_is_no_fill_value_under_plain_h5py():
    with opened("hdf5_file", DATA / "source.lindi.json") as file:
        with pytest.raises(lb.DocumentError, match="/many: its values are not in the document"):
            file["many"][5]
        assert file["many"].id.get_num_chunks() == 40  # its index can be looked at


@pytest.mark.parametrize("how", OPENINGS)
def test_a_document_of_kerchunk(how):
    """What kerchunk keeps: it drops links, compounds and references, and loses scalar strings."""
    with h5py.File(DATA / "source.h5") as source, opened(how, DATA / "source.kerchunk.json") as file:
        kept = set(names_of(file))
        assert set(names_of(source)) - kept == {"rows", "links"}
        for name in kept - {"refs", "title"}:
            thing = source[name]
            if isinstance(thing, h5py.Dataset):
                assert_same_values(np.asarray(thing[()]), np.asarray(file[name][()]))
        assert np.isnan(file.attrs["nan"])
        with pytest.raises(lb.DocumentError, match=r"/title: .*left them out"):
            file["title"][()]


@pytest.mark.parametrize("program", ["kerchunk", "virtualizarr"])
@pytest.mark.parametrize("how", OPENINGS)
def test_arrays_over_named_dimensions(how, program):
    with h5py.File(DATA / "netcdf.h5") as source, opened(how, DATA / f"netcdf.{program}.json") as file:
        assert sorted(file) == sorted(source)
        for name in source:
            assert np.array_equal(source[name][()], file[name][()])
        assert file["packed"].attrs["units"] == "m"
        assert file["packed"].attrs["_ARRAY_DIMENSIONS"].tolist() == ["time", "x"]


def test_a_document_of_zarr_3(tmp_path):
    """The same chunks as VirtualiZarr's manifests name them in Zarr v3."""
    shutil.copy(DATA / "netcdf.h5", tmp_path)
    with h5py.File(DATA / "netcdf.h5") as source:
        expected, info = source["packed"][()], []
        source["packed"].id.chunk_iter(info.append)
    codecs = [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}},
        {"name": "numcodecs.zlib", "configuration": {"level": 4}},
    ]
    array = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [40, 100],
        "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10, 50]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": codecs,
        "attributes": {"units": "m"},
    }
    refs = {
        "zarr.json": json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {"title": "t"}}),
        "packed/zarr.json": json.dumps(array),
        "odd/zarr.json": json.dumps({**array, "codecs": [{"name": "sharding_indexed", "configuration": {}}]}),
        "odd/c/0/0": ["netcdf.h5", 0, 10],
    }
    for chunk in info:
        key = "/".join(str(o // c) for o, c in zip(chunk.chunk_offset, (10, 50), strict=True))
        refs[f"packed/c/{key}"] = ["netcdf.h5", chunk.byte_offset, chunk.size]
    (tmp_path / "v3.json").write_text(json.dumps({"version": 1, "refs": refs}))
    with lb.open(tmp_path / "v3.json") as file:
        assert np.array_equal(file["packed"][()], expected)
        assert file["packed"].attrs["units"] == "m"
        assert file.attrs["title"] == "t"
        with pytest.raises(lb.DocumentError, match=r"/odd: .*'sharding_indexed'"):
            file["odd"][0, 0]


def write_refs(folder, arrays, data):
    """A document over the file ``data.bin`` of arrays (shape, chunks, dtype, filters, chunks by key)."""
    (folder / "data.bin").write_bytes(data)
    refs = {".zgroup": {"zarr_format": 2}}
    for name, (shape, chunks, dtype, filters, found) in arrays.items():
        refs[f"{name}/.zarray"] = {
            "zarr_format": 2,
            "shape": shape,
            "chunks": chunks,
            "dtype": dtype,
            "fill_value": None,
            "order": "C",
            "filters": filters,
            "compressor": None,
        }
        refs |= {f"{name}/{key}": value for key, value in found.items()}
    (folder / "a.json").write_text(json.dumps({"version": 1, "refs": refs}))
    return folder / "a.json"


@pytest.mark.parametrize("how", OPENINGS)
def test_a_short_last_chunk_is_never_made_up_of_what_follows(how, tmp_path):
    numbers = np.arange(40, dtype="<i4")
    found = {"0": ["data.bin", 80, 40], "1": ["data.bin", 0, 20]}  # not one block, so chunked; 5 of 10 are in the last
    whole = {"0": ["data.bin", 0, 40], "1": ["data.bin", 40, 20]}
    arrays = {"chunked": ([15], [10], "<i4", None, found), "block": ([15], [10], "<i4", None, whole)}
    with opened(how, write_refs(tmp_path, arrays, numbers.tobytes())) as file:
        assert file["chunked"].chunks == (10,)
        assert file["chunked"][:].tolist() == [*range(20, 30), *range(5)]
        assert file["block"].chunks is None
        assert file["block"][:].tolist() == list(range(15))


@pytest.mark.parametrize("how", OPENINGS)
def test_codecs_that_hdf5_does_not_have_are_decoded_when_the_dataset_is_opened(how, tmp_path):
    import numcodecs

    numbers = np.arange(2000, dtype="<i4")
    delta, packed = {"id": "delta", "dtype": "<i4"}, {"id": "gzip", "level": 3}
    pieces = [
        bytes(numcodecs.GZip(3).encode(numcodecs.Delta("<i4").encode(numbers[k : k + 500])))
        for k in range(0, 2000, 500)
    ]
    starts = np.cumsum([0, *map(len, pieces)])
    found = {str(k): ["data.bin", int(starts[k]), len(piece)] for k, piece in enumerate(pieces)}
    odd = {"0": ["data.bin", 0, 5]}
    arrays = {
        "x": ([2000], [500], "<i4", [delta, packed], found),
        "huge": ([1 << 31], [1 << 31], "|i1", [packed], odd),
        "wrong": ([1], [1], "<i4", [packed], odd),
    }
    document = write_refs(tmp_path, {"x": arrays["x"]}, b"".join(pieces))
    with opened(how, document) as file:
        assert np.array_equal(file["x"][:], numbers)
    with lb.open(write_refs(tmp_path, arrays, b"".join(pieces))) as file:
        with pytest.raises(lb.DocumentError, match=r"/huge: .*'gzip'"):
            file["huge"][0]
        with pytest.raises(lb.DocumentError, match="/wrong: chunk 0"):
            file["wrong"]


@pytest.mark.parametrize("how", OPENINGS)
def test_chunks_in_text_among_references(how, tmp_path):
    """As kerchunk writes small chunks: more of them than a node of the chunk index holds, and before the references."""
    numbers = np.arange(3000, dtype="<i4")
    text = {str(k): "base64:" + base64.b64encode(numbers[10 * k : 10 * k + 10].tobytes()).decode() for k in range(250)}
    found = {str(k): ["data.bin", 40 * (k ^ 1), 40] for k in range(250, 300)}
    expected = numbers.reshape(300, 10)[[k if k < 250 else k ^ 1 for k in range(300)]].reshape(-1)
    arrays = {"x": ([3000], [10], "<i4", None, text | found)}
    with opened(how, write_refs(tmp_path, arrays, numbers.tobytes())) as file:
        assert np.array_equal(file["x"][:], expected)


@pytest.mark.parametrize("how", OPENINGS)
def test_missing_chunks_among_text_are_the_fill_value(how, tmp_path):
    text = {"1": "base64:" + base64.b64encode(np.arange(10, dtype="<i4").tobytes()).decode()}
    path = write_refs(tmp_path, {"x": ([30], [10], "<i4", None, text)}, b"")
    path.write_text(path.read_text().replace('"fill_value": null', '"fill_value": -9'))
    with opened(how, path) as file:
        assert file["x"][:].tolist() == [-9] * 10 + list(range(10)) + [-9] * 10


def test_several_sources_are_read_in_one_wave_and_opening_asks_none_of_them(tmp_path):
    numbers = np.arange(4000, dtype="<i4")
    with RangeServer() as server, RangeServer() as other:
        servers = [server, other]
        urls = [s.add(f"part{k}.bin", numbers[k * 2000 : (k + 1) * 2000].tobytes()) for k, s in enumerate(servers)]
        found = {str(k): [f"{{{{p{k // 10}}}}}", k % 10 * 800, 800] for k in range(20)}
        path = write_refs(tmp_path, {"x": ([4000], [200], "<i4", None, found)}, b"")
        document = json.loads(path.read_text()) | {"templates": {f"p{k}": url for k, url in enumerate(urls)}}
        with lb.open(json.dumps(document).encode()) as file:
            assert file["x"].shape == (4000,)
            file.visititems(lambda name, thing: None)
            assert [s.requests for s in servers] == [0, 0]
            assert np.array_equal(file["x"][1900:2100], numbers[1900:2100])
            assert [s.waves() for s in servers] == [1, 1]
            assert np.array_equal(file["x"][:], numbers)
            assert file._file_object.misses == 0


def test_a_document_of_lindi_over_http():
    with RangeServer() as server, h5py.File(DATA / "source.h5") as source:
        server.add("source.h5", DATA / "source.h5")
        address = server.add("source.lindi.json", DATA / "source.lindi.json")
        with lb.open(address) as file:
            list(file.values())
            assert not [r for r in server.log if r.path.endswith(".h5")]
            before = server.requests
            assert np.array_equal(file["gzip"][10:50, 20:80], source["gzip"][10:50, 20:80])
            assert server.requests > before
            assert server.waves() <= 4  # the document (two at the most), and one for the slice
            assert np.array_equal(file["many"][100:300], source["many"][100:300])
            lb.prefetch(file["group"])
            before = server.requests
            assert np.array_equal(file["group/deep/values"][:], source["group/deep/values"][:])
            assert server.requests == before


def test_a_rebuilt_file_travels(tmp_path):
    import pickle

    for name in ("source.h5", "source.lindi.json"):
        shutil.copy(DATA / name, tmp_path)
    with lb.open(tmp_path / "source.lindi.json") as file:
        copy = pickle.loads(pickle.dumps(file["gzip"]))
        assert np.array_equal(copy[:], file["gzip"][:])
        copy.file.close()


def test_a_source_elsewhere(tmp_path):
    shutil.copy(DATA / "source.lindi.json", tmp_path)
    with pytest.raises(lb.SourceError), lb.open(tmp_path / "source.lindi.json") as file:
        file["gzip"][:]
    for source in (DATA / "source.h5", {"source.h5": str(DATA / "source.h5")}):
        with lb.open(tmp_path / "source.lindi.json", source=source) as file:
            assert file["gzip"].shape == file["gzip"][:].shape
            assert file["many"][7] == 7


def test_putting_in_a_chunk_is_one_write_of_its_payload_and_no_byte_of_it(tmp_path):
    """Memory does not grow with the data: 4,000 chunks of 1 MB, and indexes of a few hundred KB."""
    found = {str(k): ["data.bin", k << 20, 1 << 20] for k in range(0, 4000) if k != 7}
    document = write_refs(tmp_path, {"x": ([4000 << 20], [1 << 20], "|u1", None, found)}, b"")
    file = lb.hdf5_file(document)
    memory = file._virtual
    assert len(memory._pages) * 16384 < 4 << 20
    assert memory.segment(0) is None
    assert 3999 << 20 < file.size < 4100 << 20
    assert sum(len(table.start) for table in memory._tables) == 3999
    file.close()
