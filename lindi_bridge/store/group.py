"""A file as a ``zarr.Group`` whose members are all known when it is opened."""

from __future__ import annotations

from typing import Any

from zarr import Group
from zarr.core.group import AsyncGroup
from zarr.storage import StorePath

from lindi_bridge.store.metadata import group_metadata
from lindi_bridge.store.omissions import warn_of_problems
from lindi_bridge.store.store import HDF5Store

__all__ = ["open_group"]


def open_group(name: Any, *, stacklevel: int = 1, **options: Any) -> Group:
    """Open a document, or an HDF5 file anywhere, as a Zarr group.

    Parameters
    ----------
    name, **options
        As for :class:`HDF5Store`.
    stacklevel : int
        Whom to name in the warning about what is missing, as for :func:`warnings.warn`.

    Returns
    -------
    zarr.Group
        It holds the metadata of everything below it, so that listing asks the store nothing.
    """
    store = HDF5Store(name, **options)
    try:
        metadata = group_metadata(store.hierarchy.nodes)
        group = Group(AsyncGroup(metadata=metadata, store_path=StorePath(store)))
        warn_of_problems(store.file._file_object.address, store.problems, stacklevel=stacklevel + 1)
    except BaseException:
        store.close()
        raise
    return group
