"""Chunks that are read in turn under h5py's lock: the second one is fetched beside the first.

``data`` and ``indices`` of a sparse matrix have the same chunks. h5py asks for one chunk after the other, and says
nothing of what comes next; but whoever missed a chunk of one array and then the same chunk of the other one does so
again. A hint: what is wrong here costs bytes, never a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lindi_bridge.ranges import ByteRange

if TYPE_CHECKING:
    from lindi_bridge.hdf5.chunk_tables import WalkedTable

__all__ = ["MOST_PAIRS", "ChunkPairs"]

MOST_PAIRS = 1000
_MOST_CHUNKS = 1_000_000
"""Of all tables together. They are read under h5py's lock, at the second read that needs one."""
_REMEMBERED = 16
"""Chunks that were missed last: a block of rows may lie in several."""
_PATIENCE = 4
"""Chunks that may lie there unread. No further one is fetched before one of them was read."""
_MOST_FAILURES = 3
"""One after the other, after which the source is not asked for two ranges at one time any more."""


class _Pair:
    """What is known of how two arrays are read: sides 0 and 1."""

    __slots__ = ("brought", "first", "missed")

    def __init__(self) -> None:
        self.first = -1
        """The side whose chunks are read first; -1 as long as nothing is learned."""
        self.missed: tuple[tuple[int, int], ...] = ()
        """Side and number of the chunks that were missed last."""
        self.brought: tuple[int, ...] = ()
        """Addresses in what was fetched along, as far as it was not read yet."""

    def note(self, side: int, number: int) -> bool:
        """Note that a chunk was missed; whether the other one of the same number is to be fetched beside it."""
        if (1 - side, number) in self.missed:
            self.first, self.missed, self.brought = 1 - side, (), ()
            return False
        self.missed = (*self.missed[1 - _REMEMBERED :], (side, number))
        return side == self.first


class ChunkPairs:
    """Tells which chunk is to be fetched beside another one. Takes no lock, and asks for nothing.

    Parameters
    ----------
    headers : sequence of (int, int)
        Addresses of the object headers of two datasets that are read in turn.
    read_tables : callable
        Given a file object and addresses of headers: their chunk tables, out of what is in memory.
    """

    def __init__(
        self,
        headers: Sequence[tuple[int, int]],
        read_tables: Callable[[Any, Sequence[int]], Mapping[int, WalkedTable]],
    ) -> None:
        self._headers = headers[:MOST_PAIRS]
        self._read_tables = read_tables
        self._before: int | None = None
        self._pairs: list[_Pair] | None = None
        self._failures = 0

    def beside(self, file: Any, address: int, until: int, is_unread: Callable[[int], bool]) -> ByteRange | None:
        """The chunk, or several, to fetch beside one that is not in memory.

        Parameters
        ----------
        file : HDF5File
            Whose memory the tables are in.
        address : int
            In the chunk that has to be fetched.
        until : int
            Up to where all chunks will be read, as far as they lie one after the other.
        is_unread : callable
            Whether what lies in memory at an address was fetched, and not read since.
        """
        if self._failures >= _MOST_FAILURES or not self._headers:
            return None
        if self._pairs is None:
            before, self._before = self._before, address
            if before is None:
                return None  # who reads but once needs no tables
            self._read(file)
            self.beside(file, before, before, is_unread)
        row = self._find(address)
        if row is None:
            return None
        pair, side = divmod(int(self._side[row]), 2)
        assert self._pairs is not None
        known = self._pairs[pair]
        if not known.note(side, int(self._number[row])):
            return None
        known.brought = tuple(a for a in known.brought if is_unread(a))
        if len(known.brought) >= _PATIENCE:
            return None
        other = self._others(row, until)
        return other if other.length > 0 and other.start >= 0 and other.stop <= file.size else None

    def came(self, beside: int, address: int) -> None:
        """Note that what was asked for beside a chunk is in memory.

        Parameters
        ----------
        beside : int
            The address that :meth:`beside` was asked with.
        address : int
            In what came.
        """
        self._failures = 0
        row = self._find(beside)
        if row is not None and self._pairs is not None:
            known = self._pairs[int(self._side[row]) // 2]
            known.brought = (*known.brought, address)

    def failed(self) -> None:
        """Note that what was asked for did not come."""
        self._failures += 1

    def _others(self, row: int, until: int) -> ByteRange:
        """Where the chunks lie that belong to that of a row, and to those after it that end before an address."""
        begin = int(self._other_offset[row])
        last = int(np.searchsorted(self._offset, until)) - 1
        if last > row and self._end(last) > until:
            last -= 1
        if last > row and self._side[row] == self._side[last]:
            end = int(self._other_offset[last]) + int(self._other_nbytes[last])
            if 0 < end - begin <= 2 * int(self._other_nbytes[row : last + 1].sum()):
                return ByteRange(begin, end - begin)
        return ByteRange(begin, int(self._other_nbytes[row]))

    def _find(self, address: int) -> int | None:
        row = int(np.searchsorted(self._offset, address, "right")) - 1
        return row if row >= 0 and address < self._end(row) else None

    def _end(self, row: int) -> int:
        # Not added by numpy, which would warn where a document says more than 64 bits hold.
        return int(self._offset[row]) + int(self._nbytes[row])

    def _read(self, file: Any) -> None:
        """Read the tables, each side of a pair with the chunks of the other side."""
        columns = [np.empty((0, 6), np.int64)]
        pairs: list[_Pair] = []
        left = _MOST_CHUNKS
        for both in self._headers:
            found = self._read_tables(file, both)
            tables = [found[header].table for header in both if header in found]
            # A document that is wrong about one pair may be about all, and must not cost the time of all.
            if len(tables) != 2 or tables[0].grid != tables[1].grid or (left := left - sum(map(len, tables))) < 0:
                break
            number, *rows = np.intersect1d(tables[0].index, tables[1].index, assume_unique=True, return_indices=True)
            places = [(table.offset[row], table.nbytes[row]) for table, row in zip(tables, rows, strict=True)]
            for side in (0, 1):
                where = np.full(len(number), 2 * len(pairs) + side)
                columns.append(np.stack([*places[side], *places[1 - side], number, where], axis=1))
            pairs.append(_Pair())
        chunks = np.concatenate(columns)
        chunks = chunks[np.argsort(chunks[:, 0], kind="stable")]
        self._offset, self._nbytes, self._other_offset, self._other_nbytes, self._number, self._side = chunks.T.copy()
        self._pairs = pairs
