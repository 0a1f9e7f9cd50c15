"""From what libhdf5 read of a file's metadata to the ranges that a document carries."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

import numpy as np

from lindi_bridge.model.chunks import Int64Array
from lindi_bridge.ranges import ByteRange, coalesce

__all__ = ["PAGE", "metadata_ranges", "raw_stretches", "union"]

PAGE = 4096
"""Bytes. Another version of libhdf5, or another order of access, reads other bytes near those that were read."""


Stretches = tuple[list[int], list[int]]
"""First and last byte (exclusive) of raw data that lie directly one after the other, sorted."""


def metadata_ranges(reads: Iterable[tuple[int, int]], raw: Stretches, file_size: int) -> list[ByteRange]:
    """Ranges that hold the metadata: the reads themselves, and the pages around them without raw data.

    Parameters
    ----------
    reads : iterable of (int, int)
        Address and length (bytes) of every read.
    raw : two lists of int
        From :func:`raw_stretches`.
    file_size : int
        Bytes.

    Returns
    -------
    list of ByteRange
        Sorted, disjoint, not touching.
    """
    exact = [ByteRange(start, length) for start, length in reads if length]
    pages = {page for start, length in exact for page in range(start // PAGE, (start + length - 1) // PAGE + 1)}
    around = union(ByteRange(p * PAGE, min(PAGE, file_size - p * PAGE)) for p in pages)
    free = [part for run in around for part in _without(run, *raw)]
    return union([*exact, *free])


def raw_stretches(offset: Int64Array, nbytes: Int64Array) -> Stretches:
    """Where raw data lie, given the addresses and sizes (bytes) of their pieces in any order."""
    order = np.argsort(offset)
    begins, ends = offset[order], np.maximum.accumulate((offset + nbytes)[order])
    first = np.flatnonzero(np.concatenate([[True], begins[1:] > ends[:-1]])) if len(begins) else np.empty(0, np.int64)
    last = np.concatenate([first[1:], [len(begins)]]) - 1 if len(begins) else first
    return begins[first].tolist(), ends[last].tolist()


def union(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """Sorted, disjoint ranges that do not touch and hold exactly the bytes of ``ranges``."""
    return coalesce(list(ranges), gap=0, waste=0, limit=1 << 62)


def _without(run: ByteRange, begins: list[int], ends: list[int]) -> list[ByteRange]:
    """Parts of a run outside sorted, disjoint stretches of raw data."""
    out, position = [], run.start
    index = max(0, bisect.bisect_right(begins, run.start) - 1)
    while index < len(begins) and begins[index] < run.stop:
        if begins[index] > position:
            out.append(ByteRange(position, begins[index] - position))
        position = max(position, min(ends[index], run.stop))
        index += 1
    if position < run.stop:
        out.append(ByteRange(position, run.stop - position))
    return out
