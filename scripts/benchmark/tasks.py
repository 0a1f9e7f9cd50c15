"""The reading tasks, written once for all tools, and how each tool does best what has more than one way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

BLOCK = 4 * 1024 * 1024
"""Values read at one time where a whole matrix is streamed."""


class Access:
    """How tasks read through h5py's interface: slice by slice. Tools that can do better override it."""

    def waves(self, file: Any) -> int | None:
        """How often something was asked for and waited for, however many connections it took; None if not known."""
        return None

    def frame(self, group: Any) -> Any:
        """A data frame: categories, strings, numbers."""
        import pandas as pd

        columns = {name: _column(group[name]) for name in sorted(group.keys())}
        index = columns.pop(text(group.attrs["_index"]))
        return pd.DataFrame(columns, index=index)

    def slices(self, matrix: Any, rows: slice | np.ndarray[Any, Any]) -> list[Any]:
        """Counts of values, values and columns of some ascending rows of a CSR matrix."""
        if isinstance(rows, slice):
            indptr = np.asarray(matrix["indptr"][rows.start : rows.stop + 1])
            spans = [(int(indptr[0]), int(indptr[-1]))]
            lengths = np.diff(indptr)
        else:
            indptr = np.asarray(matrix["indptr"][:])
            spans = [(int(indptr[row]), int(indptr[row + 1])) for row in rows]
            lengths = np.array([stop - start for start, stop in spans])
        return [lengths, *(self.runs(matrix[name], spans) for name in ("data", "indices"))]

    def runs(self, dataset: Any, spans: list[tuple[int, int]]) -> np.ndarray[Any, Any]:
        """Values of one or many slices of a vector, one after the other."""
        return np.concatenate([dataset[start:stop] for start, stop in spans])

    def cross(self, dataset: Any, rows: list[int], columns: slice) -> Any:
        """Some columns of listed rows."""
        return dataset[rows, columns]


class Ours(Access):
    """With the functions for elements of AnnData files, which fetch what belongs together at one time."""

    def waves(self, file: Any) -> int | None:
        """As the package counts them."""
        return int(file._file_object.reader.statistics.waves)

    def frame(self, group: Any) -> Any:
        """As users read it."""
        import lindi_bridge

        return lindi_bridge.read_elem(group)

    def slices(self, matrix: Any, rows: slice | np.ndarray[Any, Any]) -> list[Any]:
        """Two waves for any rows."""
        import lindi_bridge

        found = lindi_bridge.sparse_rows(matrix, rows)
        return [np.diff(found.indptr), found.data, found.indices]


class Zarr(Access):
    """With orthogonal selections, whose chunks zarr fetches concurrently."""

    def runs(self, dataset: Any, spans: list[tuple[int, int]]) -> np.ndarray[Any, Any]:
        """One selection for all of them."""
        if len(spans) == 1:
            return np.asarray(dataset[slice(*spans[0])])
        return np.asarray(dataset.oindex[np.concatenate([np.arange(*span) for span in spans])])

    def cross(self, dataset: Any, rows: list[int], columns: slice) -> Any:
        """Orthogonal by name."""
        return dataset.oindex[rows, columns]


class Task(NamedTuple):
    """A task; what it returns is compared with h5py on the local file."""

    title: str
    work: Callable[[Access, Any], Any]


def text(value: Any) -> Any:
    """A string as str."""
    return value.decode() if isinstance(value, bytes) else value


def plain(values: Any) -> Any:
    """An array; strings as str."""
    array = np.asarray(values)
    if array.dtype.kind not in "OST":
        return array
    return np.array([text(v) for v in array.ravel().tolist()], object).reshape(array.shape)


def listing(access: Access, file: Any) -> Any:
    """Names at the root and in ``obs``, as a browser would show them."""
    return [*sorted(file.keys()), *sorted(file["obs"].keys())]


def frame(access: Access, file: Any) -> Any:
    """The data frame ``obs``."""
    return access.frame(file["obs"])


def _column(member: Any) -> Any:
    import pandas as pd

    if not hasattr(member, "keys"):
        return plain(member[:])
    if "codes" in member:
        return pd.Categorical.from_codes(plain(member["codes"][:]), plain(member["categories"][:]))
    values = plain(member["values"][:]).astype(object)  # nullable: anndata 0.13 writes strings like that
    values[member["mask"][:]] = None
    return values


def var_names(access: Access, file: Any) -> Any:
    """Names of the genes."""
    return _column(file["var"][text(file["var"].attrs["_index"])])


def _cells(file: Any) -> int:
    return int(file["X"]["indptr"].shape[0]) - 1


def contiguous_rows(access: Access, file: Any) -> Any:
    """100 rows from the middle of the sparse matrix X."""
    first = _cells(file) // 2
    return access.slices(file["X"], slice(first, first + 100))


def _chosen(file: Any) -> np.ndarray[Any, Any]:
    return np.sort(np.random.default_rng(3).choice(_cells(file), 100, replace=False))


def random_rows(access: Access, file: Any) -> Any:
    """100 rows from all over X."""
    return access.slices(file["X"], _chosen(file))


def embedding(access: Access, file: Any) -> Any:
    """100 rows of a dense array."""
    first = _cells(file) // 2
    return file["obsm"]["X_pca"][first : first + 100]


def cross(access: Access, file: Any) -> Any:
    """100 rows from all over a dense array, ten of its columns."""
    return access.cross(file["obsm"]["X_pca"], _chosen(file).tolist(), slice(3, 13))


def column(access: Access, file: Any) -> Any:
    """All of one column of ``obs``."""
    return file["obs"]["total_counts"][:]


def stream(access: Access, file: Any) -> Any:
    """All of X, block by block; the sums of its bits stand for the values."""
    sums = []
    for name in ("data", "indices"):
        dataset = file["X"][name]
        for start in range(0, dataset.shape[0], BLOCK):
            block = np.ascontiguousarray(dataset[start : start + BLOCK])
            sums.append(int(block.view(f"u{block.dtype.itemsize}").sum(dtype=np.uint64)))
    return np.array(sums, np.uint64)


TASKS = {
    "open": Task("open, list the root and obs", listing),
    "obs": Task("obs as a data frame", frame),
    "var": Task("names of the genes", var_names),
    "rows": Task("100 contiguous rows of X", contiguous_rows),
    "random": Task("100 random rows of X", random_rows),
    "obsm": Task("100 rows of obsm/X_pca", embedding),
    "fancy": Task("100 random rows x 10 columns of obsm/X_pca", cross),
    "column": Task("one column of obs", column),
    "stream": Task("all of X, streamed", stream),
}


def digest(value: Any) -> str:
    """The same for equal values: bytes count as strings, narrow numbers as wide ones."""
    hashed = hashlib.blake2b(digest_size=16)
    _add(hashed, value)
    return hashed.hexdigest()


def _add(hashed: Any, value: Any) -> None:
    if hasattr(value, "columns"):
        for name in sorted(value.columns):
            _add(hashed, [name, np.asarray(value[name])])
        _add(hashed, np.asarray(value.index))
        return
    if isinstance(value, list):
        for item in value:
            _add(hashed, item)
        return
    array = plain(value)
    hashed.update(repr(array.shape).encode())
    if array.dtype.kind in "OU":
        hashed.update("\0".join(map(str, array.ravel().tolist())).encode())
    else:
        wide = {"f": "<f8", "i": "<i8", "u": "<i8", "b": "<i8"}[array.dtype.kind]
        hashed.update(array.dtype.kind.replace("u", "i").encode() + np.ascontiguousarray(array.astype(wide)).tobytes())
