"""Which datasets of a file are read in turn, chunk by chunk."""

from __future__ import annotations

import h5py

from lindi_bridge.hdf5.damage import refuse_source_error
from lindi_bridge.hdf5.pairs import MOST_PAIRS
from lindi_bridge.hdf5.sparse import sparse_neighbour
from lindi_bridge.hdf5.walk import Walk, header_address
from lindi_bridge.model.chunks import ChunkTable

__all__ = ["sparse_pairs"]


def sparse_pairs(walk: Walk) -> tuple[tuple[int, int], ...]:
    """The arrays ``data`` and ``indices`` of sparse matrices that have the same chunks, and several of them.

    Parameters
    ----------
    walk : Walk
        Of the file, which is still open.

    Returns
    -------
    tuple of (int, int)
        Addresses of their object headers; the first thousand pairs.
    """
    pairs: list[tuple[int, int]] = []
    for address, dataset in walk.datasets.items():
        data = h5py.Dataset(dataset)
        if not _has_chunks(walk, address) or not (data.name or "").endswith("/data"):
            continue
        try:
            indices = sparse_neighbour(data)
            if indices is None or indices.chunks != data.chunks:
                continue
            other = header_address(indices.id)
        except (OSError, KeyError, RuntimeError, ValueError) as error:
            refuse_source_error(error)  # a damaged group
            continue
        if _has_chunks(walk, other):
            pairs.append((address, other))
        if len(pairs) == MOST_PAIRS:
            break
    return tuple(pairs)


def _has_chunks(walk: Walk, address: int) -> bool:
    table = walk.tables.get(address)
    return isinstance(table, ChunkTable) and len(table) > 1
