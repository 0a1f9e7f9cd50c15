"""Cutting large requests, so that a wave of few of them uses more connections than it has requests."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from lindi_bridge.ranges.reader import ByteRange

__all__ = ["spread"]

_FEW, _MANY = 12, 32
"""How many pieces a wave is cut into, beyond the requests that it has anyway: a small one, and any at the most."""
_SMALL, _PIECE = 512 * 1024, 3 * 512 * 1024
"""Bytes. Take a connection less time than the answer takes to begin: smaller pieces would gain little."""
_WHOLE = 4096
"""Bytes. Pieces are multiples of this, so that few rows and no values are divided between two of them."""


def spread(requests: Iterable[ByteRange], most: int) -> list[ByteRange]:
    """Cut the requests of one wave into pieces of about equal length.

    Parameters
    ----------
    requests : iterable of ByteRange
        Disjoint; the order is kept.
    most : int
        Bytes that a piece may have at the most.
    """
    wave = list(requests)
    nbytes = sum(r.length for r in wave)
    piece = min(most, max(_SMALL, min(nbytes // _FEW, _PIECE), nbytes // _MANY))
    out = []
    for start, length in wave:
        count = max(length // piece, -(-length // most), 1)
        unit = _WHOLE if length + count * _WHOLE <= count * most else 1
        edges = [start + length * k // count // unit * unit for k in range(count)] + [start + length]
        out += [ByteRange(first, stop - first) for first, stop in itertools.pairwise(edges)]
    return out
