"""Many runs of one-dimensional datasets, fetched together and read in few pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from lindi_bridge.client.plan import read_plan
from lindi_bridge.ranges import ByteRange

__all__ = ["Runs", "expand", "read_together"]

IntArray = npt.NDArray[np.int64]

_LARGEST_PIECE = 8 * 1024 * 1024
"""Bytes in memory of what is read at once; a single run, and what lies in a few large chunks, may be more."""


def expand(starts: IntArray, lengths: IntArray) -> IntArray:
    """The numbers of all runs one after the other: ``starts[0], starts[0] + 1, ...``."""
    shift = starts - np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return np.repeat(shift, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)


def _joined(starts: IntArray, lengths: IntArray) -> tuple[IntArray, IntArray]:
    """Runs that touch each other as one."""
    if not len(starts):
        return starts, lengths
    stops = starts + lengths
    begins = np.flatnonzero(np.concatenate([[True], starts[1:] != stops[:-1]]))
    return starts[begins], stops[np.concatenate([begins[1:] - 1, [len(stops) - 1]])] - starts[begins]


class Runs:
    """Ascending, disjoint runs of elements of a dataset, put together to pieces that are read one by one.

    Runs in the same chunk are one piece, so that no chunk is decoded twice.

    Parameters
    ----------
    dataset : Dataset
        Ours, with one axis.
    starts, lengths : (n,) int64 array
        First element and number of elements of each run.
    block : int
        Elements. What lies contiguous is read in blocks of so many, so that neighbours are there for the next time;
        with 1 exactly the runs are.
    """

    def __init__(self, dataset: Any, starts: IntArray, lengths: IntArray, block: int = 1) -> None:
        self._dataset = dataset
        self._file = dataset._file_object
        self._plan = read_plan(dataset.id, self._file)
        self._starts, self._lengths = _joined(starts[lengths > 0], lengths[lengths > 0])
        chunk = self._plan.chunks[0] if self._plan.chunks else block
        # (first element, element after the last, first run, run after the last)
        self.pieces = list(self._pieces(chunk))

    def _pieces(self, chunk: int) -> Iterator[tuple[int, int, int, int]]:
        starts, stops = self._starts.tolist(), (self._starts + self._lengths).tolist()
        # At least a few chunks, however large: where a piece is cut inside a chunk, that is decoded for both.
        most = max(_LARGEST_PIECE // self._dataset.dtype.itemsize, 4 * chunk)
        opened = 0
        for k in range(1, len(starts) + 1):
            is_near = k < len(starts) and starts[k] // chunk <= (stops[k - 1] - 1) // chunk + 1
            if is_near and stops[k] - starts[opened] <= most:
                continue
            low, high = starts[opened], stops[k - 1]
            if self._plan.chunks is None:
                low, high = low // chunk * chunk, min(-(-high // chunk) * chunk, self._dataset.shape[0])
            yield low, high, opened, k
            opened = k

    def ranges(self, piece: tuple[int, int, int, int]) -> list[ByteRange]:
        """Byte ranges of a piece."""
        return self._plan.ranges(slice(piece[0], piece[1]))

    def read(self, window: int | None = None) -> npt.NDArray[Any]:
        """The elements of all runs one after the other.

        Parameters
        ----------
        window : int, optional
            Bytes to fetch ahead at a time, where not everything was fetched before.
        """
        # As h5py's: libhdf5 leaves an array as it is where a dataset has neither chunks nor fill values.
        out = np.zeros(int(self._lengths.sum()), self._dataset.dtype)
        plain = h5py.Dataset(self._dataset.id, readonly=True)
        place = fetched = 0
        for number, (low, high, first, stop) in enumerate(self.pieces):
            if window is not None and number >= fetched:
                fetched = self._fetch(number, window)
            lengths = self._lengths[first:stop]
            count = int(lengths.sum())
            part = out[place : place + count]
            is_large = (high - low) * out.dtype.itemsize > _LARGEST_PIECE
            source = self._dataset if is_large or self._plan.leaves_file else plain
            if count == high - low:
                source.read_direct(part, np.s_[low:high])
            else:
                whole = np.zeros(high - low, out.dtype)
                source.read_direct(whole, np.s_[low:high])
                part[:] = whole[expand(self._starts[first:stop] - low, lengths)]
            place += count
        return out

    def _fetch(self, number: int, window: int) -> int:
        """Fetch pieces from a number on, as many as fit but at least one; the number of the next."""
        wanted: list[ByteRange] = []
        following = number
        while following < len(self.pieces):
            ranges = self.ranges(self.pieces[following])
            window -= sum(r.length for r in ranges)
            if window < 0:
                break
            wanted += ranges
            following += 1
        self._file.ensure(wanted)
        return max(following, number + 1)  # one that is too large is read in slabs


def read_together(*several: Runs) -> list[npt.NDArray[Any]]:
    """Read runs of several datasets of one file: one wave for all of them, if half of the cache holds it."""
    file = several[0]._file
    room = file.cache_bytes // 2
    wanted = [r for runs in several for piece in runs.pieces for r in runs.ranges(piece)]
    if sum(r.length for r in wanted) <= room:
        file.ensure(wanted)
        return [runs.read() for runs in several]
    return [runs.read(room) for runs in several]
