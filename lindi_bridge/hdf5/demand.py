"""How much to fetch where a read meets bytes that nobody fetched ahead.

Whoever reads on where a block ended gets one of twice the length, and all others a small one. Several places are
remembered, because the values and the indices of a sparse matrix are read in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from lindi_bridge.hdf5.embedded import EmbeddedBytes
from lindi_bridge.hdf5.extents import ExtentCache
from lindi_bridge.ranges import ByteRange

__all__ = ["BLOCK", "Block", "DemandBlocks", "DemandWindows"]

BLOCK = 64 * 1024
"""Bytes of the first block; blocks begin at its multiples."""
_LONGEST = 4 * 1024 * 1024
_MOST_PLACES = 8

Find = Callable[[int], memoryview | None]


class DemandWindows:
    """Lengths of the blocks to fetch, by where the last ones ended. Takes no lock: used while h5py's is held."""

    def __init__(self) -> None:
        self._places: tuple[tuple[int, int], ...] = ()  # (end of a block, its length), the last one first
        self._continued: tuple[int, int] | None = None

    def length(self, start: int, find: Find) -> int:
        """Bytes to fetch from the multiple of ``BLOCK`` at or before ``start`` on, at the least.

        Parameters
        ----------
        start : int
            Address of the first byte that is not in memory.
        find : callable
            The bytes in memory from an address on, or None.
        """
        for place in self._places:
            end, length = place
            if _continues(end, start, find):
                self._continued = place
                return min(2 * length, _LONGEST)
        self._continued = None
        return BLOCK

    def ended(self, end: int, length: int) -> None:
        """Note where the block ended for which :meth:`length` was asked last."""
        others = [place for place in self._places if place != self._continued]
        self._places = ((end, length), *others[: _MOST_PLACES - 1])


def _continues(end: int, start: int, find: Find) -> bool:
    """Whether nothing lies between an end and the block of ``start`` but what is in memory anyway."""
    while end < start and (found := find(end)) is not None:
        end += len(found)
    return start // BLOCK * BLOCK <= end <= start


class Block(NamedTuple):
    """What to fetch where bytes are missing.

    Parameters
    ----------
    start : int
        The byte that is missing.
    begin, stop : int
        First byte to fetch, and the first after.
    window : int
        Bytes that it would be if nothing around was in memory.
    """

    start: int
    begin: int
    stop: int
    window: int

    @property
    def length(self) -> int:
        """Bytes to fetch."""
        return self.stop - self.begin

    @property
    def range(self) -> ByteRange:
        """What to fetch."""
        return ByteRange(self.begin, self.length)


class DemandBlocks:
    """Finds the block to fetch where bytes are missing; looks at what is in memory without reading it.

    Parameters
    ----------
    caches : sequence of ExtentCache
        What is in memory.
    size : int
        Bytes of the file.
    most_beside : int
        Bytes of the longest block to fetch beside another one.
    """

    def __init__(self, caches: Sequence[EmbeddedBytes | ExtentCache], size: int, most_beside: int) -> None:
        self.windows = DemandWindows()
        self._most_beside = most_beside
        self._caches = caches
        self._size = size

    def around(self, start: int, stop: int) -> Block:
        """The block for bytes of which the first is missing."""
        begin = start // BLOCK * BLOCK
        window = self.windows.length(start, self._peek)
        end = min(self._size, max(-(-stop // BLOCK) * BLOCK, begin + window))
        # Whatever lies in between is known already: the block is cut to the hole.
        following = [n for cache in self._caches if (n := cache.next_start(start)) is not None]
        end = min([end, *following])
        while begin < start and (found := self._peek(begin)) is not None:
            begin = min(start, begin + len(found))
        return Block(start, begin, end, window)

    def beside(self, other: ByteRange, block: Block) -> Block | None:
        """The block for bytes that are to be fetched at the same time as a block; None if none is missing, or too many.

        Parameters
        ----------
        other : ByteRange
            What will be read.
        block : Block
            What is fetched anyway.
        """
        start = other.start
        while start < other.stop:
            if block.begin <= start < block.stop:
                start = block.stop
            elif (found := self._peek(start)) is not None:
                start += len(found)
            else:
                break
        else:
            return None
        beside = self.around(start, other.stop)
        if beside.begin < block.stop and block.begin < beside.stop:  # up to the block, or from its end on
            beside = beside._replace(begin=start, stop=block.begin if start < block.begin else beside.stop)
        return beside if beside.length <= self._most_beside else None

    def _peek(self, address: int) -> memoryview | None:
        for cache in self._caches:
            found = cache.peek(address)
            if found is not None:
                return found
        return None
