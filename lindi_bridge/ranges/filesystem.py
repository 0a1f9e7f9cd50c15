"""Bytes of local files, of memory, and of every other file system that fsspec knows."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any

from lindi_bridge.errors import (
    MissingDependencyError,
    SourceChangedError,
    SourceError,
    SourceLockError,
    SourceNotFoundError,
    SourcePermissionError,
    UnsupportedSchemeError,
)
from lindi_bridge.ranges.address import strip_secrets
from lindi_bridge.ranges.file_bytes import read_into
from lindi_bridge.ranges.identity import SourceIdentity
from lindi_bridge.ranges.lock import collection_paused, h5py_lock_is_held, refuse_under_lock
from lindi_bridge.ranges.reader import ByteRange, ReaderOptions, ReadStatistics, Tally, check_range

__all__ = ["BytesReader", "FsspecReader", "LocalReader", "check_expected", "check_length", "translate"]


def check_expected(expected: SourceIdentity | None, found: SourceIdentity, name: str) -> None:
    """Raise :class:`SourceChangedError` if ``found`` is certainly not the file that is ``expected``."""
    difference = None if expected is None else expected.differs(found)
    if difference:
        raise SourceChangedError(
            f"{name}: the file is not the one that was indexed: {difference}. Index it again, or give the address of "
            "the right file by source="
        )


def check_length(data: bytes, wanted: ByteRange, name: str) -> bytes:
    """Return ``data`` if it has exactly the length (bytes) of ``wanted``; a short read is an error."""
    if len(data) != wanted.length:
        raise SourceError(
            f"{name}: {len(data)} bytes came where bytes {wanted.start} to {wanted.stop} were read; the file was "
            "truncated while it was open, or what reads it is broken"
        )
    return data


def translate(problem: Exception, name: str) -> SourceError:
    """Make our error of one that the operating system or fsspec raised; its text is left out, it may hold secrets."""
    if isinstance(problem, SourceError):
        return problem
    if isinstance(problem, FileNotFoundError | NotADirectoryError):
        return SourceNotFoundError(f"{name}: there is no such file")
    if isinstance(problem, PermissionError):
        return SourcePermissionError(f"{name}: no permission to read it; check its mode, or give credentials")
    reason = getattr(problem, "strerror", None) or type(problem).__name__
    return SourceError(f"{name}: cannot be read ({reason})")


class _Descriptor:
    """An open file, closed when nobody holds this any more.

    Were it closed while another thread reads, its number might be that of another file by then.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class LocalReader:
    """A file of this machine, through one descriptor and ``pread``: safe in threads and after fork().

    Parameters
    ----------
    path : str or os.PathLike
        The file.
    expected : SourceIdentity, optional
        The file that it must be.
    """

    def __init__(self, path: str | os.PathLike[str], expected: SourceIdentity | None = None) -> None:
        self._path = os.fspath(path)
        self._expected = expected
        self._descriptor: _Descriptor | None = None
        self._closed = False
        self._identity: SourceIdentity | None = None
        self._tally = Tally()

    def _open(self) -> SourceIdentity:
        """Open the file at its first use: a document can be looked at while its source is away."""
        if self._closed:
            raise SourceError(f"{self._path}: this reader is closed")
        if self._identity is not None:
            return self._identity
        try:
            # Before opening: to open a pipe would wait for its writer.
            if not stat.S_ISREG(os.stat(self._path).st_mode):
                raise SourceError(f"{self._path}: not a file but a folder or a device")
            self._descriptor = _Descriptor(os.open(self._path, os.O_RDONLY | getattr(os, "O_BINARY", 0)))
            status = os.fstat(self._descriptor.number)
            changed = datetime.fromtimestamp(status.st_mtime, UTC).isoformat()
            identity = SourceIdentity(status.st_size, None, changed)
            check_expected(self._expected, identity, self._path)
        except OSError as problem:
            self._release()
            raise translate(problem, self._path) from None
        self._identity = identity
        return identity

    def __repr__(self) -> str:
        return f"<LocalReader {self._path}>"

    @property
    def url(self) -> str:
        """The path as it was given."""
        return self._path

    @property
    def statistics(self) -> ReadStatistics:
        """Number of reads and bytes so far."""
        return self._tally.total()

    def identity(self) -> SourceIdentity:
        """Size and time of last change when the file was opened."""
        return self._open()

    def read_head(self, length: int) -> bytes:
        """Read up to ``length`` first bytes."""
        return self.read_locked(0, min(length, self._open().size))

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Read all ranges one after the other, in the calling thread."""
        found = [self._read(ByteRange(*wanted)) for wanted in ranges]
        self._tally.add(waves=1 if ranges else 0)
        return found

    def read_locked(self, start: int, length: int) -> bytes:
        """Read one range in the calling thread."""
        found = self._read(ByteRange(start, length))
        self._tally.add(waves=1)
        return found

    def read_into(self, runs: Sequence[tuple[int, memoryview]]) -> bool:
        """Read ranges to where they are wanted, one after the other, in the calling thread.

        Parameters
        ----------
        runs : sequence of (int, memoryview)
            Addresses, and writable buffers of bytes.

        Returns
        -------
        bool
            Always true: they are filled, or an error was raised.
        """
        size, descriptor, nbytes = self._open().size, self._held(), 0
        for start, view in runs:
            length = len(view)
            if start < 0 or start + length > size:
                check_range(ByteRange(start, length), size, self._path)
            try:
                count = read_into(descriptor.number, view, start)
            except OSError as problem:
                raise translate(problem, self._path) from None
            if count < length:
                check_length(bytes(view[:count]), ByteRange(start, length), self._path)
            nbytes += count
        if runs:
            self._tally.add(requests=len(runs), waves=1, nbytes=nbytes)
        return True

    def lock_safe(self) -> AbstractContextManager[None]:
        """Do nothing: :meth:`read_locked` is always possible."""
        return nullcontext()

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._closed = True
        self._release()

    def _release(self) -> None:
        self._descriptor = None

    def _held(self) -> _Descriptor:
        """What a read holds while it lasts."""
        descriptor = self._descriptor
        if descriptor is None:
            raise SourceError(f"{self._path}: this reader is closed")
        return descriptor

    def _read(self, wanted: ByteRange) -> bytes:
        check_range(wanted, self._open().size, self._path)
        descriptor = self._held()
        pieces = []
        position = wanted.start
        try:
            # One pread gives at most 2 GiB on Linux, and may be interrupted.
            while position < wanted.stop and (piece := os.pread(descriptor.number, wanted.stop - position, position)):
                pieces.append(piece)
                position += len(piece)
        except OSError as problem:
            raise translate(problem, self._path) from None
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._tally.add(requests=1, nbytes=len(data))
        return check_length(data, wanted, self._path)


class BytesReader:
    """A file that is in memory already.

    Parameters
    ----------
    data : bytes, bytearray or memoryview
        All of the file; copied if it can be changed.
    url : str, optional
        Name for messages and documents.
    """

    def __init__(self, data: bytes | bytearray | memoryview, url: str = "") -> None:
        self._data = bytes(data)
        self._url = strip_secrets(url)
        self._tally = Tally()

    def __repr__(self) -> str:
        return f"<BytesReader {self._url or 'memory'}, {len(self._data)} bytes>"

    @property
    def url(self) -> str:
        """The name that was given; may be empty."""
        return self._url

    @property
    def statistics(self) -> ReadStatistics:
        """Number of reads and bytes so far."""
        return self._tally.total()

    def identity(self) -> SourceIdentity:
        """Size in bytes."""
        return SourceIdentity(len(self._data))

    def read_head(self, length: int) -> bytes:
        """Return up to ``length`` first bytes."""
        return self.read_locked(0, min(length, len(self._data)))

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Return all ranges."""
        found = [self._read(ByteRange(*wanted)) for wanted in ranges]
        self._tally.add(waves=1 if ranges else 0)
        return found

    def read_locked(self, start: int, length: int) -> bytes:
        """Return one range."""
        found = self._read(ByteRange(start, length))
        self._tally.add(waves=1)
        return found

    def lock_safe(self) -> AbstractContextManager[None]:
        """Do nothing: :meth:`read_locked` is always possible."""
        return nullcontext()

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _read(self, wanted: ByteRange) -> bytes:
        check_range(wanted, len(self._data), self._url or "bytes in memory")
        self._tally.add(requests=1, nbytes=wanted.length)
        return self._data[wanted.start : wanted.stop]


class FsspecReader:
    """A file of any fsspec file system: memory, sftp, github, chains with ``::``, ...

    Asynchronous file systems fetch the ranges of a wave concurrently, in fsspec's own thread; under h5py's lock they
    can be read only within :meth:`lock_safe`. The others are read one range after the other in the calling thread.

    Parameters
    ----------
    url : str
        Any address that ``fsspec.core.url_to_fs`` takes.
    options : ReaderOptions, optional
        ``storage_options`` for fsspec; the time limits are fsspec's own.
    expected : SourceIdentity, optional
        The file that it must be.
    """

    def __init__(self, url: str, options: ReaderOptions | None = None, expected: SourceIdentity | None = None) -> None:
        import fsspec  # type: ignore[import-untyped, unused-ignore]

        self._options = options or ReaderOptions()
        self._name = strip_secrets(url)
        if self._options.restricted:
            raise UnsupportedSchemeError(
                f"{self._name}: a document that came over the network may name only http(s), s3, gs and az addresses"
            )
        try:
            self._fs, self._path = fsspec.core.url_to_fs(url, **self._options.storage_options)
        except ImportError as problem:
            raise MissingDependencyError(f"{self._name}: fsspec needs a package for it: {problem}") from None
        except ValueError:
            known = ", ".join(("http", "https", "s3", "gs", "az", "abfs", "file"))
            raise UnsupportedSchemeError(f"{self._name}: neither {known} nor a scheme that fsspec knows") from None
        except Exception as problem:
            raise translate(problem, self._name) from None
        self._expected = expected
        self._found: SourceIdentity | None = None
        self._tally = Tally()
        self._safe = 0
        # Open handles by process: the position of an inherited one would be shared with the parent.
        self._idle: dict[int, list[Any]] = {}

    def __repr__(self) -> str:
        return f"<FsspecReader {self._name}>"

    @property
    def url(self) -> str:
        """The address without query string and credentials."""
        return self._name

    @property
    def statistics(self) -> ReadStatistics:
        """Number of reads and bytes so far."""
        return self._tally.total()

    def identity(self) -> SourceIdentity:
        """Size, and the tag and time if the file system tells them."""
        if self._found is None:
            self._refuse_waiting()
            try:
                info = self._fs.info(self._path)
            except Exception as problem:
                raise translate(problem, self._name) from None
            self._tally.add(requests=1)
            self._found = _identity_of(info, self._name)
        check_expected(self._expected, self._found, self._name)
        return self._found

    def read_head(self, length: int) -> bytes:
        """Read up to ``length`` first bytes."""
        return self.read_locked(0, min(length, self.identity().size))

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Read all ranges, concurrently if the file system is asynchronous."""
        size = self.identity().size
        for wanted in ranges:
            check_range(wanted, size, self._name)
        self._tally.add(waves=1 if ranges else 0)
        if not self._fs.async_impl:
            return [self._read_handle(ByteRange(*wanted)) for wanted in ranges]
        refuse_under_lock(self._name)
        asked = [wanted for wanted in ranges if wanted.length]
        found = iter(self._cat(asked) if asked else [])
        return [next(found) if wanted.length else b"" for wanted in ranges]

    def read_locked(self, start: int, length: int) -> bytes:
        """Read one range; see :class:`RangeReader` and :meth:`lock_safe`."""
        wanted = ByteRange(start, length)
        check_range(wanted, self.identity().size, self._name)
        self._tally.add(waves=1)
        if length == 0:
            return b""
        if not self._fs.async_impl:
            return self._read_handle(wanted)
        self._refuse_waiting()
        return self._cat([wanted])[0]

    @contextmanager
    def lock_safe(self) -> Iterator[None]:
        """Allow :meth:`read_locked` under h5py's lock for an asynchronous file system, by pausing collection."""
        if not self._fs.async_impl:
            yield
            return
        with collection_paused():
            self._safe += 1
            try:
                yield
            finally:
                self._safe -= 1

    def close(self) -> None:
        """Close the handles of this process. Idempotent."""
        for handle in self._idle.pop(os.getpid(), []):
            handle.close()

    def _refuse_waiting(self) -> None:
        if self._fs.async_impl and not self._safe and h5py_lock_is_held():
            raise SourceLockError(
                f"{self._name}: fsspec reads it in another thread, which must not be waited for while h5py's global "
                "lock is held. Use an http(s), s3, gs or az address, or copy the file to this machine"
            )

    def _cat(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        starts, stops = [r.start for r in ranges], [r.stop for r in ranges]
        try:
            found = self._fs.cat_ranges(
                [self._path] * len(ranges), starts, stops, on_error="return", batch_size=self._options.concurrency
            )
        except Exception as problem:
            raise translate(problem, self._name) from None
        self._tally.add(requests=len(ranges), nbytes=sum(len(f) for f in found if isinstance(f, bytes)))
        for data in found:
            if isinstance(data, Exception):
                raise translate(data, self._name) from None
        return [check_length(data, wanted, self._name) for data, wanted in zip(found, ranges, strict=True)]

    def _read_handle(self, wanted: ByteRange) -> bytes:
        handles = self._idle.setdefault(os.getpid(), [])
        try:
            try:
                handle = handles.pop()  # atomic: two threads never share a handle
            except IndexError:
                handle = self._fs.open(self._path, "rb", cache_type="none")
            handle.seek(wanted.start)
            data = bytes(handle.read(wanted.length))
        except Exception as problem:
            raise translate(problem, self._name) from None
        handles.append(handle)
        self._tally.add(requests=1, nbytes=len(data))
        return check_length(data, wanted, self._name)


def _identity_of(info: dict[str, Any], name: str) -> SourceIdentity:
    size = info.get("size")
    if info.get("type") == "directory":
        raise SourceError(f"{name}: not a file but a folder")
    if not isinstance(size, int):
        raise SourceError(f"{name}: its file system does not tell the size of the file")
    etag = next((info[k] for k in ("ETag", "etag") if isinstance(info.get(k), str)), None)
    changed = next((info[k] for k in ("LastModified", "last_modified", "mtime", "created") if info.get(k)), None)
    if isinstance(changed, int | float):
        changed = datetime.fromtimestamp(changed, UTC)
    return SourceIdentity(size, etag, changed.isoformat() if isinstance(changed, datetime) else changed)
