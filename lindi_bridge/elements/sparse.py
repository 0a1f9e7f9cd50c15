"""Rows and columns of a sparse matrix that lies far away.

Along the compressed axis (rows of CSR, columns of CSC) two waves are enough for any list: first the places in
``indptr`` where the slices begin and end, then all their indices and values together. Across it everything has to be
read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lindi_bridge.elements.across import WholeReadWarning, read_across
from lindi_bridge.elements.compressed import CompressedMatrix, open_compressed
from lindi_bridge.elements.runs import Runs, expand, read_together
from lindi_bridge.ranges import ByteRange

__all__ = ["WholeReadWarning", "fetch_slices", "sparse_columns", "sparse_rows"]

IntArray = npt.NDArray[np.int64]

_BRACKETS = 8192
"""Elements. An ``indptr`` in one block is read in such pieces, so that the next list finds its places in memory."""


def sparse_rows(elem: Any, rows: Any) -> Any:
    """Rows of a sparse matrix, in the order asked for.

    Of a CSR matrix any list of rows takes two round trips; one, if ``indptr`` is in the document or was read before;
    none, if all of it is in memory. (More, if half of the cache does not hold it.) Of a CSC matrix the whole matrix is
    read, piece by piece, with a warning and a progress bar.

    Parameters
    ----------
    elem : Group
        A sparse matrix of a file from :func:`lindi_bridge.open`: ``f["X"]``, ``f["layers/counts"]``; also the ``X`` of
        a backed AnnData object.
    rows : int, slice, list, integer or boolean array
        As for a numpy array: negative numbers count from the end, repeats are kept. One number gives one row.

    Returns
    -------
    scipy.sparse.csr_matrix or csc_matrix
        As the matrix is stored, of the stored type, in the machine's byte order:
        ``(number of rows, columns of the matrix)``.

    Raises
    ------
    IndexError
        As numpy raises it.
    ElementError
        Not a sparse matrix, or a damaged one.
    TypeError
        Not a group of a file from :func:`lindi_bridge.open`.

    Warns
    -----
    WholeReadWarning
        The rows lie across the compressed axis.
    """
    return _select(open_compressed(elem), 0, rows)


def sparse_columns(elem: Any, columns: Any) -> Any:
    """Columns of a sparse matrix, in the order asked for.

    As :func:`sparse_rows`, with CSC and CSR exchanged: of a CSC matrix any list of columns takes two round trips.

    Parameters
    ----------
    elem : Group
        As for :func:`sparse_rows`.
    columns : int, slice, list, integer or boolean array
        As for a numpy array.

    Returns
    -------
    scipy.sparse.csr_matrix or csc_matrix
        As the matrix is stored, of the stored type, in the machine's byte order:
        ``(rows of the matrix, number of columns)``.

    Raises
    ------
    IndexError
        As numpy raises it.
    ElementError
        Not a sparse matrix, or a damaged one.
    TypeError
        Not a group of a file from :func:`lindi_bridge.open`.

    Warns
    -----
    WholeReadWarning
        The columns lie across the compressed axis.
    """
    return _select(open_compressed(elem), 1, columns)


def fetch_slices(elem: Any, numbers: Any) -> tuple[int, bool]:
    """Fetch slices along the compressed axis without making anything of them, for others that read them afterwards.

    Parameters
    ----------
    elem : Group
        As for :func:`sparse_rows`.
    numbers : int, slice, list, integer or boolean array
        Rows of a CSR matrix, columns of a CSC matrix; as for a numpy array.

    Returns
    -------
    nbytes : int
        Bytes that were wanted and fit; at most half of the cache is filled.
    is_complete : bool
        Whether all of them fit.
    """
    matrix = open_compressed(elem)
    starts, stops = _brackets(matrix, np.unique(positions(numbers, matrix.major)))
    several = [Runs(part, starts, stops - starts) for part in (matrix.indices, matrix.data)]
    wanted: list[ByteRange] = []
    room = matrix.file.cache_bytes // 2
    for ranges in (runs.ranges(piece) for runs in several for piece in runs.pieces):
        room -= sum(r.length for r in ranges)
        if room < 0:
            break
        wanted += ranges
    matrix.file.ensure(wanted)
    return sum(r.length for r in wanted), room >= 0


def _select(matrix: CompressedMatrix, axis: int, numbers: Any) -> Any:
    wanted = positions(numbers, matrix.shape[axis])
    if axis != matrix.axis:
        return read_across(matrix, wanted)
    unique, place = np.unique(wanted, return_inverse=True)
    starts, stops = _brackets(matrix, unique)
    lengths = stops - starts
    indices, data = read_together(*(Runs(part, starts, lengths) for part in (matrix.indices, matrix.data)))
    indptr = np.concatenate([[0], np.cumsum(lengths[place])])
    if not np.array_equal(unique, wanted):
        order = expand((np.cumsum(lengths) - lengths)[place], lengths[place])
        indices, data = indices[order], data[order]
    return matrix.build(data, indices, indptr, len(wanted))


def positions(numbers: Any, length: int) -> IntArray:
    """The indices, none negative, that numpy makes of ``numbers`` along an axis; its errors are numpy's.

    Parameters
    ----------
    numbers : int, slice, list, integer or boolean array
        What is asked for.
    length : int
        Of the axis.
    """
    if isinstance(numbers, slice):
        return np.arange(*numbers.indices(length), dtype=np.int64)
    if numbers is Ellipsis:
        return np.arange(length, dtype=np.int64)
    array = np.asarray(numbers)
    if array.ndim == 1 and array.dtype != np.bool_ and not array.size:
        return np.empty(0, np.int64)
    # An axis of that length that takes no memory: whatever numpy refuses is refused here, in its words.
    chosen = np.broadcast_to(np.uint8(0), (length,))[numbers if isinstance(numbers, tuple) else array]
    if np.ndim(chosen) > 1:
        raise IndexError(f"rows or columns are chosen by one list, not by an array of {array.ndim} dimensions")
    array = np.atleast_1d(array)
    if array.dtype == np.bool_:
        return np.flatnonzero(array)
    array = array.astype(np.int64)
    return np.where(array < 0, array + length, array)


def _brackets(matrix: CompressedMatrix, unique: IntArray) -> tuple[IntArray, IntArray]:
    """Where the slices of ascending numbers begin and end, checked."""
    both = np.unique(np.concatenate([unique, unique + 1]))
    runs = Runs(matrix.indptr, both, np.ones(len(both), np.int64), block=_BRACKETS)
    found = read_together(runs)[0].astype(np.int64)
    starts, stops = found[np.searchsorted(both, unique)], found[np.searchsorted(both, unique + 1)]
    matrix.check_brackets(starts, stops)
    return starts, stops
