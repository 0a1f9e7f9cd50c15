"""A loopback HTTP server of byte ranges that counts what it is asked and misbehaves on demand. Standard library only.

In a test or a demonstration::

    with RangeServer(latency=0.05) as server:
        url = server.add("a.bin", data)                       # bytes, or a path
        bad = server.add("b.bin", data, fault="cut", times=1)  # see FAULTS
        ...
        assert server.waves() <= 2

As a program, for a subprocess: ``python range_server.py --latency 0.05 FILE...`` prints one JSON object
``{"name": "url", ...}`` and serves until its standard input ends.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import hashlib
import json
import math
import os
import random
import re
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

__all__ = ["FAULTS", "RangeServer", "Request", "Resource"]

FAULTS = {
    "no_range": "200 with the whole file, whatever was asked",
    "short": "206 for the whole range with half the body; Content-Length agrees with the body",
    "surplus": "206 with more body than the range (chunked)",
    "wrong_range": "206 for the range one byte further",
    "no_total": "206 with Content-Range bytes a-b/*",
    "gzip": "the body compressed, whether or not it was accepted",
    "long": "206 whose Content-Length is twice the range; the connection is closed after the range",
    "cut": "the connection is closed in the middle of the body",
    "reset": "the connection is reset (RST) in the middle of the body",
    "drop": "the connection is closed without an answer",
    "stall": "no answer for `seconds`",
    "trickle": "the body byte by byte, one every `seconds`",
    "trickle_headers": "the headers line by line, one every `seconds`, without end",
    "slow": "the answer begins after `seconds`",
    "page": "200 with a page of HTML, as of a login",
    "expired": "400 with S3's words for credentials that have expired",
    "no_length": "206 in chunked encoding, without Content-Length",
    "close": "206 with Connection: close",
    "early": "103 Early Hints, and the answer after `seconds`",
    "more": "206 with its Content-Length, and more bytes after the body",
    "once": "the connection is closed without an answer if it has had one before",
    "changed": "another ETag (and other bytes of the same length)",
    "truncated": "the file is one byte shorter",
    "redirect": "302 to `location`; {n} in it is the number of the request",
    "redirect_loop": "302 to itself",
    "<status>": "any number: that status, with an S3-like error text",
}

_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")
_EXPIRED = "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
_PAGE = "<!DOCTYPE html><html><title>Log in</title><body>Please log in.</body></html>"
_REASON = "<Error><Code>Refused</Code><Message>the range server was told to</Message></Error>"


@dataclass
class Resource:
    """A file that is served, and how.

    ``fault`` (a key of :data:`FAULTS`) begins after ``after`` good GETs and happens ``times`` times (None: for ever);
    with ``each``, it happens so often to each range. Of several faults, ``cut|503|...``, one is drawn; with ``rate``,
    that share of the requests meets a fault. Draws depend on ``seed`` and the number of the request.
    ``query`` and ``require`` are what a request must carry, else 403 and 401; a ``token_uses`` number makes each value
    of ``?token=`` good for so many requests only. ``etag`` is "strong", "weak" or "none";
    ``extra`` are further headers of good answers.
    """

    data: bytes | Path
    fault: str = ""
    times: int | None = None
    after: int = 0
    each: bool = False
    rate: float = 1.0
    seed: int = 0
    seconds: float = 0.0
    retry_after: str | None = None
    location: str = ""
    etag: str = "strong"
    extra: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    require: Mapping[str, str] = field(default_factory=dict)
    token_uses: int | None = None
    seen: int = 0
    faults: int = 0
    ranges: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data) if isinstance(self.data, bytes) else self.data.stat().st_size

    def read(self, start: int, stop: int) -> bytes:
        """Bytes from ``start`` to before ``stop``."""
        if isinstance(self.data, bytes):
            return self.data[start:stop]
        with open(self.data, "rb") as file:
            file.seek(start)
            return file.read(stop - start)

    def next_fault(self, of: str) -> str:
        """The fault that a GET of a range meets; to be called once for each."""
        count = self.ranges.get(of, 0) if self.each else self.seen
        number, self.seen, self.ranges[of] = self.seen, self.seen + 1, self.ranges.get(of, 0) + 1
        active = count >= self.after and (self.times is None or count < self.after + self.times)
        draw = random.Random(self.seed * 1_000_003 + number)
        if not (self.fault and active and draw.random() < self.rate):
            return ""
        self.faults += 1
        return draw.choice(self.fault.split("|"))

    def tag(self) -> str | None:
        """Make the entity tag, from the size and the first bytes."""
        if self.etag == "none":
            return None
        digest = hashlib.md5(self.read(0, 4096) + str(self.size).encode(), usedforsecurity=False).hexdigest()
        return f'W/"{digest}"' if self.etag == "weak" else f'"{digest}"'


@dataclass
class Request:
    """One request as it was answered. Times are of the monotonic clock, in seconds."""

    method: str
    path: str
    range: str | None
    headers: dict[str, str]
    began: float
    ended: float = math.inf
    status: int = 0
    nbytes: int = 0


class RangeServer:
    """Serves registered bytes and files on a free port of 127.0.0.1; a context manager.

    Parameters
    ----------
    latency : float
        Seconds before each answer.
    bandwidth : float, optional
        Bytes a second on one connection.
    group : int
        Answers are held back until so many requests have come (or 10 seconds have passed): what is read in one wave of
        that size is then one wave on the slowest machine too.
    certificate : path, optional
        PEM file with a private key and a certificate; the server then speaks https.
    """

    running = 0
    """Servers of this process that run."""

    def __init__(
        self,
        latency: float = 0.0,
        bandwidth: float | None = None,
        group: int = 1,
        certificate: str | os.PathLike[str] | None = None,
    ) -> None:
        self.latency = latency
        self.bandwidth = bandwidth
        self.group = group
        self.resources: dict[str, Resource] = {}
        self.lock = threading.Lock()
        self.log: list[Request] = []
        self.connections = 0
        self.max_in_flight = 0
        self.in_flight = 0
        self.stopping = threading.Event()
        self._came = 0
        self._group_is_full = threading.Condition()
        self._sockets: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # The handshake is left to the thread of the connection.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        RangeServer.running += 1
        # A client may wait for this server while it holds h5py's lock. Were garbage collected in a thread of the server
        # at that moment, and an object of h5py in it, both would wait for ever. (See also tests/conftest.py.)
        gc.disable()

    def __enter__(self) -> RangeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port that the system chose."""
        return int(self._server.server_address[1])

    def add(self, name: str, data: bytes | str | os.PathLike[str], **behaviour: Any) -> str:
        """Serve ``data`` (bytes, or the path of a file) as ``name``, and return its URL."""
        content = data if isinstance(data, bytes) else Path(data)
        self.resources[name] = Resource(content, **behaviour)
        return self.url(name)

    def url(self, name: str, host: str = "127.0.0.1") -> str:
        """URL of ``name``; with ``host="localhost"`` another origin of the same server."""
        return f"{self._scheme}://{host}:{self.port}/{quote(name)}"

    @property
    def requests(self) -> int:
        """Number of requests answered or cut."""
        return len(self.log)

    @property
    def nbytes(self) -> int:
        """Bytes of bodies sent."""
        return sum(request.nbytes for request in self.log)

    def waves(self) -> int:
        """Length of the longest chain of requests in which each began after the one before had been answered."""
        with self.lock:
            spans = sorted((request.ended, request.began) for request in self.log)
        chain, last = 0, float("-inf")
        for ended, began in spans:  # always the one that ends first: the classic choice, and the longest chain
            if began >= last:
                chain, last = chain + 1, ended
        return chain

    def reset(self) -> None:
        """Forget the counters (not what the faults have counted)."""
        with self.lock:
            self.log = []
            self.connections = self.max_in_flight = self._came = 0

    def close(self) -> None:
        """Stop, and close all connections."""
        if not self.stopping.is_set():
            RangeServer.running -= 1
            if not RangeServer.running:
                gc.enable()
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        with self.lock:
            sockets = list(self._sockets)
        for sock in sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # its client was faster

    @contextmanager
    def connection(self, sock: socket.socket) -> Iterator[None]:
        """Count a connection, and know it until it ends."""
        with self.lock:
            self.connections += 1
            self._sockets.add(sock)
        try:
            yield
        finally:
            with self.lock:
                self._sockets.discard(sock)

    @contextmanager
    def request(self, method: str, path: str, headers: Mapping[str, str]) -> Iterator[Request]:
        """Count a request while it is answered."""
        entry = Request(method, path, headers.get("Range"), dict(headers), time.monotonic())
        with self.lock:
            self.log.append(entry)
            self.in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            yield entry
        finally:
            self.finish(entry)

    def hold_back(self) -> None:
        """Wait until the group of this request is complete."""
        with self._group_is_full:
            self._came += 1
            end = -(-self._came // self.group) * self.group
            self._group_is_full.notify_all()
            self._group_is_full.wait_for(lambda: self._came >= end or self.stopping.is_set(), timeout=10)

    def finish(self, entry: Request) -> None:
        """Note that a request is answered; called just before the last byte leaves, so that no client is faster."""
        with self.lock:
            if entry.ended == math.inf:
                entry.ended = time.monotonic()
                self.in_flight -= 1


class _Server(ThreadingHTTPServer):
    owner: RangeServer
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError | TimeoutError | ssl.SSLError):
            super().handle_error(request, client_address)


class _CutError(ConnectionError):
    """End the connection without more words."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    answered = 0
    """Requests on this connection."""

    def handle(self) -> None:
        with self.server.owner.connection(self.connection):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def _serve(self) -> None:
        owner = self.server.owner
        with owner.request(self.command, self.path, dict(self.headers)) as entry:
            owner.hold_back()
            if owner.latency:
                owner.stopping.wait(owner.latency)
            self._answer(entry)
            self.answered += 1

    def _answer(self, entry: Request) -> None:
        owner = self.server.owner
        url = urlsplit(self.path)
        resource = owner.resources.get(unquote(url.path).lstrip("/"))
        if resource is None:
            return self._refuse(entry, 404)
        with owner.lock:
            # Faults are about reading: HEAD meets none, and is not counted.
            number = resource.seen
            fault = resource.next_fault(self.headers.get("Range", "")) if self.command == "GET" else ""
            token = parse_qs(url.query).get("token", [""])[0]
            resource.tokens[token] = resource.tokens.get(token, 0) + 1
            worn = resource.token_uses is not None and (not token or resource.tokens[token] > resource.token_uses)
        if (resource.query and (url.query != resource.query or self.command == "HEAD")) or worn:
            return self._refuse(entry, 403)
        if any(self.headers.get(name) != value for name, value in resource.require.items()):
            return self._refuse(entry, 401)
        if fault.isdigit():
            return self._refuse(entry, int(fault), resource.retry_after)
        if fault == "expired":
            return self._send(entry, 400, {"Content-Type": "application/xml"}, _EXPIRED.encode())
        if fault == "page":
            return self._send(entry, 200, {"Content-Type": "text/html; charset=utf-8"}, _PAGE.encode())
        if fault == "trickle_headers":
            return self._trickle_headers(resource.seconds)
        if fault in {"redirect", "redirect_loop"}:
            location = self.path if fault == "redirect_loop" else resource.location.replace("{n}", str(number))
            return self._send(entry, 302, {"Location": location}, b"")
        if fault == "drop" or (fault == "once" and self.answered):
            raise _CutError
        if fault == "early":
            self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n")
            self.wfile.flush()
            owner.stopping.wait(resource.seconds)
        if fault in {"stall", "slow"}:
            owner.stopping.wait(resource.seconds)
            if fault == "stall":
                raise _CutError
        self._send_range(entry, resource, fault)
        return None

    def _send_range(self, entry: Request, resource: Resource, fault: str) -> None:
        size = resource.size - (fault == "truncated")
        tag = resource.tag()
        if fault == "changed" and tag is not None:
            tag = tag.replace('"', '"changed-', 1)
        headers = {"Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT"} if resource.etag != "none" else {}
        headers.update(resource.extra)
        if tag is not None:
            headers["ETag"] = tag
        condition = self.headers.get("If-Match")
        if condition and condition != "*" and (tag is None or tag.startswith("W/") or tag not in condition):
            return self._refuse(entry, 412)
        match = _RANGE.match(self.headers.get("Range", "")) if fault != "no_range" else None
        status, start, stop = 200, 0, size
        if match and (match[1] or match[2]):
            start = int(match[1]) if match[1] else max(size - int(match[2]), 0)
            stop = min(int(match[2]) + 1, size) if match[1] and match[2] else size
            if start >= stop:
                return self._send(entry, 416, {**headers, "Content-Range": f"bytes */{size}"}, b"")
            status = 206
            total = "*" if fault == "no_total" else str(size)
            shift = fault == "wrong_range"
            headers["Content-Range"] = f"bytes {start + shift}-{stop - 1 + shift}/{total}"
        body = resource.read(start, stop)
        if fault == "changed":
            body = bytes(byte ^ 255 for byte in body)
        elif fault == "short":
            body = body[: len(body) // 2]
        elif fault == "surplus":
            body += b"surplus"
        elif fault == "gzip":
            body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
        elif fault == "close":
            headers["Connection"] = "close"
        self._send(entry, status, headers, body, fault, resource.seconds)
        return None

    def _trickle_headers(self, pause: float) -> None:
        self.send_response(206)
        number = 0
        while not self.server.owner.stopping.wait(pause):
            self.send_header(f"X-{number}", "more to come")
            self.flush_headers()
            self.wfile.flush()
            number += 1
        raise _CutError

    def _refuse(self, entry: Request, status: int, retry_after: str | None = None) -> None:
        headers = {"Content-Type": "application/xml"}
        if retry_after is not None:
            headers["Retry-After"] = retry_after
        self._send(entry, status, headers, _REASON.encode())

    def _send(
        self, entry: Request, status: int, headers: Mapping[str, str], body: bytes, fault: str = "", pause: float = 0.0
    ) -> None:
        entry.status = status
        chunked = fault in {"no_length", "surplus"}
        length = len(body) * (2 if fault == "long" else 1)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(length))))
        self.end_headers()
        owner = self.server.owner
        if self.command == "HEAD":
            return owner.finish(entry)
        if fault in {"cut", "reset", "long"}:
            owner.finish(entry)
            self.wfile.write(body if fault == "long" else body[: len(body) // 2])
            self.wfile.flush()
            if fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                os.close(self.connection.detach())  # an orderly shutdown would come before anything else
            raise _CutError
        if chunked:
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        step = 1 if fault == "trickle" else 1 << 16
        if owner.bandwidth:
            pause = step / owner.bandwidth
        for position in range(0, max(len(body), 1), step):
            piece = body[position : position + step]
            entry.nbytes += len(piece)
            if position + step >= len(body):
                owner.finish(entry)
            self.wfile.write(piece)
            if (fault == "trickle" or owner.bandwidth) and not owner.stopping.is_set():
                self.wfile.flush()
                owner.stopping.wait(pause)
        if fault == "more":
            self.wfile.write(b"more")
        self.wfile.flush()
        return None


def main() -> None:
    """Serve files until the standard input ends."""
    parser = argparse.ArgumentParser(description="A loopback server of byte ranges")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--bandwidth", type=float, default=None, help="bytes a second on one connection")
    arguments = parser.parse_args()
    with RangeServer(arguments.latency, arguments.bandwidth) as server:
        sys.stdout.write(json.dumps({path.name: server.add(path.name, path) for path in arguments.files}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
