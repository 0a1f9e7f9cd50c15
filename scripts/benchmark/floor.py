"""The physical limit, measured: byte ranges that are all known in advance, replayed at many connections at once.

As a program it reads plans from its standard input, ``{"url": ..., "plans": [[[start, stop], ...], ...]}``, and prints
the seconds and the CPU seconds of every replay. Standard library only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

CONNECTIONS = 64
BLOCK = 64 * 1024
"""Bytes; ranges are widened to whole blocks, because that is what a reader of pages would fetch."""

LIMITS = (256 * 1024, 1024 * 1024, 4 * 1024 * 1024)
"""Bytes of the longest request. Which one is best depends on the file: the floor is the fastest."""

Span = tuple[int, int]
"""First byte, and the first after the last."""


@dataclass(frozen=True)
class Floor:
    """The fastest of the replays; ``wall`` is the median of its repetitions."""

    wall: float = 0.0
    cpu: float = 0.0
    requests: int = 0
    nbytes: int = 0


def merge(spans: Iterable[Span], gap: int = 0) -> list[Span]:
    """The union of spans, holes of up to ``gap`` bytes filled."""
    merged: list[list[int]] = []
    for start, stop in sorted(span for span in spans if span[0] < span[1]):
        if merged and start <= merged[-1][1] + gap:
            merged[-1][1] = max(merged[-1][1], stop)
        else:
            merged.append([start, stop])
    return [(start, stop) for start, stop in merged]


def subtract(spans: Iterable[Span], known: Iterable[Span]) -> list[Span]:
    """What of the spans is not in ``known``."""
    left, holes = [], merge(known)
    position = 0
    for start, stop in merge(spans):
        while position < len(holes) and holes[position][1] <= start:
            position += 1
        here = position
        while start < stop:
            if here == len(holes) or holes[here][0] >= stop:
                left.append((start, stop))
                break
            if start < holes[here][0]:
                left.append((start, holes[here][0]))
            start = holes[here][1]
            here += 1
    return left


def plan(spans: Iterable[Span], size: int, block: int, limit: int) -> list[Span]:
    """Requests for the whole blocks that the spans touch, none longer than ``limit``, long ones first."""
    blocks = [(start // block * block, min(size, -(-stop // block) * block)) for start, stop in spans if start < stop]
    requests = [
        (position, min(position + limit, stop))
        for start, stop in merge(blocks)
        for position in range(start, stop, limit)
    ]
    return sorted(requests, key=lambda span: span[0] - span[1])


def measure(url: str, spans: list[Span], size: int, blocks: Iterable[int], repeat: int = 3) -> Floor:
    """Replay in a process of its own; blocks of 1 byte stand for the spans as they are."""
    plans = {tuple(plan(spans, size, block, limit)) for block in blocks for limit in LIMITS} - {()}
    if not plans:
        return Floor()
    ordered = sorted(plans, key=len)
    floors = []
    for requests, results in zip(ordered, _replayed(url, ordered, repeat), strict=True):
        wall, cpu = median(r[0] for r in results), median(r[1] for r in results)
        floors.append(Floor(wall, cpu, len(requests), sum(stop - start for start, stop in requests)))
    return min(floors, key=lambda floor: floor.wall)


def measure_plan(url: str, requests: list[Span]) -> float:
    """Seconds that these requests take as they are."""
    ((result,),) = _replayed(url, [tuple(requests)], 1)
    return result[0]


def _replayed(url: str, plans: list[tuple[Span, ...]], repeat: int) -> list[list[tuple[float, float]]]:
    """Wall and CPU seconds of each repetition of each plan."""
    process = subprocess.run(
        [sys.executable, "-m", "benchmark.floor", "--repeat", str(repeat)],
        input=json.dumps({"url": url, "plans": plans}),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
    )
    results: list[list[tuple[float, float]]] = json.loads(process.stdout)
    return results


async def replay(url: str, requests: Iterable[Span], connections: int = CONNECTIONS) -> int:
    """Fetch all requests, each connection one after the other; returns the bytes received."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    left = list(requests)[::-1]
    address = (parts.hostname, parts.port or 80)
    head = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nRange: bytes="

    async def worker() -> int:
        loop, received = asyncio.get_running_loop(), 0
        buffer = memoryview(bytearray(1 << 20))
        with socket.socket() as sock:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
            while left:
                start, stop = left.pop()
                await loop.sock_sendall(sock, f"{head}{start}-{stop - 1}\r\n\r\n".encode())
                await _receive(sock, buffer, stop - start)
                received += stop - start
        return received

    return sum(await asyncio.gather(*[worker() for _ in range(min(connections, len(left)))]))


async def _receive(sock: socket.socket, buffer: memoryview, length: int) -> None:
    """One answer: the head, then exactly ``length`` bytes of body."""
    loop, text = asyncio.get_running_loop(), b""
    while (end := text.find(b"\r\n\r\n")) < 0:
        count = await loop.sock_recv_into(sock, buffer)
        if not count:
            raise ConnectionError("the server hung up")
        text += bytes(buffer[:count])
    if not text.startswith(b"HTTP/1.1 206"):
        raise ConnectionError(f"no partial content: {text[:80]!r}")
    left = length - (len(text) - end - 4)
    while left:
        count = await loop.sock_recv_into(sock, buffer[: min(left, len(buffer))])
        if not count:
            raise ConnectionError("the server hung up")
        left -= count
    if left < 0:
        raise ConnectionError("more came than was asked for")


def main() -> None:
    """Replay the plans of the standard input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    arguments = parser.parse_args()
    task = json.load(sys.stdin)
    results = []
    for requests in task["plans"]:
        runs = []
        for _ in range(arguments.repeat):
            cpu, began = time.process_time(), time.perf_counter()
            asyncio.run(replay(task["url"], requests, arguments.connections))
            runs.append((time.perf_counter() - began, time.process_time() - cpu))
        results.append(runs)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
