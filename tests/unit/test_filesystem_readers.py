"""Readers of local files, memory, fsspec file systems and file objects."""

from __future__ import annotations

import gc
import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.registry import _registry, known_implementations

from lindi_bridge.errors import (
    MissingDependencyError,
    SourceChangedError,
    SourceError,
    SourceLockError,
    SourceNotFoundError,
    SourcePermissionError,
    UnsupportedSchemeError,
)
from lindi_bridge.ranges import (
    ByteRange,
    BytesReader,
    FileObjectReader,
    FsspecReader,
    LocalReader,
    RangeReader,
    ReaderOptions,
    SourceIdentity,
    open_reader,
)

DATA = bytes(range(256)) * 40


class SlowMemory(AsyncFileSystem):
    """An asynchronous file system: one file, served by fsspec's thread."""

    protocol = "slowmem"
    cachable = False

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        if path.endswith("missing"):
            raise FileNotFoundError(path)
        return {"name": path, "size": len(DATA), "type": "file", "ETag": '"tag"'}

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        data = DATA[start:end]
        return data[:-1] if path.endswith("short") else data

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        kwargs.pop("cache_options", None)
        return fsspec.spec.AbstractBufferedFile(self, path, mode, cache_type="none", size=len(DATA))


@pytest.fixture
def slow_memory() -> Iterator[None]:
    fsspec.register_implementation("slowmem", SlowMemory, clobber=True)
    yield
    _registry.pop("slowmem", None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "a b.h5"
    file.write_bytes(DATA)
    fsspec.filesystem("memory").pipe("/ranges/a.h5", DATA)
    return file


MAKERS: dict[str, Callable[[Path], RangeReader]] = {
    "local": lambda p: LocalReader(p),
    "path": lambda p: open_reader(p),
    "file url": lambda p: open_reader(p.as_uri()),
    "bytes": lambda p: open_reader(DATA),
    "memory": lambda p: open_reader("memory://ranges/a.h5"),
    "BytesIO": lambda p: open_reader(io.BytesIO(DATA)),
    "raw file": lambda p: FileObjectReader(open(p, "rb", buffering=0)),  # noqa: SIM115
    "OpenFile": lambda p: open_reader(fsspec.open(str(p), "rb")),
    "asynchronous": lambda p: FsspecReader("slowmem://a"),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.usefixtures("slow_memory")
def test_every_reader_reads_exactly(kind: str, path: Path) -> None:
    reader = MAKERS[kind](path)
    try:
        assert isinstance(reader, RangeReader)
        assert reader.identity().size == len(DATA)
        assert reader.read_head(100) == DATA[:100]
        assert reader.read_head(10**6) == DATA
        wanted = [ByteRange(5, 10), ByteRange(0, 0), ByteRange(len(DATA) - 3, 3), ByteRange(0, len(DATA))]
        assert reader.read_ranges(wanted) == [DATA[r.start : r.stop] for r in wanted]
        assert reader.read_ranges([]) == []
        assert reader.read_locked(7, 9) == DATA[7:16]
        with reader.lock_safe():
            assert reader.read_locked(0, 1) == DATA[:1]
        with pytest.raises(SourceError, match=f"has {len(DATA)}"):
            reader.read_ranges([ByteRange(len(DATA) - 3, 4)])
        with pytest.raises(SourceError, match=f"has {len(DATA)}"):
            reader.read_locked(len(DATA), 1)
        assert reader.statistics.waves == 5
        assert reader.statistics.nbytes >= 2 * len(DATA)
    finally:
        reader.close()
        reader.close()
        getattr(reader, "_file", io.BytesIO()).close()


def test_many_threads_share_a_reader(path: Path) -> None:
    for reader in (LocalReader(path), FsspecReader("memory://ranges/a.h5"), FileObjectReader(io.BytesIO(DATA))):
        wrong: list[int] = []

        def read(
            first: int, reader: LocalReader | FsspecReader | FileObjectReader = reader, wrong: list[int] = wrong
        ) -> None:
            for start in range(first, first + 500):
                if reader.read_locked(start, 50) != DATA[start : start + 50]:
                    wrong.append(start)

        threads = [threading.Thread(target=read, args=(n * 17,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        reader.close()


def test_local_errors(tmp_path: Path, path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match="no such file"):
        LocalReader(tmp_path / "missing.h5").identity()
    with pytest.raises(SourceNotFoundError):
        LocalReader(path / "below a file").identity()
    with pytest.raises(SourceError, match="folder"):
        LocalReader(tmp_path).identity()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="device"):
        LocalReader(tmp_path / "pipe").identity()
    with pytest.raises(SourceChangedError, match="size"):
        LocalReader(path, SourceIdentity(3)).identity()


def test_no_permission(path: Path) -> None:
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(SourcePermissionError, match="permission"):
        LocalReader(path).identity()


def test_permission_error_of_the_system_is_ours(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SourcePermissionError, match="permission"):
        LocalReader(path).identity()


def test_a_local_file_that_is_truncated_while_open(path: Path) -> None:
    reader = LocalReader(path)
    with path.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(SourceError, match="truncated"):
        reader.read_ranges([ByteRange(50, 100)])
    reader.close()
    with pytest.raises(SourceError, match="closed"):
        reader.read_locked(0, 1)


def test_fork_keeps_local_readers_usable(path: Path) -> None:
    reader = LocalReader(path)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:  # no test framework in the child
        os.write(theirs, reader.read_locked(3, 5))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(ours, 10) == DATA[3:8]
    os.close(ours)
    os.close(theirs)
    reader.close()


def test_bytes_reader_is_a_copy() -> None:
    data = bytearray(b"abc")
    reader = BytesReader(data, "https://host/a?sig=1")
    data[0] = 0
    assert reader.read_locked(0, 3) == b"abc"
    assert reader.url == "https://host/a"


@pytest.mark.usefixtures("slow_memory")
def test_fsspec_errors() -> None:
    with pytest.raises(SourceNotFoundError, match="no such file"):
        FsspecReader("memory://no/such/file").identity()
    with pytest.raises(SourceNotFoundError):
        FsspecReader("slowmem://missing").read_head(1)
    with pytest.raises(SourceError, match="bytes came"):
        FsspecReader("slowmem://short").read_ranges([ByteRange(0, 10)])
    with pytest.raises(SourceChangedError, match="ETag"):
        FsspecReader("slowmem://a", expected=SourceIdentity(len(DATA), '"other"')).read_ranges([ByteRange(0, 1)])
    with pytest.raises(UnsupportedSchemeError, match="nonsense"):
        FsspecReader("nonsense://a")
    fsspec.filesystem("memory").makedirs("/ranges/folder", exist_ok=True)
    with pytest.raises(SourceError, match="folder"):
        FsspecReader("memory://ranges/folder").identity()


def test_missing_package_is_named() -> None:
    fsspec.register_implementation("nopackage", "no_such_package.FileSystem", clobber=True, errtxt="install no_such")
    try:
        with pytest.raises(MissingDependencyError, match="no_such"):
            FsspecReader("nopackage://a")
    finally:
        known_implementations.pop("nopackage", None)


@pytest.mark.parametrize(
    "source",
    ["/etc/hostname", "file:///etc/hostname", "memory://a", "zip://a::https://host/b", "simplecache::s3://b/a"],
)
def test_strangers_may_name_only_network_addresses(source: str) -> None:
    with pytest.raises(UnsupportedSchemeError, match="over the network"):
        open_reader(source, ReaderOptions(restricted=True))


@pytest.mark.collects
@pytest.mark.usefixtures("slow_memory")
def test_asynchronous_files_under_h5py_lock() -> None:
    phil = pytest.importorskip("h5py")._objects.phil
    by_address = FsspecReader("slowmem://a")
    by_object = FileObjectReader(fsspec.filesystem("slowmem").open("a"))
    assert by_object.url == "slowmem://a"
    for reader in (by_address, by_object):
        assert reader.read_locked(0, 5) == DATA[:5]
        with phil, pytest.raises(SourceLockError, match="address"):
            reader.read_locked(0, 5)
        with reader.lock_safe():
            assert not gc.isenabled()
            with phil:
                assert reader.read_locked(5, 5) == DATA[5:10]
        assert gc.isenabled()
        with phil, pytest.raises(SourceLockError), reader.lock_safe():
            raise AssertionError("entered under the lock")
        reader.close()


def test_synchronous_file_objects_under_h5py_lock(path: Path) -> None:
    phil = pytest.importorskip("h5py")._objects.phil
    with path.open("rb") as file:
        reader = FileObjectReader(file)
        assert reader.url == str(path)
        with phil:
            assert reader.read_locked(5, 5) == DATA[5:10]
            assert reader.read_ranges([ByteRange(0, 2)]) == [DATA[:2]]
        reader.close()
        assert not file.closed, "it belongs to the user"


def test_file_objects_that_give_less_than_asked() -> None:
    class Dribble(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 0, 7))

    assert FileObjectReader(Dribble(DATA)).read_locked(3, 100) == DATA[3:103]

    class Liar(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return b""

    with pytest.raises(SourceError, match="bytes came"):
        FileObjectReader(Liar(DATA), "https://host/a?sig=1").read_locked(3, 100)


def test_not_a_binary_file_object() -> None:
    with pytest.raises(TypeError, match="binary"):
        FileObjectReader(io.StringIO("text"))
    with pytest.raises(TypeError, match="seek"):
        open_reader(5)


def test_a_file_is_closed_when_no_read_holds_it_any_more(tmp_path: Path) -> None:
    """Its descriptor's number may be another file's at once, whose bytes a read under way would then get."""
    (tmp_path / "a").write_bytes(b"right")
    (tmp_path / "b").write_bytes(b"wrong")
    reader = LocalReader(tmp_path / "a")
    assert reader.read_locked(0, 5) == b"right"
    held = reader._held()
    reader.close()
    with open(tmp_path / "b", "rb") as other:
        assert other.fileno() != held.number
        assert os.pread(held.number, 5, 0) == b"right"
    number = held.number
    del held
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    with pytest.raises(SourceError, match="closed"):
        reader.read_locked(0, 5)
