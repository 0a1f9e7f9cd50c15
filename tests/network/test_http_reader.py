"""HTTP ranges over a server that misbehaves: right bytes or the right error, by both transports."""

from __future__ import annotations

import gc
import logging
import os
import random
import select
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
import weakref
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from servers.range_server import RangeServer

from lindi_bridge.errors import (
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    SourcePermissionError,
    SourceProtocolError,
    SourceTimeoutError,
)
from lindi_bridge.ranges import ByteRange, FileObjectReader, HttpReader, ReaderOptions, SourceIdentity

pytestmark = pytest.mark.usefixtures("plain_environment")

DATA = random.Random(1).randbytes(200_000)
SECRET = "s3cr3t"

Read = Callable[[HttpReader, int, int], bytes]


def _locked(reader: HttpReader, start: int, length: int) -> bytes:
    return reader.read_locked(start, length)


def _wave(reader: HttpReader, start: int, length: int) -> bytes:
    return reader.read_ranges([ByteRange(start, length)])[0]


both = pytest.mark.parametrize("read", [_locked, _wave], ids=["locked", "wave"])


def options(**changes: object) -> ReaderOptions:
    """Short times, two further attempts."""
    given = {"connect_timeout": 2.0, "read_timeout": 2.0, "total_timeout": 5.0, "retries": 2, **changes}
    return ReaderOptions(**given)  # type: ignore[arg-type]


@both
@pytest.mark.parametrize("fault", ["", "no_length", "close", "slow", "no_total"])
def test_right_bytes(server: RangeServer, read: Read, fault: str) -> None:
    reader = HttpReader(server.add("a b.bin", DATA, fault=fault, seconds=0.05), options())
    assert read(reader, 100, 5000) == DATA[100:5100]
    assert read(reader, 0, 1) == DATA[:1]
    assert server.requests == 2
    assert server.log[0].range == "bytes=100-5099"
    assert server.log[0].headers["Accept-Encoding"] == "identity"
    assert {entry.method for entry in server.log} == {"GET"}
    statistics = reader.statistics
    assert (statistics.requests, statistics.waves, statistics.nbytes) == (2, 2, 5001)
    reader.close()


@both
@pytest.mark.parametrize("fault", ["cut", "drop", "short", "503", "429", "500", "502", "504"])
def test_passing_faults_are_retried(server: RangeServer, read: Read, fault: str) -> None:
    reader = HttpReader(server.add("a", DATA, fault=fault, times=2), options())
    assert read(reader, 100, 5000) == DATA[100:5100]
    assert server.requests == reader.statistics.requests == 3
    reader.close()


FINAL = {
    "no_range": (SourceProtocolError, "ignores range requests.*url=", 1),
    "wrong_range": (SourceProtocolError, "server sent 101-5100", 1),
    "gzip": (SourceProtocolError, "compress.*Turn compression off", 1),
    "surplus": (SourceProtocolError, "more than the 5000 bytes", 1),
    "short": (SourceProtocolError, "2500", 3),
    "cut": (SourceProtocolError, "too early", 3),
    "drop": (SourceError, "connection failed", 3),
    "503": (SourceError, "try again later", 3),
    "429": (SourceError, "smaller concurrency=", 3),
    "403": (SourcePermissionError, "headers=.*presigned.*source=", 1),
    "401": (SourcePermissionError, "headers=.*presigned.*source=", 1),
    "404": (SourceNotFoundError, "no file at this address", 1),
    "410": (SourceNotFoundError, "no file at this address", 1),
    "412": (SourceChangedError, "Index it again", 1),
    "501": (SourceProtocolError, "HTTP 501", 1),
    "redirect_loop": (SourceProtocolError, "more than 10 times", 11),
}


@both
@pytest.mark.parametrize("fault", FINAL)
def test_lasting_faults_are_named(
    server: RangeServer, read: Read, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    error, remedy, requests = FINAL[fault]
    url = server.add("a", DATA, fault=fault).replace("http://", f"http://{SECRET}:{SECRET}@") + f"?X-Signature={SECRET}"
    reader = HttpReader(url, options(headers={"X-Token": SECRET}))
    with pytest.raises(error, match=f"(?s){remedy}") as caught:
        read(reader, 100, 5000)
    assert server.requests == requests
    assert server.url("a") in str(caught.value)
    _assert_no_secret(caught.value, reader, caplog)
    reader.close()


def _assert_no_secret(problem: BaseException, reader: HttpReader, caplog: pytest.LogCaptureFixture) -> None:
    assert problem.__suppress_context__ or problem.__context__ is None
    assert SECRET not in str(problem) + repr(problem) + repr(reader) + reader.url + caplog.text


@both
def test_secrets_stay_out_of_connection_errors(
    server: RangeServer, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = server.url("a")
    server.close()
    reader = HttpReader(url + f"?sig={SECRET}", options(retries=1))
    with pytest.raises(SourceError, match="connection failed") as caught:
        read(reader, 0, 1)
    _assert_no_secret(caught.value, reader, caplog)


@both
def test_unknown_host(read: Read) -> None:
    reader = HttpReader(f"http://no-such-host.invalid/a?sig={SECRET}", options())
    started = time.monotonic()
    with pytest.raises(SourceError, match=r"host is not known|connection failed") as caught:
        read(reader, 0, 1)
    assert SECRET not in str(caught.value)
    assert time.monotonic() - started < 20


@both
def test_stall_ends_at_the_read_timeout(server: RangeServer, read: Read) -> None:
    reader = HttpReader(server.add("a", DATA, fault="stall", seconds=60), options(read_timeout=0.2, retries=1))
    started = time.monotonic()
    with pytest.raises(SourceTimeoutError, match="read_timeout"):
        read(reader, 0, 10)
    assert time.monotonic() - started < 20
    assert server.requests == 2
    reader.close()


@both
def test_trickle_ends_at_the_total_timeout(server: RangeServer, read: Read) -> None:
    reader = HttpReader(server.add("a", DATA, fault="trickle", seconds=0.1), options(total_timeout=0.5))
    started = time.monotonic()
    with pytest.raises(SourceTimeoutError, match="total_timeout"):
        read(reader, 0, 1000)
    assert time.monotonic() - started < 20
    assert server.requests == 1
    reader.close()


@both
def test_retry_after(server: RangeServer, read: Read) -> None:
    reader = HttpReader(server.add("a", DATA, fault="503", times=1, retry_after="1"), options())
    started = time.monotonic()
    assert read(reader, 0, 10) == DATA[:10]
    assert time.monotonic() - started > 0.9
    late = HttpReader(server.add("b", DATA, fault="503", times=1, retry_after="60"), options())
    started = time.monotonic()
    with pytest.raises(SourceError, match=r"503.*asks to wait 60 seconds"):
        read(late, 0, 10)
    assert time.monotonic() - started < 20, "nobody waits for what would come too late"
    reader.close()
    late.close()


@both
@pytest.mark.parametrize("etag", ["strong", "weak"])
def test_a_file_that_changes_midway(server: RangeServer, read: Read, etag: str) -> None:
    reader = HttpReader(server.add("a", DATA, fault="changed", after=1, etag=etag), options())
    read(reader, 0, 10)
    with pytest.raises(SourceChangedError, match=r"ETag was.*source="):
        read(reader, 0, 10)
    reader.close()


@both
def test_a_file_that_shrinks_midway(server: RangeServer, read: Read) -> None:
    reader = HttpReader(server.add("a", DATA, fault="truncated", after=1, etag="none"), options())
    read(reader, 0, 10)
    with pytest.raises(SourceChangedError, match="199999 bytes, expected 200000"):
        read(reader, 0, 10)
    reader.close()


@both
def test_the_expected_file(server: RangeServer, read: Read) -> None:
    url = server.add("a", DATA)
    found = HttpReader(url, options()).identity()
    assert found == SourceIdentity(len(DATA), server.resources["a"].tag(), "Wed, 01 Jan 2025 00:00:00 GMT")
    reader = HttpReader(url, options(), found)
    assert read(reader, 5, 5) == DATA[5:10]
    assert server.log[-1].headers["If-Match"] == found.etag
    other = HttpReader(url, options(), SourceIdentity(len(DATA), '"other"'))
    with pytest.raises(SourceChangedError, match="412"):
        read(other, 5, 5)
    weak = HttpReader(url, options(), SourceIdentity(len(DATA), 'W/"other"'))
    assert read(weak, 5, 5) == DATA[5:10], "a weak tag proves nothing about another copy"
    assert "If-Match" not in server.log[-1].headers
    shorter = HttpReader(url, options(), SourceIdentity(100))
    with pytest.raises(SourceChangedError, match="expected 100"):
        read(shorter, 5, 5)
    for one in (reader, other, weak, shorter):
        one.close()


@both
def test_ranges_past_the_end(server: RangeServer, read: Read) -> None:
    reader = HttpReader(server.add("a", DATA), options())
    with pytest.raises(SourceError, match="has 200000"):
        read(reader, len(DATA) - 5, 10)
    with pytest.raises(SourceError, match="has 200000"):
        read(reader, len(DATA) + 5, 10)
    asked = server.requests
    reader.identity()
    with pytest.raises(SourceError, match="has 200000"):
        read(reader, len(DATA), 1)
    assert server.requests == asked + 1, "refused without a request once the size is known"
    assert read(reader, len(DATA) - 5, 5) == DATA[-5:]
    assert read(reader, 0, 0) == b""
    reader.close()


@both
def test_a_server_without_ranges_may_give_a_whole_file(server: RangeServer, read: Read) -> None:
    reader = HttpReader(server.add("a", DATA[:1000], fault="no_range"), options())
    assert reader.read_head(2000) == DATA[:1000]
    assert read(reader, 0, 1000) == DATA[:1000]
    with pytest.raises(SourceProtocolError, match="ignores range requests"):
        read(reader, 0, 999)
    assert reader.identity().size == 1000
    reader.close()


def test_read_head(server: RangeServer) -> None:
    reader = HttpReader(server.add("a", DATA[:1000]), options())
    assert reader.read_head(10) == DATA[:10]
    assert reader.read_head(0) == b""
    assert reader.read_head(5000) == DATA[:1000]
    assert reader.identity().size == 1000
    assert server.requests == 3
    empty = HttpReader(server.add("empty", b""), options())
    assert empty.read_head(100) == b""
    assert empty.identity().size == 0
    huge = HttpReader(server.add("huge", DATA, fault="no_range"), options())
    with pytest.raises(SourceProtocolError, match="ignores range requests"):
        huge.identity()
    silent = HttpReader(server.add("silent", DATA, fault="no_total"), options())
    with pytest.raises(SourceProtocolError, match="does not tell the size"):
        silent.identity()
    known = HttpReader(server.url("silent"), options(), SourceIdentity(len(DATA)))
    assert known.identity().size == len(DATA)
    for one in (reader, empty, huge, silent, known):
        one.close()


def test_a_batch_is_one_wave() -> None:
    with RangeServer(group=32) as server:
        reader = HttpReader(server.add("a", DATA), options(concurrency=32))
        wanted = [ByteRange(start, 1000) for start in range(0, 96_000, 3000)]
        assert reader.read_ranges(wanted) == [DATA[r.start : r.stop] for r in wanted]
        assert server.requests == 32
        assert server.waves() == 1
        assert server.max_in_flight == 32
        assert reader.read_ranges(wanted[::-1]) == [DATA[r.start : r.stop] for r in wanted[::-1]]
        assert server.waves() == 2
        assert server.connections == 32, "connections are used again"
        assert reader.statistics.waves == 2
        few = HttpReader(server.url("a"), options(concurrency=4))
        server.reset()
        server.group = 4
        few.read_ranges(wanted[:12])
        assert server.max_in_flight == 4
        assert server.waves() == 3
        reader.close()
        few.close()


def test_one_connection_for_reads_under_the_lock(server: RangeServer) -> None:
    reader = HttpReader(server.add("a", DATA), options())
    reader.read_head(100)
    for start in range(20):
        reader.read_locked(start, 100)
    assert server.connections == 1
    reader.close()


def test_a_kept_connection_that_the_server_closed(server: RangeServer) -> None:
    reader = HttpReader(server.add("a", DATA), options(retries=0))
    reader.read_locked(0, 10)
    for sock in list(server._sockets):
        sock.shutdown(2)
    while server._sockets:
        time.sleep(0.001)
    assert reader.read_locked(0, 10) == DATA[:10]
    assert server.connections == 2
    reader.close()


def test_a_failed_range_ends_its_batch(server: RangeServer) -> None:
    url = server.add("a", DATA, fault="404", after=5)
    reader = HttpReader(url, options(concurrency=2))
    with pytest.raises(SourceNotFoundError):
        reader.read_ranges([ByteRange(start, 10) for start in range(0, 50_000, 100)])
    assert server.requests < 100
    reader.close()


@both
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_redirects_carry_headers_to_their_own_origin_only(server: RangeServer, read: Read, host: str) -> None:
    server.add("target", DATA)
    url = server.add("a", DATA, fault="redirect", location=f"{server.url('target', host)}?signature={SECRET}")
    reader = HttpReader(url, options(headers={"Authorization": SECRET, "X-Token": SECRET, "range": "bytes=0-1"}))
    assert read(reader, 100, 50) == DATA[100:150]
    first, second = server.log
    assert first.headers["Authorization"] == first.headers["X-Token"] == SECRET
    assert ("Authorization" in second.headers) == ("X-Token" in second.headers) == (host == "127.0.0.1")
    assert second.range == "bytes=100-149"
    assert read(reader, 200, 50) == DATA[200:250]
    assert server.requests == 3, "where it leads to is remembered"
    assert SECRET not in repr(reader)
    reader.close()


@both
def test_a_redirect_that_expires_is_asked_again(server: RangeServer, read: Read) -> None:
    server.add("target", DATA, token_uses=2)
    url = server.add("a", DATA, fault="redirect", location=f"{server.url('target', 'localhost')}?token={{n}}")
    reader = HttpReader(url, options())
    for start in range(6):
        assert read(reader, start, 50) == DATA[start : start + 50]
    server.resources["target"].token_uses = 0
    with pytest.raises(SourcePermissionError):
        read(reader, 0, 50)
    assert server.requests < 20
    reader.close()


@both
def test_redirects_that_are_not_followed(server: RangeServer, read: Read) -> None:
    for location in (f"file:///etc/{SECRET}", f"ftp://host/{SECRET}"):
        reader = HttpReader(server.add("a", DATA, fault="redirect", location=location), options())
        with pytest.raises(SourceProtocolError, match="only http") as caught:
            read(reader, 0, 5)
        assert SECRET not in str(caught.value)
        reader.close()


@both
def test_a_public_host_may_not_send_strangers_to_this_machine(
    server: RangeServer, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add("a", DATA, fault="redirect", location=server.url("target"))
    server.add("target", DATA)
    # A public name that, for this test, leads to our server: the proxy is the server itself.
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    allowed = HttpReader("http://example.org/a", options())
    monkeypatch.setattr("servers.range_server.urlsplit", _without_origin)
    assert read(allowed, 0, 5) == DATA[:5]
    refused = HttpReader("http://example.org/a", options(restricted=True))
    with pytest.raises(SourceProtocolError, match="private address"):
        read(refused, 0, 5)
    allowed.close()
    refused.close()


def _without_origin(url: str) -> object:
    parts = urlsplit(url)
    return parts._replace(scheme="", netloc="")


@both
def test_presigned_addresses(server: RangeServer, read: Read) -> None:
    url = server.add("a", DATA, query=f"sig={SECRET}%2Fa%20b&x=1~2")
    reader = HttpReader(f"{url}?sig={SECRET}%2Fa%20b&x=1~2#fragment", options())
    assert read(reader, 7, 7) == DATA[7:14]
    assert reader.identity().size == len(DATA)
    assert reader.url == url
    wrong = HttpReader(f"{url}?sig=other", options())
    with pytest.raises(SourcePermissionError, match="presigned"):
        read(wrong, 7, 7)
    expiring = HttpReader(server.add("b", DATA, fault="403", after=1), options())
    assert read(expiring, 7, 7) == DATA[7:14]
    with pytest.raises(SourcePermissionError, match="fresh one by source="):
        read(expiring, 7, 7)
    for one in (reader, wrong, expiring):
        one.close()


@both
def test_credentials(server: RangeServer, read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    basic = "Basic " + b64encode(b"us er:p:w").decode()
    url = server.add("a", DATA, require={"Authorization": basic})
    with pytest.raises(SourcePermissionError, match="No credentials"):
        read(HttpReader(url, options()), 0, 5)
    with pytest.raises(SourcePermissionError, match="were refused"):
        read(HttpReader(url, options(headers={"Authorization": "wrong"})), 0, 5)
    assert read(HttpReader(url, options(headers={"authorization": basic})), 0, 5) == DATA[:5]
    assert read(HttpReader(url.replace("http://", "http://us%20er:p%3Aw@"), options()), 0, 5) == DATA[:5]
    (tmp_path / "netrc").write_text('machine 127.0.0.1 login "us er" password p:w\n')
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert read(HttpReader(url, options()), 0, 5) == DATA[:5]
    with pytest.raises(SourcePermissionError):
        read(HttpReader(url, options(restricted=True)), 0, 5)
    with pytest.raises(SourcePermissionError, match="were refused"):
        read(HttpReader(url, options(headers={"Authorization": "the user's own"})), 0, 5)
    gc.collect()


@both
def test_proxy_of_the_environment(server: RangeServer, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://user:{SECRET}@127.0.0.1:{server.port}")
    monkeypatch.setattr("servers.range_server.urlsplit", _without_origin)
    server.add("a", DATA)
    reader = HttpReader("http://example.org/a?x=1", options())
    assert read(reader, 3, 4) == DATA[3:7]
    entry = server.log[0]
    assert entry.path == "http://example.org/a?x=1"
    assert entry.headers["Host"] == "example.org"
    assert entry.headers["Proxy-Authorization"] == "Basic " + b64encode(f"user:{SECRET}".encode()).decode()
    reader.close()


def test_cookies_are_not_kept(server: RangeServer) -> None:
    reader = HttpReader(server.add("a", DATA), options())
    reader.read_ranges([ByteRange(0, 5)])
    assert all("Cookie" not in entry.headers for entry in server.log)
    reader.close()


def test_many_threads_share_a_reader(server: RangeServer) -> None:
    reader = HttpReader(server.add("a", DATA), options(concurrency=8))
    wrong: list[int] = []

    def work(first: int) -> None:
        for start in range(first, first + 30):
            if reader.read_locked(start, 100) != DATA[start : start + 100]:
                wrong.append(start)
            if reader.read_ranges([ByteRange(start, 9), ByteRange(0, 3)]) != [DATA[start : start + 9], DATA[:3]]:
                wrong.append(start)

    threads = [threading.Thread(target=work, args=(n * 1000,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert reader.statistics.requests == server.requests == 6 * 30 * 3
    reader.close()


def test_locked_reads_take_no_lock_and_import_nothing(server: RangeServer) -> None:
    """The handler lock of logging, held elsewhere, would stop a transport that logs."""
    code = f"""
import logging, sys, threading
from lindi_bridge.ranges import HttpReader
reader = HttpReader({server.add("a", DATA, fault="503", times=1)!r})
handler = logging.StreamHandler(sys.stderr)
logging.basicConfig(level=logging.DEBUG, handlers=[handler])
held, done = threading.Event(), threading.Event()
def hold():
    with handler.lock, logging._lock:
        held.set()
        done.wait(20)
threading.Thread(target=hold).start()
held.wait()
imported = []
sys.addaudithook(lambda event, args: imported.append(args[0]) if event == "import" else None)
data = reader.read_locked(5, 5)
done.set()
print(data.hex(), imported)
"""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == f"{DATA[5:10].hex()} []"
    assert time.monotonic() - started < 18


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_fork(server: RangeServer) -> None:
    code = f"""
import os
from lindi_bridge.ranges import ByteRange, HttpReader
reader = HttpReader({server.add("a", DATA)!r})
reader.read_head(10); reader.read_ranges([ByteRange(0, 10)] * 3)
child = os.fork()
good = reader.read_locked(5, 5) + reader.read_ranges([ByteRange(7, 3), ByteRange(1, 1)])[0]
if child == 0:
    os._exit(0 if good.hex() == {(DATA[5:10] + DATA[7:10]).hex()!r} else 1)
print(os.waitpid(child, 0)[1], good.hex())
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.split() == ["0", (DATA[5:10] + DATA[7:10]).hex()]


def test_the_server_as_a_program(tmp_path: Path) -> None:
    import json

    import servers.range_server

    (tmp_path / "a.bin").write_bytes(DATA)
    with subprocess.Popen(
        [sys.executable, servers.range_server.__file__, str(tmp_path / "a.bin")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ},
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        url = json.loads(process.stdout.readline())["a.bin"]
        reader = HttpReader(url, options())
        assert reader.read_locked(5, 5) == DATA[5:10]
        reader.close()
        process.stdin.close()
        assert process.wait(10) == 0


def test_remfile_as_a_file_object(server: RangeServer) -> None:
    remfile = pytest.importorskip("remfile")
    reader = FileObjectReader(remfile.File(server.add("a", DATA)), server.url("a") + f"?sig={SECRET}")
    assert reader.url == server.url("a")
    assert reader.identity().size == len(DATA)
    assert reader.read_ranges([ByteRange(5, 5), ByteRange(150_000, 10)]) == [DATA[5:10], DATA[150_000:150_010]]
    reader.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and self-signed certificate for localhost and 127.0.0.1, in one PEM file."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("the program openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext"
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([program, *request.split(), names, *files], check=True, capture_output=True)
    both_in_one = folder / "both.pem"
    both_in_one.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return both_in_one


@both
def test_https(read: Read, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RangeServer(certificate=certificate) as server:
        url = server.add("a", DATA)
        with pytest.raises(SourceError, match="REQUESTS_CA_BUNDLE"):
            read(HttpReader(f"{url}?sig={SECRET}", options()), 0, 5)
        assert server.requests == 0
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.with_name("cert.pem")))
        reader = HttpReader(url, options(concurrency=4))
        for _ in range(3):
            assert read(reader, 3, 60_000) == DATA[3:60_003]
        assert server.connections <= 3
        reader.close()


def test_https_with_more_than_the_answer(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.with_name("cert.pem")))
    with RangeServer(certificate=certificate) as server:
        reader = HttpReader(server.add("a", DATA, fault="more"), options())
        for start in (0, 5):
            assert reader.read_locked(start, 20_000) == DATA[start : start + 20_000]
        assert (server.requests, server.connections) == (2, 2), "the rest of the first is no answer to the second"
        reader.close()


# -- two ranges at one time, in the calling thread --------------------------------------------------------------------

BESIDE = ByteRange(3, 60_000), [ByteRange(100_000, 50_000), ByteRange(90_000, 10)]
ANSWER = DATA[3:60_003], [DATA[100_000:150_000], DATA[90_000:90_010]]
NOT_ASKED = DATA[3:60_003], [b"", b""]


@pytest.mark.parametrize("secure", [False, True])
def test_ranges_beside_another(secure: bool, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.with_name("cert.pem")))
    with RangeServer(certificate=certificate if secure else None) as server:
        reader = HttpReader(server.add("a", DATA), options())
        assert reader.read_locked_beside(*BESIDE) == NOT_ASKED, "there is no connection yet to leave for what is needed"
        for _ in range(3):
            server.reset()
            before = reader.statistics
            server.group = 3
            assert reader.read_locked_beside(*BESIDE) == ANSWER
            server.group = 1
            now = reader.statistics
            assert (server.requests, server.waves()) == (3, 1)
            assert (now.requests - before.requests, now.waves - before.waves) == (3, 1)
            assert now.nbytes - before.nbytes == 110_010
        assert server.connections == 0, "they are kept"
        reader.close()


def test_ranges_beside_another_are_checked(server: RangeServer) -> None:
    reader = HttpReader(server.add("a", DATA), options())
    assert reader.read_locked(0, 10) == DATA[:10]
    with pytest.raises(SourceError):
        reader.read_locked_beside(ByteRange(0, 10), [ByteRange(len(DATA) - 5, 10)])
    with pytest.raises(ValueError, match="no byte range"):
        reader.read_locked_beside(ByteRange(0, 10), [ByteRange(-1, 10)])
    assert reader.read_locked_beside(ByteRange(0, 0), [ByteRange(5, 5)]) == (b"", [b""])
    reader.close()


def test_ranges_beside_another_go_where_it_goes(server: RangeServer) -> None:
    """To where the server redirected to, with no credentials but those for there; not if it has to be asked anew."""
    target = server.add("b", DATA, query="sig=1")
    moved = server.add("a", DATA, fault="redirect", location=f"{target}?sig=1", require={"Authorization": SECRET})
    reader = HttpReader(moved, options(headers={"Authorization": SECRET}))
    assert reader.read_locked(0, 10) == DATA[:10]
    server.reset()
    assert reader.read_locked_beside(*BESIDE) == ANSWER
    assert {request.path for request in server.log} == {"/b?sig=1"}
    reader._location.ask_every_time()
    assert reader.read_locked_beside(*BESIDE) == NOT_ASKED
    reader.close()


def test_a_refusal_of_all_is_met_by_what_is_needed(server: RangeServer) -> None:
    """The address has expired: it is renewed for what is needed, and what was asked beside it is passed over."""
    url = server.add("a", DATA, query="sig=1")
    renewed: list[str] = []
    reader = HttpReader(f"{url}?sig=1", options(renew=lambda name: renewed.append(name) or f"{url}?sig=2"))
    assert reader.read_locked(0, 10) == DATA[:10]
    server.resources["a"].query = "sig=2"
    assert reader.read_locked_beside(*BESIDE) == (ANSWER[0], [None, None])
    assert len(renewed) == 1
    assert reader.read_locked_beside(*BESIDE) == ANSWER
    reader.close()


def test_another_file_for_all(server: RangeServer) -> None:
    reader = HttpReader(server.add("a", DATA), options())
    assert reader.read_locked(0, 10) == DATA[:10]
    server.resources["a"].fault = "changed"
    server.resources["a"].after = server.resources["a"].seen
    with pytest.raises(SourceChangedError):
        reader.read_locked_beside(*BESIDE)
    reader.close()


@both
def test_https_through_a_proxy(read: Read, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RangeServer(certificate=certificate) as server, _tunnel() as (port, opened):
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.with_name("cert.pem")))
        monkeypatch.setenv("https_proxy", f"http://user:{SECRET}@127.0.0.1:{port}")
        reader = HttpReader(server.add("a", DATA), options())
        assert read(reader, 3, 60_000) == DATA[3:60_003]
        assert read(reader, 3, 6) == DATA[3:9]
        assert len(opened) == 1
        assert f"127.0.0.1:{server.port}" in opened[0]
        assert b64encode(f"user:{SECRET}".encode()).decode() in opened[0]
        reader.close()
        monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:9")
        with pytest.raises(SourceError, match=r"socks5|request could not be made"):
            read(HttpReader(server.url("a"), options()), 0, 5)


@contextmanager
def _tunnel() -> Iterator[tuple[int, list[str]]]:
    """Run a proxy that knows only CONNECT; gives its port and the heads of the requests it got."""
    opened: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            head = ""
            while not head.endswith("\r\n\r\n"):
                head += self.rfile.readline().decode()
            opened.append(head)
            host, _, port = head.split()[1].partition(":")
            with socket.create_connection((host, int(port))) as target:
                self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                ends = {self.connection: target, target: self.connection}
                while ready := select.select(list(ends), [], [], 5)[0]:
                    for end in ready:
                        data = end.recv(1 << 16)
                        if not data:
                            return
                        ends[end].sendall(data)

    class Proxy(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: object) -> None:
            return

    with Proxy(("127.0.0.1", 0), Handler) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
        yield proxy.server_address[1], opened
        proxy.shutdown()


@both
def test_a_failure_leaves_no_cyclic_garbage(server: RangeServer, read: Read) -> None:
    """Otherwise sockets and readers would live until the next collection."""
    url = server.add("a", DATA, fault="403")
    read_once = weakref.ref(reader := HttpReader(url, options()))
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(SourcePermissionError):
            read(reader, 0, 5)
        reader.close()
        del reader
        until = time.monotonic() + 10
        while read_once() is not None and time.monotonic() < until:
            time.sleep(0.01)  # a worker thread may still be putting its task away
        assert read_once() is None
    finally:
        gc.enable()
