"""Where the chunks of a dataset lie: a table in numpy arrays, no Python object per chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["ChunkTable", "chunk_grid"]

Int64Array = npt.NDArray[np.int64]


def chunk_grid(shape: Sequence[int], chunks: Sequence[int]) -> tuple[int, ...]:
    """Number of chunks along each axis."""
    return tuple(-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True))


@dataclass(frozen=True, eq=False)
class ChunkTable:
    """The allocated chunks of one dataset.

    Parameters
    ----------
    grid : tuple of int
        Number of chunks along each axis of the dataset's current shape.
    index : (n,) int64 array
        Row-major number of each chunk in the grid, ascending and unique.
    offset, nbytes : (n,) int64 array
        File address and stored size (bytes) of each chunk.
    filter_mask : (n,) int64 array
        Bit k set: filter k of the pipeline was skipped for this chunk.
    source : (n,) int64 array, optional
        Which of the tree's sources each chunk lies in; None where all lie in the first.
    """

    grid: tuple[int, ...]
    index: Int64Array
    offset: Int64Array
    nbytes: Int64Array
    filter_mask: Int64Array
    source: Int64Array | None = None

    @classmethod
    def from_coordinates(
        cls,
        grid: tuple[int, ...],
        coordinates: Int64Array,
        offset: Int64Array,
        nbytes: Int64Array,
        filter_mask: Int64Array,
        source: Int64Array | None = None,
    ) -> ChunkTable:
        """Make a table from (n, rank) grid coordinates in any order.

        Raises
        ------
        ValueError
            A coordinate lies outside the grid, or two chunks have the same.
        """
        if len(coordinates) and ((coordinates < 0) | (coordinates >= np.array(grid))).any():
            raise ValueError("chunk coordinates outside the dataset")
        index = (
            np.ravel_multi_index(tuple(coordinates.T), grid).astype(np.int64)
            if len(coordinates)
            else np.empty(0, np.int64)
        )
        order = np.argsort(index, kind="stable")
        index = index[order]
        if (np.diff(index) == 0).any():
            raise ValueError("two chunks with the same coordinates")
        source = source[order] if source is not None and source.any() else None
        return cls(grid, index, offset[order], nbytes[order], filter_mask[order], source)

    def __len__(self) -> int:
        return len(self.index)

    def coordinates(self) -> Int64Array:
        """Grid coordinates, shape (n, rank)."""
        if not self.grid:
            return np.zeros((len(self), 0), np.int64)
        return np.stack(np.unravel_index(self.index, self.grid), axis=1).astype(np.int64)

    def rows(self, index: Int64Array) -> Int64Array:
        """Row of the table for each row-major chunk number; chunks that are not allocated are left out."""
        found = np.searchsorted(self.index, index)
        inside = found < len(self.index)
        found, index = found[inside], index[inside]
        rows: Int64Array = found[self.index[found] == index]
        return rows
