"""Which raw bytes of small values a document carries, and where the strings of the larger ones lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from h5py import h5d, h5i, h5s

from lindi_bridge.hdf5.chunk_index import ChunkTableError
from lindi_bridge.hdf5.decode import ChunkDecoder
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.heaps import (
    collection_addresses,
    collection_size,
    stored_layout,
)
from lindi_bridge.hdf5.walk import header_address, is_stored_here
from lindi_bridge.model.chunks import ChunkTable
from lindi_bridge.model.snapshot import HeapMap
from lindi_bridge.ranges import ByteRange

__all__ = ["EmbedPlan", "EmbedPolicy", "plan_embedding"]

_BLOCK_ROWS = 4096
_COLLECTION = 64 * 1024
"""Bytes. libhdf5 grows collections up to this size unless a single value is larger."""
_HEADER = 16


@dataclass(frozen=True)
class EmbedPolicy:
    """Sizes in bytes: raw bytes embedded of one plain dataset, of one with variable-length values, and in all."""

    plain: int = 64 * 1024
    variable: int = 1024 * 1024
    total: int = 32 * 1024 * 1024

    def budget(self, file_size: int) -> int:
        """Bytes that may be embedded of a file: of a large one at most an eighth, so that the document stays small."""
        return min(self.total, max(1024 * 1024, file_size // 8))


@dataclass
class EmbedPlan:
    """What to embed, and heap maps by the address of the dataset's object header."""

    ranges: list[ByteRange] = field(default_factory=list)
    heaps: dict[int, HeapMap] = field(default_factory=dict)


@dataclass
class _Strings:
    """A dataset with variable-length values: its stored blocks, and the collections each points to."""

    address: int
    ranges: list[ByteRange]
    step: int
    blocks: list[npt.NDArray[np.int64]]


def plan_embedding(
    datasets: Iterable[h5d.DatasetID],
    file: HDF5File,
    tables: Mapping[int, ChunkTable | ChunkTableError],
    policy: EmbedPolicy | None = None,
) -> EmbedPlan:
    """Choose what to embed, and find the heap collections of all variable-length values.

    Everything chosen, and all strings, are fetched in three waves on the way: stored blocks, the first 64 KiB of
    each heap collection, and what is longer.
    """
    policy = policy or EmbedPolicy()
    plan = EmbedPlan()
    budget = policy.budget(file.size)
    variable: list[tuple[h5d.DatasetID, list[ByteRange]]] = []
    for dataset in datasets:
        if not is_stored_here(dataset) or dataset.get_space().get_simple_extent_type() == h5s.NULL:
            continue
        itemsize, offsets = stored_layout(dataset.get_type())
        raw = int(np.prod(dataset.shape, dtype=np.int64)) * itemsize
        if raw > policy.plain and not offsets:
            continue
        ranges = _stored_ranges(dataset, tables)
        if not ranges:
            continue
        if offsets:
            variable.append((dataset, ranges))
        elif raw <= policy.plain and (stored := sum(r.length for r in ranges)) <= budget:
            plan.ranges += ranges
            budget -= stored
    file.ensure([*plan.ranges, *(r for _, ranges in variable for r in ranges)])
    strings = [found for dataset, ranges in variable if (found := _read_descriptors(dataset, ranges, file, tables))]
    sizes = _collection_sizes(file, [block for s in strings for block in s.blocks])
    for found in strings:
        used = np.unique(np.concatenate(found.blocks))
        collections = np.array([(a, sizes[a]) for a in used.tolist() if a in sizes], np.int64).reshape(-1, 2)
        held = [*found.ranges, *(ByteRange(a, n) for a, n in collections.tolist())]
        nbytes = sum(r.length for r in held)
        if nbytes <= min(policy.variable, budget):
            plan.ranges += held
            budget -= nbytes
        else:
            plan.heaps[found.address] = _heap_map(found, collections)
    return plan


def _stored_ranges(dataset: h5d.DatasetID, tables: Mapping[int, ChunkTable | ChunkTableError]) -> list[ByteRange]:
    """Where the raw data lie; empty for what is in the header, elsewhere, or nowhere."""
    layout = dataset.get_create_plist().get_layout()
    if layout == h5d.CHUNKED:
        table = tables.get(header_address(dataset))
        if not isinstance(table, ChunkTable):
            return []
        return [ByteRange(*r) for r in zip(table.offset.tolist(), table.nbytes.tolist(), strict=True)]
    if layout == h5d.CONTIGUOUS and dataset.get_offset() is not None and dataset.get_storage_size():
        return [ByteRange(dataset.get_offset(), dataset.get_storage_size())]
    return []


def _read_descriptors(
    dataset: h5d.DatasetID,
    ranges: list[ByteRange],
    file: HDF5File,
    tables: Mapping[int, ChunkTable | ChunkTableError],
) -> _Strings | None:
    """Collections that each stored block points to; None where the blocks cannot be decoded here."""
    create, address = dataset.get_create_plist(), header_address(dataset)
    base = int(h5i.get_file_id(dataset).get_create_plist().get_userblock())  # addresses in the file leave it out
    itemsize, offsets = stored_layout(dataset.get_type())
    table = tables.get(address)
    blocks = []
    if isinstance(table, ChunkTable):
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
        return _Strings(address, ranges, 0, blocks)
    rows = dataset.shape[0] if dataset.shape else 1
    step = max(1, _BLOCK_ROWS * rows // max(rows, int(np.prod(dataset.shape or (1,)))))
    data = _read(file, *ranges[0])
    row_nbytes = len(data) // rows
    for row in range(0, rows, step):
        block = data[row * row_nbytes : (row + step) * row_nbytes]
        blocks.append(base + collection_addresses(block, itemsize, offsets))
    return _Strings(address, ranges, step, blocks)


def _collection_sizes(file: HDF5File, blocks: list[npt.NDArray[np.int64]]) -> dict[int, int]:
    """Size in bytes of every collection that is one."""
    if not blocks:
        return {}
    addresses: list[int] = [a for a in np.unique(np.concatenate(blocks)).tolist() if 0 < a <= file.size - _HEADER]
    if not addresses:
        return {}
    following = [*addresses[1:], file.size]
    file.ensure([ByteRange(a, min(_COLLECTION, n - a)) for a, n in zip(addresses, following, strict=True)])
    sizes = {a: n for a in addresses if (n := collection_size(_read(file, a, _HEADER))) and a + n <= file.size}
    file.ensure([ByteRange(a, n) for a, n in sizes.items()])
    return sizes


def _heap_map(found: _Strings, collections: npt.NDArray[np.int64]) -> HeapMap:
    """First and last collection of each block: they are written in order, so a block's lie together."""
    spans = []
    for block in found.blocks:
        index = np.searchsorted(collections[:, 0], block)
        spans.append((int(index.min()), int(index.max()) + 1) if len(index) else (0, 0))
    return HeapMap(found.step, collections, np.array(spans, np.int64).reshape(-1, 2))


def _read(file: HDF5File, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)
