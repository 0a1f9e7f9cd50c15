"""The disk cache of fetched bytes: one folder, shared by all readers of all processes of a user.

Nothing here takes a lock or waits for another thread, so all of it may be called while h5py's lock is held; only
:meth:`DiskCache.tell` speaks, and it keeps silent then.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator

from lindi_bridge.ranges.cache_entry import CacheEntry
from lindi_bridge.ranges.cache_folder import evict, insecure, make_folders
from lindi_bridge.ranges.cache_segment import KEY_NBYTES, PAGE, cut, segment_nbytes, write_segment
from lindi_bridge.ranges.lock import h5py_lock_is_held

__all__ = ["DiskCache", "disk_cache"]

_logger = logging.getLogger(__name__)

_LAYOUT = "ranges-2"
"""Name of the folder inside the one that the user gives, with the number of its layout: what else lies there is never
looked at or deleted."""
_SEGMENT = 16 * 1024 * 1024


class DiskCache:
    """Ranges of remote files on the disk, at most so many bytes of them. Use :func:`disk_cache` to get one.

    Parameters
    ----------
    folder : str
        Made when something is written first.
    limit : int
        Bytes to hold; what was used least recently is deleted for what is new.
    """

    def __init__(self, folder: str, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self._root = os.path.join(folder, _LAYOUT)
        # What is evicted at one time should be a small part of the whole.
        self._segment_nbytes = max(PAGE, min(_SEGMENT, limit // 8))
        self._held: int | None = None
        self._written = 0
        self._checked = False
        self._refusal = ""
        self._told = False
        self.is_readable = True
        """False once it is known that the content of the folder cannot be trusted or read."""

    def __repr__(self) -> str:
        return f"<DiskCache {self.folder}, {self.limit} bytes at the most>"

    @property
    def root(self) -> str:
        """The folder inside the given one in which everything lies."""
        return self._root

    def entry(self, address: str, state: str) -> CacheEntry:
        """What is held of one state of one file, by the digests of :mod:`~lindi_bridge.ranges.cache_key`."""
        key = hashlib.blake2b(f"{address}/{state}".encode(), digest_size=KEY_NBYTES).digest()
        return CacheEntry(os.path.join(self._root, address, state), key)

    def holds(self, address: str) -> bool:
        """Tell whether there is anything of a file, in whatever state."""
        self._check()
        return self.is_readable and os.path.isdir(os.path.join(self._root, address))

    def write(self, entry: CacheEntry, ranges: Iterable[tuple[int, bytes]]) -> None:
        """Keep ranges (address in the remote file, bytes); once that has failed, do nothing any more."""
        if self._refusal:
            return
        self._check()
        for batch in self._batches(ranges):
            if self._refusal:
                return
            try:
                self._write(entry, batch)
            except OSError as problem:
                self._refusal = problem.strerror or type(problem).__name__

    def tell(self) -> None:
        """Warn, once, if the cache had to be given up; not while h5py's lock is held, when nothing may be logged."""
        if self._refusal and not self._told and not h5py_lock_is_held():
            self._told = True
            _logger.warning(
                "the disk cache in %s %s in this session: %s. Reading goes on without it; give a folder of your own "
                "with free space as cache_dir, or in LINDI_BRIDGE_CACHE",
                self.folder,
                "is not written to any more" if self.is_readable else "is not used",
                self._refusal,
            )

    def _check(self) -> None:
        """Look at the folder, the first time it is needed and there."""
        if self._checked:
            return
        try:
            reason = insecure(self._root)
        except FileNotFoundError:
            return
        except OSError as problem:
            reason = problem.strerror or type(problem).__name__
        self._checked = True
        if reason:
            self.is_readable = False
            self._refusal = reason

    def _batches(self, ranges: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, memoryview]]]:
        batch: list[tuple[int, memoryview]] = []
        nbytes = 0
        for start, data in ranges:
            for piece in cut(start, data):
                if batch and nbytes + len(piece[1]) > self._segment_nbytes:
                    yield batch
                    batch, nbytes = [], 0
                batch.append(piece)
                nbytes += len(piece[1])
        if batch:
            yield batch

    def _make_room(self, nbytes: int) -> bool:
        if nbytes > self.limit:
            return False
        # Other processes write as well, so the folder is counted again now and then.
        if self._held is None or self._held + nbytes > self.limit or self._written > self.limit // 16:
            self._held = evict(self._root, self.limit, nbytes)
            self._written = 0
        return self._held + nbytes <= self.limit

    def _write(self, entry: CacheEntry, batch: list[tuple[int, memoryview]]) -> None:
        nbytes = segment_nbytes(batch)
        if not self._make_room(nbytes):
            return
        try:
            write_segment(entry.folder, entry.key, batch)
        except FileNotFoundError:  # the first of this file, or an eviction has just left the folder empty
            make_folders(self._root, *os.path.relpath(entry.folder, self._root).split(os.sep))
            self._check()
            if self._refusal:
                return
            try:
                write_segment(entry.folder, entry.key, batch)
            except FileNotFoundError:
                return  # evicted again; it is fetched when it is read again
        self._held = (self._held or 0) + nbytes
        self._written += nbytes


_caches: dict[tuple[str, int], DiskCache] = {}


def disk_cache(folder: str | os.PathLike[str], limit: int) -> DiskCache:
    """The disk cache in a folder, one for all readers of the process.

    Parameters
    ----------
    folder : str or os.PathLike
        ``~`` is the user's home.
    limit : int
        Bytes that it may hold.
    """
    path = os.path.abspath(os.path.expanduser(os.fspath(folder)))
    return _caches.setdefault((path, limit), DiskCache(path, limit))
