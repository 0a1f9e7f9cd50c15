"""A reader that keeps on the disk what it fetches."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from lindi_bridge.errors import SourceProtocolError
from lindi_bridge.ranges.cache_entry import CacheEntry, Part
from lindi_bridge.ranges.cache_key import state_digest
from lindi_bridge.ranges.disk_cache import DiskCache
from lindi_bridge.ranges.identity import SourceIdentity
from lindi_bridge.ranges.lock import h5py_lock_is_held, refuse_under_lock
from lindi_bridge.ranges.reader import ByteRange, PairReader, RangeReader, ReadStatistics, check_range

__all__ = ["CachedReader"]

_FEW_NBYTES = 1024 * 1024
"""Bytes. Single reads are small; they are collected until they make a file that is worth it."""


class CachedReader:
    """A reader whose bytes come from the disk cache as far as it has them; what is fetched is put there.

    Bytes from the disk are used only when it is known which file they must be of: the document that named the source
    recorded a strong entity tag (then the source is not asked), or the source itself has told its size and tag, or size
    and time of last change, since the reader was made. A source that tells neither is not cached.

    Parameters
    ----------
    source : RangeReader
        What fetches.
    cache : DiskCache
        The folder.
    address : str
        Digest of the source's address; see :func:`~lindi_bridge.ranges.cache_key.address_digest`.
    expected : SourceIdentity, optional
        The file that ``source`` was told that it must be.
    """

    def __init__(
        self, source: RangeReader, cache: DiskCache, address: str, expected: SourceIdentity | None = None
    ) -> None:
        self._source = source
        self._cache = cache
        self._address = address
        self._recorded = expected if expected is not None and expected.strong_etag else None
        self._entry: CacheEntry | None = None
        self._asked = False
        """Whether the source has told which file it is."""
        self._keeps = False
        self._few: list[tuple[int, bytes]] = []
        _readers.add(self)

    def __repr__(self) -> str:
        return f"<CachedReader of {self._source!r} in {self._cache.folder}>"

    @property
    def url(self) -> str:
        """The address without query string and credentials."""
        return self._source.url

    @property
    def statistics(self) -> ReadStatistics:
        """What was asked of the source so far."""
        return self._source.statistics

    def identity(self) -> SourceIdentity:
        """Size and tags of the file; asks the source unless they are recorded or known."""
        if self._recorded is not None and not self._asked:
            return self._recorded
        return self._source.identity()

    def read_head(self, length: int) -> bytes:
        """Read up to ``length`` first bytes; see :class:`RangeReader`."""
        if self._recorded is not None:
            return self.read_locked(0, min(length, self._recorded.size))
        # The identity comes with them, so they are asked for every time; other readers may want them from the disk.
        data = self._source.read_head(length)
        self._ask()
        entry = self._find_entry()
        if entry is not None and any(p.data is None for p in entry.read([ByteRange(0, len(data))])[0]):
            self._keep([(0, data)])
        return data

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Read all ranges, what is missing on the disk in one wave; see :class:`RangeReader`."""
        refuse_under_lock(self.url)
        self._cache.tell()
        ranges = [ByteRange(*wanted) for wanted in ranges]
        for wanted in ranges:
            check_range(wanted, None, self.url)
        entry = self._find_entry()
        parts = [[Part(r.start, r.stop, None)] if r.length else [] for r in ranges]
        if entry is not None:
            parts = entry.read(ranges)
        missing = [ByteRange(p.start, p.stop - p.start) for found in parts for p in found if p.data is None]
        fetched = self._source.read_ranges(missing) if missing else []
        if missing:
            self._keep([(wanted.start, data) for wanted, data in zip(missing, fetched, strict=True)])
        answers = iter(fetched)
        return [_joined([next(answers) if p.data is None else p.data for p in found]) for found in parts]

    def holds(self, wanted: ByteRange) -> bool:
        """Whether all bytes of a range are on the disk, as far as that is known without asking the source."""
        entry = self._find_entry()
        return entry is not None and entry.holds(wanted)

    def read_into(self, runs: Sequence[tuple[int, memoryview]]) -> bool:
        """Read ranges from the disk to where they are wanted, in the calling thread.

        Parameters
        ----------
        runs : sequence of (int, memoryview)
            Addresses, and writable buffers of bytes.

        Returns
        -------
        bool
            False if not all of them are on the disk; then the buffers hold anything.
        """
        entry = self._find_entry()
        return entry is not None and entry.read_into(runs)

    def read_locked(self, start: int, length: int) -> bytes:
        """Read one range in the calling thread, what the disk lacks in one request; see :class:`RangeReader`."""
        check_range(ByteRange(start, length), None, self.url)
        if length == 0:
            return b""
        [parts] = self._look_up([ByteRange(start, length)])
        hole = _hole(parts)
        data = self._source.read_locked(*hole) if hole.length else b""
        return self._filled(parts, hole, data)

    def read_locked_beside(self, wanted: ByteRange, hints: Sequence[ByteRange]) -> tuple[bytes, list[bytes | None]]:
        """Read one range, and others beside it, as far as the disk lacks them; see :class:`PairReader`.

        If it has all of the first, nothing is asked for.
        """
        for asked in (wanted, *hints):
            check_range(asked, None, self.url)
        if not wanted.length:
            return b"", [b""] * len(hints)
        parts, *others = self._look_up([wanted, *hints])
        hole, holes = _hole(parts), [_hole(other) for other in others]
        data = b""
        along: list[bytes | None] = [b""] * len(holes)
        if hole.length and isinstance(self._source, PairReader):
            data, came = self._source.read_locked_beside(hole, [found for found in holes if found.length])
            answers = iter(came)
            along = [next(answers) if found.length else b"" for found in holes]
        elif hole.length:
            data = self._source.read_locked(*hole)
        filled: list[bytes | None] = [
            self._filled(other, found, more or b"") if more or not found.length else more
            for other, found, more in zip(others, holes, along, strict=True)
        ]
        return self._filled(parts, hole, data), filled

    def _look_up(self, ranges: Sequence[ByteRange]) -> list[list[Part]]:
        """What the disk has of ranges, none of them empty."""
        entry = self._find_entry()
        return [[Part(r.start, r.stop, None)] for r in ranges] if entry is None else entry.read(ranges)

    def _filled(self, parts: list[Part], hole: ByteRange, data: bytes) -> bytes:
        """The bytes of a range out of what the disk has and what the source gave, which is kept."""
        if hole.length:
            self._keep_few(hole.start, data)
        before = [p.data for p in parts if p.data is not None and (not hole.length or p.stop <= hole.start)]
        after = [p.data for p in parts if p.data is not None and hole.length and p.start >= hole.stop]
        return _joined([*before, *([data] if hole.length else []), *after])

    def read_source(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Read all ranges from the source itself, whatever is on the disk; one after the other under h5py's lock."""
        if h5py_lock_is_held():
            return [self._source.read_locked(*wanted) for wanted in ranges]
        return self._source.read_ranges(ranges)

    def lock_safe(self) -> AbstractContextManager[None]:
        """Make :meth:`read_locked` possible where the source needs that; see :class:`RangeReader`."""
        return self._source.lock_safe()

    def flush(self) -> None:
        """Write what was collected."""
        self._keep([])

    def close(self) -> None:
        """Write what was collected, and close the source. Idempotent."""
        self.flush()
        self._cache.tell()
        self._source.close()

    def _find_entry(self) -> CacheEntry | None:
        """What the disk has of this file, or None while that would cost a request for nothing."""
        if not self._asked and self._entry is None and self._cache.holds(self._address):
            if self._recorded is not None:
                state = state_digest(self._recorded)
                assert state is not None
                self._entry = self._cache.entry(self._address, state)
            else:
                self._ask()
        return self._entry if self._cache.is_readable else None

    def _ask(self) -> None:
        """Learn from the source which file it is, once; costs a request only if nothing was read of it yet."""
        if self._asked:
            return
        try:
            state = state_digest(self._source.identity())
        except SourceProtocolError:
            state = None  # it does not tell its size
        if state is not None:
            told = self._cache.entry(self._address, state)
            if self._entry is None and (self._recorded is None or state == state_digest(self._recorded)):
                self._entry = told
            self._keeps = self._entry is not None and self._entry.folder == told.folder
        self._asked = True

    def _keep(self, ranges: Iterable[tuple[int, bytes]]) -> None:
        """Write ranges that the source has given, and those that were collected."""
        few, self._few = self._few, []
        kept = [*few, *((start, data) for start, data in ranges if data)]
        if not kept:
            return
        self._ask()
        if self._keeps and self._entry is not None:
            self._cache.write(self._entry, kept)

    def _keep_few(self, start: int, data: bytes) -> None:
        self._ask()
        self._few.append((start, data))
        if sum(len(collected) for _, collected in self._few) >= _FEW_NBYTES:
            self._keep([])


def _hole(parts: list[Part]) -> ByteRange:
    """From the first to the last byte that the disk does not have; empty if it has all."""
    holes = [p for p in parts if p.data is None]
    return ByteRange(holes[0].start, holes[-1].stop - holes[0].start) if holes else ByteRange(0, 0)


def _joined(pieces: list[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


_readers: weakref.WeakSet[CachedReader] = weakref.WeakSet()


def _flush_all() -> None:
    """Write what readers have collected that nobody closed, while there still is an interpreter to do it."""
    for reader in list(_readers):
        reader.flush()


atexit.register(_flush_all)
