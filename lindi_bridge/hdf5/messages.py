"""Header messages that say where further structures lie.

HDF5 File Format Specification 3.0, section IV.A.2 "Data Object Header Messages"; layout versions 4 and 5 are those of
HDF5 1.10 and 2.0.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

from lindi_bridge.hdf5.fields import UNDEFINED, Cursor, NoHintError

__all__ = [
    "Attribute",
    "ChunkIndexKind",
    "Dataspace",
    "DenseStorage",
    "Layout",
    "LayoutClass",
    "parse_attribute",
    "parse_dataspace",
    "parse_dense_storage",
    "parse_filters",
    "parse_layout",
    "parse_link",
    "parse_shared",
]

_MOST_RANK = 32
_MOST_FILTERS = 32
_COMMITTED = (1, 2)
"""Kinds of shared messages that are named by the address of an object header."""


class LayoutClass(IntEnum):
    """How raw data lie."""

    COMPACT = 0
    CONTIGUOUS = 1
    CHUNKED = 2
    VIRTUAL = 3


class ChunkIndexKind(IntEnum):
    """What finds a chunk. The numbers from 1 on are those of layout versions 4 and 5."""

    BTREE_1 = 0
    SINGLE = 1
    IMPLICIT = 2
    FIXED_ARRAY = 3
    EXTENSIBLE_ARRAY = 4
    BTREE_2 = 5


class Layout(NamedTuple):
    """A data layout message.

    Parameters
    ----------
    kind : LayoutClass
        How raw data lie.
    address : int
        Of contiguous data, of the chunk index, or of the heap collection that describes a virtual dataset.
    nbytes : int, optional
        Of contiguous data (None: to be told by shape and type), of a single chunk with filters.
    chunk : tuple of int
        Shape of a chunk.
    itemsize : int
        Bytes of an element of a chunk.
    chunk_index : ChunkIndexKind
        What finds a chunk.
    filter_mask : int
        Of a single chunk.
    """

    kind: LayoutClass
    address: int = UNDEFINED
    nbytes: int | None = None
    chunk: tuple[int, ...] = ()
    itemsize: int = 1
    chunk_index: ChunkIndexKind = ChunkIndexKind.BTREE_1
    filter_mask: int = 0

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of a chunk without filters."""
        return math.prod(self.chunk) * self.itemsize


class Dataspace(NamedTuple):
    """Shape and largest shape; ``is_null`` for a dataspace without elements."""

    shape: tuple[int, ...]
    maxshape: tuple[int, ...]
    is_null: bool

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return 0 if self.is_null else math.prod(self.shape)


class DenseStorage(NamedTuple):
    """Where links or attributes lie that are too many for a header: a fractal heap and one or two indexes of it."""

    heap: int
    name_index: int
    order_index: int


class Attribute(NamedTuple):
    """An attribute message; a shared datatype is only pointed to."""

    datatype: bytes
    datatype_is_shared: bool
    space: Dataspace | None
    data: bytes


def parse_shared(body: bytes) -> int | None:
    """Address of the object header that holds a shared message (Table IV.A.2), None if it lies in a heap."""
    cursor = Cursor(body)
    version, kind = cursor.uint(1), cursor.uint(1)
    if version == 1:
        cursor.skip(6)
    elif (version == 2 and kind not in (0, *_COMMITTED)) or (version == 3 and kind != 2) or version > 3:
        return None
    return cursor.address()


def parse_dataspace(body: bytes) -> Dataspace:
    """Section IV.A.2.b "The Dataspace Message", versions 1 and 2."""
    cursor = Cursor(body)
    version, rank, flags, kind = cursor.uint(1), cursor.uint(1), cursor.uint(1), cursor.uint(1)
    if version not in (1, 2) or rank > _MOST_RANK:
        raise NoHintError("an unknown dataspace")
    cursor.skip(4 if version == 1 else 0)
    shape = tuple(cursor.uint(8) for _ in range(rank))
    maxshape = tuple(cursor.uint(8) for _ in range(rank)) if flags & 1 else shape
    return Dataspace(shape, maxshape, is_null=version == 2 and kind == 2)


def parse_link(body: bytes) -> int | None:
    """Section IV.A.2.g "The Link Message": address of the object of a hard link, None for another link."""
    cursor = Cursor(body)
    if cursor.uint(1) != 1:
        raise NoHintError("an unknown link")
    flags = cursor.uint(1)
    kind = cursor.uint(1) if flags & 0x08 else 0
    cursor.skip(8 if flags & 0x04 else 0)  # creation order
    cursor.skip(1 if flags & 0x10 else 0)  # character set
    cursor.skip(cursor.uint(1 << (flags & 3)))  # name
    return cursor.address() if kind == 0 else None


def parse_dense_storage(body: bytes, order_width: int) -> DenseStorage:
    """Sections IV.A.2.c "The Link Info Message" and IV.A.2.v "The Attribute Info Message".

    Parameters
    ----------
    body : bytes
        The message.
    order_width : int
        Bytes of the largest creation order: 8 for links, 2 for attributes.
    """
    cursor = Cursor(body, 1)
    flags = cursor.uint(1)
    cursor.skip(order_width if flags & 1 else 0)
    return DenseStorage(cursor.address(), cursor.address(), cursor.address() if flags & 2 else UNDEFINED)


def parse_attribute(body: bytes) -> Attribute:
    """Section IV.A.2.m "The Attribute Message", versions 1 to 3."""
    cursor = Cursor(body)
    version, flags = cursor.uint(1), cursor.uint(1)
    if version not in (1, 2, 3):
        raise NoHintError("an unknown attribute")
    name, datatype, space = cursor.uint(2), cursor.uint(2), cursor.uint(2)
    cursor.skip(1 if version == 3 else 0)  # character set
    padding = 7 if version == 1 else 0
    cursor.skip(name + (-name & padding))
    type_body = cursor.take(datatype)
    cursor.skip(-datatype & padding)
    space_body = cursor.take(space)
    cursor.skip(-space & padding)
    shared = flags if version > 1 else 0
    return Attribute(
        type_body,
        bool(shared & 1),
        None if shared & 2 else parse_dataspace(space_body),
        cursor.take(cursor.left),
    )


def parse_filters(body: bytes) -> list[tuple[int, tuple[int, ...]]]:
    """Section IV.A.2.l "The Data Storage - Filter Pipeline Message", versions 1 and 2: (id, client values)."""
    cursor = Cursor(body)
    version, count = cursor.uint(1), cursor.uint(1)
    if version not in (1, 2) or count > _MOST_FILTERS:
        raise NoHintError("an unknown filter pipeline")
    cursor.skip(6 if version == 1 else 0)
    filters = []
    for _ in range(count):
        identity = cursor.uint(2)
        name = cursor.uint(2) if version == 1 or identity >= 256 else 0
        cursor.skip(2)  # flags
        values = cursor.uint(2)
        cursor.skip(name + (-name & 7 if version == 1 else 0))
        filters.append((identity, tuple(cursor.uint(4) for _ in range(values))))
        cursor.skip(4 if version == 1 and values % 2 else 0)
    return filters


def parse_layout(body: bytes) -> Layout:
    """Section IV.A.2.i "The Data Layout Message", versions 1 to 5."""
    cursor = Cursor(body)
    version = cursor.uint(1)
    if version in (1, 2):
        return _layout_1(cursor)
    if version not in (3, 4, 5):
        raise NoHintError(f"layout version {version}")
    kind = LayoutClass(cursor.uint(1))
    if kind == LayoutClass.COMPACT:
        return Layout(kind)
    if kind == LayoutClass.CONTIGUOUS:
        return Layout(kind, cursor.address(), cursor.uint(8))
    if kind == LayoutClass.VIRTUAL:
        return Layout(kind, cursor.address())
    return _chunked_3(cursor) if version == 3 else _chunked_4(cursor)


def _layout_1(cursor: Cursor) -> Layout:
    """Versions 1 and 2."""
    rank, kind = cursor.uint(1), LayoutClass(cursor.uint(1))
    cursor.skip(5)
    if kind == LayoutClass.COMPACT:
        return Layout(kind)
    address = cursor.address()
    if kind == LayoutClass.CONTIGUOUS:
        return Layout(kind, address)
    return _chunked(address, [cursor.uint(4) for _ in range(rank)])


def _chunked_3(cursor: Cursor) -> Layout:
    rank, address = cursor.uint(1), cursor.address()
    return _chunked(address, [cursor.uint(4) for _ in range(rank)])


def _chunked_4(cursor: Cursor) -> Layout:
    """Versions 4 and 5: each index has parameters of its own before its address."""
    flags, rank, width = cursor.uint(1), cursor.uint(1), cursor.uint(1)
    layout = _chunked(UNDEFINED, [cursor.uint(width) for _ in range(rank)])
    index = ChunkIndexKind(cursor.uint(1))
    nbytes, filter_mask = None, 0
    if index == ChunkIndexKind.SINGLE and flags & 2:
        nbytes, filter_mask = cursor.uint(8), cursor.uint(4)
    elif index == ChunkIndexKind.FIXED_ARRAY:
        cursor.skip(1)  # page bits
    elif index == ChunkIndexKind.EXTENSIBLE_ARRAY:
        cursor.skip(5)  # sizes, repeated in the array's header
    elif index == ChunkIndexKind.BTREE_2:
        cursor.skip(6)  # node size, split and merge percent
    elif index == ChunkIndexKind.BTREE_1:
        raise NoHintError("an unknown chunk index")
    return layout._replace(address=cursor.address(), nbytes=nbytes, chunk_index=index, filter_mask=filter_mask)


def _chunked(address: int, dimensions: list[int]) -> Layout:
    """The last dimension of a chunk is the size of an element."""
    if not 1 < len(dimensions) <= _MOST_RANK + 1 or 0 in dimensions:
        raise NoHintError("a chunk of impossible shape")
    return Layout(LayoutClass.CHUNKED, address, chunk=tuple(dimensions[:-1]), itemsize=dimensions[-1])
