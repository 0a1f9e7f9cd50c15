"""Which chunk is fetched beside another one: what a document may say, and what it must not cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np

from lindi_bridge.hdf5.chunk_tables import WalkedTable
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.messages import ChunkIndexKind
from lindi_bridge.hdf5.pairs import MOST_PAIRS, ChunkPairs
from lindi_bridge.hdf5.walk import header_address, index_in_memory, structure_tables
from lindi_bridge.model.chunks import ChunkTable
from lindi_bridge.ranges import ByteRange, open_reader

FILE = SimpleNamespace(size=1_000_000)
DATA, INDICES = 100_000, 500_000


def table(begin: int, nbytes: int = 1000, count: int = 10, missing: Sequence[int] = ()) -> WalkedTable:
    """Chunks one after the other."""
    index = np.array([k for k in range(count) if k not in missing], np.int64)
    size = np.full(len(index), nbytes, np.int64)
    found = ChunkTable((count,), index, begin + index * nbytes, size, np.zeros_like(index))
    return WalkedTable(found, ChunkIndexKind.BTREE_1, len(index), int(size.sum()))


class Pairs:
    """Chunk pairs over made-up tables, by the address of the header."""

    def __init__(self, tables: dict[int, WalkedTable], headers: Sequence[tuple[int, int]] = ((1, 2),)) -> None:
        self.asked: list[tuple[int, ...]] = []
        self.unread: set[int] = set()
        self._tables = tables
        self.pairs = ChunkPairs(headers, self._read)

    def _read(self, file: Any, headers: Sequence[int]) -> dict[int, WalkedTable]:
        self.asked.append(tuple(headers))
        return {header: self._tables[header] for header in headers if header in self._tables}

    def miss(self, address: int, until: int | None = None) -> ByteRange | None:
        return self.pairs.beside(FILE, address, address if until is None else until, self.unread.__contains__)


def test_learned_by_the_second_miss_and_not_before() -> None:
    made = Pairs({1: table(DATA), 2: table(INDICES, 3000)})
    assert made.miss(DATA + 10) is None
    assert made.asked == [], "who reads but once needs no tables"
    assert made.miss(INDICES) is None
    assert made.asked == [(1, 2)]
    assert made.miss(DATA + 7500) == ByteRange(INDICES + 7 * 3000, 3000)
    assert made.miss(INDICES + 4 * 3000) is None, "the other one is read first"
    assert made.miss(DATA + 10_000) is None, "after the last chunk"
    assert made.asked == [(1, 2)]


def test_chunks_of_a_stretch_that_is_read_on_come_together() -> None:
    made = Pairs({1: table(DATA), 2: table(INDICES, 3000)})
    made.miss(DATA)
    made.miss(INDICES)
    assert made.miss(DATA + 2000, DATA + 5999) == ByteRange(INDICES + 2 * 3000, 3 * 3000)
    assert made.miss(DATA + 2000, DATA + 6000) == ByteRange(INDICES + 2 * 3000, 4 * 3000)
    assert made.miss(DATA + 9000, DATA + 50_000) == ByteRange(INDICES + 9 * 3000, 3000)


def test_chunks_that_lie_apart_come_one_by_one() -> None:
    far = table(INDICES, 3000)
    far.table.offset[:] = INDICES + np.arange(10)[::-1] * 30_000
    made = Pairs({1: table(DATA), 2: far})
    made.miss(DATA)
    made.miss(INDICES + 9 * 30_000)
    assert made.miss(DATA + 2000, DATA + 6000) == ByteRange(INDICES + 7 * 30_000, 3000)


def test_a_chunk_that_only_one_of_them_has_has_no_partner() -> None:
    made = Pairs({1: table(DATA), 2: table(INDICES, missing=[3])})
    made.miss(DATA)
    made.miss(INDICES)
    assert made.miss(DATA + 3000) is None
    assert made.miss(DATA + 4000) == ByteRange(INDICES + 4000, 1000)


def test_no_more_than_a_few_lie_there_unread() -> None:
    made = Pairs({1: table(DATA), 2: table(INDICES)})
    made.miss(DATA)
    made.miss(INDICES)
    for k in range(1, 5):
        other = made.miss(DATA + k * 1000)
        assert other is not None
        made.unread.add(other.start)
        made.pairs.came(DATA + k * 1000, other.start)
    assert made.miss(DATA + 5000) is None
    made.unread.discard(INDICES + 2000)
    assert made.miss(DATA + 6000) is not None


def test_failures_in_a_row_end_it() -> None:
    made = Pairs({1: table(DATA), 2: table(INDICES)})
    made.miss(DATA)
    made.miss(INDICES)
    made.pairs.failed()
    made.pairs.failed()
    made.pairs.came(DATA, INDICES)
    made.pairs.failed()
    made.pairs.failed()
    assert made.miss(DATA + 1000) is not None
    made.pairs.failed()
    assert made.miss(DATA + 2000) is None


def test_what_lies_outside_the_file_is_not_asked_for() -> None:
    made = Pairs({1: table(DATA), 2: table(FILE.size - 5000)})
    made.miss(DATA)
    made.miss(FILE.size - 5000)
    assert made.miss(DATA + 1000) is not None
    assert made.miss(DATA + 7000) is None


def test_the_first_pair_that_is_none_ends_the_list() -> None:
    """Or a document could name thousands, each of which costs what a table costs."""
    good = {1: table(DATA), 2: table(INDICES)}
    for wrong in ({}, {3: table(DATA)}, {3: table(DATA), 4: table(INDICES, count=11)}):
        made = Pairs(good | wrong, [(1, 2), (3, 4), (5, 6)])
        made.miss(DATA)
        made.miss(INDICES)
        assert made.asked == [(1, 2), (3, 4)]
        assert made.miss(DATA + 1000) is not None


def test_tables_are_bounded_together() -> None:
    many = table(DATA, 1, 300_000)
    made = Pairs(dict.fromkeys(range(20), many), [(k, k + 1) for k in range(0, 20, 2)])
    made.miss(DATA)
    made.miss(INDICES)
    assert len(made.asked) == 2
    made = Pairs(dict.fromkeys([1, 2], table(DATA)), [(1, 2)] * (MOST_PAIRS + 1))
    made.miss(DATA)
    made.miss(INDICES)
    assert len(made.asked) == MOST_PAIRS


def test_an_index_that_needs_no_bytes_is_bounded_too(tmp_path: Path) -> None:
    """Six million chunks of a byte, said by a header of a few bytes."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_chunk((1,))
        create.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        create.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_U8LE, h5py.h5s.create_simple((6_000_000,)), create)
    with HDF5File(open_reader(str(path)), address="a.h5") as file_object:
        with h5py.File(file_object) as file:
            address = header_address(file["x"].id)
        assert index_in_memory(file_object, [address]) == {}
        assert len(structure_tables(file_object, [address])[address].table) == 6_000_000
