"""Datatypes as they are stored, as far as to tell where variable-length values are in an element.

HDF5 File Format Specification 3.0, section IV.A.2.d "The Datatype Message".
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

from lindi_bridge.hdf5.fields import Cursor, NoHintError, int_width

__all__ = ["StoredType", "parse_datatype"]

_DESCRIPTOR = 16
_MOST_OFFSETS = 4096
_DEEPEST = 16


class StoredType(NamedTuple):
    """Bytes of an element, and the byte offsets of the variable-length descriptors in it."""

    itemsize: int
    offsets: tuple[int, ...]


class _Class(IntEnum):
    FIXED_POINT = 0
    FLOATING_POINT = 1
    TIME = 2
    STRING = 3
    BIT_FIELD = 4
    OPAQUE = 5
    COMPOUND = 6
    REFERENCE = 7
    ENUMERATION = 8
    VARIABLE_LENGTH = 9
    ARRAY = 10
    COMPLEX = 11


_PROPERTIES = {
    _Class.FIXED_POINT: 4,
    _Class.FLOATING_POINT: 12,
    _Class.TIME: 2,
    _Class.STRING: 0,
    _Class.BIT_FIELD: 4,
    _Class.REFERENCE: 0,
}
"""Bytes of the properties of plain classes."""


def parse_datatype(body: bytes) -> StoredType:
    """Size of an element, and where its variable-length values are described."""
    return _parse(Cursor(body), 0)


def _parse(cursor: Cursor, depth: int) -> StoredType:
    if depth > _DEEPEST:
        raise NoHintError("a datatype nested too deep")
    first = cursor.uint(1)
    kind, version = _Class(first & 0x0F), first >> 4
    bits, size = cursor.uint(3), cursor.uint(4)
    if kind in _PROPERTIES:
        cursor.skip(_PROPERTIES[kind])
    elif kind == _Class.OPAQUE:
        cursor.skip(bits & 0xFF)
    elif kind == _Class.COMPOUND:
        return _compound(cursor, depth, version, bits & 0xFFFF, size)
    elif kind == _Class.ENUMERATION:
        base = _parse(cursor, depth + 1)
        for _ in range(bits & 0xFFFF):
            _skip_name(cursor, version)
        cursor.skip((bits & 0xFFFF) * base.itemsize)
    elif kind == _Class.VARIABLE_LENGTH:
        _parse(cursor, depth + 1)
        return StoredType(size, (0,) if size == _DESCRIPTOR else ())
    elif kind == _Class.ARRAY:
        return _array(cursor, depth, version, size)
    else:
        _parse(cursor, depth + 1)  # the parts of a complex number
    return StoredType(size, ())


def _compound(cursor: Cursor, depth: int, version: int, members: int, size: int) -> StoredType:
    offsets: list[int] = []
    for _ in range(members):
        _skip_name(cursor, version)
        offset = cursor.uint(4 if version < 3 else int_width(size))
        dimensions, count = 0, 1
        if version == 1:  # array members of files older than HDF5 1.4
            dimensions = cursor.uint(1)
            cursor.skip(3 + 4 + 4)
            lengths = [cursor.uint(4) for _ in range(4)]
            count = math.prod(lengths[: min(dimensions, 4)])
        member = _parse(cursor, depth + 1)
        offsets += _repeat(member, offset, count)
    return StoredType(size, _within(offsets, size))


def _array(cursor: Cursor, depth: int, version: int, size: int) -> StoredType:
    rank = cursor.uint(1)
    cursor.skip(3 if version < 3 else 0)
    count = math.prod(cursor.uint(4) for _ in range(rank))
    cursor.skip(4 * rank if version < 3 else 0)  # permutation
    return StoredType(size, _within(_repeat(_parse(cursor, depth + 1), 0, count), size))


def _repeat(element: StoredType, offset: int, count: int) -> list[int]:
    if len(element.offsets) * count > _MOST_OFFSETS:
        raise NoHintError("too many variable-length values in one element")
    if not element.offsets:
        return []
    return [offset + k * element.itemsize + inner for k in range(count) for inner in element.offsets]


def _within(offsets: list[int], size: int) -> tuple[int, ...]:
    if any(offset + _DESCRIPTOR > size for offset in offsets) or len(offsets) > _MOST_OFFSETS:
        raise NoHintError("a member lies outside its datatype")
    return tuple(offsets)


def _skip_name(cursor: Cursor, version: int) -> None:
    """Names end with a zero; up to version 2 they are padded to a multiple of 8 bytes."""
    end = cursor.data.find(b"\0", cursor.position)
    if end < 0:
        raise NoHintError("a name without end")
    length = end + 1 - cursor.position
    cursor.skip(length + (-length & 7 if version < 3 else 0))
