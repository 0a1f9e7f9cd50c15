"""Large selections: read slab by slab, the next ones fetched while one is decoded.

That also bounds memory: no more of the stored bytes than half of the cache is wanted at one time.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from lindi_bridge.client.plan import ReadPlan
from lindi_bridge.client.selection import AxisSelection, select_axes
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.ranges import ByteRange

__all__ = ["LARGE", "Ahead", "ReadInto", "read_in_slabs"]

LARGE = 16 * 1024 * 1024
"""Stored bytes of a selection beyond which it gains to decode the first slabs while others are on their way."""
_SLAB = 8 * 1024 * 1024

ReadInto = Callable[[npt.NDArray[Any], Any], bool]

_PATIENCE = 3
"""Seconds that a read may take without a progress bar (on the standard error)."""


def read_in_slabs(
    dataset: h5py.Dataset,
    plan: ReadPlan,
    file: HDF5File,
    args: Any,
    *,
    nbytes: int,
    new_dtype: Any = None,
    out: Any = None,
    past_libhdf5: ReadInto | None = None,
) -> Any:
    """``dataset[args]`` in pieces along one axis, or None where the selection cannot be cut.

    Parameters
    ----------
    dataset : h5py.Dataset
        What is read.
    plan : ReadPlan
        Its plan.
    file : HDF5File
        The file object below.
    args, new_dtype
        As for ``Dataset.__getitem__``.
    nbytes : int
        Stored bytes that the whole selection touches.
    out : ndarray, optional
        Where to put the values, of the shape of the selection; a new array if not given.
    past_libhdf5 : callable, optional
        Reads a selection into an array of its shape, or says (False) that h5py has to do it. Where little is taken of
        each run of bytes, libhdf5 takes a hundred times as long.
    """
    fits = nbytes <= file.cache_bytes // 2
    out = _read(dataset, plan, file, args, nbytes, fits, new_dtype, out, past_libhdf5)
    if out is None and fits:
        file.ensure(plan.ranges(args))
    return out


def _read(
    dataset: h5py.Dataset,
    plan: ReadPlan,
    file: HDF5File,
    args: Any,
    nbytes: int,
    fits: bool,
    new_dtype: Any,
    out: Any,
    past_libhdf5: ReadInto | None,
) -> Any:
    items = _spelled_out(args, len(plan.shape))
    axes = select_axes(args, plan.shape)
    if not items or axes is None or _is_odd_mask(args, len(plan.shape)):
        return None
    plain = h5py.Dataset(dataset.id, readonly=True)
    dtype = np.dtype(plain.dtype if new_dtype is None else new_dtype)
    names = [a for a in (args if isinstance(args, tuple) else (args,)) if isinstance(a, str)]
    shape = tuple(len(axis) for axis, item in zip(axes, items, strict=True) if not isinstance(item, (int, np.integer)))
    direct = not (dtype.hasobject or dtype.subdtype or names)
    is_given = out is not None
    if (fits and not direct) or (is_given and (names or out.shape != shape)):
        return None
    budget = min(_SLAB, file.cache_bytes // 4)
    decoded = max(nbytes, math.prod(shape) * dtype.itemsize)
    chunks = plan.chunks or (1,) * len(axes)
    axis = _axis_to_cut(items, axes, chunks, nbytes if direct else decoded, budget)
    if axis is None:
        return None
    place = sum(not isinstance(item, (int, np.integer)) for item in items[:axis])
    # Where a slab is no block of the result, it is decoded to an array of its own.
    total = nbytes if direct and math.prod(shape[:place]) == 1 else decoded
    pieces = list(_pieces(axes[axis], chunks[axis], -(-total // budget)))
    selections = [(*items[:axis], _part(items[axis], axes[axis], *p), *items[axis + 1 :]) for p in pieces]
    if out is None and direct:
        out = np.zeros(shape, dtype)  # libhdf5 may leave as it is what was never written
    # The first slab comes alone and first, since it is waited for; and if access has expired, only one renews it.
    file.ensure(plan.ranges(selections[0]))
    with Ahead(file) as ahead, _Progress(nbytes, dataset) as progress:
        begun = 1
        for number, ((first, last), selection) in enumerate(zip(pieces, selections, strict=True)):
            while begun < len(pieces) and (begun <= number or ahead.nbytes < file.cache_bytes // 4):
                ahead.fetch(plan.ranges(selections[begun]))
                begun += 1
            if number:
                ahead.wait()
            where = (slice(None),) * place + (slice(first, last),)
            if out is not None and past_libhdf5 is not None and _read_past(past_libhdf5, out, where, selection):
                pass
            elif is_given:  # libhdf5 converts to its type, and leaves out what was never written
                plain.read_direct(out, source_sel=selection, dest_sel=where)
            elif direct and out[where].flags.c_contiguous:
                plain.read_direct(out[where], source_sel=selection)
            else:
                wanted = (*selection, *names)
                part = plain[wanted] if new_dtype is None else plain.astype(dtype)[wanted]
                if out is None:
                    out = np.empty((*shape, *part.shape[len(shape) :]), part.dtype)
                out[where] = part
            progress.reach(nbytes * last // len(axes[axis]))
    return out


def _read_past(read_into: ReadInto, out: npt.NDArray[Any], where: tuple[slice, ...], selection: Any) -> bool:
    """Read a slab past libhdf5; False if it cannot be, or if the array is none that h5py would take."""
    if not (out.flags.c_contiguous and out.flags.writeable):
        return False
    part = out[where]
    whole = part if part.flags.c_contiguous else np.empty_like(part, order="C")
    if not read_into(whole, selection):
        return False
    if whole is not part:
        part[...] = whole
    return True


class Ahead:
    """What is fetched ahead of a loop that reads one thing after the other.

    Parameters
    ----------
    file : HDF5File
        Where it is fetched to.
    """

    def __init__(self, file: HDF5File) -> None:
        self._file = file
        self._begun: deque[list[ByteRange]] = deque()
        self.nbytes = 0
        """Bytes of what was begun and not waited for."""

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # nobody wants what is still on its way
            self._file.abandon()

    def fetch(self, ranges: list[ByteRange]) -> None:
        """Begin to fetch ranges."""
        self._file.fetch_later(ranges)
        self._begun.append(ranges)
        self.nbytes += sum(r.length for r in ranges)

    def wait(self) -> None:
        """Wait for what was begun first; its errors are raised here."""
        ranges = self._begun.popleft()
        self._file.ensure(ranges)
        self.nbytes -= sum(r.length for r in ranges)


class _Progress:
    """A progress bar for what takes longer than is comfortable."""

    def __init__(self, total: int, dataset: h5py.Dataset) -> None:
        self._total = total
        self._dataset = dataset
        self._began = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def reach(self, nbytes: int) -> None:
        """So many bytes are read."""
        if self._bar is None:
            if time.monotonic() - self._began < _PATIENCE or nbytes >= self._total:
                return
            from tqdm import tqdm

            self._bar = tqdm(total=self._total, desc=self._dataset.name, unit="B", unit_scale=True, leave=False)
        self._bar.update(nbytes - self._bar.n)


def _axis_to_cut(
    items: list[Any], axes: list[AxisSelection], chunks: tuple[int, ...], total: int, budget: int
) -> int | None:
    """Choose the first axis along which a row of chunks fits the budget, or else the one with the most chunks."""
    possible = [k for k, item in enumerate(items) if _can_be_cut(item, axes[k])]
    for k in possible:
        if total * min(chunks[k], len(axes[k])) <= budget * len(axes[k]):
            return k
    return max(possible, key=lambda k: len(axes[k]) // chunks[k], default=None)


def _spelled_out(args: Any, rank: int) -> list[Any]:
    """One item for each axis, field names left out; empty for what is no plain selection."""
    items = [a for a in (args if isinstance(args, tuple) else (args,)) if not isinstance(a, str)]
    if any(isinstance(a, np.ndarray) and a.ndim != 1 for a in items) or len(items) > rank + 1:
        return []
    position = next((k for k, a in enumerate(items) if a is Ellipsis), None)
    if position is None:
        items.append(Ellipsis)
        position = len(items) - 1
    items[position : position + 1] = [slice(None)] * (rank - len(items) + 1)
    return items


def _is_odd_mask(args: Any, rank: int) -> bool:
    """``dataset[..., mask]`` of one axis, which h5py refuses."""
    given = [a for a in (args if isinstance(args, tuple) else (args,)) if not isinstance(a, str)]
    return rank == 1 and len(given) > 1 and any(getattr(a, "dtype", None) == np.bool_ for a in given)


def _can_be_cut(item: Any, axis: AxisSelection) -> bool:
    """Slices and masks can, and lists as h5py wants them: in order, without repeats."""
    if isinstance(item, (slice, int, np.integer)):
        return isinstance(item, slice)
    array = np.asarray(item)
    return array.ndim == 1 and (array.dtype == np.bool_ or np.array_equal(array, axis.array()))


def _pieces(axis: AxisSelection, chunk: int, count: int) -> Iterator[tuple[int, int]]:
    """Cut the positions along an axis into about ``count`` pieces, at chunk borders."""
    blocks = -(-(axis.last - axis.first + 1) // chunk)
    each = max(1, blocks // count)
    step = (each + (each >= 8)) * chunk  # the last one would be a crumb
    position = 0
    edge = (axis.first // chunk) * chunk + step
    while position < len(axis):
        following = min(len(axis), _position(axis, edge))
        if following > position:
            yield position, following
            position = following
        edge += step


def _position(axis: AxisSelection, index: int) -> int:
    """Number of selected indices below ``index``."""
    if isinstance(axis.indices, range):
        return max(0, -(-(index - axis.indices.start) // axis.indices.step))
    return int(np.searchsorted(axis.indices, index))


def _part(item: Any, axis: AxisSelection, first: int, last: int) -> Any:
    part = axis.indices[first:last]
    return slice(part.start, part.stop, part.step) if isinstance(part, range) else part
