"""Files on a server: what is asked of it, counted at the server; values as h5py reads them from the local file.

Looking at a document asks nothing. A selection is one wave: every request that it needs is under way before the first
is answered. The server makes sure of that by holding its answers back until all of them have come (``group``).
"""

from __future__ import annotations

import json
import warnings
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from builders.compare import Raised, attempt, compare_files
from builders.exact import builtin_error, value_difference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers.range_server import RangeServer

import lindi_bridge as lb
from lindi_bridge.indexer import embed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # anndata warns of what its own dependencies deprecate
    anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")
sparse = pytest.importorskip("scipy.sparse")

SLACK = 64 * 1024
PAGE = 4096
IN_FLIGHT = 64
ROWS, COLUMNS = 1500, 600


def _table(length: int, random: np.random.Generator) -> np.ndarray:
    table = np.zeros(length, [("x", "i4"), ("y", "f8")])
    table["x"] = random.integers(0, 1000, length)
    table["y"] = random.random(length)
    return table


def _names(count: int) -> list[str]:
    return [f"name {i:06d} {'ü' * (i % 23)}" for i in range(count)]


def make_hdf5(path: Path) -> None:
    """Every layout, most of them over 1 MB."""
    random = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        file.create_dataset("gzip", data=random.integers(0, 1000, 400_000), chunks=(20_000,), compression="gzip")
        file.create_dataset("tiles", data=random.random((600, 600)), chunks=(100, 100))
        file.create_dataset("rows", data=random.random((ROWS, COLUMNS)))
        file.create_dataset("cube", data=random.random((60, 60, 60)))
        file.create_dataset("table", data=_table(150_000, random), chunks=(10_000,), shuffle=True, compression="lzf")
        text = h5py.string_dtype()
        file.create_dataset("strings", data=_names(40_000), dtype=text, chunks=(5000,), compression="gzip")
        file.create_dataset(
            "strings lzf", data=_names(40_000), dtype=text, chunks=(5000,), compression="lzf", shuffle=True
        )
        file.create_dataset("strings contiguous", data=_names(40_000), dtype=text)
        file.create_dataset("few strings", data=_names(2000), dtype=text, chunks=(500,))
        file.create_dataset("few strings contiguous", data=_names(2000), dtype=text)
        ragged = file.create_dataset("ragged", (20_000,), h5py.vlen_dtype("i4"), chunks=(1000,))
        ragged[:] = np.array([np.arange(i % 60, dtype="i4") for i in range(20_000)], dtype=object)
        file.create_dataset("sparse", (400_000,), "f8", chunks=(20_000,), fillvalue=2.5)
        file["sparse"][100_000:100_010] = 1
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((100,))
        compact = h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_INT32, space, dcpl=create)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(100, dtype="i4"))
        file["scalar"] = "a scalar"
        file["group/deep/values"] = random.random(30_000)
        file["group/deep/chunked"] = file["gzip"][:100_000]
        file["group/soft"] = h5py.SoftLink("/gzip")
        file["group"].attrs["note"] = "an attribute"
        file["group"].attrs["array"] = np.arange(2000)
        file["group"].attrs["reference"] = file["tiles"].ref
        file["pointers"] = np.array([file["gzip"].ref, file["group"].ref], h5py.ref_dtype)
        file["tiles"].attrs["region"] = file["rows"].regionref[3:9, 5]
        file["axis"] = np.arange(600.0)
        file["axis"].make_scale("axis")
        file["tiles"].dims[1].attach_scale(file["axis"])


def make_h5ad(path: Path) -> None:
    """A file by anndata itself: gzip CSR in chunks, categoricals, strings, a contiguous embedding, uns."""
    random = np.random.default_rng(2)
    cells, genes = 12_000, 300
    obs = pandas.DataFrame(index=[f"cell-{i:06d}-of-the-first-batch" for i in range(cells)])
    obs["type"] = pandas.Categorical(random.choice(["B", "T", "NK"], cells))
    obs["note"] = [f"nöte number {i % 997} of this cell" for i in range(cells)]
    obs["score"] = random.random(cells)
    data = anndata.AnnData(
        sparse.random(cells, genes, 0.05, "csr", "f4", random),
        obs=obs,
        var=pandas.DataFrame({"length": np.arange(genes)}, index=[f"gene {i}" for i in range(genes)]),
        uns={"a text": "of some length", "numbers": np.arange(10), "nested": {"x": 1.5, "list": ["a", "b"]}},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.write_h5ad(path, compression="gzip")
    with h5py.File(path, "a") as file:
        umap = file["obsm"].create_dataset("X_umap", data=random.random((cells, 2)))
        umap.attrs["encoding-type"], umap.attrs["encoding-version"] = "array", "0.2.0"


MAKERS = {"a.h5": make_hdf5, "a.h5ad": make_h5ad}


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The two files, made once."""
    folder = tmp_path_factory.mktemp("remote")
    for name, make in MAKERS.items():
        make(folder / name)
    return {name: folder / name for name in MAKERS}


class Remote:
    """A file on a server, its document, and the local file for comparison."""

    def __init__(self, server: RangeServer, path: Path, document: Path) -> None:
        self.server = server
        self.path = path
        self.url = server.add(path.name, path)
        self.document = document
        lb.index(self.url).save(str(document))
        server.reset()

    def open(self, **options: Any) -> Any:
        """The document, opened anew; the server's counters start at nothing."""
        self.server.reset()
        return lb.open(str(self.document), **options)


@pytest.fixture(scope="session")
def server() -> Iterator[RangeServer]:
    with RangeServer() as running:
        yield running


@pytest.fixture(scope="session")
def remotes(server: RangeServer, files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Remote]:
    folder = tmp_path_factory.mktemp("documents")
    return {name: Remote(server, path, folder / f"{name}.lindi.json") for name, path in files.items()}


@pytest.fixture(params=list(MAKERS))
def remote(request: pytest.FixtureRequest, remotes: dict[str, Remote]) -> Remote:
    return remotes[request.param]


# -- looking asks nothing -----------------------------------------------------------------------------------------


def _facts(obj: Any) -> list[Any]:
    """What can be told of one object without its values."""
    facts: list[Any] = [type(obj).__name__, obj.name, len(obj.attrs), sorted(obj.attrs), [*obj.attrs.values()]]
    facts.append({name: (obj.attrs.get_id(name).shape, obj.attrs.get_id(name).dtype) for name in obj.attrs})
    if isinstance(obj, h5py.Dataset):
        facts += [obj.shape, obj.dtype, obj.chunks, obj.compression, obj.compression_opts, obj.maxshape, obj.nbytes]
        facts += [obj.shuffle, obj.fillvalue, obj.size, obj.is_virtual, obj.external, obj.is_scale]
        facts += [[dim.label for dim in obj.dims], [[*dim.keys()] for dim in obj.dims], obj.id.get_storage_size()]
        if obj.chunks:
            facts.append(obj.id.get_num_chunks())
    else:
        facts += [list(obj), len(obj), [repr(obj.get(name, getlink=True))[:20] for name in obj]]
    return facts if isinstance(obj, h5py.File) else [*facts, repr(obj), str(obj)]


def _by_recursion(group: Any) -> list[Any]:
    facts = _facts(group)
    for name in group:
        child = group[name]
        facts.append(_by_recursion(child) if isinstance(child, h5py.Group) else _facts(child))
    return facts


def _visited(file: Any) -> list[Any]:
    facts: list[Any] = []
    file.visititems(lambda name, obj: facts.append((name, _facts(obj))))
    file.visit(facts.append)
    file.visititems_links(lambda name, link: facts.append((name, type(link).__name__)))
    return facts


def _by_items(group: Any) -> list[Any]:
    facts: list[Any] = [len(group)]
    for name, child in group.items():
        facts += [name, _by_items(child) if isinstance(child, h5py.Group) else _facts(child)]
    return [*facts, [child.name for child in group.values()], [*group.keys()], [*reversed(group)]]


def _references(file: Any) -> list[Any]:
    out: list[Any] = [repr(file[file.ref]), repr(file["/"].parent)]
    file.visititems(lambda name, obj: out.extend([file[obj.ref].name, obj.parent.name, obj.file == file, bool(obj)]))
    if "group" in file and "reference" in file["group"].attrs:
        region = file["tiles"].attrs["region"]
        out += [file[file["group"].attrs["reference"]].name, file[region].name, file["rows"].regionref.shape(region)]
        out += [[file[pointer].name for pointer in file["pointers"][()]], file["tiles"].dims[1]["axis"].name]
    return out


LOOKS: dict[str, Callable[[Any], Any]] = {
    "recursion": _by_recursion,
    "visit": _visited,
    "items": _by_items,
    "references": _references,
    "missing": lambda file: ["nope" in file, file.get("nope"), "group/nope" in file],
}


@pytest.mark.parametrize("look", LOOKS)
def test_looking_at_a_document_asks_nothing(remote: Remote, look: str) -> None:
    with remote.open() as file, h5py.File(remote.path) as local:
        found, expected = LOOKS[look](file), LOOKS[look](local)
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            assert repr(ours) == repr(theirs)
        assert remote.server.requests == 0
        assert file._file_object.misses == 0


@pytest.mark.parametrize("look", LOOKS)
def test_plain_h5py_over_the_file_object_asks_nothing(remote: Remote, look: str) -> None:
    remote.server.reset()
    with h5py.File(lb.hdf5_file(str(remote.document))) as file:
        LOOKS[look](file)
    assert remote.server.requests == 0


def test_showing_a_file_asks_nothing(remote: Remote) -> None:
    with remote.open() as file:
        assert remote.document.name in repr(file)
        html = file._repr_html_()
        assert all(name in html for name in file)
        dir(file)
        hash(file)
        assert remote.server.requests == 0


def test_a_document_on_the_server_is_all_that_is_read(remote: Remote) -> None:
    url = remote.server.add(remote.document.name, remote.document)
    remote.server.reset()
    with lb.open(url) as file:
        _by_recursion(file)
        assert {request.path for request in remote.server.log} == {f"/{remote.document.name}"}
        assert remote.server.waves() <= 2


def test_values_equal_the_local_file(remote: Remote) -> None:
    with remote.open() as file, h5py.File(remote.path) as local:
        assert compare_files(local, file) == []
        assert file._file_object.misses == 0


def test_the_hdf5_file_itself_without_a_document(remote: Remote) -> None:
    with lb.open(remote.url) as file, h5py.File(remote.path) as local:
        assert file.filename == remote.url
        assert compare_files(local, file) == []


# -- one selection, one wave -----------------------------------------------------------------------------------------

_mask = np.zeros((600, 600), np.bool_)
_mask[5, 5] = _mask[5, 6] = _mask[420, 3] = _mask[301, 590] = True

CHUNKED: dict[str, tuple[str, Any]] = {
    "first element": ("gzip", 0),
    "a negative index": ("gzip", -1),
    "a slice": ("gzip", np.s_[30_000:150_000]),
    "everything": ("gzip", ()),
    "ellipsis": ("gzip", ...),
    "a slice with a small step": ("gzip", np.s_[7:200_000:3]),
    "a slice with a large step": ("gzip", np.s_[::50_001]),
    "a list": ("gzip", [3, 5, 150_000, 399_999]),
    "an array": ("gzip", np.array([3, 5, 150_000, 399_999], "u4")),
    "a tuple of indices": ("gzip", ((3, 5, 150_000, 399_999),)),
    "a range": ("gzip", range(5, 399_999, 70_000)),
    "an array of rank 0": ("gzip", np.array(150_000)),
    "a mask": ("gzip", np.arange(400_000) % 90_001 == 5),
    "blocks": ("gzip", h5py.MultiBlockSlice(10, 100_000, 4, 7)),
    "a box": ("tiles", np.s_[150:350, 50:160]),
    "a row": ("tiles", 250),
    "a column": ("tiles", np.s_[:, 250]),
    "the last column": ("tiles", np.s_[..., -1]),
    "a list of rows": ("tiles", np.s_[[3, 250, 590], 100:200]),
    "a list of columns": ("tiles", np.s_[100:200, [3, 250, 590]]),
    "a mask over rows": ("tiles", np.s_[np.arange(600) % 250 == 3, 5]),
    "a mask over columns": ("tiles", np.s_[:, np.arange(600) % 250 == 3]),
    "a mask over all": ("tiles", _mask),
    "steps along both": ("tiles", np.s_[::201, 10::301]),
    "fields of a table": ("table", np.s_[15_000:40_000]),
    "one field": ("table", np.s_["y", 15_000:40_000]),
    "two fields": ("table", np.s_["x", "y", 15_000:40_000:3]),
    "unwritten chunks too": ("sparse", np.s_[50_000:300_000]),
}
CONTIGUOUS: dict[str, tuple[str, Any]] = {
    "everything": ("rows", ()),
    "a run of rows": ("rows", np.s_[100:220]),
    "the last row": ("rows", -1),
    "rows with a step": ("rows", np.s_[::100]),
    "a list of rows": ("rows", [1, 2, 3, 700, 1400]),
    "a mask over rows": ("rows", np.arange(ROWS) % 370 == 5),
    "part of some rows": ("rows", np.s_[[1, 700], 100:200]),
    "one element": ("rows", np.s_[700, 300]),
    "a plane": ("cube", np.s_[30]),
    "a plane across": ("cube", np.s_[:, 30]),
    "a box": ("cube", np.s_[10:40, 20:30, 5:7]),
    "deep": ("group/deep/values", np.s_[100:25_000:2]),
}
ACROSS: dict[str, tuple[str, Any]] = {
    "a column": ("rows", np.s_[:, 300]),
    "two columns": ("rows", np.s_[:, 300:302]),
    "columns with a step": ("rows", np.s_[:, ::100]),
    "a list of columns": ("rows", np.s_[:, [1, 300]]),
    "a column of some rows": ("rows", np.s_[100:400, 300]),
    "the last axis": ("cube", np.s_[:, :, 30]),
}
STRINGS: dict[str, tuple[str, Any]] = {
    "everything": ("strings", ()),
    "a slice": ("strings", np.s_[7000:18_000]),
    "a step": ("strings", np.s_[::9000]),
    "a list": ("strings", [3, 30_000]),
    "one": ("strings", 12_345),
    "everything, lzf": ("strings lzf", ()),
    "a list, lzf": ("strings lzf", [3, 30_000]),
    "everything, contiguous": ("strings contiguous", ()),
    "a slice, contiguous": ("strings contiguous", np.s_[7000:18_000]),
    "a step, contiguous": ("strings contiguous", np.s_[::9000]),
    "a list, contiguous": ("strings contiguous", [3, 30_000]),
    "one, contiguous": ("strings contiguous", 12_345),
    "arrays": ("ragged", np.s_[2500:7500]),
}


def _same(ours: Any, theirs: Any, file: Any = None, local: Any = None) -> bool:
    """Whether two values are the same; the files are needed where there are references."""
    return value_difference(theirs, ours, local, file) is None


def _read_in_one_wave(remote: Remote, read: Callable[[Any], Any]) -> Any:
    """Read twice: to count the requests, and with answers held back until all of them have come."""
    with h5py.File(remote.path) as local:
        expected = read(local)
    with remote.open() as file:
        assert _same(read(file), expected)
        count, client = remote.server.requests, file._file_object.reader.statistics
        assert file._file_object.misses == 0
        assert client.waves <= 1
        assert client.requests == count
        assert client.nbytes == remote.server.nbytes
        assert _same(read(file), expected)
        assert remote.server.requests == count, "reading again asks nothing"
    if not count:
        return expected
    assert count <= IN_FLIGHT, "more requests than can be in flight at one time are more than one wave"
    with remote.open() as file:
        remote.server.group = count
        try:
            assert _same(read(file), expected)
        finally:
            remote.server.group = 1
        assert remote.server.requests == count
        assert remote.server.waves() == 1
    return expected


def _touched_nbytes(dataset: h5py.Dataset, selection: Any) -> int:
    """Stored bytes of all chunks (contiguous: of all rows along the first axis) that hold a selected element."""
    indices: Any = selection if isinstance(selection, tuple) else (selection,)
    indices = tuple(item for item in indices if not isinstance(item, str))
    touched = np.zeros(dataset.shape, np.bool_)
    if any(isinstance(item, h5py.MultiBlockSlice) for item in indices):
        blocks = indices[0]
        start = blocks.start + blocks.stride * np.arange(blocks.count)
        indices = ((start[:, None] + np.arange(blocks.block)).ravel(),)
    touched[tuple(list(item) if isinstance(item, tuple | range) else item for item in indices)] = True
    if dataset.chunks is None:
        nbytes = dataset.nbytes // len(touched)
        rows = np.flatnonzero(touched.reshape(len(touched), -1).any(axis=1))
        # A hole of less than a page costs more to leave out than to read.
        return nbytes * sum(min(step, max(1, PAGE // nbytes)) for step in (1, *np.diff(rows)))
    infos = [dataset.id.get_chunk_info(k) for k in range(dataset.id.get_num_chunks())]
    return sum(
        info.size
        for info in infos
        if touched[tuple(slice(o, o + c) for o, c in zip(info.chunk_offset, dataset.chunks, strict=True))].any()
    )


@pytest.mark.parametrize("case", [*CHUNKED, *(f"contiguous: {name}" for name in CONTIGUOUS)])
def test_a_selection_is_one_wave_of_what_it_touches(remotes: dict[str, Remote], case: str) -> None:
    contiguous = case.removeprefix("contiguous: ")
    name, selection = CONTIGUOUS[contiguous] if contiguous != case else CHUNKED[case]
    remote = remotes["a.h5"]
    _read_in_one_wave(remote, lambda file: file[name][selection])
    with h5py.File(remote.path) as local:
        limit = 1.1 * _touched_nbytes(local[name], selection) + SLACK
    assert 0 < remote.server.nbytes <= limit


@pytest.mark.parametrize("case", ACROSS)
def test_across_contiguous_rows_too(remotes: dict[str, Remote], case: str) -> None:
    name, selection = ACROSS[case]
    remote = remotes["a.h5"]
    _read_in_one_wave(remote, lambda file: file[name][selection])
    with h5py.File(remote.path) as local:
        assert remote.server.nbytes <= 1.1 * _touched_nbytes(local[name], selection) + SLACK


@pytest.mark.parametrize("case", STRINGS)
def test_strings_of_a_large_dataset_are_one_wave(remotes: dict[str, Remote], case: str) -> None:
    name, selection = STRINGS[case]
    remote = remotes["a.h5"]
    _read_in_one_wave(remote, lambda file: file[name][selection])
    assert remote.server.requests > 0, "too small to tell anything"
    if name == "strings":
        expected = _read_in_one_wave(remote, lambda file: file[name].asstr()[selection])
        assert isinstance(expected, str) or isinstance(expected[0], str)


def _read_direct(dataset: Any, selection: Any) -> np.ndarray:
    out = np.zeros(dataset.shape, dataset.dtype)
    dataset.read_direct(out, selection, selection)
    return out


WAYS: dict[str, Callable[[Any], Any]] = {
    "np.asarray": lambda file: np.asarray(file["gzip"]),
    "np.array with a dtype": lambda file: np.array(file["tiles"], dtype="f4"),
    "np.asarray of a contiguous one": lambda file: np.asarray(file["rows"]),
    "np.sum": lambda file: np.sum(file["gzip"]),
    "arithmetic": lambda file: np.add(file["gzip"], 1),
    "read_direct": lambda file: _read_direct(file["gzip"], np.s_[30_000:90_000]),
    "read_direct of everything": lambda file: _read_direct(file["tiles"], None),
    "read_direct of rows": lambda file: _read_direct(file["rows"], np.s_[30:60]),
    "astype": lambda file: file["gzip"].astype("f4")[30_000:90_000],
    "astype and np.asarray": lambda file: np.asarray(file["tiles"].astype("f4")),
    "asstr": lambda file: file["strings"].asstr()[3000:9000],
    "asstr and np.asarray": lambda file: np.asarray(file["strings"].asstr()),
    "fields": lambda file: file["table"].fields("y")[30_000:90_000],
    "fields of several": lambda file: file["table"].fields(["x", "y"])[::50_000],
    "fields and np.asarray": lambda file: np.asarray(file["table"].fields("x")),
    "iteration": lambda file: np.array([row for _, row in zip(range(150), file["rows"], strict=False)]),
    "in a callback": lambda file: file.visititems(lambda name, obj: obj[:50_000] if name == "gzip" else None),
    "through a soft link": lambda file: file["group/soft"][30_000:90_000],
    "through a reference": lambda file: file[file["group"].attrs["reference"]][100:200, 100:200],
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_reading_is_one_wave(remotes: dict[str, Remote], way: str) -> None:
    _read_in_one_wave(remotes["a.h5"], WAYS[way])
    assert remotes["a.h5"].server.requests > 0


SMALL = ("few strings", "few strings contiguous", "compact", "scalar", "axis", "pointers")


@pytest.mark.parametrize("name", SMALL)
def test_small_values_ask_nothing(remotes: dict[str, Remote], name: str) -> None:
    remote = remotes["a.h5"]
    with remote.open() as file, h5py.File(remote.path) as local:
        assert _same(file[name][()], local[name][()], file, local)
        if file[name].shape:
            assert _same(file[name][1], local[name][1], file, local)
            assert _same(file[name][::2], local[name][::2], file, local)
        assert remote.server.requests == 0
        assert file._file_object.misses == 0
    with h5py.File(lb.hdf5_file(str(remote.document))) as file:
        file[name][()]
        assert remote.server.requests == 0


def test_small_elements_of_an_h5ad_ask_nothing(remotes: dict[str, Remote]) -> None:
    remote = remotes["a.h5ad"]
    with remote.open() as file, h5py.File(remote.path) as local:
        for path in ("var/_index", "var/length", "uns/nested/list", "uns/a text", "obs/type/categories"):
            leaf = f"{path}/values" if isinstance(local[path], h5py.Group) else path  # newer anndata: with a mask
            assert _same(file[leaf][()], local[leaf][()])
        assert remote.server.requests == 0


def test_missing_chunks_ask_nothing(remotes: dict[str, Remote]) -> None:
    remote = remotes["a.h5"]
    with remote.open() as file:
        assert (file["sparse"][200_000:] == 2.5).all()
        assert remote.server.requests == 0


@pytest.mark.parametrize(("name", "group"), [("a.h5", "group"), ("a.h5ad", "obs"), ("a.h5ad", "X"), ("a.h5ad", "/")])
def test_prefetch_is_one_wave_and_then_nothing_is_asked(remotes: dict[str, Remote], name: str, group: str) -> None:
    remote = remotes[name]
    with remote.open() as file, h5py.File(remote.path) as local:
        assert lb.prefetch(file[group]) > 0
        statistics = file._file_object.reader.statistics
        assert (statistics.waves, statistics.requests) == (1, remote.server.requests)
        assert 0 < remote.server.requests <= IN_FLIGHT
        count = remote.server.requests
        plain_group = lb.plain(file[group])
        datasets: list[str] = []
        local[group].visititems(lambda path, obj: datasets.append(path) if isinstance(obj, h5py.Dataset) else None)
        for path in datasets:
            assert _same(file[group][path][()], local[group][path][()])
            assert _same(plain_group[path][()], local[group][path][()])
        lb.prefetch(file[group])
        assert remote.server.requests == count
        assert file._file_object.misses == 0


def test_prefetch_of_a_dataset(remotes: dict[str, Remote]) -> None:
    remote = remotes["a.h5"]
    with remote.open() as file, h5py.File(remote.path) as local:
        size = sum(local["gzip"].id.get_chunk_info(k).size for k in range(local["gzip"].id.get_num_chunks()))
        assert lb.prefetch(file["gzip"]) == size
        count = remote.server.requests
        assert _same(lb.plain(file["gzip"])[::17], local["gzip"][::17])
        assert remote.server.requests == count


def test_prefetch_of_what_h5py_opened_says_what_to_do(files: dict[str, Path]) -> None:
    with h5py.File(files["a.h5"]) as local, pytest.raises(TypeError, match=r"lindi_bridge\.open"):
        lb.prefetch(local["group"])


def test_a_source_without_a_strong_tag_costs_one_wave_more(remotes: dict[str, Remote], files: dict[str, Path]) -> None:
    remote = remotes["a.h5"]
    url = remote.server.add("copy.h5", files["a.h5"], etag="none")
    with remote.open(source=url) as file:
        file["gzip"][:100_000]
        assert file._file_object.reader.statistics.waves == 2
        file["tiles"][:100]
        assert file._file_object.reader.statistics.waves == 3


def test_checking_a_source_under_h5pys_lock_takes_few_round_trips(
    remotes: dict[str, Remote], files: dict[str, Path]
) -> None:
    """Plain h5py cannot fetch ahead: whatever is asked there is asked one after the other."""
    remote = remotes["a.h5"]
    url = remote.server.add("copy.h5", files["a.h5"], etag="none")
    remote.server.reset()
    with h5py.File(lb.hdf5_file(str(remote.document), source=url)) as file:
        file["gzip"][0]
    assert remote.server.requests <= 10


# -- any selection of any dataset ------------------------------------------------------------------------------------

FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "gzip": {"compression": "gzip", "compression_opts": 1},
    "shuffle": {"compression": "gzip", "shuffle": True},
    "lzf": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "fletcher32": {"fletcher32": True},
}
DTYPES = ("<i4", ">f8", "S5", "?", "table", "string", "ragged", "subarray")


def _values(dtype: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    count = int(np.prod(shape))
    numbers = np.arange(1, count + 1).reshape(shape)
    if dtype == "table":
        table = np.zeros(shape, [("x", "i4"), ("y", "f8")])
        table["x"], table["y"] = numbers, numbers / 4
        return table, table.dtype
    if dtype == "string":
        texts = np.array([f"{i}{'ä' * (i % 9)}" for i in range(count)], object)
        return texts.reshape(shape), h5py.string_dtype()
    if dtype == "ragged":
        return None, h5py.vlen_dtype("i2")
    if dtype == "subarray":
        return np.stack([numbers, -numbers], axis=-1).astype("i4"), np.dtype(("i4", (2,)))
    return (numbers % 2 == 0 if dtype == "?" else numbers.astype(dtype)), np.dtype(dtype)


@st.composite
def datasets(draw: st.DrawFn) -> dict[str, Any]:
    """What to create: values, type, chunks, filters."""
    shape = tuple(draw(st.lists(st.integers(1, 14), min_size=1, max_size=3)))
    values, dtype = _values(draw(st.sampled_from(DTYPES)), shape)
    options: dict[str, Any] = {"shape": shape, "dtype": dtype}
    if draw(st.booleans()):
        options["chunks"] = tuple(draw(st.integers(1, n)) for n in shape)
        options |= FILTERS[draw(st.sampled_from(sorted(FILTERS)))]
        if dtype.kind == "O":
            options.pop("fletcher32", None)  # libhdf5 has no checksums of what has no fixed length
        if draw(st.booleans()):
            options["maxshape"] = tuple(draw(st.sampled_from([n, None])) for n in shape)
    return {"values": values, "options": options, "libver": draw(st.sampled_from(["earliest", "latest"]))}


@st.composite
def selections(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Anything numpy would take: integers, slices, one list or mask, ellipsis; now and then what h5py refuses."""
    if draw(st.integers(0, 9)) == 0:
        count = int(np.prod(shape))
        return np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count))).reshape(shape)
    items: list[Any] = []
    fancy = draw(st.integers(0, len(shape)))
    for axis, length in enumerate(shape):
        if axis == fancy and draw(st.booleans()):
            items.append(np.array(draw(st.lists(st.booleans(), min_size=length, max_size=length))))
        elif axis == fancy:
            chosen = draw(st.lists(st.integers(-1, length - 1), max_size=length, unique=True))
            items.append(chosen if draw(st.integers(0, 9)) == 0 else sorted(chosen))
        elif draw(st.booleans()):
            items.append(
                draw(st.integers(-length, length))
                if draw(st.integers(0, 4)) == 0
                else draw(st.integers(-length, length - 1))
            )
        else:
            bound = st.one_of(st.none(), st.integers(-length - 2, length + 2))
            items.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, 7, 100]))))
    kept = draw(st.integers(0, len(items)))
    form = draw(st.sampled_from(["all", "leading", "trailing", "one"]))
    if form == "leading":
        return (*items[:kept], ...)
    if form == "trailing":
        return (..., *items[kept:])
    return items[0] if form == "one" else tuple(items)


def _read(dataset: Any, selection: Any) -> Any:
    return attempt(lambda d: d[selection], dataset)


def _agree(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, Raised):
        return isinstance(ours, Raised) and builtin_error(ours.error) is builtin_error(theirs.error)
    return not isinstance(ours, Raised) and _same(ours, theirs)


@pytest.fixture
def nothing_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents without raw data, so that small datasets are fetched as large ones are."""
    policy = embed.EmbedPolicy(plain=0, variable=0, total=0)
    monkeypatch.setattr(embed, "EmbedPolicy", lambda: policy)


def _write(path: Path, made: dict[str, Any]) -> None:
    with h5py.File(path, "w", libver=made["libver"]) as file:
        dataset = file.create_dataset("d", **made["options"])
        if made["values"] is not None:
            dataset[...] = made["values"]
            return
        for number, index in enumerate(np.ndindex(*dataset.shape)):
            dataset[index] = np.arange(number % 5, dtype="i2")


@pytest.mark.usefixtures("nothing_embedded")
@pytest.mark.parametrize("cache_bytes", [256 * 1024 * 1024, 256], ids=["ample cache", "in slabs"])
@settings(
    max_examples=100,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_any_selection_equals_h5py(tmp_path: Path, cache_bytes: int, data: st.DataObject) -> None:
    made = data.draw(datasets())
    path, document = tmp_path / "a.h5", tmp_path / "a.lindi.json"
    _write(path, made)
    lb.index(str(path)).save(str(document))
    with h5py.File(path) as local, lb.open(str(document), cache_bytes=cache_bytes) as file:
        for _ in range(6):
            selection = data.draw(selections(made["options"]["shape"]))
            expected, found = _read(local["d"], selection), _read(file["d"], selection)
            assert _agree(found, expected)
            if cache_bytes > 1024:
                assert file._file_object.misses == 0, "something was not fetched ahead"


@pytest.mark.usefixtures("nothing_embedded")
@pytest.mark.parametrize(
    ("options", "mask"),
    [({"compression": "lzf"}, 0b1), ({"compression": "lzf", "shuffle": True}, 0b11), ({"compression": "gzip"}, 0)],
)
def test_strings_of_chunks_that_a_filter_left_as_they_are_come_ahead(
    tmp_path: Path, options: dict[str, Any], mask: int
) -> None:
    path, document = tmp_path / "a.h5", tmp_path / "a.lindi.json"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("d", (1,), h5py.string_dtype(), chunks=(1,), **options)
        dataset[0] = "a text"
        assert dataset.id.get_chunk_info(0).filter_mask == mask
    lb.index(path).save(document)
    with lb.open(document) as file:
        assert file["d"].asstr()[:].tolist() == ["a text"]
        assert file._file_object.misses == 0


def test_empty_values_of_variable_length_are_indexed(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("texts", data=["", "", ""], dtype=h5py.string_dtype())
        file.create_dataset("ragged", (3,), h5py.vlen_dtype("i2"))
    index = lb.index(str(path))
    assert index.problems == []
    index.save(str(tmp_path / "a.lindi.json"))
    with lb.open(str(tmp_path / "a.lindi.json")) as file, h5py.File(path) as local:
        assert compare_files(local, file) == []


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_inline_values_of_a_large_remote_file_are_its_values(tmp_path: Path, server: RangeServer, libver: str) -> None:
    """Small chunks far from their metadata, so that the walk does not have them in memory by chance."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        one = file.create_dataset("one chunk", (10,), "i8", chunks=(10,))
        two = file.create_dataset("two chunks", (10,), "i8", chunks=(5,))
        file.create_dataset("bulk", data=np.random.default_rng(0).random(2_500_000), chunks=(100_000,))
        file.flush()
        one[:] = two[:] = np.arange(10) + 1
        file.flush()
        file.create_dataset("more", data=np.arange(100_000.0), chunks=(100_000,))
    refs = json.loads(lb.index(server.add("far.h5", path)).to_json())["refs"]
    for name in ("one chunk", "two chunks"):
        text = refs[f"{name}/0"]
        assert isinstance(text, str), "small values are inline"
        assert np.frombuffer(b64decode(text.removeprefix("base64:")), "<i8").tolist() == [*range(1, 11)]


MANY = np.arange(0, 390_000, 1000)
UNORDERED = ([5, 3, 390_000], [3, 3, 390_000], MANY[::-1].tolist(), np.repeat(MANY, 2))


@pytest.mark.parametrize("cache_bytes", [256 * 1024 * 1024, 64 * 1024], ids=["ample cache", "in slabs"])
@pytest.mark.parametrize("selection", UNORDERED, ids=["unsorted", "repeated", "many unsorted", "many repeated"])
def test_lists_that_h5py_refuses_are_refused(remotes: dict[str, Remote], selection: Any, cache_bytes: int) -> None:
    with remotes["a.h5"].open(cache_bytes=cache_bytes) as file, pytest.raises(TypeError, match="increasing order"):
        file["gzip"][selection]
