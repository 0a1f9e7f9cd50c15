"""A loopback HTTP server of byte ranges for measuring: slow on purpose, and it counts. Linux, standard library only.

Each request waits for the latency before its answer begins; each connection sends at the bandwidth, so that many
connections get more, as they do from an object store. :class:`Server` runs it in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

PIECE = 256 * 1024
"""Bytes that leave at one time."""

SEND_BUFFER = 256 * 1024
"""Bytes that the system may take before the client does; what is lost of them to a client that hangs up is counted."""

_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")


@dataclass(frozen=True)
class Traffic:
    """What the server was asked since the last reset.

    ``waves`` is the length of the longest chain of requests in which each came after the one before was answered;
    requests that wait for a free connection lengthen it. ``late_ms`` is by how much the 95th percentile of the
    answers began later than the latency says, and ``server_cpu`` the seconds that the server computed: both tell
    whether it was the server that was measured.
    """

    requests: int = 0
    waves: int = 0
    connections: int = 0
    nbytes: int = 0
    late_ms: float = 0.0
    server_cpu: float = 0.0


class Server:
    """The server over the files of a folder, in another process; a context manager.

    Parameters
    ----------
    folder : Path
        Its files are served by their names.
    latency : float
        Seconds before each answer.
    bandwidth : float
        Bytes a second on one connection; 0 for no limit.
    """

    def __init__(self, folder: Path, latency: float = 0.0, bandwidth: float = 0.0) -> None:
        self.folder, self.latency, self.bandwidth = folder, latency, bandwidth

    def __enter__(self) -> Server:
        command = [sys.executable, "-m", "benchmark.server", str(self.folder), str(self.latency), str(self.bandwidth)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        )
        self.port = int(self._answer())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def url(self, name: str) -> str:
        """Address of a file of the folder."""
        return f"http://127.0.0.1:{self.port}/{quote(name)}"

    def reset(self) -> None:
        """Begin to count anew."""
        self._ask("reset")

    def count(self) -> Traffic:
        """What came since the last reset."""
        return Traffic(**self._ask("count"))

    def _ask(self, question: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the server of the benchmark ended")
        return json.loads(line)


# -- inside the server's process --------------------------------------------------------------------------------------


@dataclass
class _Resource:
    """A file that is served."""

    path: Path
    headers: str = field(init=False)

    def __post_init__(self) -> None:
        self.file = open(self.path, "rb")  # noqa: SIM115 (open as long as the server runs)
        status = os.fstat(self.file.fileno())
        self.size = status.st_size
        self.headers = (
            f'Accept-Ranges: bytes\r\nETag: "{status.st_mtime_ns:x}-{self.size:x}"\r\n'
            f"Last-Modified: {formatdate(status.st_mtime, usegmt=True)}\r\nContent-Type: application/octet-stream\r\n"
        )


@dataclass
class _Entry:
    """One request."""

    connection: int
    began: float
    ended: float = math.inf
    late: float = 0.0
    nbytes: int = 0


class _Service:
    def __init__(self, folder: Path, latency: float, bandwidth: float) -> None:
        self.folder, self.latency, self.bandwidth = folder, latency, bandwidth
        self.resources: dict[str, _Resource] = {}
        self.conversations: set[asyncio.Task[None]] = set()
        self.reset()

    def reset(self) -> None:
        self.log: list[_Entry] = []
        self.cpu = time.process_time()

    def traffic(self) -> Traffic:
        late = sorted(entry.late for entry in self.log)
        return Traffic(
            requests=len(self.log),
            waves=longest_chain([(entry.began, entry.ended) for entry in self.log]),
            connections=len({entry.connection for entry in self.log}),
            nbytes=sum(entry.nbytes for entry in self.log),
            late_ms=late[len(late) * 95 // 100] * 1000 if late else 0.0,
            server_cpu=time.process_time() - self.cpu,
        )

    async def serve(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        number = 0
        while True:
            sock, _ = await loop.sock_accept(listener)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number += 1
            task = loop.create_task(self.converse(sock, number))
            self.conversations.add(task)
            task.add_done_callback(self.conversations.discard)

    async def converse(self, sock: socket.socket, number: int) -> None:
        """All requests of one connection."""
        loop = asyncio.get_running_loop()
        buffer = b""
        with sock:
            try:
                while True:
                    while (end := buffer.find(b"\r\n\r\n")) < 0:
                        piece = await loop.sock_recv(sock, 1 << 16)
                        if not piece:
                            return
                        buffer += piece
                    head, buffer = buffer[:end].decode("latin-1"), buffer[end + 4 :]
                    if not await self.answer(sock, head, number):
                        return
            except ConnectionError:
                return  # the client has what it wanted

    async def answer(self, sock: socket.socket, head: str, number: int) -> bool:
        """Answer one request; false where the connection ends with it."""
        entry = _Entry(number, time.monotonic())
        self.log.append(entry)
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
                entry.late = time.monotonic() - entry.began - self.latency
            first, *lines = head.split("\r\n")
            method, target, _ = first.split(" ", 2)
            headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
            await self.send(sock, method, unquote(urlsplit(target).path).lstrip("/"), headers.get("range", ""), entry)
            return headers.get("connection", "").lower() != "close"
        finally:
            entry.ended = min(entry.ended, time.monotonic())

    async def send(self, sock: socket.socket, method: str, name: str, wanted: str, entry: _Entry) -> None:
        resource = self.find(name)
        if resource is None or method not in ("GET", "HEAD"):
            await self.send_head(sock, "404 Not Found", "", 0, entry)
            return
        match, start, stop, status = _RANGE.match(wanted), 0, resource.size, "200 OK"
        headers = resource.headers
        if match and (match[1] or match[2]):
            start = int(match[1]) if match[1] else max(0, resource.size - int(match[2]))
            stop = min(int(match[2]) + 1, resource.size) if match[1] and match[2] else resource.size
            if start >= stop:
                unsatisfied = f"Content-Range: bytes */{resource.size}\r\n"
                await self.send_head(sock, "416 Range Not Satisfiable", unsatisfied, 0, entry)
                return
            status = "206 Partial Content"
            headers += f"Content-Range: bytes {start}-{stop - 1}/{resource.size}\r\n"
        empty = method == "HEAD" or start == stop
        await self.send_head(sock, status, headers, stop - start, entry if empty else None)
        if not empty:
            await self.send_body(sock, resource, start, stop, entry)

    async def send_head(self, sock: socket.socket, status: str, headers: str, length: int, last: _Entry | None) -> None:
        if last is not None:
            last.ended = time.monotonic()
        text = f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n"
        await asyncio.get_running_loop().sock_sendall(sock, text.encode())

    async def send_body(self, sock: socket.socket, resource: _Resource, start: int, stop: int, entry: _Entry) -> None:
        """Send piece by piece, each when its last byte may leave."""
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        for position in range(start, stop, PIECE):
            length = min(PIECE, stop - position)
            if self.bandwidth:
                ahead = began + (position + length - start) / self.bandwidth - time.monotonic()
                if ahead > 0:
                    await asyncio.sleep(ahead)
            # Counted before they leave, so that no client is faster than the count.
            entry.nbytes += length
            if position + length == stop:
                entry.ended = time.monotonic()
            await loop.sock_sendfile(sock, resource.file, position, length)

    def find(self, name: str) -> _Resource | None:
        if name not in self.resources:
            path = self.folder / name
            if path.parent != self.folder or not path.is_file():
                return None
            self.resources[name] = _Resource(path)
        return self.resources[name]


def longest_chain(spans: list[tuple[float, float]]) -> int:
    """Largest number of spans (begin, end) that follow one another: always the one that ends first."""
    chain, last = 0, -math.inf
    for began, ended in sorted(spans, key=lambda span: span[1]):
        if began >= last:
            chain, last = chain + 1, ended
    return chain


async def _run(folder: Path, latency: float, bandwidth: float) -> None:
    service = _Service(folder, latency, bandwidth)
    loop = asyncio.get_running_loop()
    stopped = loop.create_future()

    def say(value: object) -> None:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()

    def obey(order: str) -> None:
        if order == "reset":
            service.reset()
        say(asdict(service.traffic()))

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(obey, line.strip())
        loop.call_soon_threadsafe(stopped.set_result, None)

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        listener.setblocking(False)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        serving = loop.create_task(service.serve(listener))
        threading.Thread(target=listen, daemon=True).start()
        say(listener.getsockname()[1])
        await stopped
        serving.cancel()
        for task in service.conversations:
            task.cancel()


def main() -> None:
    """Serve until the standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("latency", type=float)
    parser.add_argument("bandwidth", type=float)
    arguments = parser.parse_args()
    asyncio.run(_run(arguments.folder.resolve(), arguments.latency, arguments.bandwidth))


if __name__ == "__main__":
    main()
