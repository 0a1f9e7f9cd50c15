"""Datasets of which a document only says in which HDF5 file they lie (``_EXTERNAL_ARRAY_LINK``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import h5py

from lindi_bridge.errors import LeavesFileError, LindiBridgeError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.walk import header_address
from lindi_bridge.indexer.dtypes import contains_references

__all__ = ["Link", "linked_dataset"]


class Link(NamedTuple):
    """Where a dataset lies.

    ``key`` tells the files apart; ``open`` opens the file; ``name`` is the path of the dataset in it.
    """

    key: str
    open: Callable[[], HDF5File]
    name: str


def linked_dataset(dataset: h5py.Dataset, file: HDF5File, file_class: Callable[[HDF5File], Any]) -> Any:
    """The dataset that a dataset without values stands for, in its file. The file stays open as long as ``file``.

    Parameters
    ----------
    dataset : h5py.Dataset
        Of a file that was made of a document.
    file : HDF5File
        The file object below it.
    file_class : callable
        Opens a file object.

    Raises
    ------
    LeavesFileError
        The other file cannot be opened, has no such dataset, or it is another one.
    """
    link: Link = file.properties["linked"][header_address(dataset.id)]
    where = f"{file.address}: the values of {dataset.name} are those of {link.name} in {link.key}"
    if contains_references(dataset.dtype):
        raise LeavesFileError(f"{where}; they are references, which count in that file only")
    opened: dict[str, Any] = file.properties.setdefault("companions", {})
    key = f"linked {link.key}"
    try:
        if key not in opened:
            opened[key] = file_class(link.open())
            opened[key]._file_object.properties["owned"] = True
        target = opened[key][link.name]
    except KeyError as error:
        raise LeavesFileError(f"{where}, where it is not: {error}") from None
    except LindiBridgeError as error:
        raise LeavesFileError(f"{where}, which cannot be opened: {error}") from error
    if not isinstance(target, h5py.Dataset) or (target.shape, target.dtype) != (dataset.shape, dataset.dtype):
        raise LeavesFileError(f"{where}, which has another shape or type now; index the file again")
    return target
