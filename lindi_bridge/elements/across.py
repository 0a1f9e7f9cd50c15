"""Slices across the compressed axis of a sparse matrix: the whole matrix is read, in bounded memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from lindi_bridge.client.plan import read_plan
from lindi_bridge.client.slabs import Ahead
from lindi_bridge.elements.compressed import CompressedMatrix, native

__all__ = ["WholeReadWarning", "read_across"]

IntArray = npt.NDArray[np.int64]

_SLAB = 64 * 1024 * 1024
"""Bytes in memory of the indices and values that are looked through at one time."""


class WholeReadWarning(UserWarning):
    """A few rows or columns were asked for in a way that makes the whole matrix be read."""


def read_across(matrix: CompressedMatrix, wanted: IntArray) -> Any:
    """Columns of a CSR matrix, or rows of a CSC matrix.

    Parameters
    ----------
    matrix : CompressedMatrix
        Where it lies.
    wanted : (n,) int64 array
        Numbers along the axis that is not compressed, in any order, with repeats.
    """
    stored = sum(read_plan(part.id, matrix.file).stored_nbytes for part in (matrix.indices, matrix.data))
    kind, whole = ("columns", "rows") if matrix.axis == 0 else ("rows", "columns")
    warnings.warn(
        f"{matrix.name} is stored by {whole}: to find {len(wanted)} {kind}, all of it is read, {stored:,} bytes",
        WholeReadWarning,
        stacklevel=4,
    )
    unique, place = np.unique(wanted, return_inverse=True)
    found = np.full(matrix.minor, -1, np.int64)
    found[unique] = np.arange(len(unique))
    indptr = matrix.indptr[()].astype(np.int64)
    matrix.check_brackets(indptr[:-1], indptr[1:])
    some_indices, some_data, counts = [], [], np.zeros(matrix.major, np.int64)
    for first, indices, data in _slabs(matrix, int(indptr[-1]) if len(indptr) else 0):
        matrix.check_indices(indices)
        hits = found[indices]
        kept = np.flatnonzero(hits >= 0)
        some_indices.append(hits[kept])
        some_data.append(data[kept])
        rows = np.searchsorted(indptr, kept + first, side="right") - 1
        counts += np.bincount(rows, minlength=matrix.major)
    return _assemble(matrix, some_indices, some_data, counts, unique, place)


def _slabs(matrix: CompressedMatrix, count: int) -> Iterator[tuple[int, Any, Any]]:
    """Number of the first element, indices and values, piece by piece; the next piece is fetched meanwhile."""
    from tqdm import tqdm

    parts = (matrix.indices, matrix.data)
    plans = [read_plan(part.id, matrix.file) for part in parts]
    chunk = max((part.chunks or (1,))[0] for part in parts)
    itemsize = sum(part.dtype.itemsize for part in parts)
    step = max(1, min(_SLAB, matrix.file.cache_bytes // 4) // (itemsize * chunk)) * chunk
    pieces = [slice(first, min(first + step, count)) for first in range(0, count, step)]
    ranges = [[r for plan in plans for r in plan.ranges(piece)] for piece in pieces]
    # No bar for what takes less than a second.
    bar = tqdm(total=count, desc=str(matrix.data.parent.name), unit=" values", unit_scale=True, leave=False, delay=1)
    with bar, Ahead(matrix.file) as ahead:
        for number, piece in enumerate(pieces):
            if number == 0:
                ahead.fetch(ranges[0])
            ahead.wait()
            if number + 1 < len(pieces):
                ahead.fetch(ranges[number + 1])
            yield piece.start, matrix.indices[piece], matrix.data[piece]
            bar.update(piece.stop - piece.start)


def _assemble(
    matrix: CompressedMatrix, indices: list[Any], data: list[Any], counts: IntArray, unique: IntArray, place: IntArray
) -> Any:
    from scipy import sparse

    parts = (
        native(np.concatenate(data) if data else np.empty(0, matrix.data.dtype)),
        np.concatenate(indices) if indices else np.empty(0, np.int64),
        np.concatenate([[0], np.cumsum(counts)]),
    )
    in_order = np.array_equal(place, np.arange(len(unique)))
    if matrix.axis == 0:
        by_rows = sparse.csr_matrix(parts, shape=(matrix.major, len(unique)))
        return by_rows if in_order else by_rows[:, place]
    by_columns = sparse.csc_matrix(parts, shape=(len(unique), matrix.major))
    return by_columns if in_order else by_columns[place, :]
