"""Contents of variable-length values of a file that nobody has indexed: their descriptors are read to find them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from h5py import h5d

from lindi_bridge.client.plan import ReadPlan, keep_plan
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.heap_maps import collection_sizes, heap_map, read_descriptors
from lindi_bridge.hdf5.heaps import stored_layout
from lindi_bridge.hdf5.walk import header_address

__all__ = ["fetch_strings"]


def fetch_strings(datasets: Iterable[tuple[h5d.DatasetID, ReadPlan]], file: HDF5File, most: int) -> int:
    """Fetch the heap collections of datasets with variable-length values, whose own values are in memory already.

    Nothing is done for a file that a document describes, because that says where the collections lie.

    Parameters
    ----------
    datasets : iterable of (DatasetID, ReadPlan)
        Any; those without variable-length values are passed over.
    file : HDF5File
        The file object below them.
    most : int
        Bytes to fetch at the most.

    Returns
    -------
    int
        Bytes of the collections.
    """
    if "heaps" in file.properties or "pending" in file.properties:
        return 0
    found = []
    for dataset, plan in datasets:
        is_readable = plan.heap is None and (plan.table is not None or plan.offset is not None)
        if is_readable and stored_layout(dataset.get_type())[1]:
            descriptors = read_descriptors(dataset, file, plan.table)
            if descriptors is not None and descriptors.blocks:
                found.append((dataset, plan, descriptors))
    sizes = collection_sizes(file, [block for _, _, each in found for block in each.blocks], most)
    for dataset, plan, descriptors in found:
        used = np.unique(np.concatenate(descriptors.blocks))
        collections = np.array([(a, sizes[a]) for a in used.tolist() if a in sizes], np.int64).reshape(-1, 2)
        if len(collections) == len(used):
            keep_plan(file, header_address(dataset), replace(plan, heap=heap_map(descriptors, collections)))
    return sum(sizes.values())
