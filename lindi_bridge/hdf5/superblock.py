"""The superblock: where an HDF5 file begins, and the sizes that its old structures have.

HDF5 File Format Specification 3.0, section II.A "Disk Format: Level 0A - Format Signature and Superblock", versions 0
to 3, and II.C "Superblock Extension".
"""

from __future__ import annotations

from typing import NamedTuple

from lindi_bridge.hdf5.fields import UNDEFINED, Cursor, NoHintError
from lindi_bridge.hdf5.object_header import MessageKind, read_messages
from lindi_bridge.hdf5.waves import Visit, Waves
from lindi_bridge.ranges import ByteRange

__all__ = ["Superblock", "read_superblock"]

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_LENGTH = 128
"""Bytes. More than any version needs (112 with the root group's symbol table entry)."""
_CACHED_GROUP = 1


class Superblock(NamedTuple):
    """What the walk needs to know of a superblock.

    Parameters
    ----------
    root : int
        Address of the root group's object header.
    leaf_k, internal_k, chunk_k : int
        Half the number of entries of a symbol table node, of a version 1 B-tree node of groups, and of one of chunks.
    root_group : (int, int), optional
        Addresses of the root group's B-tree and local heap, where the superblock has them.
    extension : int, optional
        Address of the object header with further messages.
    """

    root: int
    leaf_k: int = 4
    internal_k: int = 16
    chunk_k: int = 32
    root_group: tuple[int, int] | None = None
    extension: int | None = None


def read_superblock(waves: Waves) -> Visit[Superblock]:
    """Find and read the superblock, at byte 0 or after a user block, and set the base address of ``waves``."""
    [head] = yield [ByteRange(0, _LENGTH)]
    if not head.startswith(_SIGNATURE):
        # A user block is a power of two, at least 512 bytes.
        starts = [1 << k for k in range(9, 64) if 1 << k < waves.file.size]
        heads = yield [ByteRange(start, _LENGTH) for start in starts]
        found = [(s, h) for s, h in zip(starts, heads, strict=True) if h.startswith(_SIGNATURE)]
        if not found:
            raise NoHintError("no HDF5 signature")
        waves.base, head = found[0]
    cursor = Cursor(head, len(_SIGNATURE))
    version = cursor.uint(1)
    if version > 3:
        raise NoHintError(f"superblock version {version}")
    superblock = _old(cursor, version) if version < 2 else _new(cursor)
    if superblock.extension is not None and waves.first_visit("object", superblock.extension):
        messages = yield from read_messages(superblock.extension)
        for message in messages:
            if message.kind == MessageKind.BTREE_K:
                superblock = _with_sizes(superblock, message.body)
    return superblock


def _old(cursor: Cursor, version: int) -> Superblock:
    """Versions 0 and 1."""
    cursor.skip(4)  # versions of free space, root group and shared headers; reserved
    _check_widths(cursor)
    cursor.skip(1)
    leaf_k, internal_k = cursor.uint(2), cursor.uint(2)
    cursor.skip(4)  # consistency flags
    chunk_k = cursor.uint(2) if version == 1 else 32
    cursor.skip(2 if version == 1 else 0)
    cursor.skip(4 * 8)  # base address, free space, end of file, driver information
    cursor.skip(8)  # the root group's name
    root = cursor.address()
    cached = cursor.uint(4) == _CACHED_GROUP
    cursor.skip(4)
    scratch = (cursor.address(), cursor.address())
    return Superblock(root, leaf_k, internal_k, chunk_k, scratch if cached else None)


def _new(cursor: Cursor) -> Superblock:
    """Versions 2 and 3."""
    _check_widths(cursor)
    cursor.skip(1 + 8)  # consistency flags, base address
    extension = cursor.address()
    cursor.skip(8)  # end of file
    return Superblock(cursor.address(), extension=None if extension == UNDEFINED else extension)


def _check_widths(cursor: Cursor) -> None:
    if cursor.take(2) != b"\x08\x08":
        raise NoHintError("offsets or lengths that are not 8 bytes long")


def _with_sizes(superblock: Superblock, body: bytes) -> Superblock:
    """Section IV.A.2.t "The B-tree 'K' Values Message"."""
    cursor = Cursor(body, 1)
    chunk_k, internal_k, leaf_k = cursor.uint(2), cursor.uint(2), cursor.uint(2)
    return superblock._replace(chunk_k=chunk_k, internal_k=internal_k, leaf_k=leaf_k)
