"""The shadow walk: every structure of an HDF5 file from the superblock down, level by level, into memory.

It only decides which bytes libhdf5 will need, and reads chunk tables on the way. What it does not understand it leaves
out, and libhdf5 reads that on demand. So nothing that a user sees rests on this module alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from lindi_bridge.hdf5.chunk_tables import WalkedTable, read_table
from lindi_bridge.hdf5.datatypes import StoredType, parse_datatype
from lindi_bridge.hdf5.dense_storage import fetch_huge_objects, read_dense_storage
from lindi_bridge.hdf5.fields import UNDEFINED, Cursor, NoHintError
from lindi_bridge.hdf5.heaps import collection_addresses, collection_size, decode_stored
from lindi_bridge.hdf5.messages import (
    Dataspace,
    Layout,
    LayoutClass,
    parse_attribute,
    parse_dataspace,
    parse_dense_storage,
    parse_filters,
    parse_layout,
    parse_link,
    parse_shared,
)
from lindi_bridge.hdf5.object_header import Message, MessageKind, read_messages
from lindi_bridge.hdf5.superblock import Superblock, read_superblock
from lindi_bridge.hdf5.waves import Visit, Waves, read
from lindi_bridge.ranges import ByteRange

__all__ = ["StructureWalk", "read_dataset_table"]

_SYMBOL_ENTRY = 40
"""Bytes of a symbol table entry (section III.C)."""
_CACHED_GROUP = 1
"""Cache type of an entry whose scratch-pad space holds the addresses of a group's B-tree and local heap."""
_GROUP_NODE = 0
_LINK_ORDER_WIDTH, _ATTRIBUTE_ORDER_WIDTH = 8, 2

_COLLECTION_HEADER = 16
_SMALLEST_COLLECTION = 4096
_USUAL_COLLECTION = 64 * 1024
"""Bytes. libhdf5 grows heap collections up to this size unless a single value is larger."""
_LONGEST_COLLECTION = 64 * 1024 * 1024

_CHECKSUM = 4
"""Bytes that fletcher32 adds to a chunk."""
_SMALL_VALUES = 64 * 1024
"""Bytes. Datasets up to this size are fetched with the metadata: whoever indexes a file reads them."""
_MOST_DESCRIPTORS = 64 * 1024 * 1024
_MOST_DECODED = 1024**3
"""Bytes to decompress in the whole walk."""


class _Dataset(NamedTuple):
    """The messages of a dataset."""

    layout: Layout
    space: Dataspace
    stored: StoredType | None
    filters: list[tuple[int, tuple[int, ...]]] | None


class StructureWalk:
    """Walks one file.

    Parameters
    ----------
    waves : Waves
        The scheduler over the file.
    data : bool
        Whether to go on to what datasets hold: chunk tables, small values, strings. Otherwise the walk is one of
        names, headers and attributes.
    """

    def __init__(self, waves: Waves, *, data: bool = True) -> None:
        self.tables: dict[int, WalkedTable] = {}
        """Chunk tables by address of the dataset's object header, relative to the superblock as libhdf5 reports it."""
        self._waves = waves
        self._data = data
        self._superblock = Superblock(UNDEFINED)
        self._values_left = waves.budget // 2
        self._decoded_left = _MOST_DECODED

    def run(self, address: int | None = None) -> None:
        """Walk everything below an object, given by the address of its header; by default, the root group."""
        self._waves.start(self._begin(address))
        self._waves.run()

    def _begin(self, address: int | None) -> Visit[None]:
        self._superblock = yield from read_superblock(self._waves)
        if address is not None:
            self._start_object(address)
            return
        self._start_object(self._superblock.root)
        if self._superblock.root_group is not None:
            self._start_group(*self._superblock.root_group)

    # -- objects ---------------------------------------------------------------------------------------------------

    def _start_object(self, address: int) -> None:
        if self._waves.first_visit("object", address):
            self._waves.start(self._object(address))

    def _object(self, address: int) -> Visit[None]:
        messages = yield from read_messages(address)
        for message in messages:
            self._waves.start(self._message(message))
        if self._data and any(message.kind == MessageKind.LAYOUT for message in messages):
            dataset = yield from _read_dataset(messages)
            yield from self._dataset(address, dataset)

    def _message(self, message: Message) -> Visit[None]:
        """Go on to whatever a message points to."""
        if message.is_shared:
            address = parse_shared(message.body)
            if address is not None:
                self._start_object(address)
        elif message.kind == MessageKind.SYMBOL_TABLE:
            cursor = Cursor(message.body)
            self._start_group(cursor.address(), cursor.address())
        elif message.kind == MessageKind.LINK:
            self._link(message.body)
        elif message.kind == MessageKind.LINK_INFO:
            storage = parse_dense_storage(message.body, _LINK_ORDER_WIDTH)
            for link in (yield from read_dense_storage(storage)):
                self._link(link)
        elif message.kind == MessageKind.ATTRIBUTE:
            yield from self._attribute(message.body)
        elif message.kind == MessageKind.ATTRIBUTE_INFO:
            storage = parse_dense_storage(message.body, _ATTRIBUTE_ORDER_WIDTH)
            if storage.heap != UNDEFINED:
                self._waves.start(fetch_huge_objects(storage.heap))
            for attribute in (yield from read_dense_storage(storage)):
                self._waves.start(self._attribute(attribute))
        elif message.kind == MessageKind.EXTERNAL_FILES:
            cursor = Cursor(message.body)
            cursor.skip(8)  # version, reserved, numbers of slots
            self._start_local_heap(cursor.address())

    def _link(self, body: bytes) -> None:
        address = parse_link(body)
        if address is not None:
            self._start_object(address)

    def _attribute(self, body: bytes) -> Visit[None]:
        """Fetch the heap collections of an attribute's variable-length values."""
        attribute = parse_attribute(body)
        datatype: bytes | None = attribute.datatype
        if attribute.datatype_is_shared:
            datatype = yield from _committed_datatype(attribute.datatype)
        if datatype is None or attribute.space is None:
            return
        stored = parse_datatype(datatype)
        data = attribute.data[: attribute.space.n_elements * stored.itemsize]
        if stored.offsets and len(data) >= stored.itemsize:
            self._start_collections(collection_addresses(data, stored.itemsize, stored.offsets).tolist())

    # -- old groups ------------------------------------------------------------------------------------------------

    def _start_group(self, tree: int, heap: int) -> None:
        self._start_local_heap(heap)
        if self._waves.first_visit("group node", tree):
            self._waves.start(self._group_node(tree))

    def _group_node(self, address: int) -> Visit[None]:
        """Section III.A.1 "Version 1 B-trees", node type 0: keys are names, children further nodes or symbol tables."""
        most = 2 * self._superblock.internal_k
        cursor = Cursor((yield from read(address, 24 + (most + 1) * 8 + most * 8)))
        cursor.expect(b"TREE")
        kind, level, used = cursor.uint(1), cursor.uint(1), cursor.uint(2)
        if kind != _GROUP_NODE or used > most:
            raise NoHintError("no B-tree node of a group")
        cursor.skip(8 + 8)  # siblings
        for _ in range(used):
            cursor.skip(8)  # key
            child = cursor.address()
            if not self._waves.first_visit("group node" if level else "symbols", child):
                continue
            self._waves.start(self._group_node(child) if level else self._symbols(child))

    def _symbols(self, address: int) -> Visit[None]:
        """Section III.B "Group Symbol Table Nodes"; an entry may already tell where a group's own structures are."""
        most = 2 * self._superblock.leaf_k
        cursor = Cursor((yield from read(address, 8 + most * _SYMBOL_ENTRY)))
        cursor.expect(b"SNOD")
        cursor.skip(2)  # version, reserved
        for _ in range(min(cursor.uint(2), most)):
            cursor.skip(8)  # name
            self._start_object(cursor.address())
            cached = cursor.uint(4)
            cursor.skip(4)
            tree, heap = cursor.address(), cursor.address()
            if cached == _CACHED_GROUP:
                self._start_group(tree, heap)

    def _start_local_heap(self, address: int) -> None:
        if self._waves.first_visit("local heap", address):
            self._waves.start(self._local_heap(address))

    def _local_heap(self, address: int) -> Visit[None]:
        """Section III.D "Local Heaps"."""
        cursor = Cursor((yield from read(address, 32)))
        cursor.expect(b"HEAP")
        cursor.skip(4)  # version, reserved
        length = cursor.uint(8)
        cursor.skip(8)  # free list
        yield [ByteRange(cursor.address(), length)]

    # -- datasets --------------------------------------------------------------------------------------------------

    def _dataset(self, address: int, dataset: _Dataset) -> Visit[None]:
        layout, space = dataset.layout, dataset.space
        stored: list[ByteRange] = []
        masks: Sequence[int] = [0]
        most = space.n_elements * (dataset.stored.itemsize if dataset.stored else 1)
        if layout.kind == LayoutClass.CHUNKED:
            walked = yield from read_table(layout, space, self._superblock, self._waves)
            self.tables[address] = walked
            table = walked.table
            limit = _MOST_DESCRIPTORS if dataset.stored and dataset.stored.offsets else _SMALL_VALUES
            if int(table.nbytes.sum()) <= limit:
                starts = (table.offset - self._waves.base).tolist()
                stored = [ByteRange(*r) for r in zip(starts, table.nbytes.tolist(), strict=True)]
                masks = table.filter_mask.tolist()
        elif layout.kind == LayoutClass.VIRTUAL:
            self._start_collections([layout.address])
        elif layout.kind == LayoutClass.CONTIGUOUS and layout.address != UNDEFINED:
            stored = [ByteRange(layout.address, most if layout.nbytes is None else layout.nbytes)]
        if dataset.stored is not None and stored:
            yield from self._values(dataset, dataset.stored, stored, masks)

    def _values(
        self, dataset: _Dataset, element: StoredType, stored: list[ByteRange], masks: Sequence[int]
    ) -> Visit[None]:
        """Fetch small values, and the variable-length values of larger datasets with what they point to."""
        nbytes = sum(r.length for r in stored)
        limit = _MOST_DESCRIPTORS if element.offsets else _SMALL_VALUES
        if max(nbytes, dataset.space.n_elements * element.itemsize) > limit or nbytes > self._values_left:
            return
        self._values_left -= nbytes
        pieces = yield stored
        largest = dataset.layout.chunk_nbytes if dataset.layout.kind == LayoutClass.CHUNKED else nbytes
        if not element.offsets or dataset.filters is None or largest * len(pieces) > self._decoded_left:
            return
        self._decoded_left -= largest * len(pieces)
        addresses = [np.empty(0, np.int64)]
        for piece, mask in zip(pieces, masks, strict=True):
            decoded = decode_stored(piece, dataset.filters, mask, largest + _CHECKSUM)
            if decoded is None:
                raise NoHintError("values behind a filter that the walk does not know")
            addresses.append(collection_addresses(decoded, element.itemsize, element.offsets))
        self._start_collections(np.unique(np.concatenate(addresses)).tolist())

    def _start_collections(self, addresses: Iterable[int]) -> None:
        new = [a for a in addresses if self._waves.first_visit("collection", a)]
        if new:
            self._waves.start(self._collections(new))

    def _collections(self, addresses: list[int]) -> Visit[None]:
        """Section III.E "Global Heap": a collection tells its size, which is guessed so as to save a wave."""
        if len(addresses) == 1:
            guesses = [_SMALLEST_COLLECTION]
        else:
            distances = [right - left for left, right in itertools.pairwise(addresses)]
            guesses = [min(d, _USUAL_COLLECTION) for d in (*distances, _USUAL_COLLECTION)]
        needs = [ByteRange(a, max(g, _COLLECTION_HEADER)) for a, g in zip(addresses, guesses, strict=True)]
        rest: list[ByteRange] = []
        for wanted, data in zip(needs, (yield needs), strict=True):
            size = collection_size(data[:_COLLECTION_HEADER]) or 0
            if len(data) < size <= min(_LONGEST_COLLECTION, self._values_left):
                self._values_left -= size
                rest.append(ByteRange(wanted.start, size))
        if rest:
            yield rest


def _read_dataset(messages: Sequence[Message]) -> Visit[_Dataset]:
    """The messages of a dataset, a committed datatype looked up."""
    by_kind = {message.kind: message for message in messages}
    layout, space = by_kind.get(MessageKind.LAYOUT), by_kind.get(MessageKind.DATASPACE)
    if layout is None or space is None or layout.is_shared or space.is_shared:
        raise NoHintError("a dataset without shape or layout of its own")
    stored: StoredType | None = None
    if (datatype := by_kind.get(MessageKind.DATATYPE)) is not None:
        body = (yield from _committed_datatype(datatype.body)) if datatype.is_shared else datatype.body
        stored = _known_type(body)
    filters: list[tuple[int, tuple[int, ...]]] | None = []
    if (pipeline := by_kind.get(MessageKind.FILTERS)) is not None:
        filters = None if pipeline.is_shared else parse_filters(pipeline.body)
    return _Dataset(parse_layout(layout.body), parse_dataspace(space.body), stored, filters)


def _known_type(body: bytes | None) -> StoredType | None:
    try:
        return None if body is None else parse_datatype(body)
    except (NoHintError, ValueError):
        return None  # the chunk table is worth having all the same


def _committed_datatype(shared: bytes) -> Visit[bytes | None]:
    """The datatype that a shared message points to, None if it is kept in a shared heap."""
    address = parse_shared(shared)
    if address is None:
        return None
    messages = yield from read_messages(address)
    return next((m.body for m in messages if m.kind == MessageKind.DATATYPE and not m.is_shared), None)


def read_dataset_table(waves: Waves, address: int) -> Visit[WalkedTable | None]:
    """The chunk table of one dataset, None if it is not chunked."""
    superblock = yield from read_superblock(waves)
    dataset = yield from _read_dataset((yield from read_messages(address)))
    if dataset.layout.kind != LayoutClass.CHUNKED:
        return None
    return (yield from read_table(dataset.layout, dataset.space, superblock, waves))
