"""Which requests bring the bytes that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from lindi_bridge.ranges import ByteRange, coalesce
from lindi_bridge.ranges.spread import spread

__all__ = ["requests_for"]

_WIDEST_GAP = 128 * 1024


def requests_for(missing: Sequence[ByteRange], *, gap: int, waste: float, crowd: int, most: int) -> list[ByteRange]:
    """Merge what lies near each other, and cut what is long.

    Parameters
    ----------
    missing : sequence of ByteRange
        What is wanted; sorted and disjoint.
    gap : int
        Bytes. Holes up to this long are read through to save a request.
    waste : float
        What may be read in holes in all, as a share of what is wanted.
    crowd : int
        Number of requests beyond which wider holes are read through as well, the narrowest first.
    most : int
        Bytes of the longest request.
    """
    wanted = sum(r.length for r in missing)
    merged = coalesce(missing, gap=gap, waste=max(int(wanted * waste), gap // 2), limit=most)
    if len(merged) > crowd:
        holes = sorted(right.start - left.stop for left, right in pairwise(merged))
        wider = min(holes[len(merged) - crowd - 1], _WIDEST_GAP)
        merged = coalesce(missing, gap=wider, waste=1 << 62, limit=most)
    return spread(merged, most)
