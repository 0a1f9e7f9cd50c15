"""Object headers: the messages of a group, dataset or named datatype.

HDF5 File Format Specification 3.0, section IV.A.1 "Disk Format: Level 2A1 - Data Object Header Prefix", versions 1 and
2, and IV.A.2.q "The Object Header Continuation Message".
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from lindi_bridge.hdf5.fields import Cursor, NoHintError
from lindi_bridge.hdf5.waves import Visit, read
from lindi_bridge.ranges import ByteRange

__all__ = ["Message", "MessageKind", "read_messages"]

_SPECULATIVE = 512
"""Bytes. libhdf5 reads so much of a header before it knows its size."""
_LONGEST = 1024 * 1024
_CHECKSUM = 4
_MOST_MESSAGES = 65_536
_MOST_CONTINUATIONS = 16_384

_TIMES_STORED = 0x20
_PHASE_CHANGE_STORED = 0x10
_CREATION_ORDER_TRACKED = 0x04


class MessageKind(IntEnum):
    """Message types (section IV.A.2) that the walk reads."""

    NIL = 0x00
    DATASPACE = 0x01
    LINK_INFO = 0x02
    DATATYPE = 0x03
    LINK = 0x06
    EXTERNAL_FILES = 0x07
    LAYOUT = 0x08
    FILTERS = 0x0B
    ATTRIBUTE = 0x0C
    CONTINUATION = 0x10
    SYMBOL_TABLE = 0x11
    BTREE_K = 0x13
    ATTRIBUTE_INFO = 0x15


class Message(NamedTuple):
    """One header message; ``flags`` bit 1 says that ``body`` only points to it."""

    kind: int
    flags: int
    body: bytes

    @property
    def is_shared(self) -> bool:
        """Whether the message lies elsewhere."""
        return bool(self.flags & 2)


def read_messages(address: int) -> Visit[list[Message]]:
    """Read all messages of an object header, its continuations wave by wave."""
    data = yield from read(address, _SPECULATIVE)
    prefix = _prefix_version_2(data) if data.startswith(b"OHDR") else _prefix_version_1(data)
    if prefix.stop > _LONGEST:
        raise NoHintError("an object header of improbable size")
    whole = prefix.stop + (_CHECKSUM if prefix.version == 2 else 0)
    if whole > len(data):
        data = yield from read(address, whole)
    messages: list[Message] = []
    blocks = [data[prefix.start : prefix.stop]]
    seen: set[tuple[int, int]] = set()
    while blocks:
        found = [message for block in blocks for message in _split(block, prefix)]
        messages += [message for message in found if message.kind != MessageKind.CONTINUATION]
        continuations = [_continuation(m.body) for m in found if m.kind == MessageKind.CONTINUATION]
        following = [c for c in dict.fromkeys(continuations) if c not in seen]
        seen.update(following)
        if len(messages) > _MOST_MESSAGES or len(seen) > _MOST_CONTINUATIONS:
            raise NoHintError("an object header without end")
        if not following:
            break
        blocks = [_unwrap(block, prefix.version) for block in (yield following)]
    return messages


class _Prefix(NamedTuple):
    """Version, where the messages of the first block begin and end, and bytes of a message's own header."""

    version: int
    start: int
    stop: int
    has_order: bool


def _prefix_version_1(data: bytes) -> _Prefix:
    cursor = Cursor(data)
    if cursor.uint(1) != 1:
        raise NoHintError("no object header")
    cursor.skip(1 + 2 + 4)  # reserved, number of messages, reference count
    length = cursor.uint(4)
    cursor.skip(4)  # padding
    return _Prefix(1, cursor.position, cursor.position + length, has_order=False)


def _prefix_version_2(data: bytes) -> _Prefix:
    cursor = Cursor(data)
    cursor.expect(b"OHDR\x02")
    flags = cursor.uint(1)
    cursor.skip(16 if flags & _TIMES_STORED else 0)
    cursor.skip(4 if flags & _PHASE_CHANGE_STORED else 0)
    length = cursor.uint(1 << (flags & 3))
    return _Prefix(2, cursor.position, cursor.position + length, bool(flags & _CREATION_ORDER_TRACKED))


def _split(block: bytes, prefix: _Prefix) -> Iterator[Message]:
    """The messages of one block. In version 2 a gap shorter than a message may be left at the end."""
    cursor = Cursor(block)
    header = 8 if prefix.version == 1 else 6 if prefix.has_order else 4
    while cursor.left >= header:
        kind, length, flags = cursor.uint(2 if prefix.version == 1 else 1), cursor.uint(2), cursor.uint(1)
        cursor.skip(header - (5 if prefix.version == 1 else 4))
        body = cursor.take(min(length, cursor.left))
        if kind != MessageKind.NIL:
            yield Message(kind, flags, body)


def _continuation(body: bytes) -> ByteRange:
    cursor = Cursor(body)
    found = ByteRange(cursor.address(), cursor.uint(8))
    if found.length > _LONGEST:
        raise NoHintError("an object header of improbable size")
    return found


def _unwrap(block: bytes, version: int) -> bytes:
    """The messages of a continuation block: in version 2 between a signature and a checksum."""
    if version == 1:
        return block
    Cursor(block).expect(b"OCHK")
    return block[4:-_CHECKSUM]
