"""Dense storage of links and attributes: a fractal heap, and the version 2 B-trees that index it.

HDF5 File Format Specification 3.0, sections III.A.2 "Disk Format: Level 1A2 - Version 2 B-trees" and III.G "Disk
Format: Level 1G - Fractal Heap". Filtered heaps are left to libhdf5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lindi_bridge.hdf5.fields import UNDEFINED, ByteRows, Cursor, NoHintError, byte_rows, int_width, uint_column
from lindi_bridge.hdf5.messages import DenseStorage
from lindi_bridge.hdf5.waves import Visit, read, together
from lindi_bridge.ranges import ByteRange

__all__ = ["fetch_huge_objects", "read_btree", "read_dense_storage"]

_BTREE_HEADER = 38
_BTREE_PREFIX = 6
"""Bytes of signature, version and type before the records of a node."""
_CHECKSUM = 4
_DEEPEST = 16

_HEAP_HEADER = 146
_ROOT_ROWS_MOST = 64
_MANAGED = 0
"""The kind of heap object whose bytes lie in the heap's blocks."""

_RECORD_HEAP_ID = {5: 4, 8: 0}
"""Byte at which a record names its heap object, by record type: names of links (5) and of attributes (8)."""


# -- B-trees ------------------------------------------------------------------------------------------------------


class BTreeRecords(NamedTuple):
    """Type of the records of a version 2 B-tree, and the records, one a row."""

    kind: int
    rows: ByteRows


class _Level(NamedTuple):
    """Most records of a node, of it with all below, and bytes of a pointer to one (0 for the root's own level)."""

    records: int
    total: int
    pointer: int


def read_btree(address: int) -> Visit[BTreeRecords]:
    """All records of a version 2 B-tree, level by level."""
    cursor = Cursor((yield from read(address, _BTREE_HEADER)))
    cursor.expect(b"BTHD\x00")
    kind, node_size, record_size, depth = cursor.uint(1), cursor.uint(4), cursor.uint(2), cursor.uint(2)
    cursor.skip(2)  # split and merge percent
    root, root_count = cursor.address(), cursor.uint(2)
    if not record_size or depth > _DEEPEST:
        raise NoHintError("a B-tree of impossible size")
    if root == UNDEFINED or not root_count:
        return BTreeRecords(kind, np.empty((0, record_size), np.uint8))
    levels = _levels(node_size, record_size, depth)
    found: list[ByteRows] = []
    address_of, count_of = np.array([root], np.int64), np.array([root_count], np.int64)
    for level in range(depth, -1, -1):
        if len(np.unique(address_of)) != len(address_of):
            raise NoHintError("two ways lead to one B-tree node")
        nodes = byte_rows((yield [ByteRange(a, node_size) for a in address_of.tolist()]), node_size)
        if (nodes[:, :4] != np.frombuffer(b"BTIN" if level else b"BTLF", np.uint8)).any():
            raise NoHintError("no B-tree node")
        below, counts_below = [], []
        # Nodes with equally many records are taken apart together.
        for count in np.unique(count_of).tolist():
            records = slice(_BTREE_PREFIX, _BTREE_PREFIX + count * record_size)
            if records.stop > node_size - _CHECKSUM:
                raise NoHintError("more records than a B-tree node can hold")
            same = nodes[count_of == count]
            found.append(same[:, records].reshape(-1, record_size))
            if level:
                pointer = levels[level - 1].pointer
                if records.stop + (count + 1) * pointer > node_size:
                    raise NoHintError("more records than a B-tree node can hold")
                pointers = same[:, records.stop : records.stop + (count + 1) * pointer].reshape(-1, pointer)
                below.append(uint_column(pointers, 0, 8))
                counts_below.append(uint_column(pointers, 8, int_width(levels[0].records)))
        if level:
            address_of, count_of = np.concatenate(below), np.concatenate(counts_below)
    return BTreeRecords(kind, np.concatenate(found))


def _levels(node_size: int, record_size: int, depth: int) -> list[_Level]:
    """Sizes by level, leaves first. Pointers hold an address, a number of records, and above the leaves a total."""
    room = node_size - _BTREE_PREFIX - _CHECKSUM
    most = room // record_size
    if most < 1:
        raise NoHintError("a B-tree of impossible size")
    levels = [_Level(most, most, 8 + int_width(most))]
    for _ in range(depth):
        below = levels[-1]
        records = (room - below.pointer) // (record_size + below.pointer)
        total = (records + 1) * below.total + records
        levels.append(_Level(records, total, 8 + int_width(most) + int_width(total)))
    return levels


# -- fractal heaps ------------------------------------------------------------------------------------------------


class _Heap(NamedTuple):
    """A fractal heap: where it begins, the sizes of its doubling table, and its blocks by place in the heap."""

    root: int
    rows: int
    width: int
    smallest: int
    largest_direct: int
    offset_width: int
    length_width: int
    huge_index: int
    starts: npt.NDArray[np.int64]
    blocks: list[bytes]

    def object(self, heap_id: bytes) -> bytes | None:
        """The bytes of a managed object; None for another kind."""
        cursor = Cursor(heap_id)
        if cursor.uint(1) & 0x30 != _MANAGED:
            return None
        offset, length = cursor.uint(self.offset_width), cursor.uint(self.length_width)
        index = int(np.searchsorted(self.starts, offset, side="right")) - 1
        if index < 0:
            raise NoHintError("a heap object outside its heap")
        return Cursor(self.blocks[index], offset - int(self.starts[index])).take(length)


class _Block(NamedTuple):
    """A block of a heap: its file address, where it begins in the heap, and its size (bytes or rows)."""

    address: int
    start: int
    size: int


def _read_heap_header(address: int) -> Visit[_Heap]:
    cursor = Cursor((yield from read(address, _HEAP_HEADER)))
    cursor.expect(b"FRHP\x00")
    cursor.skip(2)  # length of heap IDs
    if cursor.uint(2):
        raise NoHintError("a fractal heap with filters")
    cursor.skip(1)  # flags
    largest_managed = cursor.uint(4)
    cursor.skip(8)  # next number of a huge object
    huge_index = cursor.address()
    cursor.skip(10 * 8)  # free space, statistics
    width, smallest, largest_direct, bits = cursor.uint(2), cursor.uint(8), cursor.uint(8), cursor.uint(2)
    cursor.skip(2)  # starting rows
    root, rows = cursor.address(), cursor.uint(2)
    powers_of_two = all(n and n & (n - 1) == 0 for n in (width, smallest, largest_direct))
    if not powers_of_two or largest_direct < smallest or bits > 64 or rows > _ROOT_ROWS_MOST:
        raise NoHintError("a fractal heap of impossible size")
    return _Heap(
        root=root,
        rows=rows,
        width=width,
        smallest=smallest,
        largest_direct=largest_direct,
        offset_width=(bits + 7) // 8,
        length_width=min(int_width(largest_direct), int_width(largest_managed)),
        huge_index=huge_index,
        starts=np.empty(0, np.int64),
        blocks=[],
    )


def _read_heap(address: int) -> Visit[_Heap]:
    """A fractal heap with all its direct blocks, level by level."""
    heap = yield from _read_heap_header(address)
    if heap.root == UNDEFINED:
        return heap
    direct = [] if heap.rows else [_Block(heap.root, 0, heap.smallest)]
    indirect = [_Block(heap.root, 0, heap.rows)] if heap.rows else []
    seen: set[int] = set()
    while indirect:
        if any(block.address in seen for block in indirect):
            raise NoHintError("two ways lead to one heap block")
        seen.update(block.address for block in indirect)
        prefix = 13 + heap.offset_width  # signature, version, address of the header; place in the heap
        tables = yield [ByteRange(b.address, prefix + 8 * b.size * heap.width + _CHECKSUM) for b in indirect]
        inner = []
        for block, table in zip(indirect, tables, strict=True):
            d, i = _children(heap, block, Cursor(table, 0), prefix)
            direct += d
            inner += i
        indirect = inner
    direct.sort(key=lambda block: block.start)
    blocks = yield [ByteRange(b.address, b.size) for b in direct]
    return heap._replace(starts=np.array([b.start for b in direct], np.int64), blocks=blocks)


def _children(heap: _Heap, block: _Block, table: Cursor, prefix: int) -> tuple[list[_Block], list[_Block]]:
    """Direct and indirect blocks that an indirect block lists. The blocks of a row are of one size, doubling by row."""
    table.expect(b"FHIB\x00")
    table.skip(prefix - 5)
    direct, indirect, start = [], [], block.start
    for row in range(block.size):
        size = heap.smallest << max(0, row - 1)
        for _ in range(heap.width):
            address = table.address()
            if address != UNDEFINED:
                if size <= heap.largest_direct:
                    direct.append(_Block(address, start, size))
                else:
                    rows = (size // (heap.smallest * heap.width)).bit_length()
                    indirect.append(_Block(address, start, rows))
            start += size
    return direct, indirect


def fetch_huge_objects(address: int) -> Visit[None]:
    """Fetch the objects that are too large for the blocks of the heap at an address; they are indexed by a B-tree."""
    heap = yield from _read_heap_header(address)
    if heap.huge_index == UNDEFINED:
        return
    _, rows = yield from read_btree(heap.huge_index)
    yield [ByteRange(*r) for r in zip(uint_column(rows, 0, 8).tolist(), uint_column(rows, 8, 8).tolist(), strict=True)]


# -- both ---------------------------------------------------------------------------------------------------------


def read_dense_storage(storage: DenseStorage) -> Visit[list[bytes]]:
    """All link or attribute messages in dense storage, by the index of their names."""
    if storage.heap == UNDEFINED or storage.name_index == UNDEFINED:
        return []
    visits: list[Visit[object]] = [_read_heap(storage.heap), read_btree(storage.name_index)]
    if storage.order_index != UNDEFINED:
        visits.append(read_btree(storage.order_index))
    heap, names, *_ = yield from together(*visits)
    if names.kind not in _RECORD_HEAP_ID:
        raise NoHintError("an unknown index of dense storage")
    position = _RECORD_HEAP_ID[names.kind]
    stop = position + (names.rows.shape[1] - position if names.kind == 5 else names.rows.shape[1] - 9)
    ids = np.ascontiguousarray(names.rows[:, position:stop])
    found = (heap.object(row.tobytes()) for row in ids)
    return [message for message in found if message is not None]
