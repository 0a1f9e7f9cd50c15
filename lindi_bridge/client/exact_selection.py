"""Selections that numpy and h5py understand in the same way, index by index."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Axis", "ExactSelection", "exact_selection"]

Axis = range | npt.NDArray[np.int64]
"""Indices along one axis: regular, or a list in ascending order."""


class ExactSelection:
    """What ``dataset[args]`` selects; never empty.

    Parameters
    ----------
    axes : list of range or int64 array
        Indices along each axis of the dataset.
    shape : tuple of int
        Of the result: axes with a single index by its number are left out.
    """

    __slots__ = ("axes", "shape")

    def __init__(self, axes: list[Axis], shape: tuple[int, ...]) -> None:
        self.axes = axes
        self.shape = shape


def exact_selection(args: Any, shape: tuple[int, ...]) -> ExactSelection | None:
    """Spell a selection out.

    Integers, slices with a positive step, one ``...``, and one list, array or mask of one axis, in order and without
    repeats.

    Parameters
    ----------
    args : object
        The selection.
    shape : tuple of int
        Of the dataset.

    Returns
    -------
    ExactSelection or None
        None for everything else, and for what selects nothing or is wrong: h5py decides what to make of it.
    """
    items = args if type(args) is tuple else (args,)
    missing = len(shape) - len(items)
    axes: list[Axis] = []
    kept: list[int] = []
    has_list = has_ellipsis = False
    for item in items:
        kind = type(item)
        if item is Ellipsis:
            if has_ellipsis or missing < -1:
                return None
            has_ellipsis = True
            whole = shape[len(axes) : len(axes) + missing + 1]
            axes += map(range, whole)
            kept += whole
            continue
        if len(axes) >= len(shape):
            return None
        length = shape[len(axes)]
        if kind is int or isinstance(item, np.integer):
            index = int(item)
            index = index + length if index < 0 else index
            if not 0 <= index < length:
                return None
            axes.append(range(index, index + 1))
            continue
        axis: Axis | None
        if kind is slice:
            axis = _slice(item, length)
        elif (kind is list or kind is np.ndarray) and not has_list:
            has_list = True
            axis = _list(item, length)
        else:
            return None
        if axis is None or not len(axis):
            return None
        axes.append(axis)
        kept.append(len(axis))
    if has_list and has_ellipsis:
        return None
    rest = shape[len(axes) :]
    axes += map(range, rest)
    kept += rest
    return ExactSelection(axes, tuple(kept)) if 0 not in kept else None


def _slice(item: slice, length: int) -> range | None:
    try:
        start, stop, step = item.indices(length)
    except (TypeError, ValueError):
        return None
    # Of longer steps h5py decides how long they may be.
    return range(start, stop, step) if 0 < step <= length else None


def _list(item: Any, length: int) -> Axis | None:
    if type(item) is list and not all(type(k) is int for k in item):
        return None
    try:
        array = np.asarray(item)
    except (OverflowError, ValueError):
        return None
    if array.ndim != 1 or not len(array):
        return None
    if array.dtype == np.bool_:
        return np.flatnonzero(array).astype(np.int64) if len(array) == length else None
    if array.dtype.kind not in "iu" or array[0] < 0 or array[-1] >= length or not (array[:-1] < array[1:]).all():
        return None
    return array.astype(np.int64)
