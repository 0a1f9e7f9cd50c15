"""``data`` and ``indices`` of a sparse matrix, read in turn: what the second needs comes in the wave of the first.

Learned from what is read. Once the same slice of both was read, one right after the other, whatever has to be fetched
for the first array brings the same slice of the second one along. If that is not read either, some times in a row, it
is forgotten.
"""

from __future__ import annotations

import posixpath

import h5py

from lindi_bridge.client.neighbour import neighbour_plan
from lindi_bridge.client.plan import ReadPlan
from lindi_bridge.client.readahead import SHARE
from lindi_bridge.client.selection import Box
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.sparse import is_sparse_array
from lindi_bridge.ranges import ByteRange, h5py_lock_is_held

__all__ = ["Pair", "pair_of"]

_PATIENCE = 3
"""Slices that may be fetched along for nothing, one after the other."""


class Pair:
    """The two arrays of a group that may be a sparse matrix.

    A hint only: threads that read at one time may confuse it.
    """

    def __init__(self) -> None:
        self._last: tuple[ReadPlan, Box] | None = None
        """What was read last of the two, unless both were."""
        self._known: tuple[ReadPlan, ...] | None = None
        """The plans of the two arrays once it was looked whether they belong together; empty if they do not."""
        self._first: ReadPlan | None = None
        """The array that is read first; None as long as nothing is learned."""
        self._brought: Box = ()
        """What was fetched of the other one and not read yet."""
        self._unread = 0

    def note(self, plan: ReadPlan, box: Box, dataset: h5py.Dataset, file: HDF5File) -> None:
        """Note what is about to be read of one of the arrays, and learn from it.

        Parameters
        ----------
        plan : ReadPlan
            Of the array.
        box : Box
            The selection.
        dataset : Dataset
            The array.
        file : HDF5File
            The file object below.
        """
        if plan is not self._first and box == self._brought:
            self._brought, self._unread = (), 0
        last, self._last = self._last, (plan, box)
        if last is None or last[0] is plan or last[1] != box or h5py_lock_is_held():
            return
        self._last = None
        if self._known is None:
            neighbour = neighbour_plan(dataset, file)
            self._known = (plan, neighbour) if neighbour is not None else ()
        if self._first is not last[0] and plan in self._known and last[0] in self._known:
            self._first, self._brought, self._unread = last[0], (), 0

    def beside(self, plan: ReadPlan, box: Box, file: HDF5File) -> list[ByteRange]:
        """What to fetch along with a selection of one of the arrays, of which something has to be fetched.

        Parameters
        ----------
        plan : ReadPlan
            Of the array.
        box : Box
            The selection.
        file : HDF5File
            The file object below.
        """
        if plan is not self._first or not self._known:
            return []
        if self._brought:
            self._unread += 1
            if self._unread >= _PATIENCE:
                self._first, self._brought = None, ()
                return []
        (other,) = (known for known in self._known if known is not plan)
        ranges = other.ranges(tuple(slice(*span) for span in box))
        if sum(r.length for r in ranges) > file.cache_bytes // SHARE:
            return []
        self._brought = box
        return ranges


def pair_of(dataset: h5py.Dataset, plan: ReadPlan, file: HDF5File) -> Pair | None:
    """The pair that a dataset is part of, the same for both arrays; None if its name and shape say that it is not.

    Parameters
    ----------
    dataset : Dataset
        Any.
    plan : ReadPlan
        Of it.
    file : HDF5File
        The file object below.
    """
    if len(plan.shape) != 1 or plan.leaves_file or not is_sparse_array(dataset.name):
        return None
    pairs: dict[str, Pair] = file.properties.setdefault("pairs", {})
    return pairs.setdefault(posixpath.dirname(str(dataset.name)), Pair())
