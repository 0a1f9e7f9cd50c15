"""Sources that fail, change, lie or must not be trusted, met through the public functions.

There are two outcomes only: the right values, or an error of the right class that says what to do. Never a hang, never
a fill value in place of data, and no secret in anything that is shown or written.
"""

from __future__ import annotations

import io
import json
import logging
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from builders.compare import Raised, attempt
from servers.range_server import FAULTS, RangeServer

import lindi_bridge as lb

pytestmark = pytest.mark.usefixtures("plain_environment")

SECRET = "s3cr3t"
SHORT = {"connect_timeout": 2.0, "read_timeout": 0.5, "total_timeout": 1.5}
SIZE = 150_000


def _make(path: Path, seed: int) -> bytes:
    random = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        file.create_dataset("values", data=random.random(SIZE), chunks=(10_000,), fillvalue=-1.0)
        file["rows"] = random.random((300, 100))
        file["group/text"] = np.array([f"text {i}" for i in range(50)], dtype=h5py.string_dtype())
        file["group"].attrs["note"] = "a note"
        file["table"] = np.zeros(20, [("x", "i4"), ("y", "f8")])
    return path.read_bytes()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A file, another one with the same structure and size, and what the first one holds."""
    folder = tmp_path_factory.mktemp("faults")
    data, other = _make(folder / "a.h5", 1), _make(folder / "other.h5", 2)
    assert len(data) == len(other)
    with h5py.File(folder / "a.h5") as file:
        values, rows = file["values"][()], file["rows"][()]
    return {"path": folder / "a.h5", "data": data, "other": other, "values": values, "rows": rows}


def _document(made: dict[str, Any], server: RangeServer, folder: Path, **behaviour: Any) -> tuple[str, str]:
    """Index the file while it is served as it should be; the address, and the document on the disk."""
    url = server.add("a.h5", made["data"], **behaviour)
    document = folder / "a.lindi.json"
    lb.index(url).save(document)
    return url, str(document)


def _values(file: Any, made: dict[str, Any]) -> bool:
    """Read all in several ways; False if a value is wrong."""
    return (
        np.array_equal(file["values"][5:], made["values"][5:])
        and np.array_equal(file["values"][::20_001], made["values"][::20_001])
        and np.array_equal(file["rows"][100:200], made["rows"][100:200])
        and file["group/text"].asstr()[7] == "text 7"
    )


def _by_index(url: str, document: str, made: dict[str, Any]) -> bool:
    index = lb.index(url, **SHORT)
    with lb.open(index, source=io.BytesIO(made["data"])) as file:
        return _values(file, made) and index.problems == []


def _by_document(url: str, document: str, made: dict[str, Any]) -> bool:
    with lb.open(document, **SHORT) as file:
        return _values(file, made)


def _by_url(url: str, document: str, made: dict[str, Any]) -> bool:
    with lb.open(url, **SHORT) as file:
        return _values(file, made)


def _by_h5py(url: str, document: str, made: dict[str, Any]) -> bool:
    with h5py.File(lb.hdf5_file(document, **SHORT)) as file:
        return _values(file, made)


def _by_h5py_and_url(url: str, document: str, made: dict[str, Any]) -> bool:
    with h5py.File(lb.hdf5_file(url, **SHORT)) as file:
        return _values(file, made)


def _by_source(url: str, document: str, made: dict[str, Any]) -> bool:
    with lb.open(document, source=f"{url}?other=1", **SHORT) as file:
        return _values(file, made)


WAYS: dict[str, Callable[[str, str, dict[str, Any]], bool]] = {
    "index": _by_index,
    "document": _by_document,
    "url": _by_url,
    "h5py over the document": _by_h5py,
    "h5py over the url": _by_h5py_and_url,
    "source=": _by_source,
}

HARMLESS = {"no_total", "slow", "no_length", "close"}
ERRORS: dict[str, tuple[type[Exception], str]] = {
    "no_range": (lb.SourceProtocolError, "range requests"),
    "short": (lb.SourceProtocolError, "bytes"),
    "surplus": (lb.SourceProtocolError, "more than"),
    "wrong_range": (lb.SourceProtocolError, "asked for"),
    "gzip": (lb.SourceProtocolError, "compress"),
    "long": (lb.SourceProtocolError, "announced"),
    "page": (lb.SourceProtocolError, "web page"),
    "expired": (lb.SourcePermissionError, "renew="),
    "cut": (lb.SourceProtocolError, "too early"),
    "reset": (lb.SourceError, "connection failed"),
    "drop": (lb.SourceError, "connection failed"),
    "stall": (lb.SourceTimeoutError, "timeout"),
    "trickle": (lb.SourceTimeoutError, "timeout"),
    "trickle_headers": (lb.SourceTimeoutError, "timeout"),
    "changed": (lb.SourceChangedError, "source=|ndex it again|while it was"),
    "truncated": (lb.SourceError, "truncated|size|bytes"),
    "early": (lb.SourceProtocolError, "HTTP 103"),
    "redirect": (lb.SourceProtocolError, "redirect"),
    "redirect_loop": (lb.SourceProtocolError, "redirect"),
    "401": (lb.SourcePermissionError, "headers="),
    "403": (lb.SourcePermissionError, "headers="),
    "404": (lb.SourceNotFoundError, "no file"),
    "410": (lb.SourceNotFoundError, "no file"),
    "412": (lb.SourceChangedError, "ndex it again"),
    "429": (lb.SourceError, "concurrency="),
    "408": (lb.SourceError, "later"),
    "500": (lb.SourceError, "later"),
    "501": (lb.SourceProtocolError, "501"),
    "503": (lb.SourceError, "later"),
    "507": (lb.SourceError, "later"),
}
TRANSIENT = ("short", "long", "cut", "reset", "drop", "408", "429", "500", "503", "507", "520")
SLOW = {"stall", "trickle", "trickle_headers"}


def test_every_fault_of_the_server_is_here() -> None:
    # Two are about the next request on the connection: see test_http_pool.py.
    assert FAULTS.keys() - {"<status>", "once", "more"} <= HARMLESS | set(ERRORS)


def _misbehave(server: RangeServer, fault: str, **more: Any) -> None:
    """From the next request on."""
    resource = server.resources["a.h5"]
    resource.fault, resource.seen, resource.after, resource.times = fault, 0, 0, None
    resource.seconds = {"slow": 0.02, "stall": 30.0, "trickle": 0.2, "trickle_headers": 0.2}.get(fault, 0.0)
    resource.location = "file:///etc/hostname"
    for name, value in more.items():
        setattr(resource, name, value)


@pytest.mark.parametrize("fault", sorted(HARMLESS))
@pytest.mark.parametrize("way", WAYS)
def test_harmless_peculiarities(
    way: str, fault: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    if fault == "no_total" and way in {"index", "url", "h5py over the url"}:
        pytest.skip("nothing tells the size of the file there: see the next test")
    url, document = _document(made, server, tmp_path)
    _misbehave(server, fault)
    assert WAYS[way](url, document, made)


@pytest.mark.parametrize("way", ["index", "url", "h5py over the url"])
def test_a_server_that_does_not_tell_the_size(
    way: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    url, document = _document(made, server, tmp_path)
    _misbehave(server, "no_total")
    with pytest.raises(lb.SourceProtocolError, match="size of the file"):
        WAYS[way](url, document, made)


def _most_requests(fault: str) -> int:
    """Of one wave that fails, and of what was read before."""
    attempts = 5 if fault in {*TRANSIENT, *SLOW} else 11 if fault == "redirect_loop" else 1
    return 1 + 20 * attempts


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize("way", WAYS)
def test_a_fault_is_an_error_that_says_what_to_do(
    way: str, fault: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    url, document = _document(made, server, tmp_path)
    _misbehave(server, fault)
    error, remedy = ERRORS[fault]
    if fault in {"changed", "truncated", "no_range", "page"} and way in {"index", "url", "h5py over the url"}:
        _misbehave(server, fault, after=1)  # from the first request on it would simply be another file
        if fault == "no_range":
            _misbehave(server, fault)
    server.reset()
    with pytest.raises(error, match=remedy) as caught:
        WAYS[way](url, document, made)
    assert url in str(caught.value)
    assert server.requests <= _most_requests(fault), "a read that fails is not tried for ever"


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize("way", ["document", "url", "h5py over the document", "h5py over the url"])
def test_a_fault_in_the_middle_of_reading(
    way: str, fault: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    """The file is open, part of it was read. What was read stays right; the rest is an error, also when repeated."""
    url, document = _document(made, server, tmp_path)
    name = document if "document" in way else url
    opened = h5py.File(lb.hdf5_file(name, **SHORT)) if "h5py" in way else lb.open(name, **SHORT)
    with opened as file:
        first = file["values"][:3]
        assert np.array_equal(first, made["values"][:3])
        _misbehave(server, fault)
        error, _ = ERRORS[fault]
        for _ in range(1 if fault in SLOW else 2):
            found = attempt(lambda f: f["values"][90_000:140_000], file)
            if isinstance(found, Raised):
                assert isinstance(found.error, error)
            else:  # it was fetched with what was asked for before
                assert np.array_equal(found, made["values"][90_000:140_000])
        _misbehave(server, "")
        if fault not in {"changed", "truncated"}:
            assert _values(file, made), "the file can be used again when the server has recovered"


@pytest.mark.parametrize("fault", TRANSIENT)
@pytest.mark.parametrize("way", WAYS)
def test_a_fault_that_passes_is_overcome(
    way: str, fault: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    url, document = _document(made, server, tmp_path)
    _misbehave(server, fault, times=2)
    assert WAYS[way](url, document, made)
    assert server.requests > 2


# -- which file is it --------------------------------------------------------------------------------------------------


def _read(document: str, **options: Any) -> np.ndarray:
    with lb.open(document, **SHORT, **options) as file:
        return np.asarray(file["values"][20_000:90_000])


def _read_by_h5py(document: str, **options: Any) -> np.ndarray:
    with h5py.File(lb.hdf5_file(document, **SHORT, **options)) as file:
        return np.asarray(file["values"][20_000:90_000])


readers = pytest.mark.parametrize("read", [_read, _read_by_h5py], ids=["lb.open", "h5py"])
tags = pytest.mark.parametrize("etag", ["strong", "weak", "none"])


@readers
@tags
def test_the_same_file_is_read(
    read: Callable[..., Any], etag: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    _, document = _document(made, server, tmp_path, etag=etag)
    assert np.array_equal(read(document), made["values"][20_000:90_000])


@readers
@tags
@pytest.mark.parametrize("later", ["strong", "weak", "none"])
def test_another_file_of_the_same_size_is_refused(
    read: Callable[..., Any], etag: str, later: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    _, document = _document(made, server, tmp_path, etag=etag)
    server.add("a.h5", made["other"], etag=later)
    with pytest.raises(lb.SourceChangedError, match=r"source=|ndex it again"):
        read(document)


@readers
@tags
@pytest.mark.parametrize("change", [-1, 1, -5000])
def test_another_size_is_refused(
    read: Callable[..., Any], etag: str, change: int, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    _, document = _document(made, server, tmp_path, etag=etag)
    data = made["data"]
    server.add("a.h5", data[:change] if change < 0 else data + bytes(change), etag="none")
    with pytest.raises(lb.SourceError):
        read(document)


@readers
@tags
def test_metadata_changed_in_place_is_refused(
    read: Callable[..., Any], etag: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    """The same size and the same values at other places: only a look at the metadata tells."""
    _, document = _document(made, server, tmp_path, etag=etag)
    path = tmp_path / "changed.h5"
    path.write_bytes(made["data"])
    with h5py.File(path, "r+") as file:
        file["group"].attrs.modify("note", "a lone")
    if path.read_bytes() == made["data"] or path.stat().st_size != len(made["data"]):
        pytest.skip("the attribute was not rewritten in place")
    server.add("a.h5", path, etag="none")
    with pytest.raises(lb.SourceChangedError):
        read(document)


def test_a_local_source_that_changed_is_refused(made: dict[str, Any], tmp_path: Path) -> None:
    path, document = tmp_path / "a.h5", tmp_path / "a.lindi.json"
    path.write_bytes(made["data"])
    lb.index(path).save(document)
    assert np.array_equal(_read(str(document)), made["values"][20_000:90_000])
    path.write_bytes(made["other"])
    with pytest.raises(lb.SourceChangedError):
        _read(str(document))
    path.write_bytes(made["data"][:-1])
    with pytest.raises(lb.SourceError):
        _read(str(document))
    path.unlink()
    with pytest.raises(lb.SourceNotFoundError):
        _read(str(document))


def test_a_document_whose_source_is_gone_still_shows_itself(made: dict[str, Any], tmp_path: Path) -> None:
    path, document = tmp_path / "a.h5", tmp_path / "a.lindi.json"
    path.write_bytes(made["data"])
    lb.index(path).save(document)
    path.unlink()
    with lb.open(document) as file:
        assert list(file) == ["group", "rows", "table", "values"]
        assert file["values"].shape == (SIZE,)
        assert file["group/text"].asstr()[3] == "text 3"


# -- source= -----------------------------------------------------------------------------------------------------------


def _file(data: bytes, folder: Path) -> Path:
    path = folder / "copy.h5"
    path.write_bytes(data)
    return path


SOURCES: dict[str, Callable[[bytes, RangeServer, Path], Any]] = {
    "mirror": lambda data, server, folder: server.add("mirror.h5", data),
    "mirror with a weak tag": lambda data, server, folder: server.add("mirror.h5", data, etag="weak"),
    "mirror without a tag": lambda data, server, folder: server.add("mirror.h5", data, etag="none"),
    "mirror with another tag": lambda data, server, folder: server.add(
        "mirror.h5", data, etag="none", extra={"ETag": '"another"'}
    ),
    "another origin": lambda data, server, folder: server.add("mirror.h5", data).replace("127.0.0.1", "localhost"),
    "local path": lambda data, server, folder: str(_file(data, folder)),
    "pathlib": lambda data, server, folder: _file(data, folder),
    "file URL": lambda data, server, folder: _file(data, folder).as_uri(),
    "open file": lambda data, server, folder: _file(data, folder).open("rb"),
    "BytesIO": lambda data, server, folder: io.BytesIO(data),
    "bytes": lambda data, server, folder: data,
    "fsspec": lambda data, server, folder: "memory://lindi_bridge-faults/a.h5",
    "mapping": lambda data, server, folder: {server.url("a.h5"): server.add("mirror.h5", data)},
    "mapping to a path": lambda data, server, folder: {server.url("a.h5"): _file(data, folder)},
    "mapping to an open file": lambda data, server, folder: {server.url("a.h5"): io.BytesIO(data)},
    "mapping of several": lambda data, server, folder: {
        "s3://elsewhere/b.h5": "nowhere.h5",
        server.url("a.h5"): str(_file(data, folder)),
    },
}


@readers
@pytest.mark.parametrize("key", ["data", "other"])
@pytest.mark.parametrize("kind", SOURCES)
def test_source_elsewhere(
    kind: str, key: str, read: Callable[..., Any], made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    """A copy of the file is read, whatever its tag; another file of the same size is refused."""
    import fsspec

    _, document = _document(made, server, tmp_path)
    fsspec.filesystem("memory").pipe("/lindi_bridge-faults/a.h5", made[key])
    source = SOURCES[kind](made[key], server, tmp_path)
    server.resources.pop("a.h5")
    try:
        if key == "data":
            assert np.array_equal(read(document, source=source), made["values"][20_000:90_000])
        else:
            with pytest.raises(lb.SourceChangedError):
                read(document, source=source)
    finally:
        if hasattr(source, "close"):
            source.close()


def test_a_mapping_that_does_not_name_the_source(made: dict[str, Any], server: RangeServer, tmp_path: Path) -> None:
    _, document = _document(made, server, tmp_path)
    assert np.array_equal(_read(document, source={"s3://elsewhere/b.h5": "nowhere"}), made["values"][20_000:90_000])


# -- secrets -----------------------------------------------------------------------------------------------------------


def _everything_shown(problem: BaseException) -> str:
    return "".join(traceback.format_exception(problem)) + repr(problem) + str(problem) + repr(problem.args)


@pytest.mark.parametrize("fault", ERRORS)
def test_no_signature_in_an_error(
    fault: str, made: dict[str, Any], server: RangeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url, document = _document(made, server, tmp_path)
    _misbehave(server, fault)
    signed = url.replace("http://", f"http://user:{SECRET}@") + f"?X-Amz-Signature={SECRET}&sig={SECRET}"
    options: dict[str, Any] = {**SHORT, "headers": {"Authorization": f"Bearer {SECRET}"}}
    attempts = {
        "open": lambda: lb.open(signed, **options),
        "document": lambda: lb.open(document, source=signed, **options)["values"][90_000:],
        "h5py": lambda: h5py.File(lb.hdf5_file(document, source=signed, **options))["values"][90_000:],
    }
    if fault not in SLOW:
        attempts["index"] = lambda: lb.index(signed, headers=options["headers"])
    outcomes = [attempt(lambda _, what=what: what(), None) for what in attempts.values()]
    refused = [outcome.error for outcome in outcomes if isinstance(outcome, Raised)]
    assert len(refused) >= 2
    for error in refused:
        assert isinstance(error, lb.LindiBridgeError)
        assert SECRET not in _everything_shown(error)
        assert "X-Amz" not in str(error)
    assert SECRET not in caplog.text


def test_a_signed_address_leaves_no_trace(
    made: dict[str, Any], server: RangeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    query = f"X-Amz-Signature={SECRET}"
    url = server.add("a.h5", made["data"], query=query)
    signed = f"{url}?{query}"
    index = lb.index(signed, headers={"X-Token": SECRET})
    assert index.url == url
    document = tmp_path / "a.lindi.json"
    index.save(document)
    assert SECRET not in document.read_text() + repr(index) + repr(vars(index))
    with lb.open(str(document), source=signed, headers={"X-Token": SECRET}) as file:
        assert _values(file, made)
        shown = [
            file.filename,
            repr(file),
            str(file),
            file._repr_html_(),
            repr(file["values"]),
            repr(file._file_object),
        ]
        shown += [
            repr(file["values"].file),
            repr(file._file_object.reader),
            repr(file._file_object.properties["access"]),
        ]
        assert SECRET not in "".join(map(str, shown))
        for thing in (file, file["group"], file["values"]):
            for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
                assert SECRET.encode() not in pickle.dumps(thing, protocol)
    with lb.open(signed, headers={"X-Token": SECRET}) as file:
        assert _values(file, made)
        assert file.filename == url
        assert SECRET.encode() not in pickle.dumps(file["values"])
    assert SECRET not in caplog.text


def test_options_show_no_secrets(made: dict[str, Any], server: RangeServer, tmp_path: Path) -> None:
    _, document = _document(made, server, tmp_path)
    options = {
        "headers": {"A": SECRET},
        "storage_options": {"key": SECRET},
        "source": f"{server.url('a.h5')}?s={SECRET}",
    }
    with lb.open(document, **options) as file:
        assert SECRET not in repr(file._file_object.properties["access"])
        assert SECRET.encode() not in pickle.dumps(file)


AUTHORIZATION = {"Authorization": f"Bearer {SECRET}"}


def _seen(server: RangeServer, name: str) -> list[str | None]:
    """The Authorization headers of all requests for a file, by host asked."""
    return [request.headers.get("Authorization") for request in server.log if request.path == f"/{name}"]


@pytest.fixture
def two_hosts(made: dict[str, Any], server: RangeServer, tmp_path: Path) -> tuple[str, str]:
    """A document on 127.0.0.1 whose source is on localhost, which is another origin."""
    url = server.add("a.h5", made["data"])
    elsewhere = server.url("a.h5", host="localhost")
    text = lb.index(url, url=elsewhere).to_json()
    assert json.loads(text)["hdf5"]
    document = server.add("a.lindi.json", text.encode(), require=AUTHORIZATION)
    server.reset()
    return document, elsewhere


def test_headers_go_to_the_origin_that_was_typed_only(
    two_hosts: tuple[str, str], made: dict[str, Any], server: RangeServer
) -> None:
    document, _ = two_hosts
    with lb.open(document, headers=AUTHORIZATION, **SHORT) as file:
        assert _values(file, made)
    assert set(_seen(server, "a.lindi.json")) == {AUTHORIZATION["Authorization"]}
    assert set(_seen(server, "a.h5")) == {None}


def test_headers_go_where_they_are_allowed_to(
    two_hosts: tuple[str, str], made: dict[str, Any], server: RangeServer
) -> None:
    document, elsewhere = two_hosts
    server.resources["a.h5"].require = AUTHORIZATION
    with (
        lb.open(document, headers=AUTHORIZATION, **SHORT) as file,
        pytest.raises(lb.SourcePermissionError, match="credentials_for"),
    ):
        _values(file, made)
    origin = elsewhere.rsplit("/", 1)[0]
    for options in ({"credentials_for": [origin]}, {"credentials_for": [elsewhere]}, {"source": elsewhere}):
        with lb.open(document, headers=AUTHORIZATION, **SHORT, **options) as file:
            assert _values(file, made)


def test_headers_follow_a_source_on_the_documents_own_host(made: dict[str, Any], server: RangeServer) -> None:
    url = server.add("a.h5", made["data"], require=AUTHORIZATION)
    text = lb.index(url, headers=AUTHORIZATION, url="a.h5").to_json()
    document = server.add("folder.lindi.json", text.encode(), require=AUTHORIZATION)
    with lb.open(document, headers=AUTHORIZATION, **SHORT) as file:
        assert _values(file, made)


def test_headers_and_a_local_document(made: dict[str, Any], server: RangeServer, tmp_path: Path) -> None:
    """Headers are not sent to whatever host a document names; the error says how to allow it."""
    _, document = _document(made, server, tmp_path)
    server.resources["a.h5"].require = AUTHORIZATION
    with (
        lb.open(document, headers=AUTHORIZATION, **SHORT) as file,
        pytest.raises(lb.SourcePermissionError, match="credentials_for"),
    ):
        _values(file, made)
    origin = server.url("a.h5").rsplit("/", 1)[0]
    with lb.open(document, headers=AUTHORIZATION, credentials_for=[origin], **SHORT) as file:
        assert _values(file, made)


@pytest.mark.parametrize("kind", ["document", "source"])
def test_headers_do_not_follow_a_redirect_elsewhere(
    kind: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    url = server.add("a.h5", made["data"])
    text = lb.index(url).to_json()
    server.add("real.lindi.json", text.encode())
    moved = {"document": "real.lindi.json", "source": "a.h5"}[kind]
    first = server.add("moved", b"", fault="redirect", location=server.url(moved, host="localhost"))
    server.reset()
    options: dict[str, Any] = {"headers": AUTHORIZATION, **SHORT}
    with lb.open(first, **options) if kind == "document" else lb.open(url, **options) as file:
        assert _values(file, made)
    if kind == "source":
        document = tmp_path / "a.lindi.json"
        document.write_text(text)
        server.reset()
        with lb.open(document, source=first, **options) as file:
            assert _values(file, made)
    assert set(_seen(server, "moved")) == {AUTHORIZATION["Authorization"]}
    assert AUTHORIZATION["Authorization"] not in [
        request.headers.get("Authorization")
        for request in server.log
        if request.headers["Host"].startswith("localhost")
    ]


def test_netrc_is_not_for_strangers_documents(made: dict[str, Any], server: RangeServer, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text(f"machine localhost login me password {SECRET}\n")
    (tmp_path / ".netrc").chmod(0o600)
    url = server.add("a.h5", made["data"])
    text = lb.index(url, url=server.url("a.h5", host="localhost")).to_json()
    document = server.add("a.lindi.json", text.encode())
    server.reset()
    with lb.open(document, **SHORT) as file:
        assert _values(file, made)
    assert set(_seen(server, "a.h5")) == {None}


# -- strangers' documents ----------------------------------------------------------------------------------------------


@pytest.fixture
def stranger(made: dict[str, Any], server: RangeServer) -> Callable[[str], str]:
    """Serves a document that names any source; gives its address."""

    def serve(url: str) -> str:
        text = lb.index(io.BytesIO(made["data"]), url=url).to_json()
        return server.add("stranger.lindi.json", text.encode())

    return serve


FORBIDDEN = (
    *("{path}", "file://{path}", "file:{path}", "local://{path}", "FILE://{path}", "memory://lindi_bridge/a.h5"),
    *("filecache::{url}", "simplecache::{url}", "blockcache::file://{path}", "zip://a.h5::{url}"),
    *("reference://a::{url}", "data:application/octet-stream;base64,AAAA", "ssh://localhost/a.h5", "ftp://localhost/a"),
    *("http+unix://%2Ftmp%2Fa/a.h5", "dir::file://{path}", "\\\\host\\share\\a.h5", "github://a:b@main/a.h5", "~/a.h5"),
)


@pytest.mark.parametrize("address", FORBIDDEN)
def test_a_document_from_the_network_may_not_name(
    address: str, stranger: Callable[[str], str], made: dict[str, Any], server: RangeServer
) -> None:
    import fsspec

    fsspec.filesystem("memory").pipe("/lindi_bridge/a.h5", made["data"])
    url = server.add("a.h5", made["data"])
    document = stranger(address.format(path=made["path"], url=url))
    with pytest.raises((lb.DocumentError, lb.UnsupportedSchemeError, lb.SourceNotFoundError)) as caught:
        lb.open(document, **SHORT)["values"][90_000:]
    if isinstance(caught.value, lb.SourceNotFoundError):
        assert str(caught.value).startswith("http://127.0.0.1"), "a relative name stays on the document's host"
    with pytest.raises((lb.DocumentError, lb.UnsupportedSchemeError, lb.SourceNotFoundError)):
        h5py.File(lb.hdf5_file(document, **SHORT))["values"][90_000:]
    assert "/a.h5" not in {request.path for request in server.log}
    with lb.open(document, source=url, **SHORT) as file:
        assert _values(file, made), "the user may name what a stranger may not"


def test_the_same_document_on_the_disk_may_name_a_path(made: dict[str, Any], tmp_path: Path) -> None:
    document = tmp_path / "a.lindi.json"
    document.write_text(lb.index(made["path"]).to_json())
    with lb.open(document) as file:
        assert _values(file, made)


@pytest.mark.parametrize("relative", ["a.h5", "./a.h5", "../a.h5", "deep/../a.h5"])
def test_relative_names_on_a_server(
    relative: str, stranger: Callable[[str], str], made: dict[str, Any], server: RangeServer
) -> None:
    server.add("a.h5", made["data"])
    with lb.open(stranger(relative), **SHORT) as file:
        assert _values(file, made)


def test_a_relative_source_does_not_inherit_the_documents_signature(
    stranger: Callable[[str], str], made: dict[str, Any], server: RangeServer
) -> None:
    server.add("a.h5", made["data"])
    with lb.open(f"{stranger('a.h5')}?sig={SECRET}", **SHORT) as file:
        assert _values(file, made)
    assert not [request.path for request in server.log if "a.h5?" in request.path]


@pytest.mark.parametrize(
    "location", ["file:///etc/hostname", "ftp://localhost/a.h5", "data:text/plain,a", "s3://b/a.h5"]
)
def test_redirects_to_other_schemes_are_refused(
    location: str, stranger: Callable[[str], str], made: dict[str, Any], server: RangeServer
) -> None:
    url = server.add("a.h5", made["data"], fault="redirect", location=location)
    for document in (stranger("a.h5"), url):
        with pytest.raises(lb.SourceProtocolError, match="redirect"):
            lb.open(document, **SHORT)["values"][90_000:]


def test_a_strangers_document_does_not_lead_from_a_public_host_home(
    made: dict[str, Any], server: RangeServer, monkeypatch: pytest.MonkeyPatch, stranger: Callable[[str], str]
) -> None:
    """127.0.0.1 plays the public host, localhost is at home."""
    from lindi_bridge.ranges import address

    monkeypatch.setattr(address, "is_private_host", lambda url: "//localhost" in url)
    server.add("real.h5", made["data"])
    url = server.add("a.h5", b"", fault="redirect", location=server.url("real.h5", host="localhost"))
    document = stranger("a.h5")
    with pytest.raises(lb.SourceProtocolError, match="local or private"):
        lb.open(document, **SHORT)["values"][90_000:]
    assert "/real.h5" not in {request.path for request in server.log}
    with lb.open(document, source=url, **SHORT) as file:
        assert _values(file, made), "where the user sends us we go"


@pytest.mark.parametrize(
    "damage",
    [
        *(b"", b"{", b"{}", b"[]", b"null", b'{"refs": 5}', b'{"refs": {}, "hdf5": 5}', b"<html>not found</html>"),
        *(
            b'{"version": 1, "refs": {}, "hdf5": {}}',
            b"{" * 100_000,
            b"\xff\xfe{",
            b"\x28\xb5\x2f\xfd",
            b"\x28\xb5\x2f\xfdabc",
        ),
    ],
    ids=lambda damage: repr(damage[:12]),
)
def test_what_is_no_document(damage: bytes, server: RangeServer, tmp_path: Path) -> None:
    path = tmp_path / "a.lindi.json"
    path.write_bytes(damage)
    for name in (str(path), server.add("a.lindi.json", damage), io.BytesIO(damage)):
        with pytest.raises((lb.DocumentError, lb.NotHDF5Error)):
            lb.open(name, **SHORT)


def test_a_document_cut_at_every_tenth(made: dict[str, Any], tmp_path: Path) -> None:
    text = lb.index(made["path"]).to_json().encode()
    for part in range(1, 10):
        with pytest.raises(lb.DocumentError):
            lb.open(text[: len(text) * part // 10], source=made["data"])


# -- pickling ----------------------------------------------------------------------------------------------------------

UNPICKLE = """
import pickle, sys
import numpy as np
thing = pickle.load(sys.stdin.buffer)
kind = type(thing).__name__
if kind == "File":
    thing = thing["values"]
elif kind == "Group":
    thing = thing.file["values"]
np.save(sys.stdout.buffer, thing[20_000:90_000])
"""


@pytest.mark.parametrize("path", ["/", "group", "values"])
@pytest.mark.parametrize("name", ["document", "url", "document on the server", "document in memory"])
def test_pickles_are_opened_in_another_process(
    name: str, path: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    url, document = _document(made, server, tmp_path)
    names: dict[str, Any] = {
        "document": document,
        "url": url,
        "document on the server": server.add("a.lindi.json", Path(document)),
        "document in memory": Path(document).read_bytes(),
    }
    with lb.open(names[name], headers={"X-Token": SECRET}) as file:
        data = pickle.dumps(file if path == "/" else file[path])
        again = pickle.loads(data)
        assert type(again) is type(file if path == "/" else file[path])
        assert again.name == file[path].name
        assert again != file[path]
        again.file.close()
    assert SECRET.encode() not in data
    done = subprocess.run([sys.executable, "-c", UNPICKLE], input=data, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert np.array_equal(np.load(io.BytesIO(done.stdout)), made["values"][20_000:90_000])


def test_what_cannot_be_pickled_says_why(made: dict[str, Any]) -> None:
    with lb.open(io.BytesIO(made["data"])) as file, pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(file["values"])
