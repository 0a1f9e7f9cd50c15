"""A compressed sparse matrix as it is stored: three datasets, and which axis is the compressed one.

Encodings ``csr_matrix`` and ``csc_matrix`` 0.1.0 (On-disk format of AnnData, "Sparse arrays"), and the older form of
h5sparse, whose attributes are ``h5sparse_format`` and ``h5sparse_shape`` (anndata 0.6 and older).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from lindi_bridge.client.plan import read_plans
from lindi_bridge.client.wrapping import is_ours
from lindi_bridge.elements.encoding import text_attribute
from lindi_bridge.errors import ElementError
from lindi_bridge.store.origin import hdf5_object

__all__ = ["CompressedMatrix", "native", "open_compressed"]


@dataclass(frozen=True)
class CompressedMatrix:
    """Where a matrix lies.

    Parameters
    ----------
    name : str
        Address of the file and path of the group, for messages.
    axis : int
        The compressed axis: 0 for rows (CSR), 1 for columns (CSC).
    shape : (int, int)
        Rows and columns.
    indptr, indices, data : Dataset
        Ours; ``indptr`` has one element more than the compressed axis.
    """

    name: str
    axis: int
    shape: tuple[int, int]
    indptr: Any
    indices: Any
    data: Any

    @property
    def major(self) -> int:
        """Length of the compressed axis."""
        return self.shape[self.axis]

    @property
    def minor(self) -> int:
        """Length of the other axis."""
        return self.shape[1 - self.axis]

    @property
    def file(self) -> Any:
        """The file object below."""
        return self.data._file_object

    def build(self, data: Any, indices: Any, indptr: Any, count: int) -> Any:
        """A scipy matrix of the stored format with ``count`` rows (CSR) or columns (CSC)."""
        from scipy import sparse

        self.check_indices(indices)
        parts = (native(data), indices, indptr)
        if self.axis == 0:
            return sparse.csr_matrix(parts, shape=(count, self.minor))
        return sparse.csc_matrix(parts, shape=(self.minor, count))

    def check_indices(self, indices: Any) -> None:
        """Refuse indices that lie outside the matrix: scipy trusts them, and would read outside its memory."""
        if len(indices) and (indices.min() < 0 or indices.max() >= self.minor):
            raise ElementError(
                f"{self.name}: damaged: there are indices from {indices.min()} to {indices.max()} along an axis of "
                f"{self.minor}"
            )

    def check_brackets(self, starts: Any, stops: Any) -> None:
        """Refuse an ``indptr`` that descends or points outside the values."""
        if len(starts) and ((starts > stops).any() or starts.min() < 0 or stops.max() > self.data.shape[0]):
            raise ElementError(f"{self.name}: damaged: indptr descends or points outside the {len(self.data)} values")


def native(values: Any) -> Any:
    """Values in the machine's byte order; scipy takes the other one, and fails later."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def open_compressed(elem: Any) -> CompressedMatrix:
    """Look at a group that holds a sparse matrix; reads its attributes only.

    Parameters
    ----------
    elem : Group
        Ours, or one of :func:`lindi_bridge.open_zarr`; or what has such a one as ``group``, as a backed matrix of
        anndata.

    Raises
    ------
    TypeError
        Not a group of ours.
    ElementError
        No sparse matrix, or one that contradicts itself.
    """
    group = hdf5_object(elem)
    if not is_ours(group):
        group = hdf5_object(getattr(elem, "group", elem))
    if not is_ours(group):
        raise TypeError(f"{type(elem).__name__}: a group of a file from lindi_bridge.open is needed")
    name = f"{group._file_object.address}: {group.name}"
    form = text_attribute(group, "h5sparse_format") or text_attribute(group, "encoding-type").removesuffix("_matrix")
    if not isinstance(group, h5py.Group) or form not in ("csr", "csc"):
        kind = text_attribute(group, "encoding-type") or type(group).__name__.lower()
        raise ElementError(f"{name} is no sparse matrix in compressed form but {kind!r}; index a dense one as it is")
    missing = [part for part in ("indptr", "indices", "data") if not isinstance(group.get(part), h5py.Dataset)]
    if missing:
        raise ElementError(f"{name}: damaged: it is {form}, but has no dataset {' and no '.join(missing)}")
    shape = group.attrs.get("shape", group.attrs.get("h5sparse_shape"))
    if shape is None or np.shape(shape) != (2,):
        raise ElementError(f"{name}: damaged: the attribute 'shape' is {shape!r}, not two numbers")
    matrix = CompressedMatrix(
        name,
        0 if form == "csr" else 1,
        (int(shape[0]), int(shape[1])),
        *(group[part] for part in ("indptr", "indices", "data")),
    )
    parts = (matrix.indptr, matrix.indices, matrix.data)
    if any(part._file_object is not matrix.file for part in parts):
        raise ElementError(f"{name}: its parts lie in different files; read them one by one")
    read_plans([part.id for part in parts], matrix.file)
    lengths = [part.shape for part in parts]
    if any(len(s or ()) != 1 for s in lengths) or lengths[0] != (matrix.major + 1,) or lengths[1] != lengths[2]:
        raise ElementError(
            f"{name}: damaged: a {form} matrix of {matrix.shape[0]} x {matrix.shape[1]} whose indptr, indices and data "
            f"have the shapes {lengths[0]}, {lengths[1]} and {lengths[2]}"
        )
    return matrix
