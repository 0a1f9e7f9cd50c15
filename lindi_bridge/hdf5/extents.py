"""Pieces of a file held in memory, found by file address without taking a lock.

``readinto`` runs while h5py's global lock is held and must not wait for any other Python lock. So readers here
see an immutable snapshot, and writers put a new one in its place.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence
from typing import Protocol

from lindi_bridge.ranges import ByteRange

__all__ = ["ExtentCache", "HeldBytes", "missing_ranges"]

_clock = itertools.count()
_PATIENCE = 2
"""How many times the bytes of a cache may be fetched before what was fetched ahead counts as forgotten."""


class HeldBytes(Protocol):
    """Pieces of a file in memory, found without taking a lock."""

    def find(self, address: int) -> memoryview | None:
        """The bytes from ``address`` on, to the end of their piece, or None."""

    def next_start(self, address: int) -> int | None:
        """Address of the first piece that begins after ``address``."""


class _Extent:
    """Bytes of the file from address ``start``, and when they were last used.

    ``came`` is how many bytes had been added to the cache when they were.
    """

    __slots__ = ("came", "data", "is_unread", "start", "used")

    def __init__(self, start: int, data: memoryview, came: int) -> None:
        self.start = start
        self.data = data
        self.came = came
        self.is_unread = True
        self.used = next(_clock)


class ExtentCache:
    """Disjoint pieces of one file, the least recently used dropped first.

    What was fetched ahead and not read yet is dropped last, or fetching the next slab would drop this one; but not if
    much has been fetched since: then nobody is going to read it.

    Parameters
    ----------
    limit : int, optional
        Bytes to hold at the most; None: no limit (used for metadata, which is never dropped).

    Notes
    -----
    ``find`` may be called from any thread at any time. ``add`` must be serialised by the caller.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._snapshot: tuple[list[int], list[_Extent]] = ([], [])
        self._nbytes = 0
        self._added = 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._nbytes

    def find(self, address: int) -> memoryview | None:
        """The bytes held from ``address`` on, to the end of their piece, or None."""
        extent = self._extent(address)
        if extent is None:
            return None
        extent.used, extent.is_unread = next(_clock), False
        return extent.data[address - extent.start :]

    def peek(self, address: int) -> memoryview | None:
        """As :meth:`find`, for who wants to know what is there and does not read it."""
        extent = self._extent(address)
        return None if extent is None else extent.data[address - extent.start :]

    def is_unread(self, address: int) -> bool:
        """Whether a piece is held there that was never found."""
        extent = self._extent(address)
        return extent is not None and extent.is_unread

    def _extent(self, address: int) -> _Extent | None:
        starts, extents = self._snapshot
        index = bisect.bisect_right(starts, address) - 1
        if index < 0:
            return None
        extent = extents[index]
        return extent if address - extent.start < len(extent.data) else None

    def next_start(self, address: int) -> int | None:
        """Address of the first piece that begins after ``address``."""
        starts, _ = self._snapshot
        index = bisect.bisect_right(starts, address)
        return starts[index] if index < len(starts) else None

    def add(self, pieces: Iterable[tuple[int, bytes | memoryview]]) -> None:
        """Hold further pieces (address, bytes)."""
        starts, extents = list(self._snapshot[0]), list(self._snapshot[1])
        for start, data in pieces:
            self._insert(starts, extents, start, memoryview(data))
        if self._limit is not None and self._nbytes > self._limit:
            forgotten = self._added - _PATIENCE * self._limit
            extents.sort(key=lambda e: (e.is_unread and e.came >= forgotten, e.used), reverse=True)
            while self._nbytes > self._limit and len(extents) > 1:
                self._nbytes -= len(extents.pop().data)
            extents.sort(key=lambda extent: extent.start)
            starts = [extent.start for extent in extents]
        self._snapshot = (starts, extents)

    def _insert(self, starts: list[int], extents: list[_Extent], start: int, data: memoryview) -> None:
        """Put a piece in, cut so that the pieces stay disjoint: ``find`` looks at one of them only."""
        index = bisect.bisect_right(starts, start)
        if index and (held := starts[index - 1] + len(extents[index - 1].data) - start) > 0:
            start, data = start + held, data[held:]
        inside = index
        while inside < len(starts) and starts[inside] + len(extents[inside].data) <= start + len(data):
            self._nbytes -= len(extents[inside].data)
            inside += 1
        if inside < len(starts):
            data = data[: max(0, starts[inside] - start)]
        new = [_Extent(start, data, self._added)] if len(data) else []
        starts[index:inside] = [extent.start for extent in new]
        extents[index:inside] = new
        self._nbytes += len(data)
        self._added += len(data)

    def clear(self) -> None:
        """Drop everything."""
        self._snapshot = ([], [])
        self._nbytes = 0


def missing_ranges(ranges: Iterable[ByteRange], caches: Sequence[HeldBytes]) -> list[ByteRange]:
    """The parts of ``ranges`` that none of the caches holds."""
    out = []
    for start, length in ranges:
        address, stop = start, start + length
        while address < stop:
            held = max((len(found) for c in caches if (found := c.find(address)) is not None), default=0)
            if held:
                address += held
                continue
            begin = address
            following = [n for c in caches if (n := c.next_start(address)) is not None]
            address = min([stop, *following])
            out.append(ByteRange(begin, address - begin))
    return out
