"""The file object under h5py: metadata and cached data from memory, the rest by range requests.

h5py calls ``seek`` and ``readinto`` while it holds its global lock ("phil"). Hence the rules here: ``readinto``
fills the whole buffer or raises (h5py ignores its return value), works in the calling thread, takes no Python
lock, and logs nothing. Fetching ahead (:meth:`HDF5File.ensure`) happens outside that lock and is a hint only:
what it missed is read on demand.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lindi_bridge.hdf5.damage import EndOfFileError
from lindi_bridge.hdf5.demand import BLOCK, Block, DemandBlocks
from lindi_bridge.hdf5.embedded import EmbeddedBytes
from lindi_bridge.hdf5.exit import close_at_exit
from lindi_bridge.hdf5.extents import ExtentCache, HeldBytes, missing_ranges
from lindi_bridge.hdf5.pairs import ChunkPairs
from lindi_bridge.hdf5.requests import requests_for
from lindi_bridge.hdf5.stream import ReadOnlyStream
from lindi_bridge.hdf5.under_way import UnderWay, without
from lindi_bridge.ranges import ByteRange, CachedReader, FileObjectReader, LocalReader, RangeReader, coalesce
from lindi_bridge.ranges.lock import h5py_lock_is_held

__all__ = ["HDF5File"]

_GAP = 64 * 1024
_REQUEST = 8 * 1024 * 1024
_LONG = 64 * 1024
"""Bytes. Pieces of a local file, or in the disk cache, from this length on are worth no copy in memory."""

Verify = Callable[[Callable[[Sequence[ByteRange]], list[bytes]]], None]


class HDF5File(ReadOnlyStream):
    """A read-only, seekable binary file over a remote HDF5 file.

    Parameters
    ----------
    reader : RangeReader
        Where bytes come from.
    address : str
        What the file is called in messages and as ``h5py.File.filename``; holds no secrets.
    metadata : iterable of (int, bytes), optional
        Pieces of the file (address, bytes) that are known already. They are never fetched and never dropped.
    values : iterable of (int, bytes), optional
        Further ones; see :class:`~lindi_bridge.hdf5.embedded.EmbeddedBytes`.
    size : int, optional
        Bytes of the file; asked from the reader if not given.
    cache_bytes : int
        Bytes of fetched data to hold in memory.
    verify : callable, optional
        Called once before the first bytes from the reader are used, with a function that reads ranges; raises
        if the source is not the file that it should be.
    pairs : ChunkPairs, optional
        Which chunks are read in turn; only with a :class:`~lindi_bridge.ranges.PairReader`.
    """

    def __init__(
        self,
        reader: RangeReader,
        *,
        address: str,
        metadata: Iterable[tuple[int, bytes | memoryview]] = (),
        values: Iterable[tuple[int, bytes | memoryview]] | None = None,
        size: int | None = None,
        cache_bytes: int = 256 * 1024 * 1024,
        verify: Verify | None = None,
        pairs: ChunkPairs | None = None,
    ) -> None:
        super().__init__(address, reader.identity().size if size is None else size)
        close_at_exit()
        self.reader = reader
        self.cache_bytes = cache_bytes
        self.misses = 0
        """Reads that nobody had fetched ahead; each costs a round trip."""
        self.properties: dict[str, Any] = {}
        """State of the layers above that lives as long as the open file (see ``client.file``)."""
        self._verify = verify
        # Where the last read found its bytes (address, end, bytes): libhdf5 reads contiguous rows one by one.
        self._recent: tuple[int, int, memoryview] = (0, 0, memoryview(b""))
        embedded = EmbeddedBytes(metadata, values, address)
        self._metadata: HeldBytes = embedded
        self._ahead = ExtentCache(cache_bytes)
        self._demand = ExtentCache(cache_bytes // 4)
        # Serialises ensure() only. readinto() never takes it.
        self._ahead_lock = threading.Lock()
        self._under_way = UnderWay()
        _open_files.add(self)
        self._blocks = DemandBlocks((embedded, self._ahead, self._demand), self.size, cache_bytes // 32)
        self._pairs = pairs
        self._recorder: list[tuple[int, int]] | None = None
        self._probed: Container[int] = ()

    def __repr__(self) -> str:
        return f"<HDF5File {self.address} ({self.size} bytes)>"

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer from the position on.

        Under h5py's lock the whole buffer is filled or an error raised; elsewhere it is cut at the end of the
        file, as for any file.

        Raises
        ------
        SourceError
            The bytes cannot be had, or lie after the end of the file.
        ValueError
            The file is closed.
        """
        self._refuse_closed()
        view = memoryview(buffer).cast("B")
        start, wanted = self._position, len(view)
        first, end, data = self._recent
        if first <= start and start + wanted <= end and self._recorder is None:
            view[:] = data[start - first : start - first + wanted]
            self._position = start + wanted
            return wanted
        if start + wanted > self.size:
            if h5py_lock_is_held():
                raise EndOfFileError(
                    f"{self.address}: bytes {start}-{start + wanted - 1} were asked for, the file has "
                    f"{self.size} bytes; the HDF5 file is truncated or damaged"
                )
            wanted = max(0, self.size - start)
            view = view[:wanted]
        if self._recorder is not None:
            self._recorder.append((start, wanted))
        done = 0
        while done < wanted:
            found = self._find(start + done)
            if found is None:
                if start in self._probed:
                    view[done:] = bytes(wanted - done)
                    break
                if wanted >= _LONG and self._read_straight(start + done, view[done:]):
                    break
                self._read_on_demand(start + done, start + wanted)
                continue
            length = min(len(found), wanted - done)
            view[done : done + length] = found[:length]
            self._recent = (start + done, start + done + len(found), found)
            done += length
        self._position = start + wanted
        return wanted

    def close(self) -> None:
        """Drop the cache and close the reader's connections."""
        was_closed = self.closed
        super().close()
        if not was_closed:
            self._under_way.close()
            self._release()

    def _release(self) -> None:
        self._ahead.clear()
        self._demand.clear()
        self._recent = (0, 0, memoryview(b""))
        self.reader.close()

    def _find(self, address: int) -> memoryview | None:
        for cache in (self._metadata, self._ahead, self._demand):
            found = cache.find(address)
            if found is not None:
                return found
        return None

    def _read_straight(self, start: int, view: memoryview) -> bool:
        """Fill what is left of a long buffer from the disk of this machine, if the bytes are there."""
        if not isinstance(self.reader, LocalReader | CachedReader):
            return False
        self._check_source(self._read_locked)
        return self.reader.read_into([(start, view)])

    def _read_locked(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        return [self.reader.read_locked(*r) for r in ranges]

    def _read_on_demand(self, start: int, stop: int) -> None:
        """Fetch a block that holds ``start`` in the calling thread. Sequential reading doubles the block."""
        self._check_source(self._read_locked)
        block = self._blocks.around(start, stop)
        if isinstance(self.reader, CachedReader) and not self.reader.holds(block.range):
            wanted = ByteRange(start, stop - start)
            if self.reader.holds(wanted):  # the rest of the block would have to be asked for
                self._demand.add([(start, self.reader.read_locked(*wanted))])
                return
        self.misses += 1
        self._blocks.windows.ended(block.stop, block.window)
        if self._pairs is not None:
            until = block.stop if block.window > BLOCK else start  # the end of the block if it is read on and on
            other = self._pairs.beside(self, start, until, self._demand.is_unread)
            beside = None if other is None else self._blocks.beside(other, block)
            if beside is not None:
                self._read_both(block, beside, self.reader, self._pairs)
                return
        self._demand.add([(block.begin, self.reader.read_locked(block.begin, block.length))])

    def _read_both(self, block: Block, beside: Block, reader: Any, pairs: ChunkPairs) -> None:
        data, [along] = reader.read_locked_beside(block.range, [beside.range])
        self._demand.add([(block.begin, data)])
        if along:
            self._blocks.windows.ended(beside.stop, beside.window)
            self._demand.add([(beside.begin, along)])
            pairs.came(block.start, beside.start)
        elif along is None:
            pairs.failed()

    def _check_source(self, read: Callable[[Sequence[ByteRange]], list[bytes]]) -> None:
        verify = self._verify
        if verify is not None:
            verify(read)
            self._verify = None

    def find(self, address: int) -> memoryview | None:
        """The bytes in memory from ``address`` on, as far as they lie in one piece; None if it is not in memory."""
        first, end, data = self._recent
        return data[address - first :] if first <= address < end else self._find(address)

    @property
    def has_fetched_ahead(self) -> bool:
        """Whether anything is in memory that was fetched before it was read."""
        return self._ahead.nbytes > 0

    def is_embedded(self, address: int) -> bool:
        """Whether a byte was known when the file was opened, so that the source is not needed for it."""
        return self._metadata.find(address) is not None

    @property
    def is_local(self) -> bool:
        """Whether the bytes come from a file of this machine, so that nothing is gained by fetching them ahead."""
        return isinstance(self.reader, LocalReader)

    def is_straight(self, wanted: ByteRange) -> bool:
        """Whether bytes that libhdf5 reads in one piece go from the disk to where it wants them, past the memory."""
        if wanted.length < _LONG:
            return False
        if self.is_local:
            return True
        # Under h5py's lock a source would be compared by few samples, one after the other.
        return self._verify is None and isinstance(self.reader, CachedReader) and self.reader.holds(wanted)

    def read_into(self, runs: Sequence[tuple[int, memoryview]]) -> bool:
        """Fill buffers of bytes from a file or a cache on this machine, past the memory.

        Parameters
        ----------
        runs : sequence of (int, memoryview)
            Addresses, and where the bytes from there on go.

        Returns
        -------
        bool
            False if they have to be fetched, or libhdf5 has to be asked; then the buffers hold anything.
        """
        if h5py_lock_is_held() or not isinstance(self.reader, LocalReader | CachedReader):
            return False
        for start, view in runs:
            if start + len(view) > self.size:
                return False
        self._check_source(self.reader.read_ranges)
        return self.reader.read_into(runs)

    def holds(self, wanted: ByteRange) -> bool:
        """Whether all bytes of a range are in memory."""
        start, stop = wanted.start, wanted.stop
        first, end, _ = self._recent
        if first <= start and stop <= end:
            return True
        while start < stop:
            found = self._find(start)
            if found is None:
                return False
            start += len(found)
        return True

    def held(self, start: int, length: int) -> bytes:
        """The bytes from ``start`` on that are in memory without a gap, ``length`` at the most."""
        pieces: list[memoryview] = []
        stop = start + length
        while start < stop and (found := self._find(start)) is not None:
            pieces.append(found[: stop - start])
            start += len(pieces[-1])
        return b"".join(pieces)

    def missing(
        self,
        ranges: Iterable[ByteRange],
        *,
        page: int = 1,
        gap: int = _GAP,
        waste: float = 0.05,
        crowd: int = 1 << 62,
    ) -> list[ByteRange]:
        """The requests that bring what is not in memory yet.

        Parameters
        ----------
        ranges : iterable of ByteRange
            What will be read. What lies outside the file is left out.
        page : int
            Bytes. Ranges are rounded to multiples of this.
        gap, waste, crowd
            See :func:`~lindi_bridge.hdf5.requests.requests_for`.
        """
        inside = [
            ByteRange(begin := s // page * page, min(-(-(s + n) // page) * page, self.size) - begin)
            for s, n in ranges
            if 0 <= s < self.size and n > 0
        ]
        caches = (self._metadata, self._ahead, self._demand)
        missing = missing_ranges(coalesce(inside, gap=0, waste=0, limit=1 << 62), caches)
        # Pieces of a small cache must be small, or dropping one drops too much.
        most = min(_REQUEST, max(BLOCK, self.cache_bytes // 8))
        return requests_for(missing, gap=gap, waste=waste, crowd=crowd, most=most)

    def fetch(self, requests: Sequence[ByteRange]) -> None:
        """Make requests in one concurrent wave and keep the answers; does nothing while h5py's lock is held."""
        if not requests or h5py_lock_is_held():
            return
        self._check_source(self.reader.read_ranges)
        answers = self.reader.read_ranges(requests)
        with self._ahead_lock:
            self._ahead.add((r.start, data) for r, data in zip(requests, answers, strict=True))
        if self.closed:  # while they were on their way
            self._release()

    def ensure(self, ranges: Iterable[ByteRange]) -> None:
        """Fetch ranges ahead, in one concurrent wave; a hint that is ignored while h5py's lock is held.

        Parameters
        ----------
        ranges : iterable of ByteRange
            What will be read. Parts that are held already are not asked for; what lies outside the file is left out.
            Parts that are under way (:meth:`fetch_later`) are waited for, and asked for if they do not come.
        """
        if h5py_lock_is_held():
            return
        wanted = list(ranges)
        try:
            under_way = self._under_way.overlapping(wanted)
            if under_way:
                self.fetch(self.missing(without(wanted, [r for fetch in under_way for r in fetch.requests])))
                self._under_way.wait(under_way)
            self.fetch(self.missing(wanted))
        except KeyboardInterrupt:
            self.abandon()
            raise

    def fetch_later(self, ranges: Iterable[ByteRange]) -> None:
        """Begin to fetch ranges in another thread; a hint that is ignored while h5py's lock is held.

        Its errors are those of whoever reads the ranges: :meth:`ensure` asks for them again.

        Parameters
        ----------
        ranges : iterable of ByteRange
            What will be read after that which is read now.
        """
        # A file object has one position, and is read in one thread at a time anyway.
        if not h5py_lock_is_held() and not self.closed and not isinstance(self.reader, FileObjectReader):
            self._under_way.begin(ranges, self.missing, self.fetch)

    def abandon(self) -> None:
        """End what :meth:`fetch_later` has begun as soon as possible. Waits for nothing."""
        self._under_way.abandon()

    @contextmanager
    def record(self) -> Iterator[list[tuple[int, int]]]:
        """Note what is read, (address, length) in order. An inner recorder takes the place of an outer one."""
        outer, self._recorder = self._recorder, []
        try:
            yield self._recorder
        finally:
            self._recorder = outer

    @contextmanager
    def probe(self, data: Container[int]) -> Iterator[list[tuple[int, int]]]:
        """Record what is read, and answer reads of raw data with zeros instead of fetching them.

        Tells where libhdf5 goes for a chunk, at no cost. The caller holds h5py's lock all the while.

        Parameters
        ----------
        data : container of int
            Addresses of raw data.
        """
        self._probed = data
        try:
            with self.record() as recorder:
                yield recorder
        finally:
            self._probed = ()

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Read ranges, those that are not in memory fetched in one wave."""
        self.ensure(ranges)
        out = []
        for start, length in ranges:
            self.seek(start)
            out.append(self.read(length))
        return out


_open_files: weakref.WeakSet[HDF5File] = weakref.WeakSet()


def _renew_locks() -> None:
    """Give a forked child locks that no thread of its parent holds."""
    for file in list(_open_files):
        file._ahead_lock = threading.Lock()
        file._under_way = UnderWay()  # the parent's threads are not here


os.register_at_fork(after_in_child=_renew_locks)
