"""The disk cache through the public functions: what was read once is not asked for again, and never another file's."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from builders.compare import compare_files
from servers.range_server import FAULTS, RangeServer
from servers.seaweed import Seaweed
from servers.threads import in_threads

import lindi_bridge as lb
from lindi_bridge.cli import main
from lindi_bridge.cli.text import size
from lindi_bridge.ranges import h5py_lock_is_held

SECRET = "s3cr3t"
SHORT = {"connect_timeout": 2.0, "read_timeout": 0.5, "total_timeout": 1.5}
OLD = {"Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT"}
OLDER = {"Last-Modified": "Wed, 03 Jan 2024 00:00:00 GMT"}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No proxies, no ~/.netrc and no cache of whoever runs the tests; pauses between attempts are short."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    for name in ("LINDI_BRIDGE_CACHE", "LINDI_BRIDGE_CACHE_BYTES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("lindi_bridge.ranges.deadline._FIRST_PAUSE", 0.01)


class Made:
    """A file on the disk, and what it holds."""

    def __init__(self, path: Path, seed: int, rows: int = 3000) -> None:
        random = np.random.default_rng(seed)
        with h5py.File(path, "w") as file:
            file.attrs["seed"] = seed  # among the first bytes, of which the server makes the ETag
            file.create_dataset("values", data=random.random(150_000), chunks=(10_000,), fillvalue=-1.0)
            file["rows"] = random.random((rows, 100))
            file["group/text"] = np.array([f"text {i}" for i in range(50)], dtype=h5py.string_dtype())
        self.path = path
        self.data = path.read_bytes()

    def values_are_right(self, file: Any) -> bool:
        """Read by several ways, and compare with h5py on the local file."""
        with h5py.File(self.path) as local:
            wanted: list[Any] = [
                ("values", np.s_[5:]),
                ("values", np.s_[::20_001]),
                ("rows", np.s_[100:200]),
                ("rows", np.s_[2000:2500, 7]),
                ("group/text", np.s_[:]),
            ]
            return all(np.array_equal(file[name][selection], local[name][selection]) for name, selection in wanted)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("cache") / "a.h5", 1)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, made: Made) -> Made:
    """Another file with the same structure and size."""
    found = Made(tmp_path_factory.mktemp("cache") / "other.h5", 2)
    assert len(found.data) == len(made.data)
    return found


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with RangeServer() as running:
        yield running


@pytest.fixture
def cache(tmp_path: Path) -> str:
    return str(tmp_path / "cache")


def document_of(server: RangeServer, made: Made, folder: Path, **behaviour: Any) -> tuple[str, str]:
    """Address of the file as it is served, and the document on the disk."""
    url = server.add("a.h5", made.data, **behaviour)
    lb.index(url).save(folder / "a.lindi.json")
    return url, str(folder / "a.lindi.json")


def files(cache: str) -> list[Path]:
    return [path for path in Path(cache).rglob("*") if path.is_file()]


# -- a second run -----------------------------------------------------------------------------------------------------


def _by_document(document: str, url: str, **options: Any) -> Any:
    return lb.open(document, **options)


def _by_h5py(document: str, url: str, **options: Any) -> Any:
    return h5py.File(lb.hdf5_file(document, **options))


def _by_annotations(document: str, url: str, **options: Any) -> Any:
    return lb.open(document, prefer="annotations", **options)


def _by_url(document: str, url: str, **options: Any) -> Any:
    return lb.open(url, **options)


def _by_url_and_h5py(document: str, url: str, **options: Any) -> Any:
    return h5py.File(lb.hdf5_file(url, **options))


Open = Callable[..., Any]
WAYS: dict[str, tuple[Open, int]] = {
    "document": (_by_document, 0),
    "h5py over the document": (_by_h5py, 0),
    "annotations": (_by_annotations, 0),
    "url": (_by_url, 1),
    "h5py over the url": (_by_url_and_h5py, 1),
}
"""How a file is opened, and the requests that tell which file it is."""
ways = pytest.mark.parametrize(("opened", "identity_requests"), WAYS.values(), ids=WAYS)


@ways
def test_a_second_run_asks_only_which_file_it_is(
    opened: Open, identity_requests: int, made: Made, server: RangeServer, cache: str, tmp_path: Path
) -> None:
    url, document = document_of(server, made, tmp_path)
    server.reset()
    with opened(document, url, cache_dir=cache) as file:
        assert made.values_are_right(file)
        lb_file = getattr(file, "_file_object", None)
        assert lb_file is None or lb_file.reader.statistics.requests == server.requests
    assert server.requests > identity_requests
    assert files(cache)
    server.reset()
    with opened(document, url, cache_dir=cache) as file:
        assert made.values_are_right(file)
    assert server.requests == identity_requests


def test_no_server_is_needed_for_a_document(made: Made, cache: str, tmp_path: Path) -> None:
    with RangeServer() as server:
        _, document = document_of(server, made, tmp_path)
        with lb.open(document, cache_dir=cache) as file:
            assert made.values_are_right(file)
    with lb.open(document, cache_dir=cache, **SHORT) as file:
        assert made.values_are_right(file)
        with pytest.raises(lb.SourceError):
            file["rows"][2900:]


def test_one_way_finds_what_another_has_fetched(made: Made, server: RangeServer, cache: str, tmp_path: Path) -> None:
    url, document = document_of(server, made, tmp_path)
    lb.index(url, cache_dir=cache)
    for opened, requests in WAYS.values():
        server.reset()
        with opened(document, url, cache_dir=cache) as file:
            assert made.values_are_right(file)
        assert server.requests == requests
    server.reset()
    index = lb.index(url, cache_dir=cache)
    assert server.requests == index.statistics.requests == 1


def test_a_document_on_the_server_is_kept_too(made: Made, server: RangeServer, cache: str, tmp_path: Path) -> None:
    _, document = document_of(server, made, tmp_path)
    text = Path(document).read_bytes() + b" " * 200_000  # longer than what is read first
    place = server.add("a.lindi.json", text)
    for _ in range(2):
        server.reset()
        with lb.open(place, cache_dir=cache) as file:
            assert made.values_are_right(file)
    assert [entry.path for entry in server.log] == ["/a.lindi.json"]


def test_what_no_longer_fits_into_memory_comes_from_the_disk(made: Made, server: RangeServer, cache: str) -> None:
    url = server.add("a.h5", made.data)
    with lb.open(lb.index(url), cache_dir=cache, cache_bytes=500_000) as file:
        for _ in range(2):
            server.reset()
            for start in range(0, 3000, 250):
                assert len(file["rows"][start : start + 250]) == 250
    assert server.requests == 0


def test_long_chunks_go_from_the_disk_to_libhdf5_and_not_into_memory(
    server: RangeServer, cache: str, tmp_path: Path
) -> None:
    path = tmp_path / "long.h5"
    values = np.random.default_rng(3).random((40, 50_000))
    with h5py.File(path, "w") as file:
        file.create_dataset("values", data=values, chunks=(4, 50_000), compression="gzip", compression_opts=1)
    lb.index(server.add("long.h5", path)).save(tmp_path / "long.json")
    with lb.open(tmp_path / "long.json", cache_dir=cache) as file:
        assert np.array_equal(file["values"][:20], values[:20])
    server.reset()
    for opened in (_by_document, _by_h5py):
        with opened(str(tmp_path / "long.json"), "", cache_dir=cache) as file:
            assert np.array_equal(file["values"][5:9], values[5:9])
            assert file["values"][17, 7] == values[17, 7]
            assert server.requests == 0
            if opened is _by_document:
                held = file._file_object
                assert held._ahead.nbytes + held._demand.nbytes < 100_000, "what libhdf5 reads one by one"
                assert np.array_equal(file["values"][18:30], values[18:30]), "the first chunk is on the disk"
                assert held.reader.statistics.waves == 1
                assert held.misses == 0
            server.reset()


def test_short_runs_are_read_from_the_disk_once_and_then_held(
    made: Made, server: RangeServer, cache: str, tmp_path: Path
) -> None:
    url, document = document_of(server, made, tmp_path)
    with lb.open(url, cache_dir=cache) as file:
        lb.prefetch(file)
    server.reset()
    with lb.open(document, cache_dir=cache) as file, h5py.File(made.path) as local:
        held = file._file_object._ahead
        for name, selection in (("rows", np.s_[100, 7]), ("rows", np.s_[1000]), ("values", np.s_[70_000])):
            known = held.nbytes
            for more in (0, 1, 1):
                assert np.array_equal(file[name][selection], local[name][selection])
                assert (held.nbytes > known) == more
    assert server.requests == 0


def test_h5py_asks_for_no_more_than_is_missing(made: Made, server: RangeServer, cache: str, tmp_path: Path) -> None:
    _, document = document_of(server, made, tmp_path)
    with lb.open(document, cache_dir=cache) as file, h5py.File(made.path) as local:
        assert np.array_equal(file["rows"][1000], local["rows"][1000])
    server.reset()
    with _by_h5py(document, "", cache_dir=cache) as file, h5py.File(made.path) as local:
        assert np.array_equal(file["rows"][1000], local["rows"][1000])
        assert server.requests == 0
        assert np.array_equal(file["rows"][999:1002], local["rows"][999:1002])
        assert server.requests == 2, "a block before it, and one after it"


def test_a_wave_stays_one(made: Made, cache: str, tmp_path: Path) -> None:
    with RangeServer() as server:
        _, document = document_of(server, made, tmp_path)
        with lb.open(document, cache_dir=cache) as file:
            for start in (20_000, 60_000, 100_000):
                file["values"][start : start + 10_000]
        server.reset()
        with lb.open(document, cache_dir=cache) as file, h5py.File(made.path) as local:
            assert np.array_equal(file["values"][:], local["values"][:])
            chunk = local["values"].id.get_chunk_info(0).size
            assert file._file_object.reader.statistics.waves == 1
        assert server.nbytes == 12 * chunk


@pytest.mark.parametrize("environment", [True, False])
def test_the_environment_names_the_folder(
    environment: bool, made: Made, server: RangeServer, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, document = document_of(server, made, tmp_path)
    monkeypatch.setenv("LINDI_BRIDGE_CACHE", cache)
    monkeypatch.setenv("LINDI_BRIDGE_CACHE_BYTES", "1000000")
    with lb.open(document, **({} if environment else {"cache_dir": ""})) as file:
        assert made.values_are_right(file)
        assert (file._file_object.reader.__class__.__name__ == "CachedReader") == environment
    assert bool(files(cache)) == environment
    assert sum(path.stat().st_size for path in files(cache)) <= 1_000_000


@pytest.mark.parametrize("text", ["10 GB", "-5", "0", "1e9"])
def test_a_bound_that_is_no_number(text: str, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINDI_BRIDGE_CACHE_BYTES", text)
    with pytest.raises(ValueError, match="LINDI_BRIDGE_CACHE_BYTES"):
        lb.open(str(made.path))
    with pytest.raises(ValueError, match="cache_dir_bytes=0"):
        lb.open(str(made.path), cache_dir_bytes=0)


def test_local_files_and_open_files_are_not_copied(made: Made, cache: str) -> None:
    with lb.open(str(made.path), cache_dir=cache) as file:
        assert made.values_are_right(file)
    with open(made.path, "rb") as opened, lb.open(opened, cache_dir=cache) as file:
        assert made.values_are_right(file)
    with lb.open(f"file://{made.path}", cache_dir=cache) as file:
        assert made.values_are_right(file)
    assert not Path(cache).exists()


def test_a_pickle_finds_the_folder(made: Made, server: RangeServer, cache: str, tmp_path: Path) -> None:
    _, document = document_of(server, made, tmp_path)
    with lb.open(document, cache_dir=cache, cache_dir_bytes=10**9, headers={"X-Token": SECRET}) as file:
        expected = file["values"][:]
        data = pickle.dumps(file["values"])
    assert SECRET.encode() not in data
    server.reset()
    again = pickle.loads(data)
    assert np.array_equal(again[:], expected)
    assert server.requests == 0
    again.file.close()


def test_a_file_that_nobody_closes_is_kept(made: Made, server: RangeServer, cache: str, tmp_path: Path) -> None:
    _, document = document_of(server, made, tmp_path)
    code = f"""
import h5py, lindi_bridge as lb
file = h5py.File(lb.hdf5_file({document!r}, cache_dir={cache!r}))
print(file["rows"][2000, 7])
"""
    printed = []
    for _ in range(2):
        server.reset()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    assert server.requests == 0


# -- replaced files ---------------------------------------------------------------------------------------------------

REPLACED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another ETag": ({}, {}),
    "no ETag, another time": ({"etag": "none", "extra": OLDER}, {"etag": "none", "extra": OLD}),
    "a weak ETag, another time": (
        {"etag": "none", "extra": {**OLDER, "ETag": 'W/"x"'}},
        {"etag": "none", "extra": {**OLD, "ETag": 'W/"x"'}},
    ),
    "another weak ETag": (
        {"etag": "none", "extra": {**OLD, "ETag": 'W/"x"'}},
        {"etag": "none", "extra": {**OLD, "ETag": 'W/"y"'}},
    ),
    "nothing to tell by": ({"etag": "none"}, {"etag": "none"}),
}


@pytest.mark.parametrize("opened", [_by_url, _by_url_and_h5py])
@pytest.mark.parametrize(("before", "after"), REPLACED.values(), ids=REPLACED)
def test_a_replaced_file_is_read_anew(
    before: dict[str, Any],
    after: dict[str, Any],
    opened: Open,
    made: Made,
    other: Made,
    server: RangeServer,
    cache: str,
) -> None:
    for content, behaviour in ((made, before), (other, after), (made, before), (other, after)):
        url = server.add("a.h5", content.data, **behaviour)
        with opened("", url, cache_dir=cache) as file:
            assert content.values_are_right(file)


def test_the_same_etag_and_another_size(made: Made, server: RangeServer, cache: str, tmp_path: Path) -> None:
    longer = Made(tmp_path / "longer.h5", 3, rows=3100)
    for content in (made, longer, made):
        url = server.add("a.h5", content.data, etag="none", extra={"ETag": '"same"'})
        with lb.open(url, cache_dir=cache) as file:
            assert content.values_are_right(file)


@pytest.mark.parametrize("behaviour", [{}, {"etag": "weak"}, {"etag": "none"}, {"etag": "none", "extra": OLD}])
def test_the_replaced_source_of_a_document_is_never_mixed_in(
    behaviour: dict[str, Any], made: Made, other: Made, server: RangeServer, cache: str, tmp_path: Path
) -> None:
    """What is on the disk is what the document describes; everything else is refused."""
    _, document = document_of(server, made, tmp_path, **behaviour)
    with lb.open(document, cache_dir=cache) as file, h5py.File(made.path) as local:
        assert np.array_equal(file["values"][:50_000], local["values"][:50_000])
    server.add("a.h5", other.data, **behaviour)
    with lb.open(document, cache_dir=cache, **SHORT) as file, h5py.File(made.path) as local:
        if behaviour:  # without a strong ETag the source itself is looked at first
            with pytest.raises(lb.SourceChangedError):
                file["values"][:50_000]
        else:
            assert np.array_equal(file["values"][:50_000], local["values"][:50_000])
        with pytest.raises(lb.SourceChangedError):
            file["values"][:]
        with pytest.raises(lb.SourceChangedError):
            file["rows"][2000:2500]


@pytest.mark.parametrize("behaviour", [{"etag": "weak"}, {"etag": "none", "extra": OLD}])
def test_without_a_strong_etag_a_document_asks_for_samples_only(
    behaviour: dict[str, Any], made: Made, server: RangeServer, cache: str, tmp_path: Path
) -> None:
    _, document = document_of(server, made, tmp_path, **behaviour)
    for number in range(2):
        server.reset()
        with lb.open(document, cache_dir=cache) as file:
            assert made.values_are_right(file)
            waves = file._file_object.reader.statistics.waves
        assert (waves == 1) == (number == 1)
    assert server.nbytes < 200_000


@pytest.mark.parametrize("behaviour", [{"etag": "weak"}, {"etag": "none", "extra": OLD}])
def test_the_samples_are_one_wave_whatever_is_read_first(
    behaviour: dict[str, Any], server: RangeServer, cache: str, tmp_path: Path
) -> None:
    path = tmp_path / "long.h5"
    values = np.random.default_rng(3).random((40, 20_000))
    with h5py.File(path, "w") as file:
        file.create_dataset("long", data=values, chunks=(4, 20_000), compression="gzip", compression_opts=1)
        file["plain"] = values[:3]
    lb.index(server.add("long.h5", path, **behaviour)).save(tmp_path / "long.json")
    with lb.open(tmp_path / "long.json", cache_dir=cache) as file:
        assert np.array_equal(file["long"][:20], values[:20])
        assert np.array_equal(file["plain"][:], values[:3])
    server.reset()
    asked = set()
    for name, selection in (("long", np.s_[5:9]), ("long", [1, 17]), ("long", np.s_[:20]), ("plain", np.s_[1:3])):
        with lb.open(tmp_path / "long.json", cache_dir=cache) as file:
            for _ in range(2):
                assert np.array_equal(file[name][selection], values[selection])
                statistics = file._file_object.reader.statistics
                assert statistics.waves == 1
                asked.add(statistics.requests)
    assert len(asked) == 1, "all samples"


@pytest.mark.parametrize("behaviour", [{"etag": "weak"}, {"etag": "none", "extra": OLD}])
def test_what_the_document_has_is_not_asked_for(
    behaviour: dict[str, Any], server: RangeServer, cache: str, tmp_path: Path
) -> None:
    path = tmp_path / "small.h5"
    with h5py.File(path, "w") as file:
        file["small"] = np.arange(8192.0)
        file.create_dataset("unwritten", (40, 20_000), "f8", chunks=(4, 20_000), fillvalue=7.0)
        file["large"] = np.random.default_rng(3).random((40, 20_000))
    document = tmp_path / "small.json"
    lb.index(server.add("small.h5", path, **behaviour)).save(document)
    with lb.open(document, cache_dir=cache) as file:
        file["large"][:]
    server.reset()
    with lb.open(document, cache_dir=cache) as file, h5py.File(path) as local:
        for name, selection in (("small", np.s_[:]), ("small", np.s_[7:9]), ("unwritten", np.s_[1:7])):
            assert np.array_equal(file[name][selection], local[name][selection])
    assert server.requests == 0
    lb.index(path).save(document)
    moved = path.rename(tmp_path / "moved.h5")
    with lb.open(document) as file, h5py.File(moved) as local:
        for name, selection in (("small", np.s_[:]), ("unwritten", np.s_[1:7])):
            assert np.array_equal(file[name][selection], local[name][selection])
        with pytest.raises(lb.SourceNotFoundError):
            file["large"][:]


def test_files_that_differ_in_the_query_only(made: Made, other: Made, server: RangeServer, cache: str) -> None:
    """One server of two files at one path, which gives both the same ETag."""
    same = {"etag": "none", "extra": {"ETag": '"1"'}}
    for content, name in ((made, "1"), (other, "2"), (made, "1"), (other, "2")):
        url = server.add("get", content.data, query=f"file={name}", **same)
        with lb.open(f"{url}?file={name}", cache_dir=cache) as file:
            assert content.values_are_right(file)


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"<status>"}))
def test_faults_leave_nothing_wrong(fault: str, made: Made, server: RangeServer, cache: str, tmp_path: Path) -> None:
    url, document = document_of(server, made, tmp_path)
    server.resources["a.h5"].fault, server.resources["a.h5"].after = fault, server.resources["a.h5"].seen + 1
    server.resources["a.h5"].location, server.resources["a.h5"].seconds = "/nowhere", 0.0 if fault == "slow" else 1.0
    for name in (document, url):
        for _ in range(2):
            try:
                with lb.open(name, cache_dir=cache, **SHORT) as file:
                    made.values_are_right(file)
            except (OSError, KeyError):
                continue  # which error is no affair of the cache
    server.resources["a.h5"].fault = ""
    for name in (document, url):
        with lb.open(name, cache_dir=cache) as file:
            assert made.values_are_right(file)
            with h5py.File(made.path) as local:
                assert compare_files(local, file) == []


# -- secrets ----------------------------------------------------------------------------------------------------------


def _signed(url: str, secret: str) -> str:
    return (
        f"{url}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={secret}%2F20250101&X-Amz-Date=20250101T000000Z"
        f"&X-Amz-Expires=3600&X-Amz-SignedHeaders=host&X-Amz-Security-Token={secret}&X-Amz-Signature={secret}"
    )


def test_a_fresh_signature_finds_the_file_and_nothing_secret_is_kept(
    made: Made, server: RangeServer, cache: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = server.add("a.h5", made.data, require={"X-Token": SECRET})
    first = _signed(url.replace("http://", f"http://user:{SECRET}@"), f"{SECRET}-1")
    options: dict[str, Any] = {"headers": {"X-Token": SECRET}, "cache_dir": cache}
    lb.index(first, **options).save(tmp_path / "a.lindi.json")
    document = str(tmp_path / "a.lindi.json")
    for number in (1, 2):
        server.reset()
        with lb.open(document, source=_signed(url, f"{SECRET}-{number}"), **options) as file:
            assert made.values_are_right(file)
            shown = [repr(file._file_object.reader), repr(file._file_object.reader._cache)]
        assert server.requests == 0
        with lb.open(_signed(url, f"{SECRET}-{number}"), **options) as file:
            assert made.values_are_right(file)
        assert server.requests == 1
    kept = files(cache)
    assert kept
    for path in kept:
        content = path.read_bytes()
        for secret in (SECRET.encode(), b"X-Amz", b"a.h5", b"127.0.0.1", b"X-Token"):
            assert secret not in content
            assert secret.decode() not in str(path.relative_to(cache))
    assert SECRET not in caplog.text + "".join(shown)


# -- object stores ----------------------------------------------------------------------------------------------------


def test_objects_of_a_store(made: Made, other: Made, seaweed: Seaweed, cache: str, tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    url = seaweed.put("priv", "a b ü.h5", made.data)
    options: dict[str, Any] = {"storage_options": seaweed.signed, "cache_dir": cache}
    document = str(tmp_path / "a.lindi.json")
    lb.index(url, storage_options=seaweed.signed).save(document)
    asked = []
    for _ in range(2):
        with lb.open(document, **options) as file:
            assert made.values_are_right(file)
            asked.append(file._file_object.reader.statistics.requests)
        with lb.open(url, **options) as file:
            assert made.values_are_right(file)
            asked.append(file._file_object.reader.statistics.requests)
    assert asked[0] > 0
    assert asked[2:] == [0, 1]
    seaweed.put("priv", "a b ü.h5", other.data)
    with lb.open(url, **options) as file:
        assert other.values_are_right(file)
    with lb.open(document, **options) as file:
        assert made.values_are_right(file)
    for path in files(cache):
        assert seaweed.signed["secret"].encode() not in path.read_bytes()


# -- the source itself ------------------------------------------------------------------------------------------------


def test_what_asks_for_the_source_asks_the_source(
    made: Made,
    other: Made,
    server: RangeServer,
    cache: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LINDI_BRIDGE_CACHE", cache)
    url, document = document_of(server, made, tmp_path)
    with lb.open(document) as file:
        assert made.values_are_right(file)
    assert main(["check", document, "--data"]) == 0
    lb.relocate(document, url, tmp_path / "b.lindi.json", verify=True)
    server.add("a.h5", other.data)
    with lb.open(document) as file:
        assert made.values_are_right(file)
    capsys.readouterr()
    assert main(["check", document]) == 1
    assert "fault" in capsys.readouterr().out
    with pytest.raises(lb.SourceChangedError):
        lb.relocate(document, url, tmp_path / "c.lindi.json", verify=True)


def test_the_command_line_tells_how_full_it_is(
    made: Made,
    server: RangeServer,
    cache: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["cache"]) == 1
    assert "LINDI_BRIDGE_CACHE" in capsys.readouterr().err
    lb.index(server.add("a.h5", made.data), cache_dir=cache)
    (tmp_path / "cache" / "notes.txt").write_text("mine")
    assert main(["cache", cache]) == 0
    folder, number, full = capsys.readouterr().out.rstrip("\n").split("\t")
    assert (folder, number) == (cache, f"{len(files(cache)) - 1} files")
    held = sum(path.stat().st_size for path in files(cache)) - len("mine")
    assert full == f"{size(held)} of 10.7 GB"
    monkeypatch.setenv("LINDI_BRIDGE_CACHE", cache)
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"{cache}\t0 files\t0 B of 10.7 GB\n"
    assert [path.name for path in files(cache)] == ["notes.txt"]


# -- h5py's lock ------------------------------------------------------------------------------------------------------


def test_nothing_is_logged_under_the_lock(made: Made, server: RangeServer, tmp_path: Path) -> None:
    """Plain h5py reads everything under its lock; the warning waits until the file is closed."""
    blocked = tmp_path / "file"
    blocked.write_text("x")
    told: list[tuple[bool, str]] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append((h5py_lock_is_held(), record.getMessage()))

    listener = Listener()
    logging.getLogger("lindi_bridge").addHandler(listener)
    try:
        _, document = document_of(server, made, tmp_path)
        source = lb.hdf5_file(document, cache_dir=blocked)
        with h5py.File(source) as file:
            assert made.values_are_right(file)
        assert told == []
        source.close()
    finally:
        logging.getLogger("lindi_bridge").removeHandler(listener)
    ((locked, message),) = told
    assert not locked
    assert "the disk cache" in message


def test_reads_under_the_lock_import_nothing_and_wait_for_nobody(
    made: Made, server: RangeServer, cache: str, tmp_path: Path
) -> None:
    """Another thread holds the locks of logging and waits for h5py's."""
    _, document = document_of(server, made, tmp_path)
    code = f"""
import logging, sys, threading
import h5py, lindi_bridge as lb
from h5py._objects import phil
handler = logging.StreamHandler(sys.stderr)
logging.basicConfig(level=logging.DEBUG, handlers=[handler])
source = lb.hdf5_file({document!r}, cache_dir={cache!r})
held = threading.Event()
def hold():
    with handler.lock, logging._lock:
        held.set()
        with phil:
            pass
imported = []
sys.addaudithook(lambda event, args: imported.append(args[0]) if event == "import" else None)
with phil:
    thread = threading.Thread(target=hold)
    thread.start()
    while not held.is_set():
        pass
    del imported[:]
    source.seek(0)
    data = bytearray(source.size)
    source.readinto(data)
    source.reader.flush()
    print(imported)
thread.join()
open({str(tmp_path / "copy")!r}, "wb").write(data)
source.close()
"""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
        assert (tmp_path / "copy").read_bytes() == made.data
    assert files(cache)


def test_threads_share_a_file_and_its_cache(made: Made, server: RangeServer, cache: str, tmp_path: Path) -> None:
    _, document = document_of(server, made, tmp_path)
    wrong: list[int] = []
    with lb.open(document, cache_dir=cache, cache_dir_bytes=700_000, cache_bytes=300_000) as file:

        def read(seed: int) -> None:
            random = np.random.default_rng(seed)
            with h5py.File(made.path) as local:
                for start in random.integers(0, 2900, 30).tolist():
                    if not np.array_equal(file["rows"][start : start + 100], local["rows"][start : start + 100]):
                        wrong.append(start)

        in_threads(read, range(6))
    assert wrong == []
