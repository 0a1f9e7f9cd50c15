"""Connections are shared by all that read from one server, and closed when the last of them is."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer
from servers.threads import in_threads

import lindi_bridge as lb
from lindi_bridge.ranges import ByteRange, HttpReader, ReaderOptions, http_pool
from lindi_bridge.ranges.http_pool import Connections, Server
from lindi_bridge.ranges.http_transport import HttpTransport

DATA = random.Random(1).randbytes(100_000)
pytestmark = pytest.mark.usefixtures("plain_environment")


def options(**changes: Any) -> ReaderOptions:
    return ReaderOptions(**{"connect_timeout": 5.0, "read_timeout": 5.0, "retries": 0, **changes})


def until(true: Callable[[], bool]) -> bool:
    limit = time.monotonic() + 10
    while not true() and time.monotonic() < limit:
        time.sleep(0.001)
    return true()


def test_files_of_one_server_share_connections(server: RangeServer) -> None:
    first, second = (HttpReader(server.add(name, DATA), options()) for name in "ab")
    assert first.read_locked(0, 10) == second.read_locked(0, 10) == DATA[:10]
    assert server.connections == 1
    first.close()
    assert second.read_locked(10, 10) == DATA[10:20]
    assert server.connections == 1, "the other one has use for it"
    second.close()
    assert until(lambda: not server._sockets), "nobody has"
    assert second.read_locked(10, 10) == DATA[10:20]
    assert server.connections == 2
    second.close()
    assert until(lambda: not server._sockets)


def test_other_servers_and_ways_do_not(server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with RangeServer() as other:
        readers = [HttpReader(one.add("a", DATA), options()) for one in (server, other)]
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/somewhere/else.pem")
        readers.append(HttpReader(server.url("a"), options()))
        for reader in readers:
            assert reader.read_locked(0, 10) == DATA[:10]
        assert (server.connections, other.connections) == (2, 1)
        for reader in readers:
            reader.close()
        assert until(lambda: not server._sockets and not other._sockets)


def test_no_more_are_kept_than_are_used(server: RangeServer) -> None:
    url = server.add("a", DATA)
    many, few = HttpReader(url, options(concurrency=16)), HttpReader(url, options(concurrency=2))
    server.group = 16
    many.read_ranges([ByteRange(start, 10) for start in range(0, 16_000, 1000)])
    server.group = 1
    assert server.connections == 16
    assert len(server._sockets) == 16
    many.close()
    assert until(lambda: len(server._sockets) == 2)
    server.group = 2
    few.read_ranges([ByteRange(0, 10), ByteRange(5000, 10)])
    server.group = 1
    assert server.connections == 16
    few.close()
    assert until(lambda: not server._sockets)


def test_what_comes_back_after_closing_is_closed(server: RangeServer) -> None:
    reader = HttpReader(server.add("a", DATA, fault="slow", seconds=0.2), options())
    thread = threading.Thread(target=lambda: reader.read_locked(0, 10))
    thread.start()
    assert until(lambda: server.in_flight == 1)
    reader.close()
    thread.join()
    reader.close()
    assert until(lambda: not server._sockets)


def test_what_nobody_closes_is_closed_with_its_reader(server: RangeServer) -> None:
    reader = HttpReader(server.add("a", DATA), options())
    assert reader.read_locked(0, 10) == DATA[:10]
    del reader
    gc.collect()
    assert until(lambda: not server._sockets)


def test_a_connection_that_was_idle_for_long_is_not_used(server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = HttpReader(server.add("a", DATA), options())
    assert reader.read_locked(0, 10) == DATA[:10]
    monkeypatch.setattr(http_pool, "_LONGEST_IDLE", -1.0)
    assert reader.read_locked(0, 10) == DATA[:10]
    assert server.connections == 2
    reader.close()
    assert until(lambda: not server._sockets)


def test_each_reader_has_its_own_time_limit(server: RangeServer) -> None:
    quick = HttpReader(server.add("a", DATA), options(read_timeout=0.2))
    assert quick.read_locked(0, 10) == DATA[:10]
    slow = HttpReader(server.add("b", DATA, fault="slow", seconds=0.6), options(read_timeout=20.0))
    assert slow.read_locked(0, 10) == DATA[:10]
    with pytest.raises(lb.SourceTimeoutError):
        HttpReader(server.url("b"), options(read_timeout=0.2)).read_locked(0, 10)
    quick.close()
    slow.close()


def test_many_threads_and_files(server: RangeServer) -> None:
    readers = [HttpReader(server.add(str(k), DATA[k:]), options(concurrency=4)) for k in range(6)]
    wrong: list[int] = []

    def read(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(60):
            number, start = chance.randrange(6), chance.randrange(90_000)
            if chance.random() < 0.1:
                readers[number].close()
            ranges = [ByteRange(start, 10), ByteRange(90_500, 20)]
            if chance.random() < 0.5:
                found = readers[number].read_ranges(ranges)
            else:
                found = [readers[number].read_locked(*r) for r in ranges]
            if found != [DATA[number + r.start : number + r.stop] for r in ranges]:
                wrong.append(number)

    in_threads(read, range(6))
    assert wrong == []
    for reader in readers:
        reader.close()
    assert until(lambda: not server._sockets)


def test_a_document_and_its_source_are_read_over_one_connection(server: RangeServer, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(100_000)
    url = server.add("a.h5", tmp_path / "a.h5")
    lb.index(url).save(tmp_path / "a.lindi.json")
    assert until(lambda: not server._sockets)
    document = server.add("a.lindi.json", tmp_path / "a.lindi.json")
    server.reset()
    with lb.open(document) as file:
        assert file["x"][5_000] == 5_000
        assert (server.requests, server.connections) == (2, 1)
    assert until(lambda: not server._sockets)


def test_what_follows_an_early_answer_is_nobody_elses(server: RangeServer) -> None:
    first = HttpReader(server.add("a", DATA, fault="early", seconds=0.5), options())
    second = HttpReader(server.add("b", DATA[::-1]), options())
    with pytest.raises(lb.SourceProtocolError, match="HTTP 103"):
        first.read_locked(0, 10)
    assert second.read_locked(0, 10) == DATA[::-1][:10]
    assert server.connections == 2
    first.close()
    second.close()


def test_connections_that_the_server_forgot_do_not_fail_one_by_one(server: RangeServer) -> None:
    reader = HttpReader(server.add("a", DATA, fault="once"), options(concurrency=8, retries=1))
    server.group = 8
    reader.read_ranges([ByteRange(start, 10) for start in range(0, 8000, 1000)])
    server.group = 1
    assert server.connections == 8
    assert reader.read_locked(0, 10) == DATA[:10]
    assert (server.requests, server.connections) == (10, 9)
    assert until(lambda: len(server._sockets) == 1)
    reader.close()


def test_time_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this system has no such clock of its own")
    monkeypatch.setattr(time, "clock_gettime", lambda clock: 1000.0 if clock == time.CLOCK_BOOTTIME else 1.0)
    assert http_pool._clock()() == 1000.0


@pytest.mark.parametrize("concurrency", [1, 2])
def test_no_more_at_one_time_than_was_asked_for(server: RangeServer, concurrency: int) -> None:
    reader = HttpReader(server.add("a", DATA), options(concurrency=concurrency))
    reader.read_locked(0, 10)
    for start in (0, 1000):
        data, along = reader.read_locked_beside(ByteRange(start, 10), [ByteRange(50_000, 10), ByteRange(60_000, 10)])
        assert (data, along) == (
            DATA[start : start + 10],
            [DATA[50_000:50_010], b""] if concurrency > 1 else [b"", b""],
        )
    assert (server.requests, server.connections) == (1 + 2 * concurrency, concurrency)
    reader.close()


def test_a_proxy_has_a_connection_of_its_own_and_its_password_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = []
    for proxy in (None, "http://me:s3cr3t@proxy.example:3128", "http://me:0ther@proxy.example:3128"):
        if proxy is not None:
            monkeypatch.setenv("http_proxy", proxy)
        servers.append(HttpTransport(options())._server("http://data.example/a?sig=s3cr3t"))
    assert len(set(servers)) == 3
    assert "s3cr3t" not in repr(servers)
    assert "0ther" not in repr(servers)


def test_a_port_that_is_none_is_an_error_of_ours() -> None:
    for port in ("99999", "abc"):
        with pytest.raises(lb.SourceProtocolError, match=r"^http://data\.example:\w+/a: no valid address"):
            HttpReader(f"http://data.example:{port}/a?sig=s3cr3t", options())


def interleave(function: Callable[[], object], other: Callable[[], object], again: Callable[[], object]) -> int:
    """Call a function over and over, and another one in the midst of it: each time one step of the pool later."""
    for stop in itertools.count():
        steps = itertools.count()
        done: list[bool] = []

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            if frame.f_code.co_filename != http_pool.__file__:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and next(steps) == stop:  # noqa: B023 - not used after this turn
                done.append(True)  # noqa: B023
                other()
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            function()
        finally:
            sys.settrace(before)
        again()
        if not done:
            return stop
    raise AssertionError


@pytest.mark.parametrize("name", ["claim", "take", "take_beside", "give_back", "close"])
def test_closing_at_any_moment_leaves_nothing(server: RangeServer, name: str) -> None:
    reader = HttpReader(server.add("a", DATA), options(concurrency=4))
    pool, address = reader._transport._connections, reader._transport._server(reader.url)
    elsewhere = Server(*address[:2], "elsewhere", *address[3:])
    taken: list[Any] = []

    def prepare() -> None:
        taken.clear()
        server.group = 2
        reader.read_ranges([ByteRange(0, 10), ByteRange(500, 10)])
        server.group = 1
        pool.claim(elsewhere)
        if name == "give_back":
            taken.append(pool.take(address))

    def run() -> None:
        if name == "give_back":
            pool.give_back(address, taken[0])
        elif name == "close":
            pool.close()
        else:
            taken.append(getattr(pool, name)(address))

    def check() -> None:
        for one in taken:
            connection = one[1] if isinstance(one, tuple) else one
            if connection is not None:
                connection.close()
        pool.close()
        for one in (address, elsewhere):
            kept = http_pool._kept.get(one)
            assert kept is None or (kept.users, kept.idle) == ({}, [])
        prepare()

    prepare()
    assert interleave(run, pool.close, check) > 10
    reader.close()


def test_closing_when_another_thread_has_closed_it_just_now() -> None:
    class Faster(dict[Server, None]):
        def __bool__(self) -> bool:
            return True

    http_pool._give_up(-1, Faster())
    Connections(1).close()
