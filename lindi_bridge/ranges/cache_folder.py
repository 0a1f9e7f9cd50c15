"""What lies in the folder of the disk cache as a whole, and keeping it below a number of bytes."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple

from lindi_bridge.ranges.cache_segment import PART

__all__ = ["CachedFile", "cached_files", "evict", "insecure", "make_folders"]

_ABANDONED_AFTER = 3600.0
"""Seconds after which an incomplete file belongs to a process that died."""
_LOW_WATER = 0.9
"""Share of the bound that is left after an eviction, so that not every write evicts."""


class CachedFile(NamedTuple):
    """A file in the folder; ``used`` is when it was last used, in seconds since the epoch.

    That is its time of last access, which readers set. The time of last change of a complete file says something else;
    of what is still being written, it is the later of the two.
    """

    used: float
    nbytes: int
    path: str


def cached_files(root: str) -> Iterator[CachedFile]:
    """Every file of the cache, complete or not; files that are deleted meanwhile are left out."""
    for place in (os.path.join(root, name) for name in _names(root)):
        for state in (os.path.join(place, name) for name in _names(place)):
            for name in _names(state):
                path = os.path.join(state, name)
                try:
                    status = os.lstat(path)
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield CachedFile(max(status.st_atime, status.st_mtime), status.st_size, path)


def evict(root: str, limit: int, room: int) -> int:
    """Delete the files that were used least recently until there is room.

    Parameters
    ----------
    root : str
        Folder of the cache.
    limit : int
        Bytes that it may hold.
    room : int
        Bytes that are to be written next.

    Returns
    -------
    int
        Bytes that it holds now.
    """
    files = sorted(cached_files(root))
    held = sum(file.nbytes for file in files)
    too_old = time.time() - _ABANDONED_AFTER
    most = held if held + room <= limit else int(limit * _LOW_WATER) - room
    for used, nbytes, path in files:
        if held <= most and not (path.endswith(PART) and used < too_old):
            continue
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass  # another process was faster
        held -= nbytes
        _remove_if_empty(os.path.dirname(path))
    return held


def make_folders(root: str, *names: str) -> str:
    """Make the folder ``root/names...`` and those above it, as far as they are missing, for this user alone."""
    os.makedirs(os.path.dirname(root), mode=0o700, exist_ok=True)
    path = root
    for name in ("", *names):
        path = os.path.join(path, name) if name else path
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass  # as it mostly does; another process may make it at the same time
    return path


def insecure(root: str) -> str | None:
    """Say in words why the content of a folder cannot be trusted, or None: somebody else could have written it."""
    status = os.stat(root)
    if not stat.S_ISDIR(status.st_mode):
        return "it is no folder"
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        return "it belongs to another user"
    if os.name == "posix" and status.st_mode & 0o022:
        return "others may write into it"
    return None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove_if_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
        os.rmdir(os.path.dirname(folder))
    except OSError:
        pass  # not empty
