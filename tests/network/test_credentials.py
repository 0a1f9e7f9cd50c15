"""Getting in over HTTP: addresses that expire and are renewed, redirects to signed addresses, headers and their limits.

The clients are the public functions; what the server was asked tells the rest.
"""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb
from lindi_bridge.ranges import ByteRange, HttpReader, ReaderOptions, h5py_lock_is_held

pytestmark = pytest.mark.usefixtures("plain_environment")

SECRET = "s3cr3t"
SHORT = {"connect_timeout": 2.0, "read_timeout": 5.0, "total_timeout": 10.0}
ASSET = "api/assets/2fbd4a04-9f1e-4ed5-9dc4-0f2a6e2a4d10/download/"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("credentials") / "a.h5"
    values = np.random.default_rng(1).random(400_000)
    with h5py.File(path, "w") as file:
        file.create_dataset("values", data=values, chunks=(2_000,))
    return {"path": path, "data": path.read_bytes(), "values": values}


@pytest.fixture
def document(made: dict[str, Any], server: RangeServer, tmp_path: Path) -> str:
    """A document of a file whose address is not signed; the server then wants ``sig=0``."""
    path = tmp_path / "a.lindi.json"
    lb.index(server.add("a.h5", made["data"])).save(path)
    server.resources["a.h5"].query = "sig=0"
    server.reset()
    return str(path)


class Signer:
    """Signs addresses, as ``renew=`` does it; knows how and how often it was asked."""

    def __init__(self, server: RangeServer) -> None:
        self.server = server
        self.asked: list[str] = []
        self.threads: list[threading.Thread] = []
        self.locked: list[bool] = []

    def __call__(self, address: str) -> str:
        self.asked.append(address)
        self.threads.append(threading.current_thread())
        self.locked.append(h5py_lock_is_held())
        return f"{address}?{self.server.resources['a.h5'].query}"

    def expire(self) -> None:
        """From now on another signature is wanted."""
        self.server.resources["a.h5"].query = f"sig={len(self.asked)}{SECRET}"


@pytest.fixture
def signer(server: RangeServer) -> Signer:
    return Signer(server)


def _by_open(document: str, **options: Any) -> Any:
    return lb.open(document, rdcc_nbytes=0, cache_bytes=400_000, **SHORT, **options)


def _by_h5py(document: str, **options: Any) -> Any:
    return h5py.File(lb.hdf5_file(document, cache_bytes=400_000, **SHORT, **options), rdcc_nbytes=0)


ways = pytest.mark.parametrize("way", [_by_open, _by_h5py], ids=["lb.open", "h5py"])


def _refusals(server: RangeServer) -> int:
    return sum(request.status in {401, 403} for request in server.log)


# -- renew= ------------------------------------------------------------------------------------------------------------


@ways
def test_an_address_is_renewed_once_for_each_expiry(
    way: Callable[..., Any], made: dict[str, Any], document: str, server: RangeServer, signer: Signer
) -> None:
    with way(document, renew=signer) as file:
        for expiry in range(3):
            for part in (np.s_[:90_000], np.s_[100_000:300_000:7], np.s_[350_000:]):
                assert np.array_equal(file["values"][part], made["values"][part])
            assert len(signer.asked) == expiry + 1
            signer.expire()
    assert set(signer.asked) == {server.url("a.h5")}, "asked with the address, without what signed it before"
    if way is _by_open:
        assert {thread.name for thread in signer.threads} <= {"MainThread", "lindi-bridge-ahead"}, "where it is read"
    else:
        assert threading.main_thread() not in signer.threads, "which may be waited for with a limit only"
    assert set(signer.locked) == {False}
    assert _refusals(server) <= 3 * 64, "no more than what was in flight"


@ways
def test_a_presigned_source_is_renewed(
    way: Callable[..., Any], made: dict[str, Any], document: str, server: RangeServer, signer: Signer
) -> None:
    with way(document, source=f"{server.url('a.h5')}?sig=0", renew=signer) as file:
        assert np.array_equal(file["values"][:90_000], made["values"][:90_000])
        assert signer.asked == []
        signer.expire()
        assert np.array_equal(file["values"][100_000:], made["values"][100_000:])
    assert signer.asked == [server.url("a.h5")]


def test_what_had_arrived_is_not_asked_for_again(made: dict[str, Any], server: RangeServer) -> None:
    """Of a wave in which the address expires, the rest is read from the new one."""
    url = server.add("b.h5", made["data"], token_uses=50)
    tokens: list[str] = []

    def renew(address: str) -> str:
        tokens.append(address)
        return f"{address}?token={len(tokens)}"

    reader = HttpReader(f"{url}?token=0", ReaderOptions(renew=renew, concurrency=8))
    ranges = [ByteRange(start, 100) for start in range(0, 120_000, 1_000)]
    assert reader.read_ranges(ranges) == [made["data"][r.start : r.stop] for r in ranges]
    assert len(tokens) == 2
    assert sum(request.status == 206 for request in server.log) == 120
    assert _refusals(server) <= 2 * 8
    reader.close()


def test_s3_says_it_otherwise_when_credentials_expire(
    made: dict[str, Any], document: str, server: RangeServer, signer: Signer
) -> None:
    """HTTP 400 with the code ExpiredToken."""
    resource = server.resources["a.h5"]
    resource.query, resource.fault, resource.times, resource.seen = "", "expired", 1, 0
    with _by_open(document, renew=signer) as file:
        assert np.array_equal(file["values"][:2_000], made["values"][:2_000])
    assert len(signer.asked) == 1
    resource.times, resource.seen = None, 0
    with _by_open(document) as file, pytest.raises(lb.SourcePermissionError, match=r"expired.*renew="):
        file["values"][:2_000]


def test_many_threads_renew_once(made: dict[str, Any], document: str, server: RangeServer, signer: Signer) -> None:
    readers = 8
    wrong: list[int] = []

    def renew(address: str) -> str:
        until = time.monotonic() + 20
        while _refusals(server) < readers and time.monotonic() < until:
            time.sleep(0.01)  # the address has expired for all of them
        return signer(address)

    reader = HttpReader(server.url("a.h5"), ReaderOptions(renew=renew))

    def read(number: int) -> None:
        for start in range(number * 100, 50_000, 1_000):
            wanted = [ByteRange(start, 50), ByteRange(start + 400, 50)]
            if reader.read_ranges(wanted) != [made["data"][r.start : r.stop] for r in wanted]:
                wrong.append(start)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert len(signer.asked) == 1
    reader.close()


@ways
def test_fresh_headers_instead_of_an_address(
    way: Callable[..., Any], made: dict[str, Any], document: str, server: RangeServer
) -> None:
    resource = server.resources["a.h5"]
    resource.query, resource.require = "", {"Authorization": "Bearer 1"}
    tokens = iter(["1", "2"])
    with way(document, renew=lambda address: {"Authorization": f"Bearer {next(tokens)}"}) as file:
        assert np.array_equal(file["values"][:9_000], made["values"][:9_000])
        resource.require = {"Authorization": "Bearer 2"}
        assert np.array_equal(file["values"][90_000:], made["values"][90_000:])
    assert next(tokens, None) is None


def _raise(address: str) -> str:
    raise RuntimeError(f"the service that signs is down: {address}")


FAILING: dict[str, tuple[Callable[[str], Any], str]] = {
    "it fails": (_raise, "renew= failed with RuntimeError"),
    "it gives nothing": (lambda address: None, "renew= gave neither .* but a NoneType"),
    "it gives a path": (lambda address: "/etc/hostname", "neither an http"),
    "it gives another kind of address": (lambda address: "s3://bucket/a.h5", "neither an http"),
    "what it gives is refused": (lambda address: f"{address}?sig=wrong{SECRET}", "renew= gave were refused as well"),
    "it gives what was refused": (lambda address: address, "renew= gave were refused as well"),
}


@ways
@pytest.mark.parametrize("case", FAILING)
def test_renewing_that_does_not_help(way: Callable[..., Any], case: str, document: str, server: RangeServer) -> None:
    renew, message = FAILING[case]
    calls: list[str] = []

    def counted(address: str) -> Any:
        calls.append(address)
        return renew(address)

    with way(document, renew=counted) as file:
        for number in (1, 2):
            with pytest.raises(lb.SourcePermissionError, match=message) as caught:
                file["values"][:200_000]
            assert len(calls) == number, "once for each read"
            assert server.url("a.h5") in str(caught.value)
            assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert server.requests <= 2 * 2 * 64


@ways
def test_another_file_at_the_renewed_address_is_refused(
    way: Callable[..., Any], made: dict[str, Any], document: str, server: RangeServer
) -> None:
    other = server.add("other.h5", made["data"][::-1])
    with way(document, renew=lambda address: other) as file, pytest.raises(lb.SourceChangedError):
        file["values"][:9_000]


def test_headers_do_not_go_to_another_origin_that_renew_names(made: dict[str, Any], server: RangeServer) -> None:
    url = server.add("a.h5", made["data"], query="sig=0")
    elsewhere = server.url("a.h5", host="localhost")
    headers = {"Authorization": SECRET}
    with lb.open(url, headers=headers, renew=lambda address: f"{elsewhere}?sig=0", **SHORT) as file:
        assert np.array_equal(file["values"][:9_000], made["values"][:9_000])
    by_host = {request.headers["Host"].split(":")[0]: request.headers.get("Authorization") for request in server.log}
    assert by_host == {"127.0.0.1": SECRET, "localhost": None}


def test_renew_is_not_for_what_a_strangers_document_names(
    made: dict[str, Any], document: str, server: RangeServer, signer: Signer
) -> None:
    """It might sign any address that it is given."""
    url = server.url("a.h5", host="localhost")
    text = lb.index(made["path"], url=url).to_json()
    foreign = server.add("foreign.lindi.json", text.encode())
    with lb.open(foreign, renew=signer, **SHORT) as file:
        with pytest.raises(lb.SourcePermissionError, match="credentials_for"):
            file["values"][:9_000]
        assert signer.asked == []
    origin = url.rsplit("/", 1)[0]
    with lb.open(foreign, renew=signer, credentials_for=[origin], **SHORT) as file:
        assert np.array_equal(file["values"][:9_000], made["values"][:9_000])
    assert signer.asked == [url]


def test_renew_is_not_for_companions(server: RangeServer, tmp_path: Path) -> None:
    """A function that ignores its argument would put one file in the place of another."""
    with h5py.File(tmp_path / "main.h5", "w") as file:
        file["link"] = h5py.ExternalLink("other.h5", "/values")
        file["values"] = np.arange(10)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["values"] = -np.arange(10)
    main = server.add("main.h5", tmp_path / "main.h5", query="sig=0")
    server.add("other.h5", tmp_path / "other.h5", query="sig=0")
    with lb.open(main, renew=lambda address: f"{main}?sig=0", **SHORT) as file:
        assert file["values"][3] == 3
        with pytest.raises((KeyError, OSError), match="refuses access"):
            file["link"][()]


@ways
def test_a_renewed_signature_is_not_shown(
    way: Callable[..., Any],
    document: str,
    server: RangeServer,
    signer: Signer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    server.resources["a.h5"].query = f"sig={SECRET}"
    with way(document, renew=signer) as file:
        file["values"][:9_000]
        assert signer.asked
        shown = [repr(file), file.filename if isinstance(file.filename, str) else ""]
        if way is _by_open:
            shown += [repr(file._file_object.reader), repr(file._file_object.properties["access"])]
            assert SECRET.encode() not in pickle.dumps(file)
        server.resources["a.h5"].fault = "404"
        with pytest.raises(lb.SourceNotFoundError) as caught:
            file["values"][100_000:]
        shown.append("".join(traceback.format_exception(caught.value)))
    assert SECRET not in "".join(shown) + caplog.text


# -- pickling ----------------------------------------------------------------------------------------------------------

UNPICKLE = """
import pickle, sys
import lindi_bridge as lb
file = pickle.load(sys.stdin.buffer)
try:
    file["values"][:9_000]
except lb.SourcePermissionError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"renew": lambda address: address + "?sig=0"}, "renew="),
        ({"headers": {"Authorization": SECRET}, "credentials_for": ["http://127.0.0.1"]}, "headers="),
        ({"source": "{url}?sig=0"}, "source="),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pickled_file_says_what_it_left_behind(
    options: dict[str, Any], named: str, made: dict[str, Any], document: str, server: RangeServer
) -> None:
    options = {key: v.format(url=server.url("a.h5")) if isinstance(v, str) else v for key, v in options.items()}
    with lb.open(document, **options, **SHORT) as file:
        if named != "headers=":
            assert np.array_equal(file["values"][:9_000], made["values"][:9_000])
        data = pickle.dumps(file)
        again = pickle.dumps(pickle.loads(data))
    assert SECRET.encode() not in data
    for one in (data, again):
        done = subprocess.run([sys.executable, "-c", UNPICKLE], input=one, capture_output=True, timeout=60, check=True)
        said = done.stdout.decode()
        assert "pickled" in said, done.stderr
        assert said.count(named) >= 2, "what is missing, and what to do"


# -- DANDI, and whatever else redirects to signed addresses -----------------------------------------------------------


@pytest.fixture
def asset(made: dict[str, Any], server: RangeServer) -> str:
    """An address that redirects to signed ones on another host, each good for 100 requests."""
    server.add("blobs/a.h5", made["data"], token_uses=100)
    location = f"{server.url('blobs/a.h5', host='localhost')}?token={{n}}{SECRET}"
    return server.add(ASSET, b"", fault="redirect", location=location)


def _asked_of_the_api(server: RangeServer) -> int:
    return sum(request.path.startswith("/api/") for request in server.log)


def test_a_dandi_address_is_what_the_document_names(
    asset: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    index = lb.index(asset)
    assert index.url == asset
    text = index.to_json()
    assert SECRET not in text
    assert "localhost" not in text
    path = tmp_path / "a.lindi.json"
    index.save(path)
    server.reset()
    with lb.open(path, **SHORT) as file:
        assert np.array_equal(file["values"][:100_000], made["values"][:100_000])
    assert _asked_of_the_api(server) == 1, "the reads of a wave do not each ask the API"


@ways
def test_a_signed_address_that_expires_is_asked_for_again(
    way: Callable[..., Any], asset: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    path = tmp_path / "a.lindi.json"
    lb.index(made["path"], url=asset).save(path)
    for expiry in range(1, 4):
        server.reset()
        with way(str(path)) as file:
            for start in range(0, 400_000, 50_000):
                assert np.array_equal(file["values"][start : start + 50_000], made["values"][start : start + 50_000])
            blob = server.resources["blobs/a.h5"]
            blob.tokens = dict.fromkeys(blob.tokens, 10**6)  # all that were given have expired
            before = _asked_of_the_api(server)
            assert np.array_equal(file["values"][:90_000], made["values"][:90_000])
            assert _asked_of_the_api(server) == before + 1
        assert before <= 1 + 200 // 100 + 1, expiry


def test_a_redirect_that_is_good_for_one_read_only(asset: str, made: dict[str, Any], server: RangeServer) -> None:
    server.resources["blobs/a.h5"].token_uses = 1
    reader = HttpReader(asset, ReaderOptions(concurrency=8))
    ranges = [ByteRange(start, 100) for start in range(0, 200_000, 1_000)]
    for _ in range(2):
        assert reader.read_ranges(ranges) == [made["data"][r.start : r.stop] for r in ranges]
    assert reader.statistics.waves <= 4, "not a wave for each read"
    assert server.requests <= 2 * 2 * len(ranges) + 2 * 8 + 2
    reader.close()


def test_a_redirect_that_leads_to_a_refusal_is_an_error(asset: str, server: RangeServer) -> None:
    server.resources["blobs/a.h5"].token_uses = 0
    reader = HttpReader(asset, ReaderOptions())
    with pytest.raises(lb.SourcePermissionError) as caught:
        reader.read_ranges([ByteRange(start, 10) for start in range(0, 100_000, 100)])
    assert _asked_of_the_api(server) <= 2
    assert server.requests <= 2 + 2 * 64
    assert SECRET not in str(caught.value)
    reader.close()


def test_an_embargoed_asset_gets_its_token_at_the_api_only(
    asset: str, made: dict[str, Any], server: RangeServer
) -> None:
    server.resources[ASSET].require = {"Authorization": f"token {SECRET}"}
    with pytest.raises(lb.SourcePermissionError, match="headers="):
        lb.open(asset, **SHORT)
    server.reset()
    with lb.open(asset, headers={"Authorization": f"token {SECRET}"}, **SHORT) as file:
        assert np.array_equal(file["values"][:9_000], made["values"][:9_000])
    for request in server.log:
        assert ("Authorization" in request.headers) == request.path.startswith("/api/")


# -- headers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [f"Bearer {SECRET}\n", f"{SECRET}\r\nX: y", f"{SECRET}中", 5, b"bytes"])
def test_a_header_that_cannot_be_sent_is_named_and_not_shown(value: Any, server: RangeServer) -> None:
    with pytest.raises(lb.SourceError, match=r"header Authorization cannot be sent") as caught:
        lb.open(server.add("a.h5", b"data"), headers={"Authorization": value})
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert server.requests == 0


def test_a_header_name_that_is_none(server: RangeServer) -> None:
    with pytest.raises(lb.SourceError, match="has a name that is none"):
        lb.open(server.add("a.h5", b"data"), headers={"A: b": "c"})
