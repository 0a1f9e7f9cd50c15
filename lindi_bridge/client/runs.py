"""Runs of bytes that a selection touches in one block of values in C order: contiguous data, or a raw chunk."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lindi_bridge.client.selection import AxisSelection
from lindi_bridge.ranges import ByteRange, coalesce

__all__ = ["block_strides", "runs_in_block"]

_MOST_RUNS = 20_000
_GAP = 64 * 1024
_NEXT_DOOR = 512
"""Bytes. A hole that is shorter than the headers of a request is always read through."""
_REQUEST = 8 * 1024 * 1024


def block_strides(shape: Sequence[int], itemsize: int) -> list[int]:
    """Bytes from one index to the next along each axis of a block in C order."""
    return [itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def runs_in_block(offset: int, shape: Sequence[int], itemsize: int, axes: Sequence[AxisSelection]) -> list[ByteRange]:
    """Runs of bytes, those that lie near each other merged as long as no more than the touched rows is read.

    Parameters
    ----------
    offset : int
        Address of the block.
    shape : sequence of int
        Of the block; ``()`` for a single value.
    itemsize : int
        Bytes of an element.
    axes : sequence of AxisSelection
        What is touched along each axis of the block.
    """
    runs = coalesce(_single_runs(offset, shape, itemsize, axes), gap=_NEXT_DOOR, waste=1 << 62, limit=_REQUEST)
    rows = len(axes[0]) * itemsize * math.prod(shape[1:]) if axes else itemsize
    return coalesce(runs, gap=_GAP, waste=max(0, rows - sum(r.length for r in runs)), limit=_REQUEST)


def _single_runs(offset: int, shape: Sequence[int], itemsize: int, axes: Sequence[AxisSelection]) -> list[ByteRange]:
    """Whole inner axes together, single indices of outer axes apart while they are few."""
    if not axes:
        return [ByteRange(offset, itemsize)]
    strides = block_strides(shape, itemsize)
    inner = len(axes) - 1
    while inner > 0 and axes[inner].is_whole(shape[inner]):
        inner -= 1
    while inner > 0 and math.prod(len(a) for a in axes[:inner]) > _MOST_RUNS:
        inner -= 1
    starts = np.full(1, offset, np.int64)
    for axis, stride in zip(axes[:inner], strides, strict=False):
        starts = (starts[:, None] + axis.array()[None, :] * stride).reshape(-1)
    last = axes[inner]
    if (isinstance(last.indices, range) and last.indices.step == 1) or len(last) * len(starts) > _MOST_RUNS:
        length = (last.last - last.first + 1) * strides[inner]
        return [ByteRange(int(s) + last.first * strides[inner], length) for s in starts]
    single = (starts[:, None] + last.array()[None, :] * strides[inner]).reshape(-1)
    return [ByteRange(int(s), strides[inner]) for s in single]
