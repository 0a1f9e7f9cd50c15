"""How much to fetch where a read meets bytes that nobody fetched ahead.

Whoever reads on where a block ended gets one of twice the length, and all others a small one. Several places are
remembered, because the values and the indices of a sparse matrix are read in turn.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["BLOCK", "DemandWindows"]

BLOCK = 64 * 1024
"""Bytes of the first block; blocks begin at its multiples."""
_LONGEST = 4 * 1024 * 1024
_MOST_PLACES = 8

Find = Callable[[int], memoryview | None]


class DemandWindows:
    """Lengths of the blocks to fetch, by where the last ones ended. Takes no lock: used while h5py's is held."""

    def __init__(self) -> None:
        self._places: tuple[tuple[int, int], ...] = ()  # (end of a block, its length), the last one first

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
                self._places = tuple(other for other in self._places if other != place)
                return min(2 * length, _LONGEST)
        return BLOCK

    def ended(self, end: int, length: int) -> None:
        """Note where the block ended for which :meth:`length` was asked."""
        self._places = ((end, length), *self._places[: _MOST_PLACES - 1])


def _continues(end: int, start: int, find: Find) -> bool:
    """Whether nothing lies between an end and the block of ``start`` but what is in memory anyway."""
    while end < start and (found := find(end)) is not None:
        end += len(found)
    return start // BLOCK * BLOCK <= end <= start
