"""Reading on and on: what comes next is fetched meanwhile, nothing twice, and no more than was bargained for.

What a background thread has begun is let come to its end before bytes are counted; where it matters that something is
still under way, the thread is held at a gate.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb
from lindi_bridge.client import slabs
from lindi_bridge.client.plan import read_plan
from lindi_bridge.ranges import ByteRange
from lindi_bridge.ranges.spread import spread

KIB, MIB = 1024, 1024 * 1024
COUNT, STEP = 2_000_000, 50_000
SLACK = 64 * KIB
AHEAD = "lindi-bridge-ahead"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streaming") / "a.h5"
    random = np.random.default_rng(5)
    with h5py.File(path, "w") as file:
        for name, values in {
            "X/data": random.random(COUNT).astype("f4"),
            "X/indices": random.integers(0, 60_000, COUNT, "i4"),
            "X/more": random.integers(0, 60_000, COUNT, "i4"),
            "tiles": random.integers(0, 1000, (1000, 1000), "i4"),
        }.items():
            # 12_500 values: slices of 50_000 begin at chunks, those of other lengths do not.
            chunks = (12_500,) if values.ndim == 1 else (50, 200)
            file.create_dataset(name, data=values, chunks=chunks, compression="gzip", compression_opts=1)
        file["X/indptr"] = np.linspace(0, COUNT, 1001).astype("i8")
        file["rows"] = random.random((4000, 500))
        file["large"] = random.integers(0, 256, 3 * MIB, "u1")
        large = random.integers(0, 256, 24 * MIB, "u1")
        file.create_dataset("huge", data=large, chunks=(256 * KIB,), compression="gzip", compression_opts=1)
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[RangeServer]:
    with RangeServer() as running:
        yield running


@pytest.fixture(scope="module")
def document(path: Path, server: RangeServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    document = tmp_path_factory.mktemp("documents") / "a.lindi.json"
    lb.index(server.add("a.h5", path)).save(document)
    return str(document)


@pytest.fixture
def local(path: Path) -> Iterator[h5py.File]:
    with h5py.File(path) as file:
        yield file


@pytest.fixture
def remote(document: str, server: RangeServer) -> Iterator[Any]:
    server.reset()
    with lb.open(document, retries=0) as file:
        yield file
    server.resources["a.h5"].fault = ""


def settle(file: Any) -> None:
    """Let what is under way come to its end."""
    under_way = file._file_object._under_way
    under_way.wait(list(under_way._fetches))
    while under_way._fetches:
        threading.Event().wait(0.001)


def stored(dataset: Any, *selection: slice) -> int:
    """Bytes of the chunks that a selection touches; of contiguous data, of the rows."""
    file = dataset._file_object
    return sum(r.length for r in read_plan(dataset.id, file).ranges(selection))


def is_held(dataset: Any, *selection: slice) -> bool:
    file = dataset._file_object
    return all(file.holds(r) for r in read_plan(dataset.id, file).ranges(selection))


def held_nbytes(dataset: Any) -> int:
    """Bytes of the chunks that are in memory."""
    file = dataset._file_object
    return sum(r.length for r in read_plan(dataset.id, file).everything() if file.holds(r))


def between(file: Any, action: Callable[[], object]) -> None:
    """Have something done before each fetch in the background, in its thread."""
    reader = file._file_object.reader
    read = reader.read_ranges

    def gated(ranges: Any) -> Any:
        if threading.current_thread().name == AHEAD:
            action()
        return read(ranges)

    reader.read_ranges = gated


# -- a wave uses many connections -------------------------------------------------------------------------------------


def test_a_large_request_is_cut_and_small_ones_are_not() -> None:
    assert spread([], 8 * MIB) == []
    assert spread([ByteRange(5, MIB - 1)], 8 * MIB) == [ByteRange(5, MIB - 1)]
    for total, most in (
        (MIB + 1, 8 * MIB),
        (5 * MIB, 8 * MIB),
        (300 * MIB, 8 * MIB),
        (3 * MIB, 64 * KIB),
        (3 * MIB + 9, 64 * KIB),
    ):
        pieces = spread([ByteRange(7, 100), ByteRange(1000, total)], most)
        assert pieces[0] == ByteRange(7, 100)
        assert pieces[1].start == 1000
        assert pieces[-1].stop == 1000 + total
        assert all(left.stop == right.start for left, right in itertools.pairwise(pieces[1:]))
        assert all(piece.length <= most for piece in pieces)
        assert all(piece.length >= min(most // 2, 512 * KIB) for piece in pieces[1:])
        assert len(pieces) <= max(33, 1 - -total // most) + 1
        if most > MIB:  # no number of a dataset is divided between two pieces
            assert all(piece.start % 4096 == 1000 for piece in pieces[1:])


def test_one_long_run_is_several_requests_of_one_wave(
    remote: Any, document: str, local: h5py.File, server: RangeServer
) -> None:
    assert np.array_equal(remote["large"][:], local["large"][:])
    count = server.requests
    assert 2 <= count <= 8
    assert server.nbytes <= 3 * MIB + SLACK
    server.reset()
    server.group = count
    try:
        with lb.open(document) as file:
            assert np.array_equal(file["large"][:], local["large"][:])
    finally:
        server.group = 1
    assert server.waves() == 1


# -- successive slices ------------------------------------------------------------------------------------------------

STREAMS: dict[str, tuple[str, Callable[[int], Any], int]] = {
    "slices": ("X/data", lambda k: np.s_[k * STEP : (k + 1) * STEP], COUNT // STEP),
    "slices across chunks": ("X/data", lambda k: np.s_[k * 43_210 : (k + 1) * 43_210], COUNT // 43_210 + 1),
    "as numpy's integers": ("X/data", lambda k: slice(np.int64(k * STEP), np.int64((k + 1) * STEP)), COUNT // STEP),
    "rows of chunks": ("tiles", lambda k: np.s_[k * 50 : (k + 1) * 50], 20),
    "columns of chunks": ("tiles", lambda k: np.s_[:, k * 100 : (k + 1) * 100], 10),
    "part of some rows": ("tiles", lambda k: np.s_[k * 50 : (k + 1) * 50, 100:300], 20),
    "contiguous": ("rows", lambda k: np.s_[k * 100 : (k + 1) * 100], 40),
    "row by row": ("rows", lambda k: k, 4000),
}


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_is_right_and_nothing_is_fetched_twice(
    case: str, remote: Any, local: h5py.File, server: RangeServer
) -> None:
    name, selection, count = STREAMS[case]
    dataset = remote[name]
    for k in range(count):
        settle(remote)  # as if decoding took as long as fetching
        assert np.array_equal(remote[name][selection(k)], local[name][selection(k)])
    settle(remote)
    ranges = np.s_[:, 100:300] if case == "part of some rows" else np.s_[:, :] if local[name].ndim > 1 else (np.s_[:],)
    needed = stored(dataset, *ranges)
    assert needed <= server.nbytes <= 1.05 * needed + SLACK
    assert dataset._file_object.misses == 0
    assert dataset._file_object.reader.statistics.waves <= 2 + 2 * np.log2(count), "windows double"


def test_what_comes_next_is_fetched_meanwhile(remote: Any, local: h5py.File, server: RangeServer) -> None:
    dataset = remote["X/data"]
    dataset[:STEP]
    settle(remote)
    assert server.nbytes <= stored(dataset, slice(0, STEP)) + SLACK, "nothing says yet that it goes on"
    dataset[STEP : 2 * STEP]
    settle(remote)
    assert is_held(dataset, slice(0, 4 * STEP))
    assert server.nbytes <= 1.05 * stored(dataset, slice(0, 4 * STEP)) + SLACK, "the window is twice a slice"
    waves = dataset._file_object.reader.statistics.waves
    assert np.array_equal(dataset[2 * STEP : 3 * STEP], local["X/data"][2 * STEP : 3 * STEP])
    settle(remote)
    assert dataset._file_object.reader.statistics.waves == waves + 1, "it was in memory; what follows is on its way"
    assert is_held(dataset, slice(0, 7 * STEP))


def test_any_object_that_stands_for_the_dataset_goes_on(remote: Any) -> None:
    remote["X/data"][:STEP]
    remote["X"]["data"].read_direct(np.empty(STEP, "f4"), np.s_[STEP : 2 * STEP])
    settle(remote)
    assert is_held(remote["X/data"], slice(0, 4 * STEP))


def test_two_streams_in_turn(remote: Any, local: h5py.File, server: RangeServer) -> None:
    names = ("X/data", "X/indices")
    for first in range(0, COUNT, STEP):
        for name in names:
            settle(remote)
            assert np.array_equal(remote[name][first : first + STEP], local[name][first : first + STEP])
    settle(remote)
    needed = sum(stored(remote[name], slice(0, COUNT)) for name in names)
    assert server.nbytes <= 1.05 * needed + SLACK
    assert remote._file_object.reader.statistics.waves <= 30, "eighty slices"


def test_a_window_is_a_share_of_the_cache(document: str, server: RangeServer) -> None:
    server.reset()
    with lb.open(document, cache_bytes=8 * MIB) as file:
        for first in range(0, 20 * STEP, STEP):
            file["X/data"][first : first + STEP]
            settle(file)
            ahead = server.nbytes - stored(file["X/data"], slice(0, first + STEP))
            assert ahead <= 8 * MIB // 8 + SLACK
        assert ahead >= 8 * MIB // 16 - SLACK, "at least half of it is there"


def test_what_is_ahead_does_not_drive_out_what_is_read(document: str, local: h5py.File, server: RangeServer) -> None:
    """Four streams in a cache that holds three or four slices and hardly anything ahead of them."""
    names = ("X/data", "X/indices", "X/more", "tiles")
    server.reset()
    with lb.open(document, cache_bytes=2 * MIB) as file:
        for k in range(10):
            for name in names:
                step = len(local[name]) // 10
                part = np.s_[k * step : (k + 1) * step]
                assert np.array_equal(file[name][part], local[name][part])
        settle(file)
        assert file._file_object.misses == 0
        needed = sum(stored(file[name], slice(None), *[slice(None)] * (file[name].ndim - 1)) for name in names)
        assert server.nbytes <= 1.1 * needed + SLACK


@pytest.mark.parametrize("seed", range(3))
def test_random_slices_fetch_what_they_touch(seed: int, remote: Any, server: RangeServer) -> None:
    order = np.random.default_rng(seed).permutation(COUNT // STEP)[:12]
    order = order[[True, *(np.diff(order) != 1)]]
    dataset = remote["X/data"]
    for k in order.tolist():
        dataset[k * STEP : (k + 1) * STEP]
        dataset[[k * STEP + 5, (k + 1) * STEP - 1]]
    settle(remote)
    needed = sum(stored(dataset, slice(k * STEP, (k + 1) * STEP)) for k in order.tolist())
    assert server.nbytes <= 1.1 * needed + SLACK


def test_who_stops_has_fetched_no_more_than_was_read(remote: Any, server: RangeServer) -> None:
    """At most: half of the window that is being read, and a new one of the length of all that was."""
    dataset = remote["X/data"]
    for count in (2, 4, 8):
        dataset[(count - 2) * STEP : (count - 1) * STEP]
        dataset[(count - 1) * STEP : count * STEP]
        settle(remote)
        read = stored(dataset, slice(0, count * STEP))
        assert server.nbytes <= 2.5 * read + SLACK


# -- the arrays of a sparse matrix ------------------------------------------------------------------------------------


def _stream(dataset: Any) -> None:
    for first in range(0, COUNT, 4 * STEP):
        dataset[first : first + 4 * STEP]


@pytest.mark.parametrize(("first", "then"), [("data", "indices"), ("indices", "data")])
def test_after_one_array_of_a_sparse_matrix_the_other_is_streamed(
    first: str, then: str, remote: Any, local: h5py.File, server: RangeServer
) -> None:
    """Two slices of it are there when it is begun, and that is all that it costs if it never is."""
    beginning = slice(0, 8 * STEP)
    _stream(remote["X"][first])
    settle(remote)
    assert is_held(remote["X"][then], beginning)
    assert not is_held(remote["X"][then], slice(0, 9 * STEP))
    assert server.nbytes <= stored(remote["X"][first], slice(None)) + stored(remote["X"][then], beginning) + SLACK
    server.reset()
    assert np.array_equal(remote["X"][then][: 4 * STEP], local["X"][then][: 4 * STEP])
    settle(remote)
    assert is_held(remote["X"][then], slice(0, 12 * STEP))
    _stream(remote["X"][then])
    settle(remote)
    rest = stored(remote["X"][then], slice(None)) - stored(remote["X"][then], beginning)
    assert server.nbytes <= rest + SLACK, "nothing was asked for twice, and nothing of the first one again"


@pytest.mark.parametrize(("first", "then", "start"), [("data", "more", 0), ("more", "data", 0), ("data", "indices", 9)])
def test_other_arrays_are_not(first: str, then: str, start: int, remote: Any) -> None:
    _stream(remote["X"][first])
    remote["X"][then][start * STEP : (start + 1) * STEP]
    settle(remote)
    assert not is_held(remote["X"][then], slice((start + 1) * STEP, (start + 3) * STEP))


def _sparse_like(path: Path, indices: Callable[[h5py.Group], None]) -> Path:
    """A group with data and indptr, and `indices` as the test makes it."""
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.create_dataset("data", data=np.arange(1000.0), chunks=(100,), compression="gzip")
        group["indptr"] = np.arange(5)
        group["other"] = np.arange(1000, dtype="i4") + 1_000_000
        indices(group)
    return path


NEIGHBOURS: dict[str, Callable[[h5py.Group], None]] = {
    "nowhere": lambda group: group.__setitem__("indices", h5py.SoftLink("/nowhere")),
    "another file that is not there": lambda group: group.__setitem__("indices", h5py.ExternalLink("no.h5", "/i")),
    "values elsewhere": lambda group: group.create_dataset(
        "indices", (1000,), "i4", external=[("raw.bin", 0, h5py.h5f.UNLIMITED)]
    ),
    "a group": lambda group: group.create_group("indices"),
    "nothing": lambda group: None,
}


@pytest.mark.parametrize("kind", NEIGHBOURS)
def test_a_neighbour_that_cannot_be_read_is_none(kind: str, tmp_path: Path) -> None:
    path = _sparse_like(tmp_path / "a.h5", NEIGHBOURS[kind])
    with lb.open(path) as file, h5py.File(path) as expected:
        for first in range(0, 1000, 100):
            part = slice(first, first + 100)
            assert np.array_equal(file["X/data"][part], expected["X/data"][part])


def test_a_neighbour_in_another_file_is_none(tmp_path: Path) -> None:
    """Its address is that of another dataset here."""

    def here(group: h5py.Group) -> None:
        group.file["pad"] = np.full(30_000, -1, "i4")
        group["indices"] = h5py.ExternalLink("b.h5", "/X/other")

    _sparse_like(tmp_path / "b.h5", lambda group: None)
    path = _sparse_like(tmp_path / "a.h5", here)
    with h5py.File(tmp_path / "b.h5", "r+") as other:
        del other["X/other"]
        other["X/more"] = np.arange(3000)
        other["X/other"] = np.arange(1000, dtype="i4")
    with lb.open(path) as file, h5py.File(path) as expected:
        for first in range(0, 1000, 100):
            file["X/data"][first : first + 100]
        assert set(file._file_object.properties["plans"]) == {
            h5py.h5o.get_info(expected["X/data"].id).addr,
        }
        for name in ("X/other", "pad"):
            assert np.array_equal(file[name][()], expected[name][()])


def test_slices_of_what_the_document_holds_ask_for_nothing(tmp_path: Path, server: RangeServer) -> None:
    with h5py.File(tmp_path / "small.h5", "w") as file:
        file.create_dataset("small", data=np.arange(100), chunks=(10,), compression="gzip")
    url = server.add("small.h5", tmp_path / "small.h5", etag="weak")
    lb.index(url).save(tmp_path / "small.json")
    server.reset()
    with lb.open(tmp_path / "small.json") as file:
        for first in range(0, 100, 10):
            assert file["small"][first] == first
            assert np.array_equal(file["small"][first : first + 10], np.arange(first, first + 10))
        settle(file)
    assert server.requests == 0


# -- under way --------------------------------------------------------------------------------------------------------


def test_what_is_under_way_is_waited_for(
    remote: Any, local: h5py.File, server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    between(remote, lambda: gate.wait(30))
    under_way = remote._file_object._under_way
    wait = under_way.wait
    monkeypatch.setattr(under_way, "wait", lambda fetches: (gate.set(), wait(fetches)))
    for first in range(0, 4 * STEP, STEP):
        assert np.array_equal(remote["X/data"][first : first + STEP], local["X/data"][first : first + STEP])
        if first == STEP:
            assert not gate.is_set()
    assert gate.is_set(), "somebody waited"
    settle(remote)
    assert server.nbytes <= 1.05 * held_nbytes(remote["X/data"]) + SLACK, "nothing was asked for twice"


def test_a_read_that_goes_beyond_what_is_under_way_asks_for_the_rest_only(
    remote: Any, local: h5py.File, server: RangeServer
) -> None:
    dataset = remote["X/data"]
    for first, stop in ((0, STEP), (STEP, 2 * STEP), (2 * STEP, 20 * STEP)):
        assert np.array_equal(dataset[first:stop], local["X/data"][first:stop])
    settle(remote)
    assert server.nbytes <= 1.05 * held_nbytes(dataset) + SLACK


def test_what_fails_in_the_background_is_asked_for_again(
    remote: Any, local: h5py.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the very read that waits for it."""
    waited, failed = threading.Event(), []

    def fail() -> None:
        waited.wait(30)
        if not failed:
            failed.append(True)
            raise lb.SourceError("once")

    between(remote, fail)
    under_way = remote._file_object._under_way
    wait = under_way.wait
    monkeypatch.setattr(under_way, "wait", lambda fetches: (waited.set(), wait(fetches)))
    for first in range(0, 6 * STEP, STEP):
        assert np.array_equal(remote["X/data"][first : first + STEP], local["X/data"][first : first + STEP])
    assert failed
    assert remote._file_object.misses == 0, "in one wave, not chunk by chunk"


def test_what_keeps_failing_is_an_error_of_the_read_that_needs_it(remote: Any, server: RangeServer) -> None:
    gate = threading.Event()
    between(remote, lambda: gate.wait(30))
    dataset = remote["X/data"]
    dataset[:STEP]
    dataset[STEP : 2 * STEP]
    server.resources["a.h5"].fault = "404"
    gate.set()
    settle(remote)
    with pytest.raises(lb.SourceNotFoundError):
        dataset[2 * STEP : 3 * STEP]
    server.resources["a.h5"].fault = ""
    assert len(dataset[5 * STEP : 6 * STEP]) == STEP, "it can be read again"


def test_closing_while_a_fetch_is_under_way(document: str) -> None:
    gate, entered = threading.Event(), threading.Event()
    file = lb.open(document)

    def hold() -> None:
        entered.set()
        gate.wait(30)

    between(file, hold)
    file_object = file._file_object
    file["X/data"][:STEP]
    file["X/data"][STEP : 2 * STEP]
    assert entered.wait(30)
    file.close()
    gate.set()
    under_way = file_object._under_way
    under_way.wait(list(under_way._fetches))
    assert file_object._ahead.nbytes == 0, "what came too late is not kept"


PRELUDE = """
import os, sys, threading
import h5py, numpy as np
import lindi_bridge as lb
from lindi_bridge.ranges import ReaderOptions, open_reader

document, stalled = sys.argv[1:]
file = lb.open(document)
dataset = file["X/data"]
reader = file._file_object.reader
read, entered, STEP = reader.read_ranges, threading.Event(), 50_000
silent = open_reader(stalled, ReaderOptions(read_timeout=600, total_timeout=600))

def gated(ranges):
    if threading.current_thread().name == "lindi-bridge-ahead":
        entered.set()
        return silent.read_ranges(ranges)
    return read(ranges)

reader.read_ranges = gated
dataset[:STEP], dataset[STEP : 2 * STEP]
entered.wait()
"""

PROGRAMS = {
    "end": "",
    "exit": "sys.exit(0)",
    "close": "file.close()",
    "garbage": "del file, dataset",
    "fork": """
child = os.fork()
if child == 0:
    assert len(dataset[2 * STEP : 3 * STEP]) == STEP
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""",
    "elsewhere": "assert len(file['X/indices'][: 3 * STEP]) == 3 * STEP",
    "ctrl-C": """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
waits = file._file_object._under_way.wait
def wait(fetches):
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    waits(fetches)
file._file_object._under_way.wait = wait
try:
    dataset[2 * STEP : 3 * STEP]
except KeyboardInterrupt:
    pass
else:
    sys.exit("it did not wait")
del file._file_object._under_way.wait
reader.read_ranges = read
assert len(dataset[2 * STEP : 3 * STEP]) == STEP
""",
    "plain": "assert len(lb.plain(dataset)[2 * STEP : 3 * STEP]) == STEP",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_with_a_fetch_under_way_that_never_ends(
    program: str, document: str, server: RangeServer, path: Path
) -> None:
    stalled = server.add("stalled.h5", path, fault="stall", seconds=600)
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PRELUDE + PROGRAMS[program], document, stalled]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            error = process.communicate(timeout=30)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its children too
            pytest.fail("it hangs")
    assert (process.returncode, error) == (0, "")


# -- one large selection ----------------------------------------------------------------------------------------------


def test_the_first_slab_is_decoded_while_the_last_is_on_its_way(
    remote: Any, local: h5py.File, server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, in_time = threading.Event(), []
    last = read_plan(remote["huge"].id, remote._file_object).ranges(slice(24 * MIB - 1, None))[0]
    reader, read_direct = remote._file_object.reader, h5py.Dataset.read_direct
    read = reader.read_ranges

    def gated(ranges: Any) -> Any:
        if any(start <= last.start < start + length for start, length in ranges):
            in_time.append(decoded.wait(30))
        return read(ranges)

    def noted(*args: Any, **options: Any) -> None:
        read_direct(*args, **options)
        decoded.set()

    reader.read_ranges = gated
    monkeypatch.setattr(h5py.Dataset, "read_direct", noted)
    found = remote["huge"][:]
    assert in_time == [True]
    assert np.array_equal(found, local["huge"][:])
    assert server.nbytes <= 1.02 * stored(remote["huge"], slice(None)) + SLACK
    assert server.requests <= 48
    assert remote._file_object.misses == 0


def test_all_slabs_that_fit_are_under_way_when_the_first_is_decoded(
    remote: Any, local: h5py.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_direct = h5py.Dataset.read_direct
    begun = []

    def noted(*args: Any, **options: Any) -> None:
        under_way = sum(r.length for fetch in remote._file_object._under_way._fetches for r in fetch.requests)
        begun.append(held_nbytes(remote["huge"]) + under_way)
        read_direct(*args, **options)

    gate = threading.Event()
    monkeypatch.setattr(h5py.Dataset, "read_direct", noted)
    monkeypatch.setattr(remote._file_object._under_way, "wait", lambda fetches: gate.set())
    between(remote, lambda: gate.wait(30))
    assert np.array_equal(remote["huge"][:], local["huge"][:])
    assert begun[0] >= stored(remote["huge"], slice(None)), "nobody waits before the first slab is decoded"


def test_the_progress_bar_says_what_is_read(remote: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import tqdm

    monkeypatch.setattr(slabs, "_PATIENCE", 0)
    read = [0]
    read_direct = h5py.Dataset.read_direct
    seen: list[tuple[int, int]] = []

    class Bar(tqdm.tqdm):  # type: ignore[type-arg]
        def update(self, n: float | None = 1) -> bool | None:
            seen.append((int(self.n + (n or 0)), read[0]))
            return super().update(n)

    def noted(self: Any, dest: Any, *args: Any, **options: Any) -> None:
        read_direct(self, dest, *args, **options)
        read[0] += dest.nbytes

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    monkeypatch.setattr(h5py.Dataset, "read_direct", noted)
    remote["huge"][:]
    assert len(seen) > 1
    assert all(said <= done * 1.01 for said, done in seen)


# -- plain h5py -------------------------------------------------------------------------------------------------------


def test_plain_h5py_reading_on_doubles_its_window(document: str, local: h5py.File, server: RangeServer) -> None:
    server.reset()
    with h5py.File(lb.hdf5_file(document)) as file:
        for first in range(0, COUNT, STEP):
            assert np.array_equal(file["X/data"][first : first + STEP], local["X/data"][first : first + STEP])
    needed = local["X/data"].id.get_storage_size()
    assert server.nbytes <= needed + 4 * MIB, "too much by one window at the most"
    assert server.requests <= 12


def test_plain_h5py_reading_two_arrays_in_turn(document: str, local: h5py.File, server: RangeServer) -> None:
    server.reset()
    with h5py.File(lb.hdf5_file(document)) as file:
        for first in range(0, COUNT, STEP):
            for name in ("X/data", "X/indices"):
                assert np.array_equal(file[name][first : first + STEP], local[name][first : first + STEP])
    needed = sum(local[name].id.get_storage_size() for name in ("X/data", "X/indices"))
    assert server.nbytes <= needed + 4 * MIB
    assert server.requests <= 24


def test_plain_h5py_reading_anywhere_fetches_little_more(document: str, local: h5py.File, server: RangeServer) -> None:
    server.reset()
    order = np.random.default_rng(1).permutation(COUNT // 12_500)[:20]
    order = np.sort(order)[::2][::-1].tolist()
    with h5py.File(lb.hdf5_file(document)) as file:
        for k in order:
            assert file["X/data"][k * 12_500] == local["X/data"][k * 12_500]
    touched = sum(local["X/data"].id.get_chunk_info(k).size for k in order)
    assert server.requests <= len(order)
    assert server.nbytes <= touched + 2 * SLACK * len(order)
