"""The two arrays of a sparse matrix, read in turn: one round trip a block of rows, and nothing for who reads one only.

Through our own client and through plain h5py, where the second request is made under h5py's lock.
"""

from __future__ import annotations

import json
import socketserver
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from servers.range_server import FAULTS, RangeServer, Resource
from servers.seaweed import Seaweed

import lindi_bridge as lb
from lindi_bridge.hdf5.demand import BLOCK
from lindi_bridge.ranges.http import HttpReader

ROWS, EACH, STEP = 12_000, 100, 20_000
"""Rows, values of each, values of a chunk."""
PER_CHUNK = STEP // EACH
CHUNKS = ROWS // PER_CHUNK
APART = [int(k) for k in np.random.default_rng(2).permutation(CHUNKS // 4) * 4 + 1]
"""Chunks in no order, none next to another one."""
NAMES = ("data", "indices")
MATRICES = {"compressed": "X", "as they are": "layers/raw"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ad, pd, sparse = (pytest.importorskip(name) for name in ("anndata", "pandas", "scipy.sparse"))
    path = tmp_path_factory.mktemp("pairing") / "a.h5ad"
    random = np.random.default_rng(11)
    indices = np.cumsum(random.integers(1, 20, (ROWS, EACH)), axis=1).astype("i4").reshape(-1)
    values = random.random(ROWS * EACH).astype("f4")
    matrix = sparse.csr_matrix((values, indices, np.arange(0, ROWS * EACH + 1, EACH)), (ROWS, 2000))
    obs = pd.DataFrame(index=np.arange(ROWS).astype(str))
    ad.AnnData(matrix[:, :0], obs=obs, var=pd.DataFrame(index=[])).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        del file["X"], file["var/_index"]
        file["var/_index"] = np.arange(2000).astype(str).astype(h5py.string_dtype())
        file["var/_index"].attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
        for name, stored in (("X", {"compression": "gzip", "shuffle": True}), ("layers/raw", {})):
            group = file.create_group(name)
            group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": matrix.shape})
            for part in NAMES:
                group.create_dataset(part, data=getattr(matrix, part), chunks=(STEP,), **stored)
            group["indptr"] = matrix.indptr
    return path


class Source:
    """The file on a server, its document, and one that says nothing of pairs."""

    def __init__(self, server: RangeServer, path: Path, folder: Path) -> None:
        self.server, self.path = server, path
        self.url = server.add("a.h5ad", path)
        self.document = str(folder / "a.lindi.json")
        lb.index(self.url).save(self.document)
        self.without = self.changed("without", lambda section: section.pop("sparse"))

    def changed(self, name: str, change: Callable[[Any], Any]) -> str:
        raw = json.loads(Path(self.document).read_text())
        change(raw["hdf5"])
        path = Path(self.document).with_name(f"{name}.json")
        path.write_text(json.dumps(raw))
        return str(path)


@pytest.fixture(scope="module")
def source(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    with RangeServer() as server:
        yield Source(server, path, tmp_path_factory.mktemp("documents"))


@pytest.fixture
def local(path: Path) -> Iterator[h5py.File]:
    with h5py.File(path) as file:
        yield file


class Opened:
    """A file that is read block by block, and what that costs."""

    def __init__(self, file: h5py.File, file_object: Any, local: h5py.File, matrix: str = "X") -> None:
        self.file, self.file_object, self.local, self.matrix = file, file_object, local, matrix

    @property
    def statistics(self) -> Any:
        return self.file_object.reader.statistics

    def read(self, chunk: int, names: tuple[str, ...] = NAMES) -> tuple[int, int, int]:
        """Read most of one chunk of each array; waves, requests and bytes that it took."""
        before = self.statistics
        block = slice(chunk * STEP + EACH, (chunk + 1) * STEP - EACH)
        for name in names:
            found, expected = self.file[self.matrix][name][block], self.local[self.matrix][name][block]
            assert np.array_equal(found, expected)
        now = self.statistics
        return now.waves - before.waves, now.requests - before.requests, now.nbytes - before.nbytes


@contextmanager
def opened(how: str, document: str, local: h5py.File, matrix: str = "X", **options: Any) -> Iterator[Opened]:
    if how == "ours":
        with lb.open(document, **options) as file:
            yield Opened(file, file._file_object, local, matrix)
    else:
        with lb.hdf5_file(document, **options) as file_object, h5py.File(file_object) as file:
            yield Opened(file, file_object, local, matrix)


both_ways = pytest.mark.parametrize("how", ["ours", "plain"])
both_orders = pytest.mark.parametrize("names", [NAMES, NAMES[::-1]], ids=lambda names: names[0])


# -- learned ----------------------------------------------------------------------------------------------------------


@both_ways
def test_a_block_of_rows_of_a_backed_matrix_is_one_wave(how: str, source: Source) -> None:
    ad = pytest.importorskip("anndata")
    if how == "ours":
        adata = lb.read_h5ad(source.document, backed="r")
        reader = adata.file._file._file_object.reader
    else:
        file_object = lb.hdf5_file(source.document)
        adata, reader = ad.read_h5ad(file_object, backed="r"), file_object.reader
    expected = ad.read_h5ad(source.path, backed="r")
    waves = []
    for chunk in APART:
        before = reader.statistics.waves
        rows = slice(chunk * PER_CHUNK + 1, (chunk + 1) * PER_CHUNK - 1)
        assert (adata.X[rows] != expected.X[rows]).nnz == 0
        waves.append(reader.statistics.waves - before)
    adata.file.close()
    expected.file.close()
    assert set(waves[1:]) == {1}, "two without it"


@both_ways
@both_orders
@pytest.mark.parametrize("matrix", MATRICES)
def test_after_one_block_both_arrays_are_one_wave(
    how: str, names: tuple[str, ...], matrix: str, source: Source, local: h5py.File
) -> None:
    with opened(how, source.document, local, MATRICES[matrix]) as file:
        costs = [file.read(chunk, names) for chunk in APART]
        assert costs[0][0] == 2
        assert {waves for waves, _, _ in costs[1:]} == {1}
    with opened(how, source.without, local, MATRICES[matrix]) as file:
        # Our client needs no word of the document.
        assert {file.read(chunk, names)[0] for chunk in APART[1:]} == ({1, 2} if how == "ours" else {2})


@both_ways
def test_both_requests_are_on_their_way_at_one_time(how: str, source: Source, local: h5py.File) -> None:
    with opened(how, source.document, local) as file:
        file.read(APART[0])
        source.server.reset()
        source.server.group = 2
        try:
            file.read(APART[1])
        finally:
            source.server.group = 1
        assert (source.server.requests, source.server.waves()) == (2, 1)


@both_ways
def test_the_order_may_turn(how: str, source: Source, local: h5py.File) -> None:
    with opened(how, source.document, local) as file:
        for chunk in APART[:4]:
            file.read(chunk)
        file.read(APART[4], NAMES[::-1])
        assert [file.read(chunk, NAMES[::-1])[0] for chunk in APART[5:10]] == [1] * 5


@both_ways
def test_two_matrices_in_turn(how: str, source: Source, local: h5py.File) -> None:
    waves = []
    with opened(how, source.document, local) as file:
        for chunk in APART:
            for file.matrix in MATRICES.values():
                waves.append(file.read(chunk)[0])
    assert waves[:2] == [2, 2]
    assert set(waves[2:]) == {1}


# -- not learned, and unlearned ---------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("name", NAMES)
def test_who_reads_one_array_pays_for_one(how: str, name: str, source: Source, local: h5py.File) -> None:
    costs = []
    for document in (source.document, source.without):
        with opened(how, document, local) as file:
            costs.append([file.read(chunk, (name,)) for chunk in APART])
    assert costs[0] == costs[1]
    chunks = [local["X"][name].id.get_chunk_info(chunk).size for chunk in APART]
    spare = 0 if how == "ours" else 2 * BLOCK
    assert all(nbytes <= size + spare for (_, _, nbytes), size in zip(costs[0], chunks, strict=True))


@both_ways
def test_blocks_that_differ_are_not_paired(how: str, source: Source, local: h5py.File) -> None:
    with opened(how, source.document, local) as file:
        for chunk, other in zip(APART[::2], APART[1::2], strict=False):
            assert file.read(chunk, NAMES[:1])[:2] == (1, 1)
            assert file.read(other, NAMES[1:])[:2] == (1, 1)


@both_ways
def test_who_goes_on_with_one_array_pays_for_a_few_blocks_more(how: str, source: Source, local: h5py.File) -> None:
    with opened(how, source.document, local) as file:
        file.read(APART[0])
        file.read(APART[1])
        requests = [file.read(chunk, NAMES[:1])[1] for chunk in APART[2:]]
        assert requests[:2] == [2, 2]
        assert sum(requests) <= len(requests) + 4
        assert set(requests[4:]) == {1}


@both_ways
def test_and_who_takes_up_the_other_one_again_pays_once_more(how: str, source: Source, local: h5py.File) -> None:
    with opened(how, source.document, local) as file:
        file.read(APART[0])
        for chunk in APART[1:7]:
            file.read(chunk, NAMES[:1])
        assert file.read(APART[7])[0] == 2
        assert [file.read(chunk)[0] for chunk in APART[8:12]] == [1] * 4


def test_more_than_a_share_of_the_cache_is_not_paired(source: Source, local: h5py.File) -> None:
    """A slice of indices that takes more than an eighth of it."""
    with opened("ours", source.document, local, "layers/raw", cache_bytes=512 * 1024) as file:
        assert [file.read(chunk)[0] for chunk in APART[:6]] == [2] * 6


def test_in_a_small_cache_nothing_is_fetched_beside_under_the_lock(source: Source, local: h5py.File) -> None:
    with opened("plain", source.document, local, cache_bytes=1024 * 1024) as file:
        assert [file.read(chunk)[0] for chunk in APART[:6]] == [2] * 6


@pytest.mark.parametrize("step", [5_000, 20_000, 43_210])
@both_ways
def test_reading_on_makes_no_more_requests(how: str, step: int, source: Source, local: h5py.File) -> None:
    costs = []
    for document in (source.document, source.without):
        with opened(how, document, local) as file:
            for first in range(0, ROWS * EACH, step):
                for name in NAMES:
                    part = slice(first, first + step)
                    assert np.array_equal(file.file["X"][name][part], local["X"][name][part])
            costs.append(file.statistics)
    if how == "plain":
        assert costs[0].requests <= costs[1].requests
        assert costs[0].waves <= 0.8 * costs[1].waves, "both windows grow"
    touched = sum(local["X"][name].id.get_storage_size() for name in NAMES)
    assert costs[0].nbytes <= touched + 3 * BLOCK, "nothing twice"


# -- what may go wrong with the second request ------------------------------------------------------------------------


@dataclass
class Aimed(Resource):
    """The fault happens once to each range that is listed."""

    aimed_at: set[str] = field(default_factory=set)

    def next_fault(self, of: str) -> str:
        if not self.fault or of not in self.aimed_at:
            return ""
        self.aimed_at.discard(of)
        self.faults += 1
        return self.fault


HARMLESS = {"slow", "no_length", "no_total", "close"}
"""The range comes all the same."""
MEETS = [*sorted(FAULTS.keys() - {"<status>", "once", "more"}), "403", "404", "412", "416", "429", "500", "503"]


def aim_at(bad: Aimed, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the fault happen to the requests that a method of the reader is going to make."""
    make = getattr(HttpReader, name)

    def noted(self: Any, asked: Any, *args: Any, **options: Any) -> Any:
        bad.aimed_at.add(f"bytes={asked.start}-{asked.start + asked.length - 1}")
        return make(self, asked, *args, **options)

    monkeypatch.setattr(HttpReader, name, noted)


@pytest.fixture
def bad(source: Source) -> Iterator[Aimed]:
    good = source.server.resources["a.h5ad"]
    bad = Aimed(source.path, location=source.server.url("a.h5ad"))
    source.server.resources["a.h5ad"] = bad
    yield bad
    source.server.resources["a.h5ad"] = good


@pytest.mark.parametrize("fault", MEETS)
def test_what_goes_wrong_with_the_second_request_is_passed_over(
    fault: str, source: Source, local: h5py.File, bad: Aimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    aim_at(bad, monkeypatch, "_send_hint")
    monkeypatch.setattr("lindi_bridge.ranges.deadline.LEAST_PATIENCE", 0.2)
    with opened("plain", source.document, local, retries=0) as file:
        file.read(APART[0])
        bad.fault = fault
        bad.seconds = 0.02 if fault in HARMLESS else 0.1 if fault == "trickle" else 60
        if fault in HARMLESS:
            assert [file.read(chunk)[0] for chunk in APART[1:4]] == [1] * 3
            return
        # What did not come is asked for when it is needed, and comes.
        costs = [file.read(chunk) for chunk in APART[1:8]]
        assert bad.faults <= 3, "it is given up"
        assert {waves for waves, _, _ in costs} == {2}
        assert {requests for _, requests, _ in costs[3:]} == {2}


def test_the_first_request_is_tried_again_as_ever(
    source: Source, local: h5py.File, bad: Aimed, monkeypatch: pytest.MonkeyPatch, plain_environment: None
) -> None:
    aim_at(bad, monkeypatch, "_read_here")
    with opened("plain", source.document, local) as file:
        file.read(APART[0])
        bad.fault = "503"
        for chunk in APART[1:6]:
            file.read(chunk)
        assert bad.faults >= 5


def test_an_error_of_the_first_request_is_raised(
    source: Source, local: h5py.File, bad: Aimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    aim_at(bad, monkeypatch, "_read_here")
    with opened("plain", source.document, local, retries=0) as file:
        file.read(APART[0])
        bad.fault = "404"
        with pytest.raises(lb.SourceNotFoundError):
            file.read(APART[1])
        bad.fault = ""
        assert file.read(APART[1])[0] <= 2


def test_a_server_that_ends_each_connection_is_asked_for_one_range_at_a_time(source: Source, local: h5py.File) -> None:
    """It may serve one connection at a time, and would wait for us as we for it."""
    resource = source.server.resources["a.h5ad"]
    resource.fault = "close"
    try:
        with opened("plain", source.document, local) as file:
            assert [file.read(chunk)[:2] for chunk in APART[:5]] == [(2, 2)] * 5
    finally:
        resource.fault = ""


def test_a_server_that_serves_one_connection_at_a_time(
    path: Path, local: h5py.File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The needed range has the connection that is served; the other one waits in vain, and not for long."""
    monkeypatch.setattr("lindi_bridge.ranges.deadline.LEAST_PATIENCE", 0.2)
    lb.index(path, url="http://127.0.0.1/a.h5ad").save(tmp_path / "a.json")
    with RangeServer() as server:
        monkeypatch.setattr(type(server._server), "process_request", socketserver.BaseServer.process_request)
        url = server.add("a.h5ad", path)
        with opened("plain", str(tmp_path / "a.json"), local, source=url, retries=0, read_timeout=5) as file:
            file.read(APART[0])
            costs = [file.read(chunk)[:2] for chunk in APART[1:8]]
            assert costs == [(2, 3)] * 3 + [(2, 2)] * 4


# -- other sources ----------------------------------------------------------------------------------------------------


def test_the_disk_cache(source: Source, local: h5py.File, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    with opened("plain", source.document, local, cache_dir=cache) as file:
        assert [file.read(chunk)[0] for chunk in APART[:6]] == [2, 1, 1, 1, 1, 1]
    with opened("plain", source.without, local, cache_dir=cache) as file:
        for chunk in APART[6:10]:
            file.read(chunk, NAMES[:1])
    with opened("plain", source.document, local, cache_dir=cache) as file:
        assert [file.read(chunk)[1] for chunk in APART[:6]] == [0] * 6, "both were kept"
        assert [file.read(chunk)[1] for chunk in APART[6:10]] == [1] * 4, "data are on the disk"
        assert [file.read(chunk)[0] for chunk in APART[10:13]] == [2, 1, 1], "what is on the disk teaches nothing"


def test_sources_that_are_asked_for_one_range_at_a_time(source: Source, local: h5py.File, path: Path) -> None:
    with opened("plain", source.document, local, source=str(path)) as file:
        for chunk in APART:
            file.read(chunk)
    with open(path, "rb") as stream, opened("plain", source.document, local, source=stream) as file:
        for chunk in APART:
            file.read(chunk)


@both_ways
def test_an_object_store(how: str, source: Source, local: h5py.File, path: Path, seaweed: Seaweed) -> None:
    url = seaweed.put("priv", "a.h5ad", path.read_bytes())
    options: dict[str, Any] = {"source": url, "storage_options": seaweed.signed}
    with opened(how, source.document, local, **options) as file:
        assert [file.read(chunk)[:2] for chunk in APART[:6]][1:] == [(1, 2)] * 5


# -- what the document says -------------------------------------------------------------------------------------------


def test_the_document_names_matrices_of_several_chunks(source: Source, tmp_path: Path) -> None:
    section = json.loads(Path(source.document).read_text())["hdf5"]
    with h5py.File(source.path) as file:
        expected = [[h5py.h5o.get_info(file[name][part].id).addr for part in NAMES] for name in ("X", "layers/raw")]
    assert sorted(section["sparse"]) == sorted(expected)
    path = tmp_path / "b.h5"
    values = np.arange(100)

    def others(group: h5py.Group) -> None:
        group.create_dataset("data", data=values, chunks=(10,))
        group["indptr"] = values

    with h5py.File(path, "w") as file:
        others(file.create_group("alone"))
        for name, stored in {
            "shape": {"shape": (90,), "chunks": (10,)},
            "chunks": {"shape": (100,), "chunks": (20,)},
            "contiguous": {"shape": (100,)},
        }.items():
            others(file.create_group(name))
            file[name].create_dataset("indices", dtype="i4", **stored)[...] = 0
        others(file.create_group("linked"))
        file["linked/indices"] = h5py.SoftLink("/elsewhere")
        others(file.create_group("outside"))
        file["outside/indices"] = h5py.ExternalLink("c.h5", "/i")
        file.create_dataset("elsewhere", data=values, chunks=(10,))
        file.create_dataset("no/data", data=values, chunks=(10,))
        file.create_dataset("no/indices", data=values, chunks=(10,))
        for part in NAMES:
            file.create_dataset(f"one/{part}", data=values, chunks=(100,))
        file["one/indptr"] = values
        file.create_group("group/data")
    lb.index(path).save(tmp_path / "b.json")
    assert json.loads((tmp_path / "b.json").read_text())["hdf5"]["sparse"] == []


LIES: dict[str, Callable[[Any], Any]] = {
    "nothing there": lambda section: section.update(sparse=[[17, 23], [1 << 50, 1 << 61]]),
    "one of them twice": lambda section: section.update(sparse=[[section["sparse"][0][0]] * 2]),
    "the wrong ones": lambda section: section.update(
        sparse=[[section["sparse"][0][0], section["sparse"][1][1]], section["sparse"][1]]
    ),
    "the order": lambda section: section.update(sparse=[pair[::-1] for pair in section["sparse"]]),
    "often": lambda section: section.update(sparse=section["sparse"] * 50_000),
    "nothing at all": lambda section: section.update(sparse=[]),
}


@pytest.mark.parametrize("lie", LIES)
@both_orders
def test_a_document_that_lies_about_pairs_does_no_harm(
    lie: str, names: tuple[str, ...], source: Source, local: h5py.File
) -> None:
    with opened("plain", source.changed("lie", LIES[lie]), local) as file:
        for chunk in APART:
            for file.matrix in MATRICES.values():
                file.read(chunk, names)
        assert file.statistics.requests <= 4 * len(APART)
