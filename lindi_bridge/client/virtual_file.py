"""Reading a virtual file: its bytes in memory, and ranges of any number of sources in one wave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from lindi_bridge.client.sources import Verify
from lindi_bridge.client.virtual import VirtualMemory, VirtualRange
from lindi_bridge.errors import DocumentError
from lindi_bridge.hdf5.demand import BLOCK
from lindi_bridge.hdf5.extents import missing_ranges
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.model.chunks import ChunkTable
from lindi_bridge.ranges import (
    ByteRange,
    RangeReader,
    ReadStatistics,
    SourceIdentity,
    coalesce,
    h5py_lock_is_held,
)
from lindi_bridge.ranges.spread import spread
from lindi_bridge.ranges.workers import Workers, wait_for

__all__ = ["VirtualFile", "VirtualReader"]

_GAP = 64 * 1024
_REQUEST = 8 * 1024 * 1024
_WHOLE = 4 * 1024 * 1024
"""Bytes. A longer range of a source, which is no chunk, is fetched in blocks."""
_MOST_AT_ONCE = 16


class VirtualReader:
    """A reader of a virtual file; implements :class:`~lindi_bridge.ranges.RangeReader`.

    Parameters
    ----------
    memory : VirtualMemory
        What is in memory and what is mapped.
    openers : sequence of callable
        For each source: opens its reader, and what checks it before its first bytes are used.
    refusals : sequence of str
        Why bytes mapped to source ``-2 - k`` cannot be had.
    name : str
        What the file is called in messages.
    """

    def __init__(
        self,
        memory: VirtualMemory,
        openers: Sequence[Callable[[], tuple[RangeReader, Verify | None]]],
        refusals: Sequence[str],
        name: str,
    ) -> None:
        self._memory = memory
        self._openers = openers
        self._refusals = refusals
        self._name = name
        self._readers: dict[int, RangeReader] = {}
        self._unchecked: dict[int, Verify] = {}
        self._on_close: list[Callable[[], None]] = []

    @property
    def url(self) -> str:
        """What the file is called."""
        return self._name

    @property
    def statistics(self) -> ReadStatistics:
        """What was asked of all sources."""
        each = [reader.statistics for reader in self._readers.values()]
        return ReadStatistics(
            sum(s.requests for s in each), max((s.waves for s in each), default=0), sum(s.nbytes for s in each)
        )

    def identity(self) -> SourceIdentity:
        """Size of the virtual file."""
        return SourceIdentity(self._memory.size)

    def read_head(self, length: int) -> bytes:
        """Read the first bytes."""
        return self.read_locked(0, min(length, self._memory.size))

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Read ranges of the virtual file: all that lies in sources in one wave."""
        pieces = [list(self._memory.pieces(*wanted)) for wanted in ranges]
        by_source: dict[int, list[ByteRange]] = {}
        for piece in (p for found in pieces for p in found if p.source != -1):
            by_source.setdefault(piece.source, []).append(ByteRange(piece.offset, piece.length))
        for source in by_source:
            self._refuse(source)
        fetched = self._fetch(by_source)
        return [b"".join(self._take(piece, fetched) for piece in found) for found in pieces]

    def read_locked(self, start: int, length: int) -> bytes:
        """Read one range in the calling thread."""
        parts = []
        for piece in self._memory.pieces(start, length):
            if piece.source == -1:
                parts.append(self._memory.read(piece.start, piece.length))
                continue
            self._refuse(piece.source)
            parts.append(self._read_here(piece))
        return b"".join(parts)

    def read_source(self, table: ChunkTable) -> list[bytes]:
        """The stored chunks of a table, straight from their sources: in one wave, but for h5py's lock."""
        source = [0] * len(table) if table.source is None else table.source.tolist()
        rows = list(zip(source, table.offset.tolist(), table.nbytes.tolist(), strict=True))
        pieces = [VirtualRange(0, nbytes, number, offset) for number, offset, nbytes in rows]
        if h5py_lock_is_held():
            found = []
            for piece in pieces:
                found.append(self._read_here(piece))
            return found
        by_source: dict[int, list[ByteRange]] = {}
        for piece in pieces:
            by_source.setdefault(piece.source, []).append(ByteRange(piece.offset, piece.length))
        fetched = self._fetch(by_source)
        return [self._take(piece, fetched) for piece in pieces]

    def lock_safe(self) -> AbstractContextManager[None]:
        """Do nothing: the sources are reached as they are."""
        return nullcontext()

    def when_closed(self, action: Callable[[], None]) -> None:
        """Have something done when the reader is closed."""
        self._on_close.append(action)

    def close(self) -> None:
        """Close all readers."""
        while self._on_close:
            self._on_close.pop()()
        while self._readers:
            self._readers.popitem()[1].close()

    # -- sources --------------------------------------------------------------------------------------------------

    def _refuse(self, source: int) -> None:
        if source < -1:
            raise DocumentError(self._refusals[-2 - source])

    def _reader(self, source: int) -> RangeReader:
        reader = self._readers.get(source)
        if reader is None:
            reader, check = self._openers[source]()
            if check is not None:
                self._unchecked[source] = check
            kept = self._readers.setdefault(source, reader)
            if kept is not reader:  # another thread was faster
                reader.close()
            return kept
        return reader

    def _read_here(self, piece: VirtualRange) -> bytes:
        """Read a piece of a source in the calling thread."""
        reader = self._reader(piece.source)
        self._check(piece.source, lambda wanted: [reader.read_locked(*r) for r in wanted])
        return reader.read_locked(piece.offset, piece.length)

    def _check(self, source: int, read: Callable[[Sequence[ByteRange]], list[bytes]]) -> None:
        check = self._unchecked.get(source)
        if check is not None:
            check(read)
            self._unchecked.pop(source, None)

    def _fetch(self, by_source: dict[int, list[ByteRange]]) -> dict[int, list[tuple[int, bytes]]]:
        if len(by_source) <= 1:
            return {source: self._fetch_source(source, ranges) for source, ranges in by_source.items()}
        readers = {source: self._reader(source) for source in by_source}
        workers = Workers(min(len(readers), _MOST_AT_ONCE), "lindi-bridge-sources")
        try:
            futures = {s: workers.submit(partial(self._fetch_source, s, ranges)) for s, ranges in by_source.items()}
            wait_for(futures.values())
            return {source: future.result() for source, future in futures.items()}
        except KeyboardInterrupt:
            workers.abandon()
            raise
        finally:
            workers.close()

    def _fetch_source(self, source: int, ranges: list[ByteRange]) -> list[tuple[int, bytes]]:
        """Bytes of a source that hold the ranges, by ascending address."""
        reader = self._reader(source)
        self._check(source, reader.read_ranges)
        wanted = coalesce(ranges, gap=0, waste=0, limit=1 << 62)
        total = sum(r.length for r in wanted)
        merged = coalesce(wanted, gap=_GAP, waste=max(total // 20, _GAP // 2), limit=_REQUEST)
        requests = spread(merged, _REQUEST)
        return list(zip((r.start for r in requests), reader.read_ranges(requests), strict=True))

    def _take(self, piece: VirtualRange, fetched: dict[int, list[tuple[int, bytes]]]) -> bytes:
        if piece.source == -1:
            return self._memory.read(piece.start, piece.length)
        blocks = fetched[piece.source]
        low, high = 0, len(blocks)
        while high - low > 1:  # the block that holds the first byte
            middle = (low + high) // 2
            low, high = (middle, high) if blocks[middle][0] <= piece.offset else (low, middle)
        parts, position, stop = [], piece.offset, piece.offset + piece.length
        while position < stop:
            begin, data = blocks[low]
            part = data[position - begin : stop - begin]
            parts.append(part)
            position += len(part)
            low += 1
        return b"".join(parts)


class VirtualFile(HDF5File):
    """The file object over a virtual file.

    Parameters
    ----------
    memory : VirtualMemory
        The virtual file.
    reader : VirtualReader
        Its reader.
    address : str
        What the file is called.
    size : int
        Where reading ends; more than there is, as long as chunks are put in.
    cache_bytes : int
        Bytes of fetched data to hold in memory.
    """

    def __init__(
        self, memory: VirtualMemory, reader: VirtualReader, *, address: str, size: int, cache_bytes: int
    ) -> None:
        super().__init__(reader, address=address, size=size, cache_bytes=cache_bytes)
        self._virtual = memory
        self._seen = memory.changes
        # In the place of the pieces that are known from the beginning: it finds what is in memory.
        self._metadata = memory

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer; see :class:`HDF5File`.

        Raises
        ------
        DocumentError
            libhdf5 looks for chunks that cannot be had.
        """
        self._virtual.refuse_closed(self._position)
        self._forget_what_changed()
        if h5py_lock_is_held() and self._virtual.segment(self._position) is None:
            # Metadata. Where libhdf5 reads ahead into the data behind an object's header, it looks at none of them.
            length = len(buffer)
            buffer[:] = self._virtual.read(self._position, length)
            self._position += length
            return length
        return super().readinto(buffer)

    def find(self, address: int) -> memoryview | None:
        """The bytes in memory from ``address`` on; see :class:`HDF5File`."""
        self._forget_what_changed()
        return super().find(address)

    def _forget_what_changed(self) -> None:
        """Drop what was found last where it may have been memory that chunks have been put into since."""
        if self._seen != self._virtual.changes:
            self._seen = self._virtual.changes
            self._recent = (0, 0, memoryview(b""))

    def missing(self, ranges: Iterable[ByteRange], **merging: Any) -> list[ByteRange]:
        """The parts of ranges that are not held.

        Neighbours in the virtual file are none in the sources: what is read together is the reader's to decide.
        """
        inside = [ByteRange(s, min(n, self.size - s)) for s, n in ranges if 0 <= s < self.size and n > 0]
        caches = (self._metadata, self._ahead, self._demand)
        found = missing_ranges(coalesce(inside, gap=0, waste=0, limit=1 << 62), caches)
        most = min(_REQUEST, max(BLOCK, self.cache_bytes // 8))
        return spread(found, most)

    def _read_on_demand(self, start: int, stop: int) -> None:
        """Fetch in the calling thread; never more than the range of one source that ``start`` lies in."""
        segment = self._virtual.segment(start)
        assert segment is not None
        self.misses += 1
        begin, end = segment.start, segment.start + segment.length
        if segment.length > _WHOLE:
            begin = max(begin, start // BLOCK * BLOCK)
            length = self._blocks.windows.length(start, self._find)
            end = min(end, max(stop, begin + length))
            self._blocks.windows.ended(end, length)
        self._demand.add([(begin, self.reader.read_locked(begin, end - begin))])
