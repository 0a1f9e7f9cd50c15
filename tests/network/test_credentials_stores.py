"""Getting in to object stores: options, environment, files of the AWS command line, providers, anonymous access.

The stores are a loopback server that knows no signatures: what it is asked with tells what was used. That real ones
take the signatures is tested with SeaweedFS in test_s3.py and test_object_store.py.
"""

from __future__ import annotations

import random
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer
from servers.seaweed import Seaweed

import lindi_bridge as lb
from lindi_bridge.ranges import ByteRange, ObjectStoreReader, ReaderOptions, open_reader

pytest.importorskip("obstore")
pytestmark = pytest.mark.usefixtures("plain_environment")

DATA = random.Random(3).randbytes(50_000)
SECRET = "s3cr3t"
URLS = {"s3": "s3://bucket/a", "gs": "gs://bucket/a", "az": "az://bucket/a"}


@pytest.fixture
def endpoint(server: RangeServer) -> str:
    server.add("bucket/a", DATA)
    return f"http://127.0.0.1:{server.port}"


def _reader(url: str, **storage: Any) -> ObjectStoreReader:
    reader = open_reader(url, ReaderOptions(storage_options=storage, retries=0, read_timeout=5.0, total_timeout=10.0))
    assert isinstance(reader, ObjectStoreReader)
    return reader


def _read(url: str, **storage: Any) -> None:
    reader = _reader(url, **storage)
    assert reader.read_locked(3, 5) == DATA[3:8]
    reader.close()


def _sent(server: RangeServer) -> str:
    """The credentials of the last request, as the server saw them."""
    headers = {name.lower(): value for name, value in server.log[-1].headers.items()}
    return f"{headers.get('authorization', '')} {headers.get('x-amz-security-token', '')} {server.log[-1].path}"


GIVEN: dict[str, tuple[str, dict[str, Any], str]] = {
    "S3, fsspec's names": ("s3", {"key": "KEY", "secret": "s", "token": "T"}, "Credential=KEY/"),
    "S3, obstore's names": ("s3", {"access_key_id": "KEY", "secret_access_key": "s"}, "Credential=KEY/"),
    "S3, a session token": ("s3", {"key": "KEY", "secret": "s", "session_token": "TOK"}, " TOK /"),
    "Google, an access token": ("gs", {"token": "TOK"}, "Bearer TOK"),
    "Google, obstore's name": ("gs", {"bearer_token": "TOK"}, "Bearer TOK"),
    "Azure, a key": ("az", {"account_name": "acc", "account_key": "a2V5"}, "SharedKey acc:"),
    "Azure, a signature": ("az", {"account_name": "acc", "sas_token": "sv=1&sig=abc"}, "?sv=1&sig=abc"),
    "Azure, an access token": ("az", {"account_name": "acc", "bearer_token": "TOK"}, "Bearer TOK"),
}


@pytest.mark.parametrize("case", GIVEN)
def test_what_the_caller_gives_is_used(case: str, endpoint: str, server: RangeServer) -> None:
    kind, storage, sent = GIVEN[case]
    _read(URLS[kind], endpoint_url=endpoint, **storage)
    assert sent in _sent(server)


def test_a_connection_string(endpoint: str, server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"DefaultEndpointsProtocol=http;AccountName=acc;AccountKey=a2V5Cg==;BlobEndpoint={endpoint};"
    _read("az://bucket/a", connection_string=text)
    assert "SharedKey acc:" in _sent(server)
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    server.reset()
    _read("az://bucket/a")
    assert "SharedKey acc:" in _sent(server)


@pytest.mark.parametrize("kind", URLS)
def test_without_credentials_requests_are_anonymous(kind: str, endpoint: str, server: RangeServer) -> None:
    account = {"account_name": "acc"} if kind == "az" else {}
    _read(URLS[kind], endpoint_url=endpoint, **account)
    assert _sent(server).split() == ["/bucket/a"]
    server.resources["bucket/a"].fault = "403"
    with pytest.raises(lb.SourcePermissionError, match=r"asked anonymously: pass storage_options=.*AWS_ACCESS_KEY_ID"):
        _read(URLS[kind], endpoint_url=endpoint, **account)


@pytest.mark.parametrize("name", ["endpoint", "endpoint_url"])
@pytest.mark.parametrize("kind", URLS)
def test_an_endpoint_by_option(kind: str, name: str, endpoint: str, server: RangeServer) -> None:
    _read(URLS[kind], **{name: endpoint}, **({"account_name": "acc"} if kind == "az" else {}))
    assert server.requests == 1


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"])
def test_an_endpoint_of_the_environment(
    name: str, endpoint: str, server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, endpoint)
    _read("s3://bucket/a")
    assert server.requests == 1
    with RangeServer() as other:
        other.add("bucket/a", DATA)
        _read("s3://bucket/a", endpoint_url=f"http://127.0.0.1:{other.port}")
        assert (server.requests, other.requests) == (1, 1), "what the caller says comes first"


def test_who_pays(endpoint: str, server: RangeServer) -> None:
    def header(url: str, name: str, **storage: Any) -> str | None:
        _read(url, endpoint_url=endpoint, **storage)
        return {key.lower(): value for key, value in server.log[-1].headers.items()}.get(name)

    keys = {"key": "k", "secret": "s"}
    assert header("s3://bucket/a", "x-amz-request-payer", **keys) is None
    for option in ("request_payer", "requester_pays"):
        assert header("s3://bucket/a", "x-amz-request-payer", **keys, **{option: True}) == "requester"
    assert header("gs://bucket/a", "x-goog-user-project", token="t", requester_pays="project-1") == "project-1"
    assert header("gs://bucket/a", "x-goog-user-project", token="t", requester_pays=True, project="p2") == "p2"
    server.resources["bucket/a"].fault = "403"
    with pytest.raises(lb.SourcePermissionError, match="request_payer"):
        _read("s3://bucket/a", endpoint_url=endpoint, **keys)


# -- the environment ---------------------------------------------------------------------------------------------------


def _environment_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def test_keys_of_the_environment_that_are_refused_are_left_out(
    endpoint: str, server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public data can be read with any keys, as long as they are not sent: keys of another account are refused."""
    _environment_keys(monkeypatch)
    resource = server.resources["bucket/a"]
    resource.fault, resource.times = "403", 1
    reader = _reader("s3://bucket/a", endpoint_url=endpoint)
    ranges = [ByteRange(start, 10) for start in range(0, 20_000, 1_000)]
    assert reader.read_head(10) == DATA[:10]
    assert reader.read_ranges(ranges) == [DATA[r.start : r.stop] for r in ranges]
    signed = ["authorization" in {name.lower() for name in request.headers} for request in server.log]
    assert signed == [True] + [False] * 21, "once refused, they are not sent again"
    reader.close()


def test_both_refused(endpoint: str, server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _environment_keys(monkeypatch)
    server.resources["bucket/a"].fault = "403"
    server.latency = 0.05
    reader = _reader("s3://bucket/a", endpoint_url=endpoint)
    for expected in (2, 3):
        with pytest.raises(lb.SourcePermissionError, match=r"Both .* environment and an anonymous .*storage_options="):
            reader.read_head(10)
        assert sum(request.method == "GET" for request in server.log) == expected
    ranges = [ByteRange(start, 10) for start in range(0, 20_000, 10)]
    with pytest.raises(lb.SourcePermissionError, match="Both"):
        reader.read_ranges(ranges)
    assert server.requests < 3 + 2 * 64 + 10, "the first refusal ends the wave"
    reader.close()


def test_keys_of_the_caller_are_not_left_out(endpoint: str, server: RangeServer) -> None:
    server.resources["bucket/a"].fault = "403"
    with pytest.raises(lb.SourcePermissionError, match=r"credentials were refused.*'anon': True") as caught:
        _read("s3://bucket/a", endpoint_url=endpoint, key="KEY", secret=SECRET)
    assert server.requests == 1
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_keys_that_were_renewed_in_the_file_are_read_again(endpoint: str, server: RangeServer, tmp_path: Path) -> None:
    file = tmp_path / ".aws" / "credentials"
    file.parent.mkdir()

    def write(key: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET}\n")

    write("FIRST")
    reader = _reader("s3://bucket/a", endpoint_url=endpoint)
    assert reader.read_locked(3, 5) == DATA[3:8]
    assert "Credential=FIRST/" in _sent(server)
    write("SECOND")
    resource = server.resources["bucket/a"]
    resource.fault, resource.times, resource.seen = "expired", 1, 0
    assert reader.read_locked(30, 5) == DATA[30:35]
    assert "Credential=SECOND/" in _sent(server)
    resource.seen = 0
    with pytest.raises(lb.SourcePermissionError, match="credentials were refused"):
        reader.read_locked(3, 5)
    reader.close()


@pytest.mark.parametrize("where", ["credentials", "config"])
def test_a_profile(where: str, endpoint: str, server: RangeServer, tmp_path: Path) -> None:
    folder = tmp_path / ".aws"
    folder.mkdir()
    keys = f"aws_access_key_id = PROFILE\naws_secret_access_key = {SECRET}\naws_session_token = TOK\n"
    settings = f"endpoint_url = {endpoint}\nregion = eu-west-9\n"
    if where == "credentials":
        (folder / "credentials").write_text(f"[work]\n{keys}")
        (folder / "config").write_text(f"[profile work]\n{settings}")
    else:
        (folder / "config").write_text(f"[profile work]\n{keys}{settings}")
    _read("s3://bucket/a", profile="work")
    assert "Credential=PROFILE/" in _sent(server)
    assert "/eu-west-9/s3/" in _sent(server)
    assert " TOK " in _sent(server)


def _botocore(monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
    if module is None:
        monkeypatch.setitem(sys.modules, "botocore", None)
    else:
        package = ModuleType("botocore")
        package.session = module  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "botocore", package)
    monkeypatch.setitem(sys.modules, "botocore.session", module)  # type: ignore[arg-type]


def test_a_profile_that_signs_in(
    endpoint: str, server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By botocore, if it is installed; else the error says what is needed."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[profile work]\nsso_session = us\n")

    class Keys:
        access_key, secret_key, token = "SSOKEY", SECRET, "SSOTOKEN"

    class Credentials:
        def get_frozen_credentials(self) -> Keys:
            return Keys()

    class Session:
        def __init__(self, profile: str) -> None:
            assert profile == "work"

        def get_credentials(self) -> Credentials:
            return Credentials()

    module = ModuleType("botocore.session")
    module.Session = Session  # type: ignore[attr-defined]
    _botocore(monkeypatch, module)
    _read("s3://bucket/a", endpoint_url=endpoint, profile="work")
    assert "Credential=SSOKEY/" in _sent(server)
    assert "SSOTOKEN" in _sent(server)
    _botocore(monkeypatch, None)
    _read("s3://bucket/a", endpoint_url=endpoint, profile="work")
    assert "Credential" not in _sent(server)
    server.resources["bucket/a"].fault = "403"
    with pytest.raises(lb.SourcePermissionError, match=r"'work' signs in by sso_session.*pip install botocore"):
        _read("s3://bucket/a", endpoint_url=endpoint, profile="work")


# -- temporary credentials ---------------------------------------------------------------------------------------------

PROVIDED: dict[str, tuple[str, dict[str, Any], str]] = {
    "S3": ("s3", {"access_key_id": "KEY{n}", "secret_access_key": SECRET, "token": "TOK"}, "Credential=KEY{n}/"),
    "Google": ("gs", {"token": "TOK{n}"}, "Bearer TOK{n}"),
    "Azure, a signature": ("az", {"sas_token": "sig=S{n}"}, "?sig=S{n}"),
    "Azure, an access token": ("az", {"token": "TOK{n}"}, "Bearer TOK{n}"),
}


class Provider:
    """Numbers what it gives; each is good for ``seconds``."""

    def __init__(self, credentials: dict[str, Any], seconds: float | None) -> None:
        self.credentials = credentials
        self.seconds = seconds
        self.calls = 0
        self.threads: set[threading.Thread] = set()

    def __call__(self) -> dict[str, Any]:
        self.calls += 1
        self.threads.add(threading.current_thread())
        expires = None if self.seconds is None else datetime.now(UTC) + timedelta(seconds=self.seconds)
        numbered = {name: value.format(n=self.calls) for name, value in self.credentials.items()}
        return {**numbered, "expires_at": expires}


@pytest.mark.parametrize("case", PROVIDED)
def test_a_provider_is_asked_when_its_credentials_are_about_to_expire(
    case: str, endpoint: str, server: RangeServer
) -> None:
    kind, credentials, sent = PROVIDED[case]
    account = {"account_name": "acc"} if kind == "az" else {}
    provider = Provider(credentials, 3_600.0)
    reader = _reader(URLS[kind], endpoint_url=endpoint, credential_provider=provider, **account)
    assert provider.calls == 0, "not before the first read"
    ranges = [ByteRange(start, 10) for start in range(0, 20_000, 200)]
    for _ in range(3):
        assert reader.read_ranges(ranges) == [DATA[r.start : r.stop] for r in ranges]
        assert reader.read_locked(3, 5) == DATA[3:8]
    assert provider.calls == 1
    assert sent.format(n=1) in _sent(server)
    reader.close()
    provider = Provider(credentials, -1.0)
    reader = _reader(URLS[kind], endpoint_url=endpoint, credential_provider=provider, **account)
    for number in (1, 2, 3):
        assert reader.read_ranges(ranges) == [DATA[r.start : r.stop] for r in ranges]
        assert sent.format(n=provider.calls) in _sent(server)
        assert number <= provider.calls <= 2 * number, "for each wave, not for each of its reads"
    assert provider.threads == {threading.current_thread()}, "in the thread that reads"
    reader.close()


def test_credentials_that_expire_sooner_than_they_say(endpoint: str, server: RangeServer) -> None:
    provider = Provider({"access_key_id": "KEY{n}", "secret_access_key": SECRET}, None)
    reader = _reader("s3://bucket/a", endpoint_url=endpoint, credential_provider=provider)
    assert reader.read_locked(3, 5) == DATA[3:8]
    resource = server.resources["bucket/a"]
    resource.fault, resource.times, resource.seen = "expired", 1, 0
    assert reader.read_locked(30, 5) == DATA[30:35]
    assert provider.calls == 2
    assert "Credential=KEY2/" in _sent(server)
    reader.close()


def _fail() -> Any:
    raise RuntimeError("the token service is down")


async def _asynchronous() -> Any:
    return {}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("provider", [_fail, _asynchronous, lambda: None])
def test_a_provider_that_fails(provider: Callable[[], Any], endpoint: str, server: RangeServer) -> None:
    reader = _reader("s3://bucket/a", endpoint_url=endpoint, credential_provider=provider)
    with pytest.raises(lb.SourcePermissionError, match="credentials could not be had"):
        reader.read_locked(3, 5)
    assert server.requests == 0
    reader.close()


def test_a_provider_works_while_h5py_holds_its_lock(endpoint: str, server: RangeServer, tmp_path: Path) -> None:
    """obstore's own threads would need Python then, and might wait for the very lock."""
    values = np.random.default_rng(1).random(100_000)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("values", data=values, chunks=(1_000,))
    server.add("bucket/a.h5", tmp_path / "a.h5")
    provider = Provider({"access_key_id": "KEY{n}", "secret_access_key": SECRET}, -1.0)
    storage = {"endpoint_url": endpoint, "credential_provider": provider}
    with h5py.File(lb.hdf5_file("s3://bucket/a.h5", storage_options=storage)) as file:
        assert np.array_equal(file["values"][:], values)
    assert provider.calls > 0
    assert provider.threads == {threading.current_thread()}


# -- faults ------------------------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[type[Exception], str, int]] = {
    "no_range": (lb.SourceError, "could not be read", 3),
    "short": (lb.SourceError, "2500 bytes came", 3),
    "surplus": (lb.SourceError, "could not be read", 3),
    "wrong_range": (lb.SourceError, "could not be read", 3),
    "gzip": (lb.SourceProtocolError, "stored compressed", 3),
    "page": (lb.SourceError, "could not be read", 3),
    "cut": (lb.SourceError, "could not be read", 3),
    "reset": (lb.SourceError, "could not be read", 3),
    "long": (lb.SourceError, "outside the object", 3),
    "drop": (lb.SourceError, "could not be read", 3),
    "redirect_loop": (lb.SourceError, "could not be read", 33),
    "trickle": (lb.SourceTimeoutError, "in time", 3),
    "trickle_headers": (lb.SourceTimeoutError, "in time", 3),
    "stall": (lb.SourceTimeoutError, "in time", 3),
    "403": (lb.SourcePermissionError, "anonymously", 1),
    "404": (lb.SourceNotFoundError, "no such object", 1),
    "412": (lb.SourceChangedError, "ndex it again", 1),
    "429": (lb.SourceError, "later", 3),
    "500": (lb.SourceError, "later", 3),
    "503": (lb.SourceError, "later", 3),
}


def _faulty(server: RangeServer, **limits: Any) -> ObjectStoreReader:
    storage = {"anon": True, "endpoint_url": f"http://127.0.0.1:{server.port}"}
    given = {"retries": 2, "read_timeout": 1.0, "total_timeout": 5.0, **limits}
    return ObjectStoreReader("s3://bucket/a", ReaderOptions(storage_options=storage, **given))


@pytest.mark.parametrize("how", ["locked", "wave"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_store_is_an_error(fault: str, how: str, server: RangeServer) -> None:
    error, message, requests = FAULTS[fault]
    seconds = 0.3 if fault.startswith("trickle") else 30.0
    server.add("bucket/a", DATA, fault=fault, seconds=seconds)
    reader = _faulty(server, total_timeout=2.0)
    with pytest.raises(error, match=message):
        reader.read_locked(100, 5_000) if how == "locked" else reader.read_ranges([ByteRange(100, 5_000)])
    assert server.requests <= requests
    reader.close()


@pytest.mark.parametrize("key", ["416", "status code: 416 ", "TimedOut", "ExpiredToken"])
def test_what_a_store_says_is_not_looked_for_in_the_name(key: str, server: RangeServer) -> None:
    """obstore's messages hold the address, port and key: 'http://127.0.0.1:41641/...' is no status 416."""
    server.add(f"bucket/{key}", DATA, fault="429")
    storage = {"anon": True, "endpoint_url": f"http://127.0.0.1:{server.port}"}
    reader = ObjectStoreReader(f"s3://bucket/{key}", ReaderOptions(storage_options=storage, retries=0))
    with pytest.raises(lb.SourceError, match="could not be read") as caught:
        reader.read_locked(100, 5_000)
    assert type(caught.value) is lb.SourceError
    assert server.requests == 1
    reader.close()


@pytest.mark.parametrize("fault", ["cut", "reset", "drop", "500", "503", "429", "stall"])
def test_a_fault_of_a_store_that_passes(fault: str, server: RangeServer) -> None:
    server.add("bucket/a", DATA, fault=fault, times=2, seconds=30)
    reader = _faulty(server, total_timeout=30.0)
    assert reader.read_locked(100, 5_000) == DATA[100:5_100]
    assert server.requests == 3
    reader.close()


# -- a real server -----------------------------------------------------------------------------------------------------


def test_wrong_keys_of_the_environment_and_a_public_bucket(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    public, private = seaweed.put("pub", "a", DATA), seaweed.put("priv", "a", DATA)
    _environment_keys(monkeypatch)
    _read(public, endpoint_url=seaweed.endpoint)
    with pytest.raises(lb.SourcePermissionError, match="Both"):
        _read(private, endpoint_url=seaweed.endpoint)


def test_everything_by_the_environment(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    url = seaweed.put("priv", "a", DATA)
    monkeypatch.setenv("AWS_ENDPOINT_URL", seaweed.endpoint)
    with pytest.raises(lb.SourcePermissionError, match="anonymously"):
        _read(url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweed.signed["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweed.signed["secret"])
    _read(url)


def test_a_provider_and_a_real_server(seaweed: Seaweed) -> None:
    url = seaweed.put("priv", "a", DATA)
    keys = {"access_key_id": seaweed.signed["key"], "secret_access_key": seaweed.signed["secret"]}
    provider = Provider(keys, 3_600.0)
    _read(url, endpoint_url=seaweed.endpoint, credential_provider=provider)
    assert provider.calls == 1
