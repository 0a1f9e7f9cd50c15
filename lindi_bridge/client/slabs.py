"""Selections larger than the cache: read slab by slab, the next slab fetched while this one is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import h5py
import numpy as np
from h5py._objects import phil

from lindi_bridge.client.plan import ReadPlan
from lindi_bridge.client.selection import AxisSelection, select_axes
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.ranges import ByteRange
from lindi_bridge.ranges.workers import Workers, wait_for

__all__ = ["Ahead", "read_in_slabs"]

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
    """
    items = _spelled_out(args, len(plan.shape))
    axes = select_axes(args, plan.shape)
    if not items or axes is None or _is_odd_mask(args, len(plan.shape)):
        return None
    plain = h5py.Dataset(dataset.id, readonly=True)
    dtype = np.dtype(plain.dtype if new_dtype is None else new_dtype)
    names = [a for a in (args if isinstance(args, tuple) else (args,)) if isinstance(a, str)]
    shape = tuple(len(axis) for axis, item in zip(axes, items, strict=True) if not isinstance(item, (int, np.integer)))
    direct = not (dtype.hasobject or dtype.subdtype or names)
    if out is None and direct:
        out = np.empty(shape, dtype)
    elif out is not None and out.shape != shape:
        return None
    budget = file.cache_bytes // 4
    total = max(nbytes, int(np.prod(shape, dtype=np.float64)) * dtype.itemsize)
    chunks = plan.chunks or (1,) * len(axes)
    axis = _axis_to_cut(items, axes, chunks, total, budget)
    if axis is None:
        return None
    place = sum(not isinstance(item, (int, np.integer)) for item in items[:axis])
    pieces = list(_pieces(axes[axis], chunks[axis], -(-total // budget)))
    selections = [(*items[:axis], _part(items[axis], axes[axis], *p), *items[axis + 1 :]) for p in pieces]
    from tqdm import tqdm

    bar = tqdm(total=nbytes, desc=dataset.name, unit="B", unit_scale=True, leave=False, delay=_PATIENCE)
    with bar, Ahead(file) as ahead:
        ahead.fetch(plan.ranges(selections[0]))
        for number, ((first, last), selection) in enumerate(zip(pieces, selections, strict=True)):
            ahead.wait()
            if number + 1 < len(selections):
                ahead.fetch(plan.ranges(selections[number + 1]))
            bar.update(nbytes * (last - first) // len(axes[axis]))
            where = (slice(None),) * place + (slice(first, last),)
            if direct and out[where].flags.c_contiguous:
                plain.read_direct(out[where], source_sel=selection)
                continue
            with phil:  # see Dataset._read
                part = plain[(*selection, *names)] if new_dtype is None else plain.astype(dtype)[(*selection, *names)]
            if out is None:
                out = np.empty((*shape, *part.shape[len(shape) :]), part.dtype)
            out[where] = part
    return out


class Ahead:
    """One thread that fetches what is read next.

    Parameters
    ----------
    file : HDF5File
        Where it is fetched to.
    """

    def __init__(self, file: HDF5File) -> None:
        self._file = file
        self._workers = Workers(1, "lindi-bridge-ahead")
        self._pending: Future[None] | None = None

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            wait_for([] if self._pending is None else [self._pending])
        else:  # ctrl-C is for what is still on its way, too
            self._workers.abandon()
        self._pending = None
        self._workers.close()

    def fetch(self, ranges: list[ByteRange]) -> None:
        """Begin to fetch ranges."""
        try:
            self._pending = self._workers.submit(partial(self._file.ensure, ranges))
        except RuntimeError:  # the interpreter is ending, and starts no more threads
            self._file.ensure(ranges)

    def wait(self) -> None:
        """Wait for what was begun; its errors are raised here."""
        if self._pending is not None:
            wait_for([self._pending])
            self._pending.result()
            self._pending = None


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
    step = max(1, blocks // count) * chunk
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
