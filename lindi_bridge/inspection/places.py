"""Where the values of a dataset lie, as the HDF5 metadata or the chunk references say, and how two such differ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import h5py
import numpy as np
import numpy.typing as npt

from lindi_bridge.client.plan import read_plan
from lindi_bridge.hdf5.walk import header_address, is_stored_here
from lindi_bridge.inspection.offline import OfflineFile
from lindi_bridge.model.chunks import ChunkTable, chunk_grid
from lindi_bridge.model.nodes import ArrayNode

__all__ = ["Places", "is_linked", "places_differ", "places_of"]

_MOST_SHOWN = 3

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Places:
    """Where the values of one dataset lie.

    Parameters
    ----------
    kind : str
        ``"block"``: one after the other from an address on. ``"chunks"``: in chunks. ``"link"``: in a dataset of a
        source, which only libhdf5 reads. ``"unreadable"``: in chunks whose index cannot be read.
    grid : tuple of int
        Number of chunks along each axis; ``()`` for a block.
    index : (n,) int64 array
        Row-major number of each chunk, ascending.
    source, offset, nbytes : (n,) int64 arrays
        Number of its source, and its bytes there; ``nbytes`` is 0 for a block, whose length its shape tells.
    inline : frozenset of int
        Chunks whose bytes stand in the document.
    target : str
        Path that a link leads to.
    """

    kind: str
    grid: tuple[int, ...]
    index: IntArray
    source: IntArray
    offset: IntArray
    nbytes: IntArray
    inline: frozenset[int] = frozenset()
    target: str = ""


def places_of(side: OfflineFile, path: str, dataset: h5py.Dataset) -> Places | None:
    """Where the values of a dataset lie; None where they have no place of their own, or it cannot be told."""
    if side.tree is not None:
        node = side.node(path)
        return None if node is None else _referenced(node, dataset)
    shape = dataset.shape
    if not is_stored_here(dataset.id) or shape is None or 0 in shape:
        return None
    plan = read_plan(dataset.id, side.file_object)
    if plan.table is not None:
        return _chunks(plan.table)
    if dataset.chunks is not None:
        return _nothing("unreadable")
    if plan.offset is not None:
        return _block(0, plan.offset)
    if dataset.id.get_offset() is None and dataset.id.get_storage_size() == 0:
        return _nothing()  # never written
    return None


def _chunks(table: ChunkTable, inline: frozenset[int] = frozenset()) -> Places:
    source = np.zeros(len(table), np.int64) if table.source is None else table.source
    return Places("chunks", table.grid, table.index, source, table.offset, table.nbytes, inline)


def _block(source: int, offset: int) -> Places:
    number, start, nothing = (np.array([n], np.int64) for n in (source, offset, 0))
    return Places("block", (), nothing, number, start, nothing)


def _nothing(kind: str = "chunks", grid: tuple[int, ...] = (), target: str = "") -> Places:
    none = np.empty(0, np.int64)
    return Places(kind, grid, none, none, none, none, target=target)


def _referenced(node: ArrayNode, dataset: h5py.Dataset) -> Places | None:
    if node.refusal is not None or dataset.shape is None or 0 in node.shape:
        return None
    if node.external is not None:
        return _nothing("link", target=node.external)
    if node.table is None:  # text alone is compared as values
        return None if node.inline else _nothing(grid=chunk_grid(node.shape, node.chunks))
    inline = frozenset(
        int(np.ravel_multi_index([int(k) for k in key.split(".")], node.table.grid)) for key in node.inline
    )
    places = _chunks(node.table, inline)
    if dataset.chunks is not None:
        return places
    # A dataset in one block, cut into pieces: they are one block again where they follow each other.
    step = math.prod(node.chunks) * dataset.id.get_type().get_size()
    starts = places.offset - places.index * step
    whole = len(places.index) + len(inline) == math.prod(places.grid)
    if whole and (starts == starts[0]).all() and (places.source == places.source[0]).all():
        return _block(int(places.source[0]), int(starts[0]))
    return places


def places_differ(a: Places | None, b: Places | None, same_source: dict[int, int]) -> Iterator[tuple[str, str, str]]:
    """What is not the same: a few words, and what each side says.

    Parameters
    ----------
    a, b : Places, optional
        Of the dataset on either side.
    same_source : dict
        Number of a source on the left to that of the same source on the right.
    """
    if a is None or b is None or (a.kind == "link") != (b.kind == "link"):
        return
    if a.kind == "link":
        if a.target != b.target:
            yield "link to an array", a.target, b.target
    elif a.kind != b.kind:
        yield "places", _words(a), _words(b)
    elif a.grid != b.grid and len(a.index) and len(b.index):
        yield "number of chunks", str(a.grid), str(b.grid)
    else:
        yield from _chunks_differ(a, b, same_source)


def is_linked(target: str, side: OfflineFile, dataset: h5py.Dataset) -> bool:
    """Whether a link to an array leads, on the side that is the HDF5 file itself, to a dataset."""
    try:
        found = side.file[target]
        return isinstance(found, h5py.Dataset) and header_address(found.id) == header_address(dataset.id)
    except (KeyError, OSError, ValueError, RuntimeError):
        return False


def _chunks_differ(a: Places, b: Places, same_source: dict[int, int]) -> Iterator[tuple[str, str, str]]:
    both = np.intersect1d(a.index, b.index, assume_unique=True)
    for name, here, there in (("left", a, b), ("right", b, a)):
        alone = np.setdiff1d(here.index, both, assume_unique=True)
        alone = alone[~np.isin(alone, np.fromiter(there.inline, np.int64, len(there.inline)))]
        if len(alone):
            there_words = f"{len(alone)} of them not there"
            words = f"{_count(len(here.index))}, {_first(here, alone)}"
            yield "chunks", *((words, there_words) if name == "left" else (there_words, words))
    rows, others = np.searchsorted(a.index, both), np.searchsorted(b.index, both)
    source = np.array([same_source.get(n, -1) for n in range(int(a.source.max(initial=-1)) + 1)], np.int64)
    differs = (a.offset[rows] != b.offset[others]) | (a.nbytes[rows] != b.nbytes[others])
    if len(rows):
        differs |= source[a.source[rows]] != b.source[others]
    if differs.any():
        moved = both[differs]
        what = "place" if a.kind == "block" else f"places of {len(moved)} of {_count(len(both))}"
        yield what, _first(a, moved), _first(b, moved)


def _count(number: int) -> str:
    return f"{number} chunk" if number == 1 else f"{number} chunks"


def _words(places: Places) -> str:
    if places.kind == "block":
        return _first(places, places.index)
    if places.kind == "unreadable":
        return "in chunks whose index cannot be read"
    return f"in {_count(len(places.index))}" if len(places.index) else "nowhere: never written"


def _first(places: Places, wanted: IntArray) -> str:
    """The first few of some chunks."""
    out = []
    for row in np.searchsorted(places.index, wanted[:_MOST_SHOWN]).tolist():
        source = f" of source {places.source[row]}" if places.source.any() else ""
        if places.kind == "block":
            out.append(f"from byte {places.offset[row]}{source} on")
            continue
        key = ".".join(str(int(k)) for k in np.unravel_index(int(places.index[row]), places.grid))
        out.append(f"{key} at byte {places.offset[row]}, {places.nbytes[row]} long{source}")
    return "; ".join(out) + ("; ..." if len(wanted) > _MOST_SHOWN else "")
