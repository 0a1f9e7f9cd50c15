"""h5py's global lock: no combination of threads, garbage collection and logging hangs.

Whoever holds the lock (``readinto`` runs under it) must not wait for a thread that may be freeing an h5py object, for
freeing takes the lock too. Each program here brings about exactly that moment, by events and not by luck. The same
program is run with a naive file object, which has to hang, or the test would mean nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb

LIMIT = 60
HUNG = 77
"""Exit code of a program that noticed that it hangs."""

PRELUDE = f"""
import faulthandler, gc, io, logging, os, sys, threading
from concurrent.futures import ThreadPoolExecutor
import h5py, numpy as np
import lindi_bridge as lb
from lindi_bridge.hdf5.file import HDF5File

kind, document, url, path = sys.argv[1:]
gc.disable()
faulthandler.dump_traceback_later({LIMIT - 10}, exit=True)

def hung(what):
    print("hung:", what, flush=True)
    os._exit({HUNG})

class Knot:
    "Cyclic garbage that holds an h5py object: freed by the collector only, in whichever thread that runs."
    def __init__(self, held):
        self.held, self.me = held, self

other = h5py.File(path)

def collect():
    "Free h5py objects in this thread; waits for h5py's lock while another thread has it."
    gc.collect()

def tie():
    Knot(other["values"])

collecting = threading.Event()

def note(phase, info):
    if phase == "start" and threading.current_thread() is not threading.main_thread():
        collecting.set()

gc.callbacks.append(note)

class Naive(io.RawIOBase):
    "A file object as one would write it; what it does wrong is `fetch`."
    def __init__(self, path):
        self.file = open(path, "rb")
    def readable(self): return True
    def seekable(self): return True
    def seek(self, offset, whence=0): return self.file.seek(offset, whence)
    def tell(self): return self.file.tell()
    def readinto(self, buffer):
        self.fetch()
        return self.file.readinto(buffer)
    def fetch(self): pass

def at_next_request(reader, do, method="read_locked"):
    "Have `do` called in readinto, when the bytes are not in memory."
    read = getattr(reader, method)
    def wrapped(*asked):
        if todo:
            todo.pop()()
        return read(*asked)
    todo = [do]
    setattr(reader, method, wrapped)

def read_in_turn(f, *blocks):
    "Blocks of the two arrays of a sparse matrix."
    for k in blocks:
        part = slice(k * 10_000, (k + 1) * 10_000)
        for name in ("sparse/data", "sparse/indices"):
            assert (f[name][part] == other[name][part]).all()

def read_values(f, reader, do):
    "Read, and have `do` called at the first request; at the first one of two ranges; or when tables are read."
    if kind == "ours":
        at_next_request(reader, do)
    elif kind == "chunk tables":
        read_in_turn(f, 3)  # they are read at the second miss
        at_next_request(file._pairs, do, "_read_tables")
        file._pairs._pairs = None
        read_in_turn(f, 9)
        assert collecting.is_set()
    else:
        read_in_turn(f, 3, 9)
        at_next_request(reader, do, "read_locked_beside")
        read_in_turn(f, 6, 1)
        assert collecting.is_set()
    return f["values"][:]
"""

COLLECTOR = """
# A thread begins a collection while readinto runs, and stays in it until h5py's lock is free.
tie()
worker = ThreadPoolExecutor(1)
worker.submit(int).result()
def start():
    worker.submit(collect)
    collecting.wait()
if kind != "naive":
    file = lb.hdf5_file(document, source=url)
    with h5py.File(file) as f:
        values = read_values(f, file.reader, start)
else:
    naive = Naive(path)
    f = h5py.File(naive)
    def fetch():
        naive.fetch = lambda: None
        start()
        try:
            worker.submit(int).result(timeout=2)       # fetching is left to a pool of threads
        except TimeoutError:
            hung("the pool is collecting")
    f["values"].id.get_offset()
    naive.fetch = fetch
    values = f["values"][:]
assert collecting.is_set()
assert values.sum() == other["values"][:].sum()
os._exit(0)
"""

ENSURE = """
# A thread is inside ensure(), with whatever it locks there, and collects; another one is in readinto.
tie()
reading = threading.Event()
shared = threading.Lock()
def inside():
    reading.wait()
    collect()
def ahead():
    with shared:
        inside()
if kind != "naive":
    file = lb.hdf5_file(document, source=url)
    cache, add = file._ahead, file._ahead.add
    def slow_add(pieces):
        inside()
        add(pieces)
    cache.add = slow_add
    thread = threading.Thread(target=lambda: file.ensure([lb.ranges.ByteRange(1_000_000, 100)]))
    with h5py.File(file) as f:
        def meet():
            thread.start()
            reading.set()
            collecting.wait()
        values = read_values(f, file.reader, meet)
    thread.join()
else:
    naive = Naive(path)
    f = h5py.File(naive)
    f["values"].id.get_offset()
    thread = threading.Thread(target=ahead)
    def fetch():
        naive.fetch = lambda: None
        thread.start()
        reading.set()
        collecting.wait()
        if not shared.acquire(timeout=2):              # the cache's lock, which the other thread has
            hung("the cache's lock")
    naive.fetch = fetch
    values = f["values"][:]
assert collecting.is_set()
assert values.sum() == other["values"][:].sum()
os._exit(0)
"""

LOGGING = """
# A thread writes a log record and collects in the middle of it, while it has the handler's lock.
tie()
reading = threading.Event()
class Handler(logging.StreamHandler):
    def emit(self, record):
        if record.msg == "slow":
            holding.set()
            reading.wait()
            collect()
        super().emit(record)
holding = threading.Event()
handler = Handler(open(os.devnull, "w"))
logging.basicConfig(level=logging.DEBUG, handlers=[handler])
for name in list(logging.root.manager.loggerDict):
    logging.getLogger(name).setLevel(logging.DEBUG)
thread = threading.Thread(target=lambda: logging.debug("slow"))
def meet():
    thread.start()
    holding.wait()
    reading.set()
    collecting.wait()
if kind != "naive":
    file = lb.hdf5_file(document, source=url)
    with h5py.File(file) as f:
        values = read_values(f, file.reader, meet)
    thread.join()
else:
    naive = Naive(path)
    f = h5py.File(naive)
    f["values"].id.get_offset()
    def fetch():
        naive.fetch = lambda: None
        meet()
        threading.Timer(2, lambda: hung("the handler's lock")).start()
        logging.getLogger("naive").debug("reading")    # as urllib3 does for every request
    naive.fetch = fetch
    values = f["values"][:]
assert collecting.is_set()
assert values.sum() == other["values"][:].sum()
os._exit(0)
"""

CALLBACKS = """
# Reading in callbacks that h5py makes under its lock.
expected = {}
other.visititems(lambda name, obj: expected.update({name: obj[()]}) if isinstance(obj, h5py.Dataset) else None)
def read(name, obj):
    if isinstance(obj, h5py.Dataset):
        assert (obj[()] == expected[name]).all()
        assert (obj[::7] == expected[name][::7]).all()
        assert (np.asarray(obj) == expected[name]).all()
        seen.append(name)
ways = {
    "ours": lambda f: f.visititems(read),
    "ours, of a group": lambda f: f["group"].visititems(lambda name, obj: read("group/" + name, obj)),
    "h5py's, of our objects": lambda f: h5py.Group.visititems(f, lambda name, obj: read(name, f[name])),
    "h5py's": lambda f: lb.plain(f).visititems(read),
    "visit": lambda f: f.visit(lambda name: read(name, f[name])),
    "h5py's visit": lambda f: h5py.Group.visit(f, lambda name: read(name, f[name])),
    "links": lambda f: f.visititems_links(lambda name, link: read(name, f[name])),
    "h5py's links": lambda f: h5py.Group.visititems_links(f, lambda name, link: read(name, f[name])),
    "chunks": lambda f: f["chunked"].id.chunk_iter(lambda chunk: read("chunked", f["chunked"])),
    "chunks of another": lambda f: f["chunked"].id.chunk_iter(lambda chunk: read("values", f["values"])),
    "prefetch": lambda f: f.visititems(lambda name, obj: lb.prefetch(obj) and None),
    "prefetch under the lock": lambda f: h5py.Group.visit(f, lambda name: lb.prefetch(f[name]) and None),
    "a file opened meanwhile": lambda f: h5py.Group.visit(
        f, lambda name: read("values", lb.open(document, source=url)["values"])
    ),
    "attributes": lambda f: f.visititems(lambda name, obj: f.attrs.get("nope")),
    "iteration": lambda f: [read(name, obj) for name, obj in f.items()],
    "h5py's iteration": lambda f: [read(name, obj) for name, obj in lb.plain(f).items()],
}
gc.enable()
gc.set_threshold(50, 2, 2)
for name, way in ways.items():
    seen = []
    tie()
    with lb.open(document, source=url) as f:
        way(f)
    assert seen or name.startswith(("prefetch", "attributes")), name
os._exit(0)
"""

FSSPEC = """
# fsspec reads in a thread of its own, which collects garbage like any other: here before each read, if that is on.
import fsspec
from lindi_bridge.ranges import h5py_lock_is_held, open_reader
gc.set_threshold(1_000_000)        # no collections but those
gc.enable()
under_lock = []
async def collect_if_enabled():
    if gc.isenabled():
        collect()
def after_collecting(fetch):
    def wrapped(*args):
        tie()
        under_lock.append(h5py_lock_is_held())
        fsspec.asyn.sync(fsspec.asyn.get_loop(), collect_if_enabled)
        return fetch(*args)
    return wrapped
for options in ({}, {"cache_type": "none"}, {"block_size": 5000}):
    with fsspec.open(url, **options).open() as opened:
        opened.cache.fetcher = after_collecting(opened.cache.fetcher)
        index = lb.index(opened, url=url)
        assert index.problems == []
        assert index.size == os.stat(path).st_size
    with fsspec.open(url, **options).open() as opened:
        reader = open_reader(opened)
        opened.cache.fetcher = after_collecting(opened.cache.fetcher)
        with reader.lock_safe(), h5py.File(HDF5File(reader, address=url)) as f:  # nothing was fetched ahead
            assert (f["values"][:] == other["values"][:]).all()
assert any(under_lock)
assert gc.isenabled(), "what was paused goes on"
os._exit(0)
"""

THREADS = """
# Everything at once: views, reads, prefetches and plain h5py in several threads, garbage everywhere, all of it logged.
logging.basicConfig(level=logging.DEBUG, stream=open(os.devnull, "w"))
gc.enable()
gc.set_threshold(30, 2, 2)
expected = {name: other[name][()] for name in ("values", "group/more", "chunked")}
failures = []
shared = lb.open(document, source=url, cache_bytes=1_000_000)
shared_plain = h5py.File(lb.hdf5_file(document, source=url, cache_bytes=1_000_000))
shared_pairs = h5py.File(lb.hdf5_file(document, source=url, cache_bytes=4_000_000))
def views():
    for name, obj in shared.items():
        tie()
        if isinstance(obj, h5py.Dataset):
            assert (obj[5:500] == expected[name][5:500]).all()
    assert [obj.name for obj in shared.values()] == [obj.name for obj in other.values()]
def reads():
    for k in range(0, 90_000, 9001):
        tie()
        assert (shared["chunked"][k:k + 20_000:3] == expected["chunked"][k:k + 20_000:3]).all()
        assert (shared["values"][[k, k + 5]] == expected["values"][[k, k + 5]]).all()
def plain():
    for k in range(0, 90_000, 9001):
        tie()
        assert (shared_plain["values"][k:k + 100] == expected["values"][k:k + 100]).all()
        assert (shared_plain["chunked"][k:k + 100] == expected["chunked"][k:k + 100]).all()
def pairs():
    for k in (1, 7, 3, 9, 5, 11):
        tie()
        read_in_turn(shared_pairs, k)
def prefetches():
    lb.prefetch(shared)
    lb.prefetch(shared["chunked"])
def opens():
    with lb.open(document, source=url) as f:
        assert (f["group/more"][()] == expected["group/more"]).all()
def run(job):
    try:
        for _ in range(4):
            job()
    except BaseException as error:
        failures.append(repr(error))
jobs = (views, reads, plain, pairs, prefetches, opens, reads, views)
threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
os._exit(0)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """A document, the address of its source, and the local file."""
    folder = tmp_path_factory.mktemp("lock")
    path = folder / "a.h5"
    random = np.random.default_rng(3)
    with h5py.File(path, "w") as file:
        file["values"] = random.random(100_000)
        file.create_dataset("chunked", data=random.integers(0, 99, 120_000), chunks=(10_000,), compression="gzip")
        file["group/more"] = random.random(30_000)
        file.create_dataset("sparse/data", data=random.random(120_000), chunks=(10_000,))
        file.create_dataset("sparse/indices", data=random.integers(0, 1 << 30, 120_000), chunks=(10_000,))
        file["sparse/indptr"] = np.arange(5)
    document = folder / "a.lindi.json"
    lb.index(str(path)).save(document)
    with RangeServer() as server:
        yield str(document), server.add("a.h5", path), str(path)


def run(program: str, kind: str, served: tuple[str, str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program; one that hangs is ended, and fails."""
    code = PRELUDE + textwrap.dedent(program)
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.run(
        [sys.executable, "-c", code, kind, *served],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=environment,
        cwd=Path(served[0]).parent,
        check=False,
    )


MOMENTS = {"collecting": COLLECTOR, "in ensure": ENSURE, "logging": LOGGING}


@pytest.mark.parametrize("kind", ["ours", "two ranges at one time", "chunk tables"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_another_thread_frees_h5py_objects(moment: str, kind: str, served: tuple[str, str, str]) -> None:
    done = run(MOMENTS[moment], kind, served)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_naive_file_object_hangs_there(moment: str, served: tuple[str, str, str]) -> None:
    done = run(MOMENTS[moment], "naive", served)
    assert done.returncode == HUNG, done.stdout + done.stderr


PROGRAMS = {"callbacks": CALLBACKS, "fsspec's open files": FSSPEC, "many threads": THREADS}


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_hang(program: str, served: tuple[str, str, str]) -> None:
    done = run(PROGRAMS[program], "ours", served)
    assert done.returncode == 0, done.stdout + done.stderr
