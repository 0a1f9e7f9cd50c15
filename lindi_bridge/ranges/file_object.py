"""Bytes of a file object that the user opened: ``remfile.File``, fsspec's files, ``io.BytesIO``, ``open(.., "rb")``."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Any

from lindi_bridge.errors import SourceLockError
from lindi_bridge.ranges.address import strip_secrets
from lindi_bridge.ranges.filesystem import check_expected, check_length, translate
from lindi_bridge.ranges.identity import SourceIdentity
from lindi_bridge.ranges.lock import collection_paused, exclusive, h5py_lock_is_held
from lindi_bridge.ranges.reader import ByteRange, ReadStatistics, Tally, check_range

__all__ = ["FileObjectReader"]


class FileObjectReader:
    """An open binary file object, read by ``seek`` and ``read`` in the calling thread.

    Its position is moved, and it is not closed unless this reader opened it (an fsspec ``OpenFile``). Ranges are read
    one after the other: a file object has one position.

    Parameters
    ----------
    fileobj : file object or fsspec ``OpenFile``
        Must be seekable and give bytes.
    url : str, optional
        Address for messages and documents. Without it, it is guessed from the object (fsspec files, real files), or
        left empty.
    expected : SourceIdentity, optional
        The file that it must be.
    """

    def __init__(self, fileobj: Any, url: str | None = None, expected: SourceIdentity | None = None) -> None:
        self._owned = not hasattr(fileobj, "read") and hasattr(fileobj, "open")
        if not self._owned and not (hasattr(fileobj, "read") and hasattr(fileobj, "seek")):
            raise TypeError(f"a binary file object with seek() and read() is needed, not {type(fileobj).__name__}")
        if isinstance(fileobj, io.TextIOBase):
            raise TypeError("the file object gives text; open the file in binary mode ('rb')")
        self._url = strip_secrets(url if url is not None else _guess_url(fileobj))
        self._name = self._url or f"the given {type(fileobj).__name__}"
        self._asynchronous = bool(getattr(getattr(fileobj, "fs", None), "async_impl", False))
        self._own_lock = Lock()
        self._safe = 0
        self._tally = Tally()
        self._refuse_waiting()
        try:
            self._file: Any = fileobj.open() if self._owned else fileobj
            with self._alone():
                self._file.seek(0, os.SEEK_END)
                self._identity = SourceIdentity(int(self._file.tell()))
        except Exception as problem:
            raise translate(problem, self._name) from None
        check_expected(expected, self._identity, self._name)

    def __repr__(self) -> str:
        return f"<FileObjectReader {self._name}>"

    @property
    def url(self) -> str:
        """The address that was given or guessed, without query string; empty if there is none."""
        return self._url

    @property
    def statistics(self) -> ReadStatistics:
        """Number of reads and bytes so far; what the object itself fetches is not known."""
        return self._tally.total()

    def identity(self) -> SourceIdentity:
        """Size in bytes."""
        return self._identity

    def read_head(self, length: int) -> bytes:
        """Read up to ``length`` first bytes."""
        return self.read_locked(0, min(length, self._identity.size))

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Read all ranges one after the other, in the calling thread."""
        found = [self._read(ByteRange(*wanted)) for wanted in ranges]
        self._tally.add(waves=1 if ranges else 0)
        return found

    def read_locked(self, start: int, length: int) -> bytes:
        """Read one range in the calling thread; see :meth:`lock_safe` for files of asynchronous file systems."""
        found = self._read(ByteRange(start, length))
        self._tally.add(waves=1)
        return found

    @contextmanager
    def lock_safe(self) -> Iterator[None]:
        """Allow reads under h5py's lock for a file of an asynchronous fsspec file system, by pausing collection."""
        if not self._asynchronous:
            yield
            return
        with collection_paused():
            self._safe += 1
            try:
                yield
            finally:
                self._safe -= 1

    def close(self) -> None:
        """Close the file if this reader opened it. Idempotent."""
        if self._owned:
            self._file.close()

    def _alone(self) -> AbstractContextManager[Any]:
        # h5py's lock must not be held while fsspec's thread is waited for, so files of asynchronous file systems have
        # a lock of their own. It is taken under h5py's lock only while collection is paused, and then cannot hang.
        return self._own_lock if self._asynchronous else exclusive()

    def _refuse_waiting(self) -> None:
        if self._asynchronous and not self._safe and h5py_lock_is_held():
            raise SourceLockError(
                f"{self._name}: fsspec reads it in another thread, which must not be waited for while h5py's global "
                "lock is held. Give the address instead of the file object"
            )

    def _read(self, wanted: ByteRange) -> bytes:
        check_range(wanted, self._identity.size, self._name)
        self._refuse_waiting()
        pieces = []
        position = wanted.start
        try:
            with self._alone():
                self._file.seek(position)
                # Raw files and sockets may give less than asked for without being at their end.
                while position < wanted.stop and (piece := self._file.read(wanted.stop - position)):
                    pieces.append(bytes(piece))
                    position += len(piece)
        except Exception as problem:
            raise translate(problem, self._name) from None
        data = b"".join(pieces)
        self._tally.add(requests=1, nbytes=len(data))
        return check_length(data, wanted, self._name)


def _guess_url(fileobj: Any) -> str:
    fs, path = getattr(fileobj, "fs", None), getattr(fileobj, "path", None)
    if fs is not None and isinstance(path, str) and hasattr(fs, "unstrip_protocol"):
        return str(fs.unstrip_protocol(path))
    name = getattr(fileobj, "name", None)
    return os.fspath(name) if isinstance(name, str | os.PathLike) else ""
