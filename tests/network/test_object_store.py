"""Objects of a real S3 server (SeaweedFS), by obstore and by presigned addresses over HTTP."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from servers.range_server import RangeServer
from servers.seaweed import Seaweed

from lindi_bridge.errors import (
    SourceChangedError,
    SourceError,
    SourceLockError,
    SourceNotFoundError,
    SourcePermissionError,
    SourceTimeoutError,
    UnsupportedSchemeError,
)
from lindi_bridge.ranges import (
    ByteRange,
    HttpReader,
    ObjectStoreReader,
    RangeReader,
    ReaderOptions,
    SourceIdentity,
    object_store_pool,
    open_reader,
)
from lindi_bridge.ranges.object_store_config import configuration, store_address

obstore = pytest.importorskip("obstore")

DATA = random.Random(2).randbytes(200_000)
KEY = "folder/a b ü %?#.h5"
SECRET = "s3cr3t"


def options(storage: dict[str, Any], **changes: Any) -> ReaderOptions:
    """Short times."""
    given = {"connect_timeout": 2.0, "read_timeout": 5.0, "total_timeout": 10.0, "retries": 1, **changes}
    return ReaderOptions(storage_options=storage, **given)


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of whoever runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def reader(seaweed: Seaweed) -> Iterator[ObjectStoreReader]:
    reader = ObjectStoreReader(seaweed.put("priv", KEY, DATA), options(seaweed.signed))
    yield reader
    reader.close()


@pytest.mark.parametrize("bucket", ["pub", "priv"])
def test_reading(seaweed: Seaweed, bucket: str) -> None:
    storage = seaweed.anonymous if bucket == "pub" else seaweed.signed
    url = seaweed.put(bucket, KEY, DATA)
    reader = open_reader(url, options(storage))
    assert isinstance(reader, ObjectStoreReader)
    assert isinstance(reader, RangeReader)
    assert reader.url == url
    assert reader.read_head(100) == DATA[:100]
    assert reader.read_head(10**6) == DATA
    identity = reader.identity()
    assert identity.size == len(DATA)
    assert identity.strong_etag
    wanted = [ByteRange(start, 100) for start in range(0, 100_000, 1000)] + [ByteRange(7, 0)]
    assert reader.read_ranges(wanted) == [DATA[r.start : r.stop] for r in wanted]
    assert reader.read_locked(100, 50) == DATA[100:150]
    assert (reader.statistics.requests, reader.statistics.waves) == (103, 4)
    with pytest.raises(SourceError, match="has 200000"):
        reader.read_locked(len(DATA) - 5, 10)
    fresh = open_reader(url, options(storage))
    with pytest.raises(SourceError, match="has 200000"):
        fresh.read_locked(len(DATA) - 5, 10)
    with pytest.raises(SourceError):
        fresh.read_ranges([ByteRange(len(DATA) + 5, 10)])
    reader.close()
    reader.close()
    fresh.close()


def test_obstore_names_and_client_kwargs(seaweed: Seaweed) -> None:
    url = seaweed.put("priv", "a", DATA)
    native = {
        "aws_access_key_id": seaweed.signed["key"],
        "aws_secret_access_key": seaweed.signed["secret"],
        "endpoint": seaweed.endpoint,
        "region": "us-east-1",
    }
    fsspec = {
        "key": seaweed.signed["key"],
        "secret": seaweed.signed["secret"],
        "client_kwargs": {"endpoint_url": seaweed.endpoint, "region_name": "us-east-1"},
    }
    for storage in (native, fsspec):
        assert ObjectStoreReader(url, options(storage)).read_locked(3, 3) == DATA[3:6]


def test_without_settings_requests_are_anonymous(seaweed: Seaweed) -> None:
    endpoint = {"endpoint_url": seaweed.endpoint}
    assert ObjectStoreReader(seaweed.put("pub", "a", DATA), options(endpoint)).read_locked(3, 3) == DATA[3:6]
    private = ObjectStoreReader(seaweed.put("priv", "a", DATA), options(endpoint))
    with pytest.raises(SourcePermissionError, match=r"anonymously.*storage_options.*AWS_ACCESS_KEY_ID"):
        private.identity()


def test_credentials_of_the_environment(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url = seaweed.put("priv", "a", DATA)
    endpoint = {"endpoint_url": seaweed.endpoint}
    folder = tmp_path / ".aws"
    folder.mkdir()
    key, secret = seaweed.signed["key"], seaweed.signed["secret"]
    (folder / "credentials").write_text(f"[work]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    with pytest.raises(SourcePermissionError):
        ObjectStoreReader(url, options(endpoint)).identity()
    assert ObjectStoreReader(url, options({**endpoint, "profile": "work"})).read_locked(3, 3) == DATA[3:6]
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert ObjectStoreReader(url, options(endpoint)).read_locked(3, 3) == DATA[3:6]
    with pytest.raises(SourcePermissionError, match="anonymously"):
        ObjectStoreReader(url, options(endpoint, restricted=True)).identity()
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    assert ObjectStoreReader(url, options(endpoint)).read_locked(3, 3) == DATA[3:6]
    with pytest.raises(SourcePermissionError, match="anonymously"):
        ObjectStoreReader(url, options(endpoint, restricted=True)).identity()


@pytest.mark.parametrize("change", [{"secret": SECRET}, {"key": SECRET}])
def test_wrong_credentials(seaweed: Seaweed, change: dict[str, str]) -> None:
    reader = ObjectStoreReader(seaweed.put("priv", "a", DATA), options({**seaweed.signed, **change}))
    for read in (reader.identity, lambda: reader.read_ranges([ByteRange(0, 5)])):
        with pytest.raises(SourcePermissionError, match=r"refused: check.*'anon': True") as caught:
            read()
        assert SECRET not in str(caught.value) + repr(reader)
        assert caught.value.__suppress_context__


def test_unknown_storage_option(seaweed: Seaweed) -> None:
    with pytest.raises(SourceError, match="bogus") as caught:
        ObjectStoreReader("s3://priv/a", options({**seaweed.signed, "bogus": SECRET}))
    assert SECRET not in str(caught.value)
    assert seaweed.signed["secret"] not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://priv/missing", "s3://no-such-bucket/a"])
def test_missing_object(seaweed: Seaweed, url: str) -> None:
    reader = ObjectStoreReader(url, options(seaweed.signed))
    with pytest.raises(SourceNotFoundError, match="no such object"):
        reader.read_locked(0, 5)
    with pytest.raises(SourceNotFoundError, match="no such object"):
        reader.read_head(5)


def test_no_object_in_the_address() -> None:
    for url in ("s3://bucket", "gs://bucket/"):
        with pytest.raises(UnsupportedSchemeError, match="bucket/key"):
            ObjectStoreReader(url)


def test_empty_object(seaweed: Seaweed) -> None:
    reader = ObjectStoreReader(seaweed.put("priv", "empty", b""), options(seaweed.signed))
    assert reader.read_head(10) == b""
    assert reader.identity().size == 0


def test_a_changed_object(seaweed: Seaweed, reader: ObjectStoreReader) -> None:
    identity = reader.identity()
    same = ObjectStoreReader(reader.url, options(seaweed.signed), identity)
    assert same.read_locked(3, 3) == DATA[3:6]
    seaweed.put("priv", KEY, DATA[::-1])
    with pytest.raises(SourceChangedError, match="ETag"):
        same.read_locked(3, 3)
    with pytest.raises(SourceChangedError, match="changed while it was read"):
        reader.read_ranges([ByteRange(3, 3)])
    shorter = ObjectStoreReader(reader.url, options(seaweed.signed), SourceIdentity(100))
    with pytest.raises(SourceChangedError, match="size"):
        shorter.read_head(5)


def test_under_h5py_lock(reader: ObjectStoreReader) -> None:
    phil = pytest.importorskip("h5py")._objects.phil
    with phil:
        assert reader.read_locked(5, 5) == DATA[5:10]
        with pytest.raises(SourceLockError, match="visititems"):
            reader.read_ranges([ByteRange(0, 5)])


def test_fork_raises_at_once(seaweed: Seaweed) -> None:
    code = f"""
import os, sys
from lindi_bridge.errors import SourceError
from lindi_bridge.ranges import ByteRange, ObjectStoreReader, ReaderOptions
reader = ObjectStoreReader({seaweed.put("priv", "a", DATA)!r}, ReaderOptions(storage_options={seaweed.signed!r}))
assert len(reader.read_locked(0, 5)) == 5
child = os.fork()
if child == 0:
    for read in (lambda: reader.read_locked(0, 5), lambda: reader.read_ranges([ByteRange(0, 5)]), reader.identity):
        try:
            read()
        except SourceError as problem:
            assert "spawn" in str(problem) and "forkserver" in str(problem)
        else:
            assert read == reader.identity  # known already
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.strip() == "0"


# -- connections ------------------------------------------------------------------------------------------------------


def test_objects_of_one_bucket_share_connections(server: RangeServer) -> None:
    storage = {"anon": True, "endpoint_url": f"http://127.0.0.1:{server.port}"}
    for name in "abc":
        server.add(f"bucket/{name}", DATA)
    first, second = (ObjectStoreReader(f"s3://bucket/{name}", options(storage)) for name in "ab")
    assert first.read_locked(0, 10) == second.read_locked(0, 10) == DATA[:10]
    assert server.connections == 1
    first.close()
    assert second.read_locked(10, 10) == DATA[10:20]
    assert server.connections == 1
    other = ObjectStoreReader("s3://bucket/c", options({**storage, "key": "k", "secret": SECRET}))
    assert other.read_locked(0, 10) == DATA[:10]
    assert server.connections == 2, "with other credentials it is another store"
    other.close()
    second.close()
    gc.collect()
    assert not list(object_store_pool._stores.values())


def store_of(**storage: Any) -> Any:
    return ObjectStoreReader("s3://bucket/a", options(storage))._access._store


def test_a_store_is_shared_only_where_the_environment_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = [store_of()]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
    for name, value in (
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_SECRET_ACCESS_KEY", "other"),
        ("AWS_ACCESS_KEY_ID", "two"),
        ("https_proxy", "http://127.0.0.1:9"),
    ):
        monkeypatch.setenv(name, value)
        stores.append(store_of())
        assert store_of() is stores[-1]
    assert len({id(store) for store in stores}) == len(stores)


def test_a_secret_that_hides_in_its_repr_is_told_from_others() -> None:
    class Hidden(str):
        __slots__ = ()

        def __repr__(self) -> str:
            return "***"

    one, other = (store_of(key="k", secret=Hidden(secret)) for secret in (SECRET, "other"))
    assert one is not other
    assert one is store_of(key="k", secret=SECRET)


def test_a_store_is_not_shared_after_its_file_of_credentials_was_written_anew(tmp_path: Path) -> None:
    made: list[object] = []

    class Store:
        pass

    def make() -> Store:
        made.append(None)
        return Store()

    path = tmp_path / "key.json"
    path.write_text("{}")
    first = object_store_pool.shared_store(["gs", "bucket", {"application_credentials": str(path)}], make)
    assert object_store_pool.shared_store(["gs", "bucket", {"application_credentials": str(path)}], make) is first
    path.write_text('{"renewed": 1}')
    assert object_store_pool.shared_store(["gs", "bucket", {"application_credentials": str(path)}], make) is not first
    unknown = [["gs", object()], make]
    assert object_store_pool.shared_store(*unknown) is not object_store_pool.shared_store(*unknown)


# -- ranges beside another --------------------------------------------------------------------------------------------

BESIDE = ByteRange(3, 60_000), [ByteRange(100_000, 50_000), ByteRange(90_000, 10)]
NEEDED = DATA[3:60_003]
ALONG = [DATA[100_000:150_000], DATA[90_000:90_010]]


@pytest.fixture
def store(server: RangeServer) -> Iterator[ObjectStoreReader]:
    """An object that is served by our own server, so that requests are seen."""
    server.add("bucket/a", DATA)
    reader = ObjectStoreReader(
        "s3://bucket/a", options({"anon": True, "endpoint_url": f"http://127.0.0.1:{server.port}"})
    )
    yield reader
    reader.close()


@pytest.mark.parametrize("concurrency", [1, 2])
def test_no_more_at_one_time_than_was_asked_for(server: RangeServer, concurrency: int) -> None:
    storage = {"anon": True, "endpoint_url": f"http://127.0.0.1:{server.port}"}
    server.add("bucket/a", DATA)
    reader = ObjectStoreReader("s3://bucket/a", options(storage, concurrency=concurrency))
    along = [ALONG[0], b""] if concurrency > 1 else [b"", b""]
    assert reader.read_locked_beside(*BESIDE) == (NEEDED, along)
    assert server.requests == concurrency
    reader.close()


def test_ranges_beside_another(server: RangeServer, store: ObjectStoreReader) -> None:
    phil = pytest.importorskip("h5py")._objects.phil
    for _ in range(3):
        server.reset()
        before = store.statistics
        server.group = 3
        with phil:
            assert store.read_locked_beside(*BESIDE) == (NEEDED, ALONG)
        server.group = 1
        now = store.statistics
        assert (server.requests, server.waves()) == (3, 1)
        assert (now.requests - before.requests, now.waves - before.waves) == (3, 1)
        assert now.nbytes - before.nbytes == 110_010


def test_ranges_beside_another_are_checked(store: ObjectStoreReader) -> None:
    assert store.read_locked(0, 10) == DATA[:10]
    with pytest.raises(SourceError):
        store.read_locked_beside(ByteRange(0, 10), [ByteRange(len(DATA) - 5, 10)])
    with pytest.raises(ValueError, match="no byte range"):
        store.read_locked_beside(ByteRange(0, 10), [ByteRange(-1, 10)])
    assert store.read_locked_beside(ByteRange(0, 0), [ByteRange(5, 5)]) == (b"", [b""])
    assert store.read_locked_beside(ByteRange(0, 3), [ByteRange(5, 0)]) == (DATA[:3], [b""])


def test_what_comes_beside_is_of_the_same_object(server: RangeServer, store: ObjectStoreReader) -> None:
    assert store.read_locked(0, 10) == DATA[:10]
    server.resources["bucket/a"].fault = "changed"
    server.resources["bucket/a"].after = server.resources["bucket/a"].seen
    with pytest.raises(SourceChangedError):
        store.read_locked_beside(*BESIDE)


def test_what_goes_wrong_beside_another_is_passed_over(
    store: ObjectStoreReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = store._read

    def fail(wanted: ByteRange, **how: Any) -> bytes:
        if wanted == BESIDE[1][0]:
            raise SourceError("gone")
        return read(wanted, **how)

    monkeypatch.setattr(store, "_read", fail)
    assert store.read_locked_beside(*BESIDE) == (NEEDED, [None, ALONG[1]])
    monkeypatch.setattr(store, "_read", read)
    assert store.read_locked_beside(*BESIDE) == (NEEDED, ALONG)

    def no_thread(*args: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("lindi_bridge.ranges.aside._thread.start_new_thread", no_thread)
    assert store.read_locked_beside(*BESIDE) == (NEEDED, [b"", b""])


def test_what_comes_late_beside_another_is_not_waited_for(
    store: ObjectStoreReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lindi_bridge.ranges.deadline.LEAST_PATIENCE", 0.05)
    read, late, ended = store._read, threading.Event(), threading.Event()

    def slow(wanted: ByteRange, **how: Any) -> bytes:
        if wanted == BESIDE[1][1]:
            late.wait()
            ended.set()
        return read(wanted, **how)

    monkeypatch.setattr(store, "_read", slow)
    assert store.read_locked_beside(*BESIDE) == (NEEDED, [ALONG[0], None])
    late.set()
    assert ended.wait(10)


def test_a_collection_in_the_thread_beside_does_not_hang(
    store: ObjectStoreReader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It frees an object of h5py, which needs the lock that the reader holds."""
    h5py = pytest.importorskip("h5py")
    monkeypatch.setattr("lindi_bridge.ranges.deadline.LEAST_PATIENCE", 0.05)
    read, collected = store._read, threading.Event()

    def collect(wanted: ByteRange, **how: Any) -> bytes:
        if wanted == BESIDE[1][0]:
            gc.collect()
            collected.set()
        return read(wanted, **how)

    monkeypatch.setattr(store, "_read", collect)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = 1
        gc.collect()
        garbage = [file["a"].id]
        garbage.append(garbage)
        with h5py._objects.phil:
            del garbage
            assert store.read_locked_beside(*BESIDE) == (NEEDED, [None, ALONG[1]])
            assert not collected.is_set()
        assert collected.wait(10)


def test_credentials_are_asked_for_by_the_caller_alone(server: RangeServer) -> None:
    """What provides them may have a lock, which a thread beside would hold while it waits for that of h5py."""
    phil = pytest.importorskip("h5py")._objects.phil
    server.add("bucket/a", DATA)
    asked_by: list[int] = []

    def provide() -> dict[str, Any]:
        asked_by.append(threading.get_ident())
        return {"access_key_id": "key", "secret_access_key": SECRET, "token": None, "expires_at": None}

    endpoint = f"http://127.0.0.1:{server.port}"
    reader = ObjectStoreReader("s3://bucket/a", options({"credential_provider": provide, "endpoint_url": endpoint}))
    assert reader.read_locked(0, 10) == DATA[:10]
    refusing = server.resources["bucket/a"]
    refusing.fault, refusing.each, refusing.times = "expired", True, 1
    with phil:
        assert reader.read_locked_beside(*BESIDE) == (NEEDED, [None, None])
        assert reader.read_locked_beside(*BESIDE) == (NEEDED, ALONG)
    assert len(asked_by) == 2
    reader.close()


def test_credentials_that_cannot_be_waited_for(server: RangeServer) -> None:
    """Another thread is inside what provides them, and waits for h5py's lock to free an object."""
    phil = pytest.importorskip("h5py")._objects.phil
    server.add("bucket/a", DATA)
    busy, inside = threading.Lock(), threading.Event()

    def provide() -> dict[str, Any]:
        with busy:
            inside.set()
            with phil:
                return {"access_key_id": "key", "secret_access_key": SECRET, "token": None, "expires_at": None}

    storage = {"credential_provider": provide, "endpoint_url": f"http://127.0.0.1:{server.port}"}
    reader = ObjectStoreReader("s3://bucket/a", options(storage, read_timeout=0.2))
    other = threading.Thread(target=provide)
    with phil:
        other.start()
        assert inside.wait(10)
        with pytest.raises(SourcePermissionError, match="TimeoutError"):
            reader.read_locked(0, 10)
    other.join()
    assert reader.read_locked(0, 10) == DATA[:10]
    reader.close()


def test_what_begins_after_the_end_asks_for_nothing(
    server: RangeServer, store: ObjectStoreReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    monkeypatch.setattr("lindi_bridge.ranges.deadline.LEAST_PATIENCE", 0.05)
    monkeypatch.setattr("_thread.start_new_thread", lambda *begin: begun.append(begin))
    assert store.read_locked_beside(*BESIDE) == (NEEDED, [None, None])
    store.close()
    before = server.requests
    for target, arguments in begun:
        target(*arguments)
    assert (len(begun), server.requests) == (2, before)


def test_the_process_ends_while_something_comes_beside(server: RangeServer) -> None:
    server.add("bucket/a", DATA)
    server.add("bucket/slow", DATA, fault="stall", seconds=30, after=2)
    code = f"""
import lindi_bridge.ranges.deadline as deadline
from lindi_bridge.ranges import ByteRange, ObjectStoreReader, ReaderOptions
import h5py, lindi_bridge as lb
deadline.LEAST_PATIENCE = 0.05
storage = {{"anon": True, "endpoint_url": "http://127.0.0.1:{server.port}"}}
reader = ObjectStoreReader("s3://bucket/slow", ReaderOptions(storage_options=storage))
read = reader.read_locked
read(0, 5)
reader._read_here = lambda wanted: bytes(wanted.length)
reader._read(ByteRange(0, 5))
print(reader.read_locked_beside(ByteRange(0, 5), [ByteRange(100, 5)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"({bytes(5)!r}, [None])\n", "")


def test_presigned_address(seaweed: Seaweed) -> None:
    seaweed.put("priv", KEY, DATA)
    url = obstore.sign(seaweed.store("priv"), "GET", KEY, timedelta(minutes=5))
    reader = HttpReader(url, options({}))
    wanted = [ByteRange(start, 100) for start in range(0, 10_000, 1000)]
    assert reader.read_ranges(wanted) == [DATA[r.start : r.stop] for r in wanted]
    assert reader.read_locked(3, 3) == DATA[3:6]
    identity = reader.identity()
    assert identity.size == len(DATA)
    assert "X-Amz" not in reader.url
    again = HttpReader(url, options({}), identity)
    assert again.read_head(5) == DATA[:5]
    seaweed.put("priv", KEY, DATA[::-1])
    with pytest.raises(SourceChangedError):
        again.read_locked(3, 3)
    tampered = HttpReader(url[:-4] + "0000", options({}))
    with pytest.raises(SourcePermissionError, match="presigned"):
        tampered.read_locked(3, 3)
    for one in (reader, again, tampered):
        one.close()


def test_expired_presigned_address(seaweed: Seaweed) -> None:
    seaweed.put("priv", KEY, DATA)
    url = obstore.sign(seaweed.store("priv"), "GET", KEY, timedelta(seconds=1))
    reader = HttpReader(url, options({}))
    until = time.monotonic() + 10
    with pytest.raises(SourcePermissionError, match=r"expired.*source=") as caught:  # noqa: PT012 - until it expires
        while time.monotonic() < until:
            reader.read_locked(3, 3)
            time.sleep(0.2)
    assert "X-Amz" not in str(caught.value)
    reader.close()


def test_time_limits() -> None:
    with RangeServer() as server:
        server.add("bucket/a", DATA, fault="stall", seconds=30)
        storage = {"anon": True, "endpoint_url": f"http://127.0.0.1:{server.port}"}
        limits = {"read_timeout": 0.3, "total_timeout": 1.0, "retries": 1}
        reader = ObjectStoreReader("s3://bucket/a", options(storage, **limits))
        started = time.monotonic()
        with pytest.raises(SourceTimeoutError, match="read_timeout"):
            reader.read_locked(0, 5)
        assert time.monotonic() - started < 20


@pytest.mark.parametrize("fault", ["503", "short", "wrong_range", "cut", "no_range"])
def test_servers_that_misbehave(fault: str) -> None:
    with RangeServer() as server:
        server.add("bucket/a", DATA, fault=fault)
        storage = {"anon": True, "endpoint_url": f"http://127.0.0.1:{server.port}"}
        reader = ObjectStoreReader("s3://bucket/a", options(storage))
        with pytest.raises(SourceError, match="s3://bucket/a"):
            reader.read_locked(100, 50)


@pytest.mark.parametrize("region", ["eu-central-1", ""])
def test_the_region_of_a_bucket_is_found(region: str) -> None:
    with RangeServer() as server:
        server.add("bucket/a", DATA, fault="301", times=1)
        server.add("bucket", b"", extra={"x-amz-bucket-region": region} if region else {})
        storage = {"anon": True, "endpoint_url": f"http://127.0.0.1:{server.port}"}
        reader = ObjectStoreReader("s3://bucket/a", options(storage))
        if region:
            assert reader.read_locked(0, 5) == DATA[:5]
        else:
            with pytest.raises(SourceError, match=r"'region'"):
                reader.read_locked(0, 5)
        assert [entry.method for entry in server.log][:2] == ["GET", "HEAD"]


@pytest.mark.parametrize(
    ("url", "result"),
    [
        ("s3://bucket/a/b?c#d", ("s3", "bucket", "a/b?c#d", "")),
        ("gcs://bucket/a", ("gs", "bucket", "a", "")),
        ("az://container/a", ("az", "container", "a", "")),
        ("abfss://container@account.dfs.core.windows.net/a", ("az", "container", "a", "account")),
    ],
)
def test_store_address(url: str, result: tuple[str, str, str, str]) -> None:
    assert store_address(url) == result


def test_configuration(tmp_path: Path) -> None:
    google = store_address("gs://bucket/a")
    assert configuration(google, {}, False)[:2] == ({"skip_signature": True}, {})
    assert configuration(google, {"token": "anon"}, False)[0] == {"skip_signature": True}
    assert configuration(google, {"token": "ya29.x"}, False)[0] == {"bearer_token": "ya29.x"}
    assert configuration(google, {"token": {"a": 1}}, False)[0] == {"service_account_key": '{"a": 1}'}
    file = tmp_path / "key.json"
    file.write_text("{}")
    assert configuration(google, {"token": str(file)}, False)[0] == {"application_credentials": str(file)}
    azure = store_address("abfs://c@acc.dfs.core.windows.net/a")
    assert configuration(azure, {"sas_token": "s"}, False)[0] == {"sas_key": "s", "account_name": "acc"}
    assert configuration(azure, {}, False)[0] == {"skip_signature": True, "account_name": "acc"}
    amazon = store_address("s3://bucket/a")
    assert configuration(amazon, {"anon": False}, False)[0] == {}
    assert configuration(amazon, {"requester_pays": True, "key": "k", "secret": "s"}, False)[0] == {
        "request_payer": True,
        "access_key_id": "k",
        "secret_access_key": "s",
    }
    local = {"endpoint_url": "http://127.0.0.1:9000"}
    assert configuration(amazon, local, False)[1] == {"allow_http": True}


@pytest.mark.parametrize("url", ["gs://bucket/a", "az://container/a", "abfs://c@account.dfs.core.windows.net/a"])
def test_google_and_azure_stores_are_made(url: str) -> None:
    storage = {} if url.startswith("gs") else {"account_name": "account"}
    assert repr(ObjectStoreReader(url, options(storage))) == f"<ObjectStoreReader {url}>"
