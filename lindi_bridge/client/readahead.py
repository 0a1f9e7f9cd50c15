"""Successive slices of a dataset: what comes next is fetched while the last one is decoded.

A slice that begins where the one before ended makes a stream. Only then anything is fetched that nobody asked for: at
first about as much as was read, then twice as much each time, up to a share of the cache.
"""

from __future__ import annotations

import posixpath

import h5py

from lindi_bridge.client.neighbour import neighbour_plan
from lindi_bridge.client.plan import ReadPlan
from lindi_bridge.client.selection import Box
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.sparse import is_sparse_array
from lindi_bridge.ranges import ByteRange, h5py_lock_is_held

__all__ = ["SHARE", "Stream", "stream_of"]

_MOST_STREAMS = 3
SHARE = 8
"""Each stream may be ahead by this part of the cache: three of them beside a read that takes half of it."""
_LEAST = 64 * 1024
"""Bytes that it is worth to ask for."""


class _Streams:
    """The streams of one file."""

    def __init__(self) -> None:
        self.known: dict[ReadPlan, Stream] = {}
        self.running: list[Stream] = []
        self.finished: tuple[str, int] = ("", 0)
        """Name and length of the array of a sparse matrix that was streamed last, and all of which is on its way."""

    def run(self, stream: Stream) -> None:
        """Make room for a stream that is ahead; the one that has been ahead without going on for longest gives up."""
        self.running = [stream, *(other for other in self.running if other is not stream)]
        for other in self.running[_MOST_STREAMS:]:
            other.stop()
        self.running = self.running[:_MOST_STREAMS]


class Stream:
    """Follows the slices that are read of one dataset.

    Parameters
    ----------
    plan : ReadPlan
        Of the dataset.
    """

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._shape = plan.shape
        self._last: Box = ()
        self._axis = -1
        """Along which the slices go on; -1 as long as they do not."""
        self._window = 0
        """Indices that may be fetched ahead."""
        self._shortest = 0
        """Indices of the shortest slice of the stream."""
        self._fetched = 0
        """First index that was not asked for yet."""

    def follow(self, spans: Box, dataset: h5py.Dataset, file: HDF5File) -> None:
        """Note a selection that is about to be read, and have fetched what will be read after it.

        Parameters
        ----------
        spans : Box
            The selection.
        dataset : Dataset
            What is read.
        file : HDF5File
            The file object below.
        """
        last, self._last = self._last, spans
        axis = _continued_axis(last, spans)
        if axis is None:
            if self._axis >= 0:
                self.stop()
            if spans[0][0] or not self._follows_its_neighbour(spans, dataset, file):
                return
            axis = 0
        if axis != self._axis:
            self._axis, self._fetched, self._shortest = axis, 0, 0
        length = spans[axis][1] - spans[axis][0]
        self._shortest = min(self._shortest or length, length)
        self._advance(spans, axis, file)
        if len(self._shape) == 1 and max(self._fetched, spans[0][1]) >= self._shape[0]:
            self._announce_neighbour(dataset, file)

    def stop(self) -> None:
        """Begin anew."""
        self._axis, self._window, self._fetched, self._shortest = -1, 0, 0, 0

    def _advance(self, spans: Box, axis: int, file: HDF5File) -> None:
        """Fetch what follows, unless half of the window is on its way already."""
        (first, stop), length = spans[axis], self._shape[axis]
        chunk = self._plan.chunks[axis] if self._plan.chunks else 1
        begin = max(self._fetched, min(_up(stop, chunk), length))  # the chunk of `stop` comes with this slice
        window = max(self._window, stop - first)
        # `begin` was rounded up to a chunk, which must not make a slice of difference.
        if begin >= length or begin - stop > window // 2 + min(chunk, stop - first) or h5py_lock_is_held():
            return

        def ranges(end: int) -> list[ByteRange]:
            box = [slice(*span) for span in spans]
            box[axis] = slice(begin, end)
            return self._plan.ranges(tuple(box))

        end = furthest = min(_up(stop + 2 * window, chunk), length)
        wanted = ranges(end)
        nbytes = sum(r.length for r in wanted)
        room = file.cache_bytes // SHARE
        least = min(_LEAST, room)
        if nbytes * (end - stop) > room * (end - begin):  # what is on its way already counts as well
            end = (stop + (end - begin) * room // nbytes) // chunk * chunk
        elif 0 < nbytes < least:
            end = min(begin + (end - begin) * least // nbytes // chunk * chunk, length)
        self._window = max(end - stop, 0)
        if end > begin:
            self._fetched = end
            _streams(file).run(self)
            file.fetch_later(wanted if end == furthest else ranges(end))

    def _announce_neighbour(self, dataset: h5py.Dataset, file: HDF5File) -> None:
        """Fetch the beginning of the other array of a sparse matrix: two slices of the same length."""
        name, streams = str(dataset.name), _streams(file)
        if streams.finished[0] == name or not is_sparse_array(name) or h5py_lock_is_held():
            return
        before, streams.finished = streams.finished[0], (name, self._shape[0])
        if self._are_neighbours(before, name):
            return  # it was the first of the two
        neighbour = neighbour_plan(dataset, file)
        ranges = [] if neighbour is None else neighbour.ranges(slice(0, 2 * self._shortest))
        if sum(r.length for r in ranges) <= file.cache_bytes // SHARE:
            file.fetch_later(ranges)

    def _follows_its_neighbour(self, spans: Box, dataset: h5py.Dataset, file: HDF5File) -> bool:
        """Whether this is the beginning of one array of a sparse matrix, of which the other one was streamed."""
        name, length = _streams(file).finished
        if len(spans) != 1 or length != self._shape[0] or spans[0][1] == length:
            return False
        return self._are_neighbours(name, str(dataset.name))

    @staticmethod
    def _are_neighbours(one: str, other: str) -> bool:
        """Whether two paths may be the two arrays of one sparse matrix."""
        are_two = one != other and is_sparse_array(one) and is_sparse_array(other)
        return are_two and posixpath.dirname(one) == posixpath.dirname(other)


def stream_of(plan: ReadPlan, file: HDF5File) -> Stream:
    """The stream of a dataset, the same for all objects that stand for it."""
    known = _streams(file).known
    stream = known.get(plan)
    return known.setdefault(plan, Stream(plan)) if stream is None else stream


def _streams(file: HDF5File) -> _Streams:
    streams: _Streams | None = file.properties.get("streams")
    return file.properties.setdefault("streams", _Streams()) if streams is None else streams


def _continued_axis(last: Box, spans: Box) -> int | None:
    """The axis along which a box begins where the last one ended, if it is the same along all others."""
    if len(spans) == 1:
        return 0 if last and last[0][1] == spans[0][0] else None
    found = None
    for axis, (before, now) in enumerate(zip(last, spans, strict=False)):
        if before == now:
            continue
        if found is not None or now[0] != before[1]:
            return None
        found = axis
    return found


def _up(index: int, chunk: int) -> int:
    return -(-index // chunk) * chunk
