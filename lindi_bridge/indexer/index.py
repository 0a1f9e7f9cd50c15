"""One HDF5 file, open for reading in ranges -> the reference tree and the snapshot of its bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import h5py

from lindi_bridge.hdf5.file import PAGE, HDF5File
from lindi_bridge.hdf5.open import open_file_id
from lindi_bridge.hdf5.walk import walk_file
from lindi_bridge.indexer.datasets import InlinePolicy
from lindi_bridge.indexer.embed import EmbedPolicy, plan_embedding
from lindi_bridge.indexer.tree import index_tree
from lindi_bridge.model.nodes import ReferenceTree
from lindi_bridge.model.snapshot import Fingerprint, Snapshot
from lindi_bridge.ranges import ByteRange, SourceIdentity, coalesce

__all__ = ["index_file"]

_SAMPLES = 32
_SAMPLE_LENGTH = 64

Progress = Callable[[str, int], None]


def index_file(
    file: HDF5File,
    url: str,
    take_fingerprint: Callable[[Callable[[Sequence[ByteRange]], list[bytes]], Sequence[int], int], Fingerprint],
    inline: InlinePolicy | None = None,
    embed: EmbedPolicy | None = None,
    progress: Progress | None = None,
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
    """
    file_id = open_file_id(file)
    try:
        with file.record() as opening:
            h5py.h5g.open(file_id, b"/")
        walk = walk_file(file_id, file, None if progress is None else lambda n: progress("walk", n))
        plan = plan_embedding(walk.datasets.values(), file, walk.tables, embed)
        root = h5py.Group(h5py.h5g.open(file_id, b"/"))
        tree, departures = index_tree(
            root, file, walk, inline, None if progress is None else lambda n: progress("index", n)
        )
        # What libhdf5 reads to open a file lies in the first pages, wherever the superblock is.
        pages = walk.pages | opening.pages | {0, h5py.File(file_id).userblock_size // PAGE}
    finally:
        h5py.File(file_id).close()
    identity = file.reader.identity()
    starts = _sample_starts(file.size)
    return tree, Snapshot(
        url=url,
        identity=SourceIdentity(file.size, identity.etag, identity.last_modified),
        pieces=_pieces(file, pages, plan.ranges),
        fingerprint=take_fingerprint(file.read_ranges, starts, min(_SAMPLE_LENGTH, file.size)),
        heaps=plan.heaps,
        departures=tuple(departures),
    )


def _pieces(file: HDF5File, pages: set[int], ranges: Sequence[ByteRange]) -> tuple[tuple[int, bytes], ...]:
    whole_pages = [ByteRange(p * PAGE, min(PAGE, file.size - p * PAGE)) for p in pages if p * PAGE < file.size]
    wanted = _touching(coalesce([*whole_pages, *ranges], gap=0, waste=0, limit=1 << 62))
    return tuple(zip([r.start for r in wanted], file.read_ranges(wanted), strict=True))


def _touching(ranges: Sequence[ByteRange]) -> list[ByteRange]:
    """Join ranges that lie directly one after the other."""
    out: list[ByteRange] = []
    for r in ranges:
        if out and out[-1].stop == r.start:
            out[-1] = ByteRange(out[-1].start, out[-1].length + r.length)
        else:
            out.append(r)
    return out


def _sample_starts(size: int) -> list[int]:
    """Addresses of the samples, evenly over the file, the first and the last bytes included."""
    last = max(0, size - _SAMPLE_LENGTH)
    return sorted({last * k // (_SAMPLES - 1) for k in range(_SAMPLES)})
