"""Which heap collections the values of variable-length datasets lie in, found by reading their descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from h5py import h5d, h5i
from h5py._objects import phil

from lindi_bridge.hdf5.decode import ChunkDecoder
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.heaps import collection_addresses, collection_size, stored_layout
from lindi_bridge.hdf5.walk import header_address
from lindi_bridge.model.chunks import ChunkTable
from lindi_bridge.model.snapshot import HeapMap
from lindi_bridge.ranges import ByteRange

__all__ = ["Descriptors", "collection_sizes", "heap_map", "read_descriptors"]

_BLOCK_ROWS = 4096
_COLLECTION = 64 * 1024
"""Bytes. libhdf5 grows collections up to this size unless a single value is larger."""
_HEADER = 16


@dataclass
class Descriptors:
    """What the stored blocks of one dataset point to.

    Parameters
    ----------
    address : int
        Of the dataset's object header.
    step : int
        Elements along axis 0 a block; 0 where a block is a chunk.
    blocks : list of int64 array
        Addresses of heap collections, those of each block sorted.
    """

    address: int
    step: int
    blocks: list[npt.NDArray[np.int64]]


def read_descriptors(dataset: h5d.DatasetID, file: HDF5File, table: ChunkTable | None) -> Descriptors | None:
    """Read which collections each stored block of a dataset with variable-length values points to.

    Parameters
    ----------
    dataset : h5py.h5d.DatasetID
        Chunked or contiguous, and allocated.
    file : HDF5File
        The file below it. The stored blocks are read from its memory, and fetched one by one where they are not there.
    table : ChunkTable, optional
        Of a chunked dataset.

    Returns
    -------
    Descriptors or None
        None where the blocks cannot be decoded here.
    """
    create, address = dataset.get_create_plist(), header_address(dataset)
    base = int(h5i.get_file_id(dataset).get_create_plist().get_userblock())  # addresses in the file leave it out
    itemsize, offsets = stored_layout(dataset.get_type())
    blocks = []
    if table is not None:
        decoder = ChunkDecoder(create, itemsize)
        try:
            for start, length, mask in zip(
                table.offset.tolist(), table.nbytes.tolist(), table.filter_mask.tolist(), strict=True
            ):
                decoded = decoder.decode(_read(file, start, length), mask)
                if decoded is None:
                    return None
                blocks.append(base + collection_addresses(decoded, itemsize, offsets))
        finally:
            decoder.close()
        return Descriptors(address, 0, blocks)
    rows = dataset.shape[0] if dataset.shape else 1
    step = max(1, _BLOCK_ROWS * rows // max(rows, int(np.prod(dataset.shape or (1,)))))
    data = _read(file, dataset.get_offset(), dataset.get_storage_size())
    row_nbytes = len(data) // rows
    for row in range(0, rows, step):
        block = data[row * row_nbytes : (row + step) * row_nbytes]
        blocks.append(base + collection_addresses(block, itemsize, offsets))
    return Descriptors(address, step, blocks)


def collection_sizes(
    file: HDF5File, blocks: Sequence[npt.NDArray[np.int64]], most: int | None = None
) -> dict[int, int]:
    """Size in bytes of every heap collection at some addresses, all of them fetched on the way in two waves.

    Parameters
    ----------
    file : HDF5File
        Where they are.
    blocks : sequence of int64 array
        Addresses.
    most : int, optional
        Bytes to fetch at the most; the first collections are taken that fit.

    Returns
    -------
    dict
        Sizes (bytes) by address, of those that are collections.
    """
    if not blocks:
        return {}
    addresses: list[int] = [a for a in np.unique(np.concatenate(blocks)).tolist() if 0 < a <= file.size - _HEADER]
    if not addresses:
        return {}
    following = [*addresses[1:], file.size]
    first = [ByteRange(a, min(_COLLECTION, n - a)) for a, n in zip(addresses, following, strict=True)]
    if most is not None:
        fitting = int(np.searchsorted(np.cumsum([r.length for r in first]), most, side="right"))
        first, addresses = first[:fitting], addresses[:fitting]
    file.ensure(first)
    sizes = {a: n for a in addresses if (n := collection_size(_read(file, a, _HEADER))) and a + n <= file.size}
    if most is None or sum(sizes.values()) <= most:
        file.ensure([ByteRange(a, n) for a, n in sizes.items()])
    return sizes


def heap_map(found: Descriptors, collections: npt.NDArray[np.int64]) -> HeapMap:
    """First and last collection of each block: they are written in order, so a block's lie together.

    Parameters
    ----------
    found : Descriptors
        Of a dataset.
    collections : (n, 2) int64 array
        Address and size (bytes) of the collections that it uses, ascending.
    """
    spans = []
    for block in found.blocks:
        index = np.searchsorted(collections[:, 0], block)
        spans.append((int(index.min()), min(int(index.max()) + 1, len(collections))) if len(index) else (0, 0))
    return HeapMap(found.step, collections, np.array(spans, np.int64).reshape(-1, 2))


def _read(file: HDF5File, start: int, length: int) -> bytes:
    length = max(0, min(length, file.size - start))
    data = file.held(start, length)
    if len(data) == length:
        return data
    with phil:  # under it h5py moves the file's position; in another thread it may be reading
        file.seek(start)
        return file.read(length)
