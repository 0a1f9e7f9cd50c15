"""Of uncompressed values no more is fetched than is touched, in one wave; counted at the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb
from lindi_bridge.client import runs

ROWS, COLUMNS = 640, 5000
ROW = COLUMNS * 8
WIDE = 100_000
SLACK = 64 * 1024


def make(path: Path) -> None:
    """The same values contiguous, in large chunks, in small chunks, and compressed."""
    values = np.random.default_rng(3).random((ROWS, COLUMNS))
    with h5py.File(path, "w") as file:
        file.create_dataset("contiguous", data=values)
        file.create_dataset("large chunks", data=values, chunks=(200, COLUMNS))
        file.create_dataset("huge chunk", data=values, chunks=(ROWS, COLUMNS))
        file.create_dataset("tiles", data=values, chunks=(160, 500))
        file.create_dataset("compressed", data=values[:200], chunks=(200, COLUMNS), compression="lzf")
        file.create_dataset("wide", data=np.arange(100 * WIDE, dtype="i2").reshape(100, WIDE), chunks=(100, WIDE))
        sparse = file.create_dataset("sparse", (ROWS, COLUMNS), "f8", chunks=(200, COLUMNS), fillvalue=2.5)
        sparse[:200] = values[:200]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("unfiltered") / "a.h5"
    make(path)
    return path


@pytest.fixture(scope="module")
def oracle(path: Path) -> Iterator[h5py.File]:
    with h5py.File(path) as file:
        yield file


@pytest.fixture(scope="module")
def running(path: Path) -> Iterator[tuple[RangeServer, Path]]:
    with RangeServer() as server:
        document = path.with_name("a.lindi.json")
        lb.index(server.add("a.h5", path)).save(document)
        yield server, document


@pytest.fixture
def opened(running: tuple[RangeServer, Path]) -> Iterator[Any]:
    server, document = running
    with lb.open(document) as file:
        server.reset()
        yield file
        assert file._file_object.misses == 0


def waves(file: Any) -> int:
    """How often the file asked its source and waited."""
    return int(file._file_object.reader.statistics.waves)


SELECTIONS = {
    "a row": (7, ROW),
    "rows": (slice(100, 103), 3 * ROW),
    "a part of a row": ((3, slice(1000, 1500)), 4000),
    "rows here and there": (([3, 90, 500],), 3 * ROW),
    "every hundredth row": (slice(5, None, 100), 7 * ROW),
    "a value": ((5, 9), 8),
}


@pytest.mark.parametrize("name", ["contiguous", "large chunks", "huge chunk"])
@pytest.mark.parametrize("what", SELECTIONS)
def test_only_what_is_touched_is_fetched(
    running: tuple[RangeServer, Path], opened: Any, oracle: h5py.File, name: str, what: str
) -> None:
    args, nbytes = SELECTIONS[what]
    assert np.array_equal(opened[name][args], oracle[name][args])
    server, _ = running
    assert nbytes <= server.nbytes <= nbytes + SLACK
    assert waves(opened) == 1
    asked = server.requests
    assert np.array_equal(opened[name][args], oracle[name][args])
    assert server.requests == asked


@pytest.mark.parametrize("name", ["contiguous", "large chunks", "huge chunk"])
def test_a_column_is_fetched_in_blocks(
    running: tuple[RangeServer, Path], opened: Any, oracle: h5py.File, name: str
) -> None:
    server, _ = running
    assert np.array_equal(opened[name][:320, 3], oracle[name][:320, 3])
    assert server.requests < 320 / 4, "not a request for each row"
    assert server.nbytes <= 320 * ROW + SLACK
    assert waves(opened) == 1


def test_a_column_of_long_rows_is_fetched_value_by_value(
    running: tuple[RangeServer, Path], opened: Any, oracle: h5py.File
) -> None:
    server, _ = running
    assert np.array_equal(opened["wide"][:, 7], oracle["wide"][:, 7])
    assert server.requests == 100
    assert server.nbytes == 100 * 2
    assert waves(opened) == 1


def test_small_chunks_are_fetched_whole(running: tuple[RangeServer, Path], opened: Any, oracle: h5py.File) -> None:
    server, _ = running
    assert np.array_equal(opened["tiles"][3, :1000], oracle["tiles"][3, :1000])
    assert server.nbytes >= 2 * 160 * 500 * 8
    assert server.nbytes <= 2 * 160 * 500 * 8 + SLACK
    asked = server.requests
    assert np.array_equal(opened["tiles"][:160, :1000], oracle["tiles"][:160, :1000])
    assert server.requests == asked


def test_compressed_chunks_are_fetched_whole(running: tuple[RangeServer, Path], opened: Any, oracle: h5py.File) -> None:
    server, _ = running
    assert np.array_equal(opened["compressed"][3], oracle["compressed"][3])
    assert server.nbytes >= oracle["compressed"].id.get_storage_size()


def test_what_is_not_there_is_not_fetched(running: tuple[RangeServer, Path], opened: Any, oracle: h5py.File) -> None:
    server, _ = running
    assert np.array_equal(opened["sparse"][199:500:20], oracle["sparse"][199:500:20])
    assert server.nbytes <= ROW + SLACK
    server.reset()
    assert (opened["sparse"][300:] == 2.5).all()
    assert server.requests == 0


@pytest.mark.parametrize(
    "read",
    [
        lambda dataset: dataset.astype("f4")[7],
        lambda dataset: dataset.astype("f4")[5, 1000:2000],
    ],
)
def test_what_libhdf5_reads_is_planned_as_it_reads(opened: Any, oracle: h5py.File, read: Any) -> None:
    """A chunk that does not fit libhdf5's cache, read by libhdf5: nothing is missing."""
    dataset = opened["huge chunk"]
    assert dataset.id.get_access_plist().get_chunk_cache()[1] < ROWS * ROW
    assert np.array_equal(read(dataset), read(oracle["huge chunk"]))
    assert waves(opened) == 1


def test_libhdf5_is_given_the_rows_of_a_chunk_that_does_not_fit_its_cache(
    running: tuple[RangeServer, Path], opened: Any, oracle: h5py.File
) -> None:
    server, _ = running
    assert np.array_equal(opened["huge chunk"].astype("f4")[7], oracle["huge chunk"].astype("f4")[7])
    assert ROW <= server.nbytes <= ROW + SLACK


def test_read_direct_and_iteration_take_the_same_way(
    running: tuple[RangeServer, Path], opened: Any, oracle: h5py.File
) -> None:
    server, _ = running
    out = np.empty((2, COLUMNS))
    opened["large chunks"].read_direct(out, np.s_[199:201])
    assert np.array_equal(out, oracle["large chunks"][199:201])
    assert server.nbytes <= 2 * ROW + SLACK
    assert waves(opened) == 1


def test_without_a_document(path: Path, running: tuple[RangeServer, Path], oracle: h5py.File) -> None:
    server, _ = running
    with lb.open(server.url("a.h5")) as file:
        dataset = file["large chunks"]
        dataset[0, 0]
        server.reset()
        assert np.array_equal(dataset[300], oracle["large chunks"][300])
        assert server.nbytes <= ROW + SLACK


def test_a_small_cache_changes_no_value(running: tuple[RangeServer, Path], oracle: h5py.File) -> None:
    _, document = running
    with lb.open(document, cache_bytes=200_000) as file:
        for name in ("contiguous", "large chunks", "tiles"):
            assert np.array_equal(file[name][::3, 10:90:7], oracle[name][::3, 10:90:7])
            assert np.array_equal(file[name][100:220], oracle[name][100:220])


def test_holes_are_read_through_as_long_as_they_are_narrow() -> None:
    assert runs._GAP < WIDE * 2, "the columns of the wide dataset lie further apart"


@pytest.mark.parametrize("name", ["contiguous", "large chunks", "tiles", "sparse"])
def test_out_of_the_disk_cache(running: tuple[RangeServer, Path], oracle: h5py.File, tmp_path: Path, name: str) -> None:
    server, document = running
    selections = [np.s_[3:300], np.s_[150:260, 17:90], np.s_[7], np.s_[5, 9], np.s_[::90, 4]]
    with lb.open(document, cache_dir=tmp_path) as file:
        for args in selections:
            assert np.array_equal(file[name][args], oracle[name][args])
    server.reset()
    with lb.open(document, cache_dir=tmp_path) as file:
        for args in [*selections, *selections]:
            assert np.array_equal(file[name][args], oracle[name][args])
        assert file._file_object.misses == 0
    assert server.requests == 0
