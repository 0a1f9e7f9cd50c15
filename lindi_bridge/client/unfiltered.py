"""Values that are stored as numpy has them in memory, copied straight out of the bytes that are held.

libhdf5 asks a file object for one run of bytes after the other. Over Python each costs as much as copying ten
kilobytes, so that a square cut out of uncompressed values takes ten times as long as from a file on the disk. And of a
chunk that fits its cache it always reads all. Here nothing is between the bytes and the result, and of a large chunk
only what is touched has to be fetched.

Only where libhdf5 would copy the bytes as they are: the stored type is the very type that h5py reads into, and no
filter was applied. Everything else, and every error, is left to h5py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt
from h5py import h5d, h5t

from lindi_bridge.client.blocks import Held, copy_block, first_of_one_run, position_of, span_in_block
from lindi_bridge.client.chunk_places import ChunkPlace, ChunkPlaces
from lindi_bridge.client.exact_selection import Axis, ExactSelection, exact_selection
from lindi_bridge.client.plan import ReadPlan
from lindi_bridge.client.runs import block_strides
from lindi_bridge.client.slabs import LARGE
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.ranges import ByteRange, h5py_lock_is_held

__all__ = ["Beside", "UnfilteredValues", "unfiltered_values"]

Array = npt.NDArray[Any]
Beside = Callable[[], list[ByteRange]]
"""What is to be fetched along with a selection, if something of it has to be fetched."""

_SMALL_CHUNK = 32 * 1024
"""Bytes. Smaller chunks libhdf5 keeps in its cache, where it finds them in less time than Python needs for each."""
_LONG_RUN = 64 * 1024
"""Bytes. Shorter runs out of the disk cache are kept in memory, where they may be wanted again."""
_MOST_GLANCES = 100_000
"""Places of a file where a short run was read out of the disk cache, and not kept."""
_SMALL_SPAN = 2 * 1024 * 1024
"""Bytes. So much of a local file may as well be read for what is cut out of it."""
_FEW_RUNS = 8
"""More runs or spans of a local file that are not long either are read in blocks, which are kept."""
_MOST_CHUNKS = 20_000
"""That are read at one time; for more, slab by slab, libhdf5 needs no list."""
_PLAIN = "biufc"
"""Kinds of types that say all about their values: an array of one of them can take what h5py would read into it."""


def unfiltered_values(dataset: h5d.DatasetID, plan: ReadPlan) -> UnfilteredValues | None:
    """What reads a dataset past libhdf5, or None where only libhdf5 knows how.

    Parameters
    ----------
    dataset : h5py.h5d.DatasetID
        The dataset.
    plan : ReadPlan
        Its plan.
    """
    if plan.leaves_file or plan.heap is not None or not plan.shape or 0 in plan.shape:
        return None
    if plan.table is None and plan.offset is None:
        return None
    if plan.table is not None and plan.chunk_nbytes < _SMALL_CHUNK:
        return None
    if plan.table is not None and plan.filters and not (plan.table.filter_mask & _all(plan) == _all(plan)).any():
        return None
    dtype = _plain_type(dataset.get_type())
    if dtype is None or dtype.itemsize != plan.itemsize:
        return None
    if plan.table is None and dataset.get_storage_size() != plan.itemsize * math.prod(plan.shape):
        return None
    return UnfilteredValues(dataset, plan, dtype)


def _plain_type(stored: h5t.TypeID) -> np.dtype[Any] | None:
    """The type that h5py reads into, if libhdf5 has nothing to convert for it: the two types are equal."""
    try:
        dtype: np.dtype[Any] = stored.dtype
        if dtype.hasobject or dtype.subdtype is not None or not stored.equal(h5t.py_create(dtype)):
            return None
    except (TypeError, ValueError, RuntimeError):  # one that numpy has not; h5py says so
        return None
    return dtype


def _all(plan: ReadPlan) -> int:
    """The filter mask of a chunk to which no filter was applied."""
    return (1 << plan.filters) - 1


class UnfilteredValues:
    """Reads one dataset out of the bytes in memory, what is missing fetched in one wave.

    Parameters
    ----------
    dataset : h5py.h5d.DatasetID
        The dataset. Use :func:`unfiltered_values` to find out whether it is of the right kind.
    plan : ReadPlan
        Its plan.
    dtype : numpy.dtype
        What h5py reads into.
    """

    def __init__(self, dataset: h5d.DatasetID, plan: ReadPlan, dtype: np.dtype[Any]) -> None:
        self._dataset = dataset
        self._plan = plan
        self._dtype = dtype
        # numpy copies fields one by one and leaves out what is between them; libhdf5 does not.
        self._raw = np.dtype(f"V{dtype.itemsize}") if dtype.names is not None else dtype
        self._chunks = plan.chunks
        self._places = None if plan.table is None else ChunkPlaces(plan.table)
        self._strides = block_strides(plan.chunks or plan.shape, dtype.itemsize)
        self._skipped = _all(plan)
        self._chunk_nbytes = plan.chunk_nbytes
        self._missing: Array | None = None

    def read(self, args: Any, file: HDF5File, beside: Beside) -> Any:
        """``dataset[args]`` as h5py gives it, or None where it has to be asked.

        Parameters
        ----------
        args : object
            The selection.
        file : HDF5File
            The file object below.
        beside : callable
            What to fetch along, if something has to be fetched.
        """
        selection = exact_selection(args, self._plan.shape)
        if selection is None:
            return None
        out = np.empty(selection.shape, self._dtype)
        if not self._read_into(out, selection, args, file, beside, fill=True):
            return None
        return out if out.ndim else out[()]

    def read_direct(self, out: Any, args: Any, file: HDF5File, beside: Beside) -> bool:
        """Read ``dataset[args]`` into an array of the same shape and type; False if h5py has to do it.

        Parameters
        ----------
        out : ndarray
            Where the values go.
        args : object
            The selection.
        file : HDF5File
            The file object below.
        beside : callable
            What to fetch along, if something has to be fetched.
        """
        selection = exact_selection(args, self._plan.shape)
        if (
            selection is None
            or type(out) is not np.ndarray
            or out.dtype != self._dtype
            or self._dtype.kind not in _PLAIN
            or out.dtype.metadata != self._dtype.metadata
            or out.shape != selection.shape
            or not out.ndim
            or not (out.flags.c_contiguous and out.flags.writeable and out.flags.aligned)
        ):
            return False
        # Where there is no chunk, libhdf5 may be bound to leave the array as it is.
        return self._read_into(out, selection, args, file, beside, fill=False)

    def _read_into(
        self, out: Array, selection: ExactSelection, args: Any, file: HDF5File, beside: Beside, *, fill: bool
    ) -> bool:
        parts = self._parts(selection.axes, fill)
        if parts is None:
            return False
        if self._raw is not self._dtype:
            out = out.view(self._raw)
        out = out.reshape([len(axis) for axis in selection.axes])
        # Memory needs no look where nothing was fetched ahead: what is on the disk is read from there.
        first = next((part.start for part in parts if part.start >= 0), None)
        straight = (
            first is not None
            and not file.has_fetched_ahead
            and (not file.is_local or out.nbytes >= _LONG_RUN * len(parts))
            and not file.is_embedded(first)
        )
        if (
            (straight and self._read_locally(out, parts, file))
            or self._copy(out, parts, file)
            or (not straight and self._read_locally(out, parts, file))
        ):
            return True
        if h5py_lock_is_held():
            return False
        ranges = self._plan.ranges(args, past_libhdf5=True)
        if sum(r.length for r in ranges) > min(LARGE, file.cache_bytes // 2):
            return False
        file.ensure([*ranges, *beside()])
        return self._copy(out, parts, file)

    def _parts(self, axes: list[Axis], fill: bool) -> list[_Part] | None:
        """What has to be copied, block by block; None where libhdf5 has to decode something."""
        if self._places is None:
            assert self._plan.offset is not None
            return [_Part(self._plan.offset, (), tuple(axes))]
        assert self._chunks is not None
        cuts = [_cut(axis, chunk) for axis, chunk in zip(axes, self._chunks, strict=True)]
        if math.prod(map(len, cuts)) > _MOST_CHUNKS:
            return None
        places = self._places.find_box([[number for number, _, _ in cut] for cut in cuts])
        if not all(self._is_raw(place) if place else fill for place in places):
            return None
        parts = []
        for place, pieces in zip(places, itertools.product(*cuts), strict=True):
            numbers, where, inside = zip(*pieces, strict=True)
            if place is None and self._missing is None:
                self._missing = self._missing_value(numbers)
            parts.append(_Part(-1 if place is None else place.offset, where, inside))
        return parts

    def _is_raw(self, place: ChunkPlace) -> bool:
        return place.filter_mask & self._skipped == self._skipped and place.nbytes == self._chunk_nbytes

    def _copy(self, out: Array, parts: list[_Part], file: HDF5File) -> bool:
        """Copy what is selected; False if not all of it is in memory."""
        held = Held(file.find)
        for start, where, axes in parts:
            if start < 0:
                out[where] = self._missing
            elif not copy_block(out[where] if where else out, axes, self._strides, start, held):
                return False
        return True

    def _read_locally(self, out: Array, parts: list[_Part], file: HDF5File) -> bool:
        """Read runs from a file or a cache of this machine to where they belong, without a copy in memory."""
        runs: list[tuple[int, memoryview]] = []
        cut_out: list[tuple[Array, tuple[Axis, ...], int, int, memoryview]] = []
        for start, where, axes in parts:
            part = out[where] if where else out
            if start < 0:
                part[...] = self._missing
                continue
            first = first_of_one_run(axes, self._plan.chunks or self._plan.shape, self._strides)
            is_long = part.nbytes >= _LONG_RUN or (len(parts) <= _FEW_RUNS and file.is_local)
            if (
                first is not None
                and part.flags.c_contiguous
                and (is_long or (len(parts) == 1 and _is_new(start + first, file)))
            ):
                runs.append((start + first, part.reshape(-1).view(np.uint8).data))
                continue
            first, nbytes = span_in_block(axes, self._strides, part.itemsize)
            if nbytes > _SMALL_SPAN or len(parts) > _FEW_RUNS or not file.is_local:
                return False
            runs.append((start + first, np.empty(nbytes, np.uint8).data))
            cut_out.append((part, axes, start, *runs[-1]))
        if not file.read_into(runs):
            return False
        return all(
            copy_block(part, axes, self._strides, start, Held({begin: data}.get))
            for part, axes, start, begin, data in cut_out
        )

    def _missing_value(self, numbers: tuple[int, ...]) -> Array:
        """What libhdf5 reads where there is no chunk."""
        assert self._chunks is not None
        first = tuple(slice(k * chunk, k * chunk + 1) for k, chunk in zip(numbers, self._chunks, strict=True))
        found: Array = h5py.Dataset(self._dataset, readonly=True)[first]
        return found.view(self._raw)


def _is_new(address: int, file: HDF5File) -> bool:
    """Whether nothing short was read around an address before. What is read there again, memory had better hold."""
    glanced: set[int] = file.properties.setdefault("glanced", set())
    page = address // _LONG_RUN
    if page in glanced or len(glanced) >= _MOST_GLANCES:
        return False
    glanced.add(page)
    return True


class _Part(NamedTuple):
    """Part of a selection that lies in one block: its address (-1: nothing is there), and indices.

    ``where`` are those of the result, ``axes`` those inside the block.
    """

    start: int
    where: tuple[slice, ...]
    axes: tuple[Axis, ...]


def _cut(axis: Axis, chunk: int) -> list[tuple[int, slice, Axis]]:
    """Cut indices at the borders of chunks: the number of a chunk, positions, and indices inside it."""
    first, last = int(axis[0]) // chunk, int(axis[-1]) // chunk
    if first == last:
        return [(first, slice(None), _moved(axis, first * chunk))]
    out = []
    position = 0
    while position < len(axis):
        number = int(axis[position]) // chunk
        stop = position_of(axis, (number + 1) * chunk)
        out.append((number, slice(position, stop), _moved(axis[position:stop], number * chunk)))
        position = stop
    return out


def _moved(axis: Axis, by: int) -> Axis:
    return range(axis.start - by, axis.stop - by, axis.step) if isinstance(axis, range) else axis - by
