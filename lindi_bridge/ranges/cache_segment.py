"""One file of the disk cache: byte ranges of a remote file, each with its checksum.

Written under a temporary name and then renamed, so that a segment is there whole or not at all, as far as the file
system keeps its word; the checksums tell where it does not (a crash of the machine, a damaged disk).

Layout, all numbers little-endian: ``LBRANGE2``; 16 bytes that say of which file and state the ranges are; number of
pieces (4 bytes); CRC-32 of what is before it and of the table (4 bytes); the table, 16 bytes a piece: address in the
remote file (8), length (4), checksum (4, see :func:`checksum_of`); and the pieces one after the other. No piece crosses
a multiple of 256 KiB, so that a small part of a segment can be read and checked alone.
"""

from __future__ import annotations

import os
import secrets
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lindi_bridge.ranges.file_bytes import read_into

__all__ = [
    "KEY_NBYTES",
    "PAGE",
    "PART",
    "DamagedSegmentError",
    "Piece",
    "Segment",
    "checksum_of",
    "cut",
    "read_run",
    "read_run_into",
    "segment_nbytes",
    "write_segment",
]

KEY_NBYTES = 16
"""Bytes that say of which file and state the ranges in a segment are."""
PAGE = 256 * 1024
"""Bytes. Pieces begin and end inside one page of the remote file."""
PART = ".part"
"""How the names of files end that are not complete yet."""

_MAGIC = b"LBRANGE2"
_HEAD = struct.Struct("<8s16sI")
_CHECKSUM = struct.Struct("<I")
_ROW = struct.Struct("<QII")
_SHEET = 4096
_FIXED = _HEAD.size + _CHECKSUM.size


class DamagedSegmentError(Exception):
    """A file of the cache is not what was written. Never leaves this layer."""


class Piece(NamedTuple):
    """Bytes ``start`` to before ``stop`` of the remote file, which lie at ``offset`` of a segment."""

    start: int
    stop: int
    offset: int
    checksum: int
    segment: Segment


class Segment:
    """A complete file of the cache.

    Parameters
    ----------
    path : str
        Where it is.
    """

    __slots__ = ("checked", "gone", "path", "used")

    def __init__(self, path: str) -> None:
        self.path = path
        self.gone = False
        """Known to be deleted or damaged."""
        self.checked: set[int] = set()
        """Offsets of pieces that were found to be what was written."""
        self.used = float("-inf")
        """When its use was last noted on the disk (seconds of the monotonic clock)."""

    def pieces(self, key: bytes) -> list[Piece]:
        """Read the table.

        Parameters
        ----------
        key : bytes
            Of which file and state the ranges must be; 16 bytes.

        Raises
        ------
        DamagedSegmentError
            Cut off, changed, or of something else.
        OSError
            It cannot be read.
        """
        descriptor = self.open()
        try:
            size = os.fstat(descriptor).st_size
            fixed = _read(descriptor, _FIXED, 0)
            magic, found, count = _HEAD.unpack_from(fixed)
            if magic != _MAGIC or found != key or _FIXED + count * _ROW.size > size:
                raise DamagedSegmentError
            table = _read(descriptor, count * _ROW.size, _FIXED)
        finally:
            os.close(descriptor)
        if zlib.crc32(table, zlib.crc32(fixed[: _HEAD.size])) != _CHECKSUM.unpack_from(fixed, _HEAD.size)[0]:
            raise DamagedSegmentError
        pieces, offset = [], _FIXED + len(table)
        for start, length, checksum in _ROW.iter_unpack(table):
            pieces.append(Piece(start, start + length, offset, checksum, self))
            offset += length
        if offset != size:
            raise DamagedSegmentError
        return pieces

    def open(self) -> int:
        """Open it, and return the descriptor."""
        return os.open(self.path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))


def read_run(descriptor: int, pieces: Sequence[Piece]) -> bytes:
    """Read pieces that lie one after the other in an open segment.

    Raises
    ------
    DamagedSegmentError
        They are not the bytes that were written.
    OSError
        They cannot be read.
    """
    begin = pieces[0].offset
    data = _read(descriptor, pieces[-1].offset + pieces[-1].stop - pieces[-1].start - begin, begin)
    _compare(pieces, memoryview(data), begin)
    return data


def read_run_into(descriptor: int, pieces: Sequence[Piece], view: memoryview) -> None:
    """Read pieces that lie one after the other in an open segment into a buffer of their length.

    Each is compared with its checksum the first time only.

    Raises
    ------
    DamagedSegmentError
        They are not the bytes that were written.
    OSError
        They cannot be read.
    """
    begin = pieces[0].offset
    if read_into(descriptor, view, begin) != len(view):
        raise DamagedSegmentError
    _compare([piece for piece in pieces if piece.offset not in piece.segment.checked], view, begin)


def _compare(pieces: Sequence[Piece], view: memoryview, begin: int) -> None:
    """Compare pieces with their checksums; ``begin`` is the offset at which ``view`` was read."""
    for start, stop, offset, checksum, segment in pieces:
        if checksum_of(view[offset - begin : offset - begin + stop - start]) != checksum:
            raise DamagedSegmentError
        segment.checked.add(offset)


def checksum_of(data: memoryview) -> int:
    """CRC-32 of the sums along and across pages of 4 KiB, and of the rest.

    CRC-32 of all the bytes would take several times as long as reading them. The sums, of 64-bit integers modulo 2^64,
    change with every single integer; a page that was not written, or lies in the place of another, changes both.

    Parameters
    ----------
    data : memoryview
        Contiguous bytes.
    """
    import numpy as np

    whole = len(data) // _SHEET * _SHEET
    words = np.frombuffer(data[:whole], "<u8").reshape(-1, _SHEET // 8)
    sums = zlib.crc32(words.sum(axis=1, dtype="<u8"), zlib.crc32(words.sum(axis=0, dtype="<u8")))
    return zlib.crc32(data[whole:], sums)


def cut(start: int, data: bytes) -> Iterator[tuple[int, memoryview]]:
    """Cut bytes from ``start`` on at the borders of pages."""
    view = memoryview(data)
    done = 0
    while done < len(view):
        length = min(PAGE - (start + done) % PAGE, len(view) - done)
        yield start + done, view[done : done + length]
        done += length


def segment_nbytes(pieces: Sequence[tuple[int, memoryview]]) -> int:
    """Bytes of the file that pieces (address, bytes) make."""
    return _FIXED + sum(_ROW.size + len(data) for _, data in pieces)


def write_segment(folder: str, key: bytes, pieces: Sequence[tuple[int, memoryview]]) -> None:
    """Write a segment into a folder, whole or not at all.

    Parameters
    ----------
    folder : str
        Must exist.
    key : bytes
        Of which file and state the pieces are; 16 bytes.
    pieces : sequence of (int, memoryview)
        Address in the remote file, and the bytes; as :func:`cut` makes them.

    Raises
    ------
    OSError
        The disk is full, the folder may not be written to, or is gone.
    """
    table = b"".join(_ROW.pack(start, len(data), checksum_of(data)) for start, data in pieces)
    head = _HEAD.pack(_MAGIC, key, len(pieces))
    name = os.path.join(folder, secrets.token_hex(8))
    descriptor = os.open(name + PART, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(head + _CHECKSUM.pack(zlib.crc32(table, zlib.crc32(head))) + table)
            for _, data in pieces:
                file.write(data)
        os.rename(name + PART, name)
    except BaseException:
        try:
            os.unlink(name + PART)
        except OSError:
            pass  # evicted meanwhile, or the disk is gone; the first error says more
        raise


def _read(descriptor: int, length: int, offset: int) -> bytes:
    data = os.pread(descriptor, length, offset)
    if len(data) != length:
        raise DamagedSegmentError
    return data
