"""An HDF5 file without a document: names, headers and attributes are fetched before h5py asks for them one by one.

Opening walks the whole tree, as far as a small budget goes. In a file with more metadata than that, the groups which
somebody opens are walked on from there.
"""

from __future__ import annotations

from typing import Any

from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.walk import header_address, walk_names
from lindi_bridge.ranges import h5py_lock_is_held

__all__ = ["fetch_names", "fetch_names_below"]

_BUDGET = 8 * 1024 * 1024
"""Bytes fetched ahead of one group. Names and attributes of some ten thousand objects."""


def fetch_names(file: HDF5File) -> None:
    """Fetch what names and attributes of a file just opened lie in, as far as the budget goes."""
    file.properties["names_fetched"] = True
    if not walk_names(file, _BUDGET):
        file.properties["walked"] = set()


def fetch_names_below(group: Any, file: HDF5File, *, all_levels: bool = False) -> None:
    """Fetch the names below a group, where opening the file did not come so far.

    Parameters
    ----------
    group : h5py.Group
        Somebody opens it.
    file : HDF5File
        Its file.
    all_levels : bool
        Everything below will be visited: fetch all of it, up to half the cache.
    """
    walked: set[tuple[int, bool]] | None = file.properties.get("walked")
    if walked is None or h5py_lock_is_held():
        return
    address = header_address(group.id)
    if (address, all_levels) not in walked:
        walked.add((address, all_levels))
        walk_names(file, file.cache_bytes // 2 if all_levels else _BUDGET, address)
