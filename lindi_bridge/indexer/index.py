"""One HDF5 file, open for reading in ranges -> the reference tree and the snapshot of its bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import h5py
import numpy as np

from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.open import open_file_id
from lindi_bridge.hdf5.under_way import without
from lindi_bridge.hdf5.walk import Walk, is_stored_here, walk_file, walk_structures
from lindi_bridge.indexer.embed import EmbedPolicy, plan_embedding
from lindi_bridge.indexer.pages import metadata_ranges, raw_stretches, union
from lindi_bridge.indexer.pairs import sparse_pairs
from lindi_bridge.indexer.profile import PROFILES, Profile
from lindi_bridge.indexer.storage import InlinePolicy
from lindi_bridge.indexer.tree import index_tree
from lindi_bridge.model.chunks import ChunkTable, Int64Array
from lindi_bridge.model.nodes import ReferenceTree
from lindi_bridge.model.snapshot import Fingerprint, Snapshot
from lindi_bridge.ranges import ByteRange, SourceIdentity

__all__ = ["index_file"]

_SAMPLES = 32
_SAMPLE_LENGTH = 64
_MANY_VALUES = 128 * 1024
"""Bytes of chunk indexes and small values from which on they are kept apart: names are there sooner without them."""

Progress = Callable[[str, int], None]


def index_file(
    file: HDF5File,
    url: str,
    take_fingerprint: Callable[[Callable[[Sequence[ByteRange]], list[bytes]], Sequence[int], int], Fingerprint],
    inline: InlinePolicy | None = None,
    embed: EmbedPolicy | None = None,
    progress: Progress | None = None,
    profile: Profile = PROFILES["lindi"],
) -> tuple[ReferenceTree, Snapshot]:
    """Index an HDF5 file.

    Parameters
    ----------
    file : HDF5File
        The file object.
    url : str
        Address to write for it.
    take_fingerprint : callable
        Digests samples of the source.
    inline, embed : policies, optional
        What may be copied into the document.
    progress : callable, optional
        Called with the name of a stage (``"walk"``, ``"index"``) and 1 for each object.
    profile : Profile
        Whom the tree is written for.
    """
    structures = walk_structures(file)
    with file.record() as opening:
        file_id = open_file_id(file)
    try:
        walk = walk_file(file_id, file, None if progress is None else lambda n: progress("walk", n), structures)
        plan = plan_embedding(walk.datasets.values(), file, walk.tables, embed)
        root = h5py.Group(h5py.h5g.open(file_id, b"/"))
        tree, departures = index_tree(
            root, file, walk, inline, None if progress is None else lambda n: progress("index", n), profile
        )
        pairs = sparse_pairs(walk)
        raw = raw_stretches(*_raw_data(walk))
    finally:
        h5py.File(file_id).close()
    reads = walk.reads | set(opening)
    metadata = metadata_ranges(reads, raw, file.size)
    with_indexes = metadata_ranges(reads | walk.index_reads, raw, file.size)
    # In a damaged file an address may lie after the end.
    embedded = union(r for r in (*with_indexes, *plan.ranges) if r.stop <= file.size)
    values = without(embedded, metadata)
    if sum(r.length for r in values) >= _MANY_VALUES:
        embedded = without(embedded, values)
    else:
        values = []
    identity = file.reader.identity()
    starts = _sample_starts(file.size)
    return tree, Snapshot(
        url=url,
        identity=SourceIdentity(file.size, identity.etag, identity.last_modified),
        pieces=_read_pieces(file, embedded),
        values=_read_pieces(file, values),
        fingerprint=take_fingerprint(file.read_ranges, starts, min(_SAMPLE_LENGTH, file.size)),
        heaps=plan.heaps,
        departures=tuple(departures),
        pairs=pairs,
    )


def _read_pieces(file: HDF5File, ranges: Sequence[ByteRange]) -> tuple[tuple[int, bytes], ...]:
    return tuple(zip([r.start for r in ranges], file.read_ranges(ranges), strict=True))


def _raw_data(walk: Walk) -> tuple[Int64Array, Int64Array]:
    """Where all raw data of a file lie: addresses and sizes."""
    tables = [table for table in walk.tables.values() if isinstance(table, ChunkTable)]
    blocks = [
        (dataset.get_offset(), dataset.get_storage_size())
        for dataset in walk.datasets.values()
        if is_stored_here(dataset)
        and dataset.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS
        and dataset.get_offset() is not None
    ]
    contiguous = np.array(blocks, np.int64).reshape(-1, 2)
    return (
        np.concatenate([contiguous[:, 0], *(table.offset for table in tables)]),
        np.concatenate([contiguous[:, 1], *(table.nbytes for table in tables)]),
    )


def _sample_starts(size: int) -> list[int]:
    """Addresses of the samples, evenly over the file, the first and the last bytes included."""
    last = max(0, size - _SAMPLE_LENGTH)
    return sorted({last * k // (_SAMPLES - 1) for k in range(_SAMPLES)})
