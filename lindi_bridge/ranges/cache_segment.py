"""One file of the disk cache: byte ranges of a remote file, each with its checksum.

Written under a temporary name and then renamed, so that a segment is there whole or not at all. Nothing waits for the
disk, so this holds only until the machine stops. Therefore a segment says in which run of the machine it was written;
in that run it is trusted as any local file is, as long as nobody has changed it, and afterwards the checksums tell
whether it has come to the disk whole. That nobody has changed it is seen from its time of last change: it is set back a
few seconds, and a segment says to when.

Layout, all numbers little-endian: ``LBRANGE3``; 16 bytes that say of which file and state the ranges are; 16 bytes that
say in which run of the machine they were written (zeros where the system does not tell); the time of last change that
is set when they are (8 bytes, nanoseconds since 1970); number of pieces (4 bytes); CRC-32 of what is before it and of
the table (4 bytes); the table, 16 bytes a piece: address in the remote file (8), length (4), checksum (4, see
:func:`checksum_of`); and the pieces one after the other. No piece crosses a multiple of 256 KiB, so that a small part
of a segment can be read and checked alone.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = [
    "KEY_NBYTES",
    "PAGE",
    "PART",
    "DamagedSegmentError",
    "Piece",
    "Segment",
    "checksum_of",
    "compare",
    "cut",
    "read_exactly",
    "segment_nbytes",
    "write_segment",
]

KEY_NBYTES = 16
"""Bytes that say of which file and state the ranges in a segment are."""
PAGE = 256 * 1024
"""Bytes. Pieces begin and end inside one page of the remote file."""
PART = ".part"
"""How the names of files end that are not complete yet."""

_MAGIC = b"LBRANGE3"
_HEAD = struct.Struct("<8s16s16sqI")
_CHECKSUM = struct.Struct("<I")
_ROW = struct.Struct("<QII")
_SHEET = 4096
_NOT_NOTED = getattr(os, "O_NOATIME", 0)
"""Who reads the table of a segment does not use it: the system must not note the time of access by itself."""
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_FIXED = _HEAD.size + _CHECKSUM.size
_UNKNOWN_RUN = bytes(16)
_SET_BACK = 4
"""Seconds. Some file systems count two at a time."""


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

    __slots__ = ("_checked", "gone", "path", "sealed", "used")

    def __init__(self, path: str) -> None:
        self.path = path
        self.gone = False
        """Known to be deleted or damaged."""
        self.used = float("-inf")
        """When its use was last noted on the disk (seconds since the epoch)."""
        self.sealed = -1
        """Time of last change (nanoseconds since 1970) with which its bytes are trusted; -1: they must be compared."""
        # With the state of the file in which they were compared, so that no thread can see one without the other.
        self._checked: tuple[tuple[int, int], set[int]] = ((0, 0), set())

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
            fixed = read_exactly(descriptor, _FIXED, 0)
            magic, found, run, sealed, count = _HEAD.unpack_from(fixed)
            if magic != _MAGIC or found != key or _FIXED + count * _ROW.size > size:
                raise DamagedSegmentError
            table = read_exactly(descriptor, count * _ROW.size, _FIXED)
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
        self.sealed = sealed if run == _run_of_the_machine() != _UNKNOWN_RUN else -1
        return pieces

    def checked(self, status: os.stat_result) -> set[int] | None:
        """Offsets of the pieces that were compared with their checksums, or None where none has to be.

        Parameters
        ----------
        status : os.stat_result
            What the file system says of the open file.
        """
        if status.st_mtime_ns == self.sealed:
            return None
        state = (status.st_mtime_ns, status.st_size)
        if self._checked[0] != state:
            self._checked = (state, set())
        return self._checked[1]

    def open(self) -> int:
        """Open it, and return the descriptor."""
        try:
            return os.open(self.path, _READ | _NOT_NOTED)
        except PermissionError:  # the file is somebody else's
            return os.open(self.path, _READ)


def read_exactly(descriptor: int, length: int, offset: int) -> bytes:
    """Read bytes of an open segment.

    Raises
    ------
    DamagedSegmentError
        There are not so many.
    OSError
        They cannot be read.
    """
    data = os.pread(descriptor, length, offset)
    if len(data) != length:
        raise DamagedSegmentError
    return data


def compare(pieces: Sequence[Piece], view: memoryview, checked: set[int]) -> None:
    """Compare pieces that lie one after the other, and were read, with their checksums; each only once.

    Parameters
    ----------
    pieces : sequence of Piece
        All of one segment.
    view : memoryview
        Their bytes.
    checked : set of int
        Offsets of those that need not be compared; the others are added.

    Raises
    ------
    DamagedSegmentError
        They are not the bytes that were written.
    """
    for start, stop, offset, checksum, _ in pieces:
        position = offset - pieces[0].offset
        if offset not in checked and checksum_of(view[position : position + stop - start]) != checksum:
            raise DamagedSegmentError
        checked.add(offset)


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
    now = time.time()
    sealed = (int(now) - _SET_BACK) * 10**9
    head = _HEAD.pack(_MAGIC, key, _run_of_the_machine(), sealed, len(pieces))
    name = os.path.join(folder, secrets.token_hex(8))
    descriptor = os.open(name + PART, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(head + _CHECKSUM.pack(zlib.crc32(table, zlib.crc32(head))) + table)
            for _, data in pieces:
                file.write(data)
        with contextlib.suppress(OSError):  # then it is compared with its checksums
            os.utime(name + PART, ns=(int(now * 1e9), sealed))
        os.rename(name + PART, name)
    except BaseException:
        try:
            os.unlink(name + PART)
        except OSError:
            pass  # evicted meanwhile, or the disk is gone; the first error says more
        raise


@functools.cache
def _run_of_the_machine() -> bytes:
    """Which run of the machine this is: another one after each start of the system."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:  # a UUID; see random(4)
            run = bytes.fromhex(file.read().decode().replace("-", ""))
    except (OSError, ValueError):
        return _UNKNOWN_RUN
    return run if len(run) == len(_UNKNOWN_RUN) else _UNKNOWN_RUN
