"""How the storage of a dataset becomes chunk references."""

from __future__ import annotations

import math

import numpy as np

from lindi_bridge.model.chunks import ChunkTable

__all__ = ["Pieces", "contiguous_table", "cut_contiguous"]

_PIECE = 4 * 1024 * 1024
_SMALLEST_PIECE = 64 * 1024


class Pieces:
    """A contiguous dataset cut along axis 0.

    Parameters
    ----------
    rows : int
        Rows (elements along axis 0) a piece.
    count : int
        Number of pieces.
    inline_last : bool
        The last piece is short, and there are no bytes after it to make it whole: it has to be written inline,
        because Zarr readers refuse a short piece.
    """

    def __init__(self, rows: int, count: int, inline_last: bool) -> None:
        self.rows = rows
        self.count = count
        self.inline_last = inline_last


def cut_contiguous(length: int, row_nbytes: int, offset: int, file_size: int) -> Pieces:
    """Choose the pieces of a contiguous dataset, of about 4 MiB, so that no reference is short.

    Parameters
    ----------
    length : int
        Rows (elements along axis 0).
    row_nbytes : int
        Bytes a row.
    offset : int
        Address of the data.
    file_size : int
        Bytes of the file.
    """
    if length * row_nbytes <= _PIECE or row_nbytes >= _PIECE:
        rows = length if length * row_nbytes <= _PIECE else 1
        return Pieces(rows, -(-length // rows), False)
    target = max(1, _PIECE // row_nbytes)
    fewest, most = -(-length // (2 * target)), length // max(1, target // 2)
    even = [count for count in range(fewest, most + 1) if length % count == 0]
    if even:
        count = min(even, key=lambda count: abs(length // count - target))
        return Pieces(length // count, count, False)
    count = -(-length // target)
    rows = -(-length // count)
    if offset + count * rows * row_nbytes <= file_size:
        return Pieces(rows, count, False)
    # The inline piece costs 4/3 of its size, each reference about 40 bytes: balance the two.
    piece = max(_SMALLEST_PIECE, min(_PIECE, math.isqrt(30 * length * row_nbytes)))
    rows = max(1, piece // row_nbytes)
    return Pieces(rows, -(-length // rows), length % rows != 0)


def contiguous_table(pieces: Pieces, rank: int, row_nbytes: int, offset: int) -> ChunkTable:
    """References of the pieces, all of full length; an inline last piece is left out."""
    count = pieces.count - pieces.inline_last
    index = np.arange(count, dtype=np.int64)
    size = pieces.rows * row_nbytes
    return ChunkTable(
        grid=(pieces.count,) + (1,) * (rank - 1),
        index=index,
        offset=offset + index * size,
        nbytes=np.full(count, size, np.int64),
        filter_mask=np.zeros(count, np.int64),
    )
