"""Which raw bytes of small values a document carries, and where the strings of the larger ones lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from h5py import h5d, h5s

from lindi_bridge.hdf5.chunk_index import ChunkTableError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.heap_maps import Descriptors, collection_sizes, heap_map, read_descriptors
from lindi_bridge.hdf5.heaps import stored_layout
from lindi_bridge.hdf5.walk import header_address, is_stored_here
from lindi_bridge.model.chunks import ChunkTable
from lindi_bridge.model.snapshot import HeapMap
from lindi_bridge.ranges import ByteRange

__all__ = ["EmbedPlan", "EmbedPolicy", "plan_embedding"]


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
    strings: list[tuple[Descriptors, list[ByteRange]]] = []
    for dataset, ranges in variable:
        table = tables.get(header_address(dataset))
        found = read_descriptors(dataset, file, table if isinstance(table, ChunkTable) else None)
        if found is not None:
            strings.append((found, ranges))
    sizes = collection_sizes(file, [block for found, _ in strings for block in found.blocks])
    for found, ranges in strings:
        used = np.unique(np.concatenate(found.blocks))
        collections = np.array([(a, sizes[a]) for a in used.tolist() if a in sizes], np.int64).reshape(-1, 2)
        held = [*ranges, *(ByteRange(a, n) for a, n in collections.tolist())]
        nbytes = sum(r.length for r in held)
        if nbytes <= min(policy.variable, budget):
            plan.ranges += held
            budget -= nbytes
        else:
            plan.heaps[found.address] = heap_map(found, collections)
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
