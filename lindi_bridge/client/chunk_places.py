"""Where single chunks of one dataset lie, found again without another search in the table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lindi_bridge.model.chunks import ChunkTable

__all__ = ["ChunkPlace", "ChunkPlaces"]

_MOST_KNOWN = 4096
_FEW = 32


class ChunkPlace(NamedTuple):
    """Address, stored bytes and filter mask of a chunk."""

    offset: int
    nbytes: int
    filter_mask: int


class ChunkPlaces:
    """Looks chunks up in a table.

    Parameters
    ----------
    table : ChunkTable
        Of a dataset.
    """

    def __init__(self, table: ChunkTable) -> None:
        self._table = table
        self._known: dict[tuple[int, ...], ChunkPlace | None] = {}

    def find(self, coordinates: tuple[int, ...]) -> ChunkPlace | None:
        """The chunk at coordinates of the grid; None for one that was never written."""
        try:
            return self._known[coordinates]
        except KeyError:
            found = self._find(coordinates)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[coordinates] = found
            return found

    def _find(self, coordinates: tuple[int, ...]) -> ChunkPlace | None:
        table, number = self._table, 0
        for k, count in zip(coordinates, table.grid, strict=True):
            number = number * count + k
        row = int(table.index.searchsorted(number))
        if row == len(table) or table.index[row] != number:
            return None
        return ChunkPlace(int(table.offset[row]), int(table.nbytes[row]), int(table.filter_mask[row]))

    def find_box(self, blocks: Sequence[Sequence[int]]) -> list[ChunkPlace | None]:
        """The chunks at all combinations of numbers along each axis, the last axis varying fastest."""
        if math.prod(map(len, blocks)) <= _FEW:
            return [self.find(coordinates) for coordinates in itertools.product(*blocks)]
        return self._search(blocks)

    def _search(self, blocks: Sequence[Sequence[int]]) -> list[ChunkPlace | None]:
        table = self._table
        wanted = np.zeros(1, np.int64)
        for numbers, count in zip(blocks, table.grid, strict=True):
            wanted = (wanted[:, None] * count + np.array(numbers, np.int64)[None, :]).reshape(-1)
        rows = np.searchsorted(table.index, wanted)
        exists = rows < len(table)
        exists[exists] = table.index[rows[exists]] == wanted[exists]
        out: list[ChunkPlace | None] = [None] * len(wanted)
        columns = (column[rows[exists]].tolist() for column in (table.offset, table.nbytes, table.filter_mask))
        for position, place in zip(np.flatnonzero(exists).tolist(), zip(*columns, strict=True), strict=True):
            out[position] = ChunkPlace(*place)
        return out
