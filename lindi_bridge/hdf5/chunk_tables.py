"""Chunk tables out of the five chunk indexes, as numpy arrays and without a Python object for each chunk.

HDF5 File Format Specification 3.0, section III.A.1 "Disk Format: Level 1A1 - Version 1 B-trees" (node type 1) and
section VII "Appendix C: Types of Indexes for Dataset Chunks".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lindi_bridge.hdf5.chunk_arrays import Elements, read_extensible_array, read_fixed_array
from lindi_bridge.hdf5.dense_storage import read_btree
from lindi_bridge.hdf5.fields import UNDEFINED, NoHintError, byte_rows, uint_column
from lindi_bridge.hdf5.messages import ChunkIndexKind, Dataspace, Layout
from lindi_bridge.hdf5.superblock import Superblock
from lindi_bridge.hdf5.waves import Visit, Waves
from lindi_bridge.model.chunks import ChunkTable, Int64Array, chunk_grid
from lindi_bridge.ranges import ByteRange

__all__ = ["WalkedTable", "read_table"]

_NODE_PREFIX = 24
"""Bytes of signature, type, level, number of entries and two siblings before the keys of a version 1 B-tree node."""
_CHUNK_NODE = 1
_FILTERED_RECORD = 11
_MOST_DIRECT = 1 << 26
"""Chunks of an implicit index, which needs no bytes of the file for each."""


class WalkedTable(NamedTuple):
    """A chunk table out of the walk, to be compared with what libhdf5 says.

    Parameters
    ----------
    table : ChunkTable
        The chunks inside the dataset's current shape. Addresses are absolute, a user block included.
    kind : ChunkIndexKind
        The index that it was read from.
    listed_count, listed_nbytes : int
        Number and stored bytes of all chunks that libhdf5 lists, those outside the shape included.
    """

    table: ChunkTable
    kind: ChunkIndexKind
    listed_count: int
    listed_nbytes: int


class _Chunks(NamedTuple):
    """Chunks as an index lists them; an address of -1 is no chunk."""

    coordinates: npt.NDArray[np.int64]
    address: npt.NDArray[np.int64]
    nbytes: npt.NDArray[np.int64]
    filter_mask: npt.NDArray[np.int64]


def read_table(layout: Layout, space: Dataspace, superblock: Superblock, waves: Waves) -> Visit[WalkedTable]:
    """Read the chunk index of a dataset."""
    if len(layout.chunk) != len(space.shape):
        raise NoHintError("a chunk of another rank than its dataset")
    if layout.address == UNDEFINED:
        chunks = _no_chunks(len(layout.chunk))
    elif layout.chunk_index == ChunkIndexKind.BTREE_1:
        chunks = yield from _btree_1(layout, superblock)
    elif layout.chunk_index == ChunkIndexKind.BTREE_2:
        chunks = yield from _btree_2(layout)
    elif layout.chunk_index == ChunkIndexKind.FIXED_ARRAY:
        chunks = _array_chunks((yield from read_fixed_array(layout.address)), layout, space)
    elif layout.chunk_index == ChunkIndexKind.EXTENSIBLE_ARRAY:
        chunks = _array_chunks((yield from read_extensible_array(layout.address)), layout, space)
    else:
        chunks = _without_index(layout, space, waves)
    exists = chunks.address != -1
    chunks = _Chunks(*(part[exists] for part in chunks))
    if (chunks.address < 0).any() or (chunks.nbytes < 0).any():
        raise NoHintError("a chunk with an impossible address")
    grid = chunk_grid(space.shape, layout.chunk)
    inside = (chunks.coordinates < np.array(grid, np.int64)).all(axis=1)
    kept = _Chunks(*(part[inside] for part in chunks))
    table = ChunkTable.from_coordinates(
        grid, kept.coordinates, kept.address + waves.base, kept.nbytes, kept.filter_mask
    )
    # An implicit index is no list: there libhdf5 counts the chunks inside the shape.
    listed = kept if layout.chunk_index == ChunkIndexKind.IMPLICIT else chunks
    return WalkedTable(table, layout.chunk_index, len(listed.address), int(listed.nbytes.sum()))


def _no_chunks(rank: int) -> _Chunks:
    nothing = np.empty(0, np.int64)
    return _Chunks(np.empty((0, rank), np.int64), nothing, nothing, nothing)


def _without_index(layout: Layout, space: Dataspace, waves: Waves) -> _Chunks:
    """Sections VII.A "The Single Chunk Index" and VII.B "The Implicit Index": chunks lie one after the other."""
    if layout.chunk_index == ChunkIndexKind.SINGLE:
        nbytes = layout.chunk_nbytes if layout.nbytes is None else layout.nbytes
        one = np.ones(1, np.int64)
        return _Chunks(
            np.zeros((1, len(layout.chunk)), np.int64), one * layout.address, one * nbytes, one * layout.filter_mask
        )
    count = math.prod(chunk_grid(_counted_shape(space), layout.chunk))
    if count > _MOST_DIRECT or count * layout.chunk_nbytes > waves.file.size:
        raise NoHintError("more chunks than fit into the file")
    if 16 * count > waves.left:  # an address and a size of each, as other indexes have them
        raise NoHintError("more chunks than are to be looked at")
    number = np.arange(count)
    return _Chunks(
        _coordinates(number, layout, space),
        layout.address + number * layout.chunk_nbytes,
        np.full(count, layout.chunk_nbytes, np.int64),
        np.zeros(count, np.int64),
    )


def _array_chunks(elements: Elements, layout: Layout, space: Dataspace) -> _Chunks:
    """Elements of an array index: an address, and with filters a size and a filter mask."""
    exists = uint_column(elements.rows, 0, 8) != -1
    number, rows = elements.number[exists], elements.rows[exists]
    width = rows.shape[1]
    if width == 8:
        nbytes, mask = np.full(len(rows), layout.chunk_nbytes, np.int64), np.zeros(len(rows), np.int64)
    elif width > 12:
        nbytes, mask = uint_column(rows, 8, width - 12), uint_column(rows, width - 4, 4)
    else:
        raise NoHintError("an array element of impossible size")
    return _Chunks(_coordinates(number, layout, space), uint_column(rows, 0, 8), nbytes, mask)


def _counted_shape(space: Dataspace) -> tuple[int, ...]:
    """The shape that chunks are numbered in: the largest one, unlimited axes as they are now."""
    return tuple(n if m == UNDEFINED else m for n, m in zip(space.shape, space.maxshape, strict=True))


def _coordinates(number: Int64Array, layout: Layout, space: Dataspace) -> Int64Array:
    """Grid coordinates of chunks by their linear number; in an extensible array the unlimited axis varies slowest."""
    rank = len(space.shape)
    unlimited = [axis for axis in range(rank) if space.maxshape[axis] == UNDEFINED]
    order = list(range(rank))
    if layout.chunk_index == ChunkIndexKind.EXTENSIBLE_ARRAY and unlimited:
        order.insert(0, order.pop(unlimited[0]))
    grid = chunk_grid(_counted_shape(space), layout.chunk)
    coordinates = np.empty((len(number), rank), np.int64)
    rest = number
    for axis in reversed(order[1:]):
        if not 0 < grid[axis] < 1 << 62:
            return np.full((len(number), rank), 1 << 62, np.int64)  # an axis of length zero: no chunk is inside
        rest, coordinates[:, axis] = np.divmod(rest, grid[axis])
    coordinates[:, order[0]] = rest
    return coordinates


def _btree_1(layout: Layout, superblock: Superblock) -> Visit[_Chunks]:
    """Section III.A.1: all nodes of a level in one wave; keys hold size, filter mask and element coordinates."""
    rank = len(layout.chunk)
    most = 2 * superblock.chunk_k
    # One coordinate more than the rank: the byte in an element, always zero.
    key = [("nbytes", "<u4"), ("filter_mask", "<u4"), ("corner", "<i8", (rank + 1,))]
    entry = np.dtype([*key, ("child", "<i8")])
    node_nbytes = _NODE_PREFIX + most * entry.itemsize + np.dtype(key).itemsize
    nodes = np.array([layout.address], np.int64)
    level = None
    while True:
        if len(np.unique(nodes)) != len(nodes):
            raise NoHintError("two ways lead to one B-tree node")
        rows = byte_rows((yield [ByteRange(a, node_nbytes) for a in nodes.tolist()]), node_nbytes)
        levels, used = rows[:, 5], uint_column(rows, 6, 2)
        is_node = (rows[:, :4] == np.frombuffer(b"TREE", np.uint8)).all() and (rows[:, 4] == _CHUNK_NODE).all()
        if not is_node or used.max() > most or (levels != (levels[0] if level is None else level - 1)).any():
            raise NoHintError("no B-tree node")
        level = int(levels[0])
        slots = np.ascontiguousarray(rows[:, _NODE_PREFIX : _NODE_PREFIX + most * entry.itemsize]).view(entry)
        entries = slots[np.arange(most) < used[:, None]]
        if level == 0:
            break
        nodes = entries["child"].astype(np.int64)
        if not len(nodes):
            break
    return _Chunks(
        entries["corner"][:, :rank] // np.array(layout.chunk, np.int64),
        entries["child"].astype(np.int64),
        entries["nbytes"].astype(np.int64),
        entries["filter_mask"].astype(np.int64),
    )


def _btree_2(layout: Layout) -> Visit[_Chunks]:
    """Section VII.E "The Version 2 B-trees Index", record types 10 and 11."""
    rank = len(layout.chunk)
    kind, rows = yield from read_btree(layout.address)
    scaled = rows.shape[1] - 8 * rank
    if scaled < 8:
        raise NoHintError("a B-tree record of impossible size")
    if kind == _FILTERED_RECORD:
        nbytes, mask = uint_column(rows, 8, scaled - 12), uint_column(rows, scaled - 4, 4)
    else:
        nbytes, mask = np.full(len(rows), layout.chunk_nbytes, np.int64), np.zeros(len(rows), np.int64)
    coordinates = np.stack([uint_column(rows, scaled + 8 * axis, 8) for axis in range(rank)], axis=1)
    return _Chunks(coordinates, uint_column(rows, 0, 8), nbytes, mask)
