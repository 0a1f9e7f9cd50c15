"""The two arrays of a sparse matrix that are read together.

Encodings ``csr_matrix`` and ``csc_matrix`` 0.1.0 (On-disk format of AnnData, "Sparse arrays"): a group with ``data``,
``indices`` and ``indptr``, the first two of which have an element each for a stored value.
"""

from __future__ import annotations

import posixpath

import h5py

__all__ = ["is_sparse_array", "sparse_neighbour"]

_TWINS = {"data": "indices", "indices": "data"}


def is_sparse_array(name: str | None) -> bool:
    """Whether a dataset may be one of the two, by its path."""
    return name is not None and posixpath.basename(name) in _TWINS


def sparse_neighbour(dataset: h5py.Dataset) -> h5py.Dataset | None:
    """The other array of the sparse matrix that a dataset is part of.

    Parameters
    ----------
    dataset : h5py.Dataset
        Any.

    Returns
    -------
    h5py.Dataset or None
        None if there is none in the same file, or none of the same shape.

    Raises
    ------
    OSError, KeyError, RuntimeError, ValueError
        The group, or what is in it, cannot be read.
    """
    other = _TWINS.get(posixpath.basename(dataset.name or ""))
    if other is None:
        return None
    parent = dataset.parent
    # Another link may lead to another file, where the same address is another dataset.
    if not isinstance(parent.get(other, getlink=True), h5py.HardLink) or "indptr" not in parent:
        return None
    neighbour = parent[other]
    return neighbour if isinstance(neighbour, h5py.Dataset) and neighbour.shape == dataset.shape else None
