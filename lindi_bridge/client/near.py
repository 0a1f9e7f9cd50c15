"""The short way: selections of a few chunks whose bytes are in memory, or on the disk, need no planning.

Planning a selection takes as long as libhdf5 takes to copy a hundred kilobytes. Whoever reads element by element, or
chunk by chunk, would wait for that most of the time.
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

from lindi_bridge.client.chunk_places import ChunkPlaces
from lindi_bridge.client.plan import ReadPlan
from lindi_bridge.client.runs import block_strides
from lindi_bridge.client.selection import Box, box_of
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.ranges import ByteRange

__all__ = ["NearChunks"]

_MOST_PIECES = 128


class NearChunks:
    """Tells for one dataset whether a simple selection can be read as it is.

    Parameters
    ----------
    plan : ReadPlan
        Of the dataset.
    file : HDF5File
        What is in memory.
    """

    def __init__(self, plan: ReadPlan, file: HDF5File) -> None:
        self._shape = plan.shape
        self._places = None if plan.table is None else ChunkPlaces(plan.table)
        self._chunks = plan.chunks or ()
        self._file = file
        self._is_decoded = plan.is_decoded
        self._are_all_straight = file.is_local and plan.is_decoded and file.is_straight(ByteRange(0, plan.least_nbytes))
        self._offset = plan.offset
        self._strides = block_strides(plan.shape, plan.itemsize)
        # Variable-length values lie elsewhere, and scalars are read once.
        self._is_simple = plan.heap is None and bool(plan.shape) and not plan.leaves_file

    def are_held(self, args: Any) -> bool:
        """Whether ``dataset[args]`` reads a few chunks, or runs of contiguous bytes, none of which has to be fetched.

        Parameters
        ----------
        args : object
            The selection. False for all but integers and slices without a step.
        """
        if not self._is_simple:
            return False
        box = box_of(args, self._shape)
        if box is None:
            return False
        if self._places is None:
            return self._offset is not None and self._runs_are_held(box, self._offset)
        spans = [
            range(first // chunk, (stop - 1) // chunk + 1)
            for (first, stop), chunk in zip(box, self._chunks, strict=True)
        ]
        if math.prod(map(len, spans)) > _MOST_PIECES:
            return False
        if self._are_all_straight:
            return True
        places = map(self._places.find, itertools.product(*spans))
        stored = (ByteRange(place.offset, place.nbytes) for place in places if place is not None)
        return all(self._file.holds(r) or (self._is_decoded and self._file.is_straight(r)) for r in stored)

    def _runs_are_held(self, box: Box, offset: int) -> bool:
        inner = len(box) - 1
        while inner > 0 and box[inner] == (0, self._shape[inner]):
            inner -= 1
        if math.prod(stop - first for first, stop in box[:inner]) > _MOST_PIECES:
            return False
        first, stop = box[inner]
        start, length = offset + first * self._strides[inner], (stop - first) * self._strides[inner]
        outer = itertools.product(*(range(*span) for span in box[:inner]))
        return all(
            self._file.holds(ByteRange(start + sum(map(operator.mul, place, self._strides)), length)) for place in outer
        )
