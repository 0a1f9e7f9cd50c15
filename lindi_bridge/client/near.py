"""The short way: selections of a few chunks whose bytes are in memory need no planning.

Planning a selection takes as long as libhdf5 takes to copy a hundred kilobytes. Whoever reads element by element, or
chunk by chunk, would wait for that most of the time.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from lindi_bridge.client.plan import ReadPlan
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.ranges import ByteRange

__all__ = ["NearChunks"]

_MOST_CHUNKS = 8
_MOST_KNOWN = 4096
_NOTHING = ByteRange(0, 0)


class NearChunks:
    """Tells for one dataset whether a simple selection can be read from memory as it is.

    Parameters
    ----------
    plan : ReadPlan
        Of the dataset.
    """

    def __init__(self, plan: ReadPlan) -> None:
        self._shape = plan.shape
        self._table = plan.table
        self._chunks = plan.chunks or ()
        self._offset = plan.offset
        self._row = plan.itemsize * math.prod(plan.shape[1:])
        # Variable-length values lie elsewhere, and scalars are read once.
        self._is_simple = plan.heap is None and bool(plan.shape) and not plan.leaves_file
        self._known: dict[int, ByteRange] = {}

    def are_held(self, args: Any, file: HDF5File) -> bool:
        """Whether ``dataset[args]`` reads a few chunks, or rows next to each other, all of which are in memory.

        Parameters
        ----------
        args : object
            The selection. False for all but integers and slices without a step.
        file : HDF5File
            What is in memory.
        """
        if not self._is_simple:
            return False
        box = self._box(args)
        if box is None:
            return False
        if self._table is None:
            first, stop = box[0]
            return self._offset is not None and file.holds(
                ByteRange(self._offset + first * self._row, (stop - first) * self._row)
            )
        spans = [
            range(first // chunk, (stop - 1) // chunk + 1)
            for (first, stop), chunk in zip(box, self._chunks, strict=True)
        ]
        if math.prod(map(len, spans)) > _MOST_CHUNKS:
            return False
        return all(file.holds(self._chunk(place)) for place in itertools.product(*spans))

    def _box(self, args: Any) -> list[tuple[int, int]] | None:
        """First index and end along each axis; None if it is no box, or an empty one."""
        items = args if type(args) is tuple else (args,)
        if len(items) > len(self._shape):
            return None
        box = []
        for item, length in zip(items, self._shape, strict=False):
            if type(item) is int:
                first = item + length if item < 0 else item
                stop = first + 1
            elif type(item) is slice and item.step is None:
                try:
                    first, stop, _ = item.indices(length)
                except TypeError:
                    return None
            else:
                return None
            if not 0 <= first < stop <= length:
                return None
            box.append((first, stop))
        box += [(0, length) for length in self._shape[len(box) :]]
        return box if self._shape.count(0) == 0 else None

    def _chunk(self, place: tuple[int, ...]) -> ByteRange:
        """Where a chunk lies; nothing for one that was never written."""
        assert self._table is not None
        index = 0
        for k, count in zip(place, self._table.grid, strict=True):
            index = index * count + k
        found = self._known.get(index)
        if found is None:
            rows = self._table.rows(np.array([index], np.int64))
            found = (
                ByteRange(int(self._table.offset[rows[0]]), int(self._table.nbytes[rows[0]])) if len(rows) else _NOTHING
            )
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[index] = found
        return found
