"""A source that fails now and then, readers that are interrupted, closed, forked, and read from everywhere at once."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb
from lindi_bridge.ranges import ByteRange, HttpReader, ObjectStoreReader, ReaderOptions

pytestmark = pytest.mark.usefixtures("plain_environment")

SIZE = 300_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("endurance") / "a.h5"
    random = np.random.default_rng(1)
    values, rows = random.random(SIZE), random.random((1_000, 100))
    with h5py.File(path, "w") as file:
        file.create_dataset("values", data=values, chunks=(5_000,))
        file.create_dataset("packed", data=values, chunks=(5_000,), compression="gzip", compression_opts=1)
        file["rows"] = rows
    return {"path": path, "data": path.read_bytes(), "values": values, "packed": values, "rows": rows}


def _document(made: dict[str, Any], url: str, folder: Path) -> str:
    path = folder / "a.lindi.json"
    lb.index(made["path"], url=url).save(path)
    return str(path)


def _wait_for(condition: Callable[[], Any]) -> bool:
    until = time.monotonic() + 20
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return bool(condition())


# -- one request in ten fails ------------------------------------------------------------------------------------------

PASSING = "503|429|500|cut|reset|drop|short|long|stall"


def _selections(count: int) -> list[tuple[str, slice]]:
    random = np.random.default_rng(5)
    chosen = []
    for _ in range(count):
        name = str(random.choice(["values", "packed", "rows"]))
        length = 1_000 if name == "rows" else SIZE
        start = int(random.integers(0, length))
        chosen.append((name, slice(start, start + int(random.integers(1, length // 10)))))
    return chosen


def _by_open(document: str, **options: Any) -> Any:
    """No selection is more than half of the cache."""
    return lb.open(document, rdcc_nbytes=0, cache_bytes=600_000, **options)


def _in_slabs(document: str, **options: Any) -> Any:
    return lb.open(document, rdcc_nbytes=0, cache_bytes=150_000, **options)


def _by_h5py(document: str, **options: Any) -> Any:
    return h5py.File(lb.hdf5_file(document, cache_bytes=150_000, **options), rdcc_nbytes=0)


# What the cache still holds of a slab depends on which thread comes first, and so does what is asked for again.
@pytest.mark.parametrize(
    ("way", "count", "leeway"),
    [(_by_open, 700, 0), (_in_slabs, 300, 0.01), (_by_h5py, 300, 0)],
    ids=["lb.open", "lb.open, in slabs", "h5py"],
)
def test_random_reads_while_one_request_in_ten_fails(
    way: Callable[..., Any], count: int, leeway: float, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    """Every value is right, and each failure costs one further request and no more."""
    document = _document(made, server.add("a.h5", made["data"]), tmp_path)
    selections = _selections(count)
    # One read at a time, so that both runs make the same requests; a read fails for good after 20 failures in a row.
    options = {"retries": 20, "read_timeout": 0.1, "concurrency": 4}

    def read_all() -> int:
        server.reset()
        with way(document, **options) as file:
            for name, part in selections:
                assert np.array_equal(file[name][part], made[name][part]), (name, part)
        return server.requests

    without = read_all()
    resource = server.resources["a.h5"]
    resource.fault, resource.rate, resource.seconds = PASSING, 0.1, 0.5
    resource.seen = resource.faults = 0
    with_faults = read_all()
    assert resource.faults > without * 0.05
    assert abs(with_faults - without - resource.faults) <= leeway * without


def test_each_range_fails_twice_before_it_comes(made: dict[str, Any], server: RangeServer, tmp_path: Path) -> None:
    document = _document(made, server.add("a.h5", made["data"], fault=PASSING, times=2, each=True), tmp_path)
    server.resources["a.h5"].seconds = 0.3
    with lb.open(document, read_timeout=0.1) as file:
        assert np.array_equal(file["values"][:], made["values"])
        assert np.array_equal(file["rows"][5:900], made["rows"][5:900])
    asked = {request.range for request in server.log}
    assert server.requests == 3 * len(asked)


# -- ctrl-C ------------------------------------------------------------------------------------------------------------

INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it
import h5py
import obstore  # what is imported at the first read would be interrupted instead
import lindi_bridge as lb
from lindi_bridge.ranges import ByteRange, ReaderOptions, open_reader
way, document, url = sys.argv[1:]
limits = {"connect_timeout": 600, "read_timeout": 600, "total_timeout": 600}
many = [ByteRange(start, 10) for start in range(100)]
def store():
    anonymous = {"anon": True, "endpoint_url": url.rsplit("/", 2)[0]}
    return open_reader("s3://bucket/a.h5", ReaderOptions(storage_options=anonymous, **limits))
def tls():
    return open_reader(url.replace("http:", "https:"), ReaderOptions(**limits))
ways = {
    "wave": lambda: file["values"][:],
    "slabs": lambda: file["values"][:],
    "wave, for h5py": lambda: h5py.File(lb.hdf5_file(document, **limits))["values"][:],
    "file without document": lambda: lb.open(url, **limits),
    "index": lambda: lb.index(url, **limits),
    "store, wave": lambda: store().read_ranges(many),
    "store, one read": lambda: store().read_head(10),
    "handshake": lambda: tls().read_head(10),
    "handshakes": lambda: tls().read_ranges(many),
}
# One worker only: if the interrupted read kept it, nothing could be read afterwards.
file = lb.open(document, cache_bytes=400_000 if way == "slabs" else 2**28, concurrency=1, **limits)
print("ready", flush=True)
try:
    ways[way]()
except KeyboardInterrupt:
    print("KeyboardInterrupt", flush=True)
sys.stdin.readline()
if way in ("wave", "slabs"):
    print(file["values"][:].sum())
"""


@pytest.mark.parametrize(
    "way",
    [
        *("wave", "wave, for h5py", "slabs", "file without document", "index"),
        *("store, wave", "store, one read", "handshake", "handshakes"),
    ],
)
def test_ctrl_c_ends_a_stalled_read_and_the_process(
    way: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    """At once, not after the time limits (ten minutes here); and no thread holds the process."""
    url = server.add("bucket/a.h5", made["data"], fault="stall", seconds=600)
    document = _document(made, url, tmp_path)
    # A server that accepts connections and says nothing, not even for TLS.
    silent = socket.create_server(("127.0.0.1", 0))
    silent.settimeout(60)
    handshake = way.startswith("handshake")
    if handshake:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.h5"
    command = [sys.executable, "-c", INTERRUPTED, way, document, url]
    with (
        silent,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        killer = threading.Timer(60, process.kill)  # a test that waits for a line would wait for ever
        killer.start()
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if handshake:
                silent.accept()[0].detach()
            else:
                assert _wait_for(lambda: server.in_flight)
            time.sleep(0.1)  # the main thread may still be on its way to where it waits
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "KeyboardInterrupt\n"
            server.resources["bucket/a.h5"].fault = ""
            out, err = process.communicate("\n", timeout=60)
        finally:
            killer.cancel()
            process.kill()
    assert process.returncode == 0, err
    if way in {"wave", "slabs"}:
        assert float(out) == made["values"].sum(), "what was interrupted can be read afterwards"


# -- what is left when a file is closed --------------------------------------------------------------------------------


def _ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lindi-bridge")]


@pytest.mark.parametrize("kind", ["document", "url", "store", "interrupted"])
def test_close_frees_connections_and_threads(
    kind: str, made: dict[str, Any], server: RangeServer, tmp_path: Path
) -> None:
    url = server.add("bucket/a.h5", made["data"])
    document = _document(made, url, tmp_path)
    storage = {"anon": True, "endpoint_url": f"http://127.0.0.1:{server.port}"}
    names = {"document": document, "url": url, "store": "s3://bucket/a.h5", "interrupted": document}
    before = _ours()
    file = lb.open(names[kind], storage_options=storage, retries=0)
    assert np.array_equal(file["values"][:], made["values"])
    if kind == "interrupted":
        server.resources["bucket/a.h5"].fault = "404"
        with pytest.raises(lb.SourceNotFoundError):
            file["rows"][:]
    assert server._sockets, "connections are kept"
    assert len(_ours()) > len(before)
    file.close()
    assert _wait_for(lambda: not server._sockets)
    assert _wait_for(lambda: _ours() == before)


def test_a_file_that_nobody_closed_frees_them_too(made: dict[str, Any], server: RangeServer, tmp_path: Path) -> None:
    before = _ours()
    reader = HttpReader(server.add("a.h5", made["data"]), ReaderOptions())
    reader.read_ranges([ByteRange(start, 10) for start in range(50)])
    assert len(_ours()) > len(before)
    del reader
    gc.collect()
    assert _wait_for(lambda: not server._sockets and _ours() == before)


def test_a_reader_can_be_used_after_it_was_closed(made: dict[str, Any], server: RangeServer) -> None:
    url = server.add("bucket/a.h5", made["data"])
    storage = {"anon": True, "endpoint_url": f"http://127.0.0.1:{server.port}"}
    for reader in (
        HttpReader(url, ReaderOptions()),
        ObjectStoreReader("s3://bucket/a.h5", ReaderOptions(storage_options=storage)),
    ):
        for _ in range(2):
            assert reader.read_ranges([ByteRange(5, 5), ByteRange(50, 5)]) == [made["data"][5:10], made["data"][50:55]]
            assert reader.read_locked(7, 7) == made["data"][7:14]
            reader.close()


# -- event loops and forks ---------------------------------------------------------------------------------------------


def test_inside_a_running_event_loop(made: dict[str, Any], server: RangeServer, tmp_path: Path) -> None:
    """As in a notebook: the calls are ordinary ones, made in the thread of the loop."""
    import fsspec

    url = server.add("bucket/a.h5", made["data"])
    storage = {"anon": True, "endpoint_url": f"http://127.0.0.1:{server.port}"}

    async def cell() -> None:
        await asyncio.sleep(0)
        document = tmp_path / "a.lindi.json"
        lb.index(url).save(document)
        with lb.open(document) as file:
            assert np.array_equal(file["values"][:], made["values"])
        with h5py.File(lb.hdf5_file(document)) as file:
            assert np.array_equal(file["rows"][5:50], made["rows"][5:50])
        with lb.open("s3://bucket/a.h5", storage_options=storage) as file:
            assert np.array_equal(file["packed"][:], made["packed"])
        with fsspec.open(url) as opened, lb.open(lb.index(opened, url=url)) as file:
            assert np.array_equal(file["values"][:9], made["values"][:9])

    asyncio.run(cell())


FORKED = """
import os, sys
import lindi_bridge as lb
name, endpoint = sys.argv[1:]
file = lb.open(name, storage_options={"anon": True, "endpoint_url": endpoint}, cache_bytes=400_000)
def say(what):
    os.write(1, f"{what}\\n".encode())
file["values"][:30_000]
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        try:
            say(float(file["values"][30_000 + number:60_000].sum()))
        except lb.SourceError as error:
            say(error)
            os._exit(3)
        os._exit(0)
    children.append(child)
say(float(file["values"][30_003:60_000].sum()))
say([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


@pytest.mark.parametrize("kind", ["http", "local", "store"])
def test_after_fork(kind: str, made: dict[str, Any], server: RangeServer, tmp_path: Path) -> None:
    url = server.add("bucket/a.h5", made["data"])
    source = {"local": str(made["path"]), "http": url, "store": "s3://bucket/a.h5"}[kind]
    document = _document(made, source, tmp_path)
    endpoint = f"http://127.0.0.1:{server.port}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, document, endpoint],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    *lines, codes = done.stdout.splitlines()
    right = {float(made["values"][30_000 + number : 60_000].sum()) for number in range(4)}
    if kind == "store":
        assert codes == "[3, 3, 3]", done.stderr
        assert sum("spawn" in line for line in lines) == 3, "at once, and naming what works"
    else:
        assert codes == "[0, 0, 0]", done.stderr
        assert {float(line) for line in lines} == right


# -- from everywhere at once -------------------------------------------------------------------------------------------

LOAD = """
import gc, json, os, random, resource, sys, threading, time
import h5py
import numpy as np
import psutil
import lindi_bridge as lb
document, path, seconds, seed = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
with h5py.File(path) as file:
    expected = {name: file[name][()] for name in ("values", "packed", "rows")}
gc.set_threshold(200, 5, 5)
shared = lb.open(document, cache_bytes=2_000_000, rdcc_nbytes=0, retries=10, read_timeout=5)
plain = h5py.File(lb.hdf5_file(document, cache_bytes=2_000_000, retries=10, read_timeout=5), rdcc_nbytes=0)
until = time.monotonic() + seconds
wrong, reads, me = [], [0] * 8, psutil.Process()

def knot(obj):
    loop = [obj]
    loop.append(loop)  # garbage that only the collector frees, in whatever thread it runs

def work(number):
    chance = random.Random(seed * 100 + number)
    while time.monotonic() < until and not wrong:
        name = chance.choice(list(expected))
        start = chance.randrange(len(expected[name]))
        part = slice(start, start + chance.randrange(1, len(expected[name]) // 8), chance.choice([1, 1, 3]))
        kind = chance.randrange(12)
        if kind < 8:
            file = shared
        elif kind < 11:
            file = plain
        else:
            file = lb.open(document, cache_bytes=300_000, retries=10, read_timeout=5)
        dataset = file[name]
        if not np.array_equal(dataset[part], expected[name][part]):
            wrong.append((name, str(part)))
        knot(dataset)
        knot(file[name])
        if kind == 11:
            file.close()
        reads[number] += 1

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
sizes, descriptors = [], []
for thread in threads:
    thread.start()
while any(thread.is_alive() for thread in threads):
    time.sleep(0.5)
    sizes.append(me.memory_info().rss)
    descriptors.append(me.num_fds())
shared.close()
plain.close()
print(json.dumps({"wrong": wrong, "reads": reads, "sizes": sizes, "descriptors": descriptors}))
"""


@pytest.mark.full
def test_many_threads_and_processes_for_a_minute(made: dict[str, Any], server: RangeServer, tmp_path: Path) -> None:
    """Eight threads in each of four processes, a collector that runs all the time, and one request in fifty fails."""
    import json

    url = server.add("a.h5", made["data"], fault="503|cut|reset|drop", rate=0.02)
    document = _document(made, url, tmp_path)
    command = [sys.executable, "-X", "faulthandler", "-c", LOAD, document, str(made["path"]), "60"]
    running = [
        subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for seed in range(4)
    ]
    try:
        results = [process.communicate(timeout=240) for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGABRT)  # faulthandler says where it hangs
                print(process.communicate()[1])
    for process, (out, err) in zip(running, results, strict=True):
        assert process.returncode == 0, err
        found = json.loads(out)
        assert found["wrong"] == []
        assert min(found["reads"]) > 0, "no thread starves"
        early, late = found["sizes"][len(found["sizes"]) // 4], max(found["sizes"][-10:])
        assert late < early + 150e6, (early, late)
        descriptors = found["descriptors"]
        assert max(descriptors[-10:]) <= max(descriptors[: len(descriptors) // 2]) + 64, "one wave's worth at the most"
