"""Copying selected values out of one block in C order (contiguous data, a raw chunk) that is held in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lindi_bridge.client.exact_selection import Axis

__all__ = ["Held", "copy_block", "first_of_one_run", "position_of", "span_in_block"]

Array = npt.NDArray[Any]


class Held:
    """The bytes in memory, and in which piece of them the last ones were found."""

    __slots__ = ("_end", "_find", "_first", "data")

    def __init__(self, find: Callable[[int], memoryview | None]) -> None:
        self._find = find
        self._first = self._end = 0
        self.data = memoryview(b"")

    def locate(self, address: int) -> tuple[int, int]:
        """Where in ``data`` an address is, and how many bytes are there from it on: none if it is not in memory."""
        if not self._first <= address < self._end:
            found = self._find(address)
            if found is None:
                return 0, 0
            self.data, self._first, self._end = found, address, address + len(found)
        return address - self._first, self._end - address


def position_of(axis: Axis, limit: int) -> int:
    """Number of indices below ``limit``."""
    if isinstance(axis, range):
        return min(len(axis), max(0, -(-(limit - axis.start) // axis.step)))
    return int(np.searchsorted(axis, limit))


def first_of_one_run(axes: tuple[Axis, ...], shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """Where in its block a selection begins that is one run of bytes, or None for all others."""
    first, has_many = 0, False
    for axis, length, stride in zip(axes, shape, strides, strict=True):
        if has_many and len(axis) != length:
            return None
        if not isinstance(axis, range) or (axis.step != 1 and len(axis) > 1):
            return None
        has_many |= len(axis) > 1
        first += axis[0] * stride
    return first


def span_in_block(axes: Sequence[Axis], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Where in its block a selection begins, and how many bytes there are from its first to its last value."""
    first, nbytes = 0, itemsize
    for axis, stride in zip(axes, strides, strict=True):
        begin = int(axis[0]) * stride
        first += begin
        nbytes += int(axis[-1]) * stride - begin
    return first, nbytes


def copy_block(out: Array, axes: tuple[Axis, ...], strides: Sequence[int], start: int, held: Held) -> bool:
    """Copy out of one block of values in C order, whatever pieces it is held in.

    Parameters
    ----------
    out : ndarray
        Where they go; one axis for each of ``axes``.
    axes : tuple of range or int64 array
        Indices inside the block.
    strides : sequence of int
        Bytes from one index to the next.
    start : int
        Address of the block in the file.
    held : Held
        What is in memory.
    """
    first, nbytes = span_in_block(axes, strides, out.itemsize)
    offset, available = held.locate(start + first)
    if not available:
        return False
    if available >= nbytes:
        out[...] = _selected(held.data, offset, out.dtype, axes, strides)
        return True
    if not axes:
        return _copy_joined(out, start, held)
    # Rows that are held in one piece together, and those that are not one by one.
    outer, stride = axes[0], strides[0]
    in_row = first - int(outer[0]) * stride
    row_nbytes = nbytes - (int(outer[-1]) - int(outer[0])) * stride
    position = 0
    while position < len(outer):
        row = start + int(outer[position]) * stride
        offset, available = held.locate(row + in_row)
        stop = position
        if available >= row_nbytes:
            stop = position_of(outer, int(outer[position]) + (available - row_nbytes) // stride + 1)
            rows = (outer[position:stop], *axes[1:])
            out[position:stop] = _selected(held.data, offset, out.dtype, rows, strides)
        elif available and copy_block(out[position, ...], axes[1:], strides[1:], row, held):
            stop += 1
        else:
            return False
        position = stop
    return True


def _selected(
    data: memoryview, offset: int, dtype: np.dtype[Any], axes: tuple[Axis, ...], strides: Sequence[int]
) -> Array:
    """The selected values of a block, of which the first lies at ``offset`` of ``data``."""
    shape, steps, listed = [], [], None
    for number, (axis, stride) in enumerate(zip(axes, strides, strict=True)):
        if isinstance(axis, range):
            shape.append(len(axis))
            steps.append(axis.step * stride)
        else:
            listed = number
            shape.append(int(axis[-1] - axis[0]) + 1)
            steps.append(stride)
    values: Array = np.ndarray(shape, dtype, data, offset, steps)
    if listed is None:
        return values
    axis = axes[listed]
    assert not isinstance(axis, range)
    return values[(*[slice(None)] * listed, axis - axis[0])]


def _copy_joined(out: Array, address: int, held: Held) -> bool:
    """Copy one value that lies in several pieces."""
    parts: list[memoryview] = []
    missing = out.itemsize
    while missing:
        offset, available = held.locate(address)
        if not available:
            return False
        parts.append(held.data[offset : offset + missing])
        address += len(parts[-1])
        missing -= len(parts[-1])
    out[...] = np.frombuffer(b"".join(parts), out.dtype)[0]
    return True
