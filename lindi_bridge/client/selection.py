"""What a selection touches along each axis. A hint for fetching ahead, never the selection itself."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

__all__ = ["AxisSelection", "Box", "box_of", "select_axes"]

IntArray = npt.NDArray[np.int64]
Box = tuple[tuple[int, int], ...]
"""First index and end along each axis."""


def box_of(args: Any, shape: tuple[int, ...]) -> Box | None:
    """What integers and slices without a step select; None for all other selections, and for empty ones.

    Quick, for selections that need no planning.

    Parameters
    ----------
    args : object
        The selection.
    shape : tuple of int
        Of the dataset.
    """
    items = args if type(args) is tuple else (args,)
    if len(items) > len(shape):
        return None
    box = []
    for item, length in zip(items, shape, strict=False):
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
    rest = shape[len(box) :]
    box += [(0, length) for length in rest]
    return None if 0 in rest else tuple(box)


class AxisSelection:
    """The indices touched along one axis: a regular range, or a sorted list.

    Parameters
    ----------
    indices : range or (n,) int64 array
        Ascending, without repeats.
    """

    __slots__ = ("indices",)

    def __init__(self, indices: range | IntArray) -> None:
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def first(self) -> int:
        """Lowest index."""
        return int(self.indices[0])

    @property
    def last(self) -> int:
        """Highest index."""
        return int(self.indices[-1])

    def is_whole(self, length: int) -> bool:
        """Whether every index of an axis of ``length`` is touched."""
        return len(self.indices) == length

    def array(self) -> IntArray:
        """The indices as an array."""
        if isinstance(self.indices, range):
            return np.arange(self.indices.start, self.indices.stop, self.indices.step, dtype=np.int64)
        return self.indices

    def within(self, first: int, stop: int) -> AxisSelection:
        """The part from ``first`` to before ``stop``, counted from ``first``."""
        if isinstance(self.indices, range):
            start, step = self.indices.start, self.indices.step
            begin, end = (min(max(0, -(-(edge - start) // step)), len(self.indices)) for edge in (first, stop))
            return AxisSelection(range(start + begin * step - first, start + end * step - first, step))
        begin, end = np.searchsorted(self.indices, (first, stop)).tolist()
        return AxisSelection(self.indices[begin:end] - first)

    def blocks(self, size: int) -> IntArray:
        """Numbers of the blocks of ``size`` indices that are touched."""
        if isinstance(self.indices, range) and self.indices.step <= size:
            return np.arange(self.first // size, self.last // size + 1, dtype=np.int64)
        return np.unique(self.array() // size)


def select_axes(args: Any, shape: tuple[int, ...]) -> list[AxisSelection] | None:
    """The indices that ``dataset[args]`` touches along each axis.

    Integers, slices, ``...``, integer lists and boolean masks along an axis, and field names (which are left out).

    Returns
    -------
    list of AxisSelection, or None
        None for everything that is not understood here, out of range, or selects nothing: libhdf5 decides.
    """
    items = [a for a in (args if isinstance(args, tuple) else (args,)) if not isinstance(a, str)]
    if any(isinstance(a, np.ndarray) and a.ndim > 1 for a in items):
        return None
    ellipses = [k for k, a in enumerate(items) if a is Ellipsis]
    if len(ellipses) > 1 or len(items) - len(ellipses) > len(shape):
        return None
    at = ellipses[0] if ellipses else len(items)
    missing = len(shape) - (len(items) - len(ellipses))
    items[at : at + len(ellipses)] = [slice(None)] * missing
    out = []
    for item, length in zip(items, shape, strict=True):
        selection = _select_axis(item, length)
        if selection is None or not len(selection):
            return None
        out.append(selection)
    return out


def _select_axis(item: Any, length: int) -> AxisSelection | None:
    if isinstance(item, slice):
        try:
            start, stop, step = item.indices(length)
        except (TypeError, ValueError):
            return None
        return AxisSelection(range(start, stop, min(step, max(length, 1)))) if step > 0 else None
    if isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_)):
        index = int(item) + length if item < 0 else int(item)
        return AxisSelection(range(index, index + 1)) if 0 <= index < length else None
    if isinstance(item, h5py.MultiBlockSlice):
        try:
            start, stride, count, block = item.indices(length)
        except ValueError:
            return None
        return AxisSelection((start + np.arange(count)[:, None] * stride + np.arange(block)).reshape(-1))
    if isinstance(item, (list, tuple, range, np.ndarray)):
        try:
            array = np.asarray(item)
        except ValueError:  # lists of different lengths
            return None
        if array.ndim == 0:
            return _select_axis(array[()], length)
        if array.ndim != 1:
            return None
        if array.dtype == np.bool_:
            return AxisSelection(np.flatnonzero(array)) if len(array) == length else None
        if array.dtype.kind in "iu":
            indices = np.unique(np.where(array < 0, array.astype(np.int64) + length, array.astype(np.int64)))
            return AxisSelection(indices) if len(indices) and indices[0] >= 0 and indices[-1] < length else None
    return None
