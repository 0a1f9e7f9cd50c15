"""Addresses, ranges, and the rules about answers and locks, without any network."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lindi_bridge.errors import SourceChangedError, SourceError, SourceLockError, SourceProtocolError
from lindi_bridge.ranges import (
    ByteRange,
    BytesReader,
    HttpReader,
    RangeReader,
    ReaderOptions,
    SourceIdentity,
    check_redirect,
    coalesce,
    is_local,
    join,
    same_origin,
    scheme_of,
    split,
    strip_secrets,
)
from lindi_bridge.ranges.address import is_private_host, local_path
from lindi_bridge.ranges.deadline import TransientError, backoff
from lindi_bridge.ranges.http_answer import Asked, changed_midway, plan_body, retry_after
from lindi_bridge.ranges.lock import collection_paused
from lindi_bridge.ranges.reader import Tally, check_range


@pytest.mark.parametrize(
    ("address", "scheme", "local"),
    [
        ("https://host/a", "https", False),
        ("S3://bucket/a", "s3", False),
        ("abfs://c@account.dfs.core.windows.net/a", "abfs", False),
        ("file:///tmp/a", "file", True),
        ("file:/tmp/a", "file", True),
        ("/tmp/a", "", True),
        ("sample:1.h5", "", True),
        ("C:\\data\\a.h5", "", True),
        ("zip://a.h5::https://host/b.zip", "zip", False),
        ("data:application/octet-stream;base64,AAAA", "data", False),
        ("memory://a", "memory", False),
    ],
)
def test_scheme(address: str, scheme: str, local: bool) -> None:
    assert scheme_of(address) == scheme
    assert is_local(address) is local


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://user:pw@host:8443/a%20b?X-Amz-Signature=1#frag", "https://host:8443/a%20b"),
        ("https://host", "https://host"),
        ("s3://bucket/a?b#c", "s3://bucket/a?b#c"),
        ("s3://key:secret@bucket/a", "s3://bucket/a"),
        ("abfs://container@account.dfs.core.windows.net/a", "abfs://container@account.dfs.core.windows.net/a"),
        ("ssh://user:pw@host/a", "ssh://host/a"),
        ("zip://a::https://user:pw@host/b.zip?sig=1", "zip://a::https://host/b.zip"),
        ("data:text/plain,secret", "data:..."),
        ("/tmp/what?.h5", "/tmp/what?.h5"),
    ],
)
def test_strip_secrets(address: str, shown: str) -> None:
    assert strip_secrets(address) == shown


def test_split() -> None:
    assert split("https://u:p@h:1/p?q=1#f") == ("https", "h:1", "/p", "q=1", "u:p")
    assert split("s3://bucket/a?b") == ("s3", "bucket", "/a?b", "", "")
    assert split("/tmp/a?b") == ("", "", "/tmp/a?b", "", "")


def test_same_origin() -> None:
    assert same_origin("https://host/a", "https://HOST:443/b?c")
    assert not same_origin("https://host/a", "http://host/a")
    assert not same_origin("https://host/a", "https://host:8443/a")
    assert not same_origin("https://host/a", "https://host.evil.org/a")
    assert not same_origin("https://host/a", "https://host:nonsense/a")


@pytest.mark.parametrize(
    ("base", "relative", "result"),
    [
        ("https://host/dir/doc.json?sig=1", "a.h5", "https://host/dir/a.h5"),
        ("https://host/dir/doc.json", "../a.h5", "https://host/a.h5"),
        ("s3://bucket/dir/doc.json", "a b.h5", "s3://bucket/dir/a b.h5"),
        ("s3://bucket/dir/doc.json", "../../../a.h5", "s3://bucket/a.h5"),
        ("s3://bucket/doc.json", "./x/a.h5", "s3://bucket/x/a.h5"),
        ("s3://bucket/what?/doc.json", "a.h5", "s3://bucket/what?/a.h5"),
        ("gs://bucket/dir/doc.json", "/top/a.h5", "gs://bucket/top/a.h5"),
        ("abfs://c@acc.dfs.core.windows.net/d/doc.json", "a", "abfs://c@acc.dfs.core.windows.net/d/a"),
        ("az://c/d/doc.json", "https://host/a", "https://host/a"),
        ("/data/dir/doc.json", "../a.h5", "/data/a.h5"),
        ("dir/doc.json", "a.h5", "dir/a.h5"),
        ("file:///data/dir/doc.json", "a.h5", "file:///data/dir/a.h5"),
    ],
)
def test_join(base: str, relative: str, result: str) -> None:
    assert join(base, relative) == result


def test_join_refuses_chains_and_hidden_hosts() -> None:
    with pytest.raises(ValueError, match="chained"):
        join("zip://a::https://host/b.zip", "c")
    with pytest.raises(ValueError, match="host"):
        join("s3://bucket/a", "//other/b")


def test_local_path() -> None:
    assert local_path("file:///tmp/a%20b") == "/tmp/a b"
    assert local_path("/tmp/a%20b") == "/tmp/a%20b"
    with pytest.raises(ValueError, match="another machine"):
        local_path("file://host/share/a")


_NAMES = ["localhost", "LOCALHOST.", "x.localhost", "metadata.google.internal"]
_NUMBERS = ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "0.0.0.0", "10.1.2.3", "169.254.169.254", "192.168.0.1"]
_LONG_NUMBERS = ["[::1]", "[fe80::1]", "[::ffff:127.0.0.1]"]


@pytest.mark.parametrize("host", [*_NAMES, *_NUMBERS, *_LONG_NUMBERS])
def test_redirect_to_private_hosts_is_refused_for_strangers(host: str) -> None:
    target = f"http://{host}/latest/meta-data?x=secret"
    with pytest.raises(SourceProtocolError, match="private") as caught:
        check_redirect("https://example.org/a?sig=1", target, restricted=True)
    assert "secret" not in str(caught.value)
    assert "sig" not in str(caught.value)
    check_redirect("https://example.org/a", target, restricted=False)
    check_redirect("http://127.0.0.1/a", target, restricted=True)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://host/a", "s3://bucket/a", "data:text/plain,a"])
def test_redirect_to_other_schemes_is_refused(target: str) -> None:
    with pytest.raises(SourceProtocolError, match="only http"):
        check_redirect("https://example.org/a", target, restricted=False)


def test_public_hosts() -> None:
    assert not is_private_host("https://example.org/")
    assert not is_private_host("https://93.184.216.34/")
    assert is_private_host("http://[bad/")


_ranges = st.lists(st.builds(ByteRange, st.integers(0, 3000), st.integers(0, 300)), max_size=30)


@settings(max_examples=300, deadline=None)
@given(_ranges, st.integers(0, 200), st.integers(0, 2000), st.integers(1, 1500))
def test_coalesce(ranges: list[ByteRange], gap: int, waste: int, limit: int) -> None:
    merged = coalesce(ranges, gap=gap, waste=waste, limit=limit)
    wanted = {byte for r in ranges for byte in range(r.start, r.stop)}
    read = [byte for r in merged for byte in range(r.start, r.stop)]
    assert merged == sorted(merged)
    assert len(read) == len(set(read)), "disjoint"
    assert wanted <= set(read), "complete"
    assert len(read) - len(wanted) <= waste
    # Each merged range begins and ends with wanted bytes, and holds no hole larger than the gap.
    unread = 0
    for r in merged:
        assert r.start in wanted
        assert r.stop - 1 in wanted
        for byte in range(r.start, r.stop):
            unread = 0 if byte in wanted else unread + 1
            assert unread <= gap
    # Without overlaps nothing is longer than the limit unless it was asked for in one piece.
    pieces = coalesce(ranges, gap=0, waste=0, limit=1)
    assert all(r.length <= limit or r in pieces for r in merged)


def test_check_range() -> None:
    check_range(ByteRange(0, 10), 10, "u")
    check_range(ByteRange(5, 10), None, "u")
    with pytest.raises(SourceError, match="has 10"):
        check_range(ByteRange(5, 6), 10, "u")
    with pytest.raises(ValueError, match="no byte range"):
        check_range(ByteRange(-1, 6), 10, "u")


def test_options_keep_their_secrets() -> None:
    options = ReaderOptions(headers={"Authorization": "secret"}, storage_options={"key": "secret"})
    assert "secret" not in repr(options)
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(options)


def test_tally_counts_over_threads() -> None:
    tally = Tally()

    def work() -> None:
        for _ in range(500):
            tally.add(requests=1, nbytes=2)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = tally.total()
    assert (total.requests, total.waves, total.nbytes) == (4000, 0, 8000)


def _plan(status: int, headers: dict[str, str], asked: Asked | None = None, size: int | None = 100) -> int:
    return plan_body(asked or Asked(10, 20), status, headers, size, "http://host/a").nbytes


def test_only_the_asked_range_is_accepted() -> None:
    assert _plan(206, {"content-range": "bytes 10-29/100"}) == 20
    assert _plan(206, {"content-range": "bytes 10-29/*"}, size=None) == 20
    assert _plan(206, {"content-range": "bytes 0-9/10"}, Asked(0, 50, head=True), None) == 10
    assert _plan(200, {"content-length": "100"}, Asked(0, 100)) == 100
    assert _plan(200, {"content-length": "7"}, Asked(0, 50, head=True), None) == 7
    assert _plan(416, {"content-range": "bytes */0"}, Asked(0, 50, head=True), None) == 0


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (206, {}, SourceProtocolError),
        (206, {"content-range": "bytes 10-28/100"}, SourceProtocolError),
        (206, {"content-range": "bytes 11-30/100"}, SourceProtocolError),
        (206, {"content-range": "bytes 10-29/101"}, SourceChangedError),
        (206, {"content-range": "bytes 10-29/100", "content-encoding": "gzip"}, SourceProtocolError),
        (206, {"content-range": "bytes 10-29/100", "content-length": "19"}, TransientError),
        (200, {"content-length": "100"}, SourceProtocolError),
        (200, {"content-length": "101"}, SourceChangedError),
        (200, {}, SourceProtocolError),
        (416, {"content-range": "bytes */5"}, SourceChangedError),
        (416, {}, SourceError),
    ],
)
def test_everything_else_is_refused(status: int, headers: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        _plan(status, headers)


def test_a_clipped_range_is_an_error() -> None:
    with pytest.raises(SourceError, match="has 20"):
        _plan(206, {"content-range": "bytes 10-19/20"}, size=None)


def test_changes_midway() -> None:
    first = SourceIdentity(5, '"a"', "Mon")
    assert changed_midway(first, SourceIdentity(5, '"a"', "Tue")) is None
    assert changed_midway(first, SourceIdentity(5, 'W/"a"')) is None
    assert changed_midway(first, SourceIdentity(5)) is None
    assert changed_midway(first, SourceIdentity(5, 'W/"b"')) is not None
    assert changed_midway(first, SourceIdentity(6, '"a"')) is not None
    assert changed_midway(SourceIdentity(5, None, "Mon"), SourceIdentity(5, None, "Tue")) is not None


def test_retry_after() -> None:
    assert retry_after({"retry-after": "3"}) == 3.0
    assert retry_after({"retry-after": "Wed, 01 Jan 2020 00:00:00 GMT"}) == 0.0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None
    assert all(0 < backoff(attempt) <= 10 for attempt in range(40))


def test_waves_are_refused_under_h5py_lock() -> None:
    phil = pytest.importorskip("h5py")._objects.phil
    reader = HttpReader("http://127.0.0.1:9/a?sig=secret")
    with phil, pytest.raises(SourceLockError, match="visititems") as caught:
        reader.read_ranges([ByteRange(0, 1)])
    assert "secret" not in str(caught.value)


@pytest.mark.collects
def test_collection_is_paused_and_none_is_running_elsewhere() -> None:
    running, release, entered = threading.Event(), threading.Event(), threading.Event()

    class Slow:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            running.set()
            release.wait(10)

    def enter() -> None:
        with collection_paused():
            assert not gc.isenabled()
            entered.set()

    gc.disable()  # else this thread may be the one that collects
    try:
        Slow()
        collector = threading.Thread(target=gc.collect)
        collector.start()
        assert running.wait(10)
    finally:
        gc.enable()
    waiter = threading.Thread(target=enter)
    waiter.start()
    assert not entered.wait(0.1), "a collection is running in the other thread"
    release.set()
    assert entered.wait(10)
    waiter.join()
    collector.join()
    assert gc.isenabled()
    with collection_paused(), collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_heavy_packages_are_imported_late() -> None:
    heavy = "['requests', 'urllib3', 'obstore', 'fsspec', 'h5py', 'numpy', 'zarr']"
    code = (
        "import sys; import lindi_bridge.ranges as r; r.open_reader('http://127.0.0.1:9/a'); r.open_reader(b'x');"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_protocol() -> None:
    assert isinstance(BytesReader(b""), RangeReader)
    assert isinstance(HttpReader("http://127.0.0.1:9/a"), RangeReader)
