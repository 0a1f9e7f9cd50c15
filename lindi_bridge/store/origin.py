"""From a node of a Zarr hierarchy back to the HDF5 object that it shows."""

from __future__ import annotations

from typing import Any

from lindi_bridge.model.text import stored_name

__all__ = ["hdf5_object"]


def hdf5_object(obj: Any) -> Any:
    """The object of the open file behind a group or an array of :func:`lindi_bridge.open_zarr`; anything else as it is.

    Parameters
    ----------
    obj : zarr.Group, zarr.Array or anything else
        Its store is asked, and opened if it was unpickled and not used yet.

    Returns
    -------
    Group, Dataset, or ``obj``
        Of the file whose memory the store uses.
    """
    if type(obj).__module__.partition(".")[0] != "zarr":  # without importing zarr
        return obj
    from lindi_bridge.store.nodes import ArrayNode
    from lindi_bridge.store.store import HDF5Store

    store = getattr(obj, "store", None)
    if not isinstance(store, HDF5Store):
        return obj
    node = store.hierarchy.nodes[obj.path]
    file, path = (node.file, node.path) if isinstance(node, ArrayNode) else (store.file, f"/{obj.path}")
    return file[stored_name(path)]
