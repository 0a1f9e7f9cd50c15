"""One HTTP connection whose every receive has a time limit. Nothing here logs or takes a Python lock."""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from lindi_bridge.errors import SourceProtocolError
from lindi_bridge.ranges.address import strip_secrets
from lindi_bridge.ranges.deadline import Deadline, TransientError

__all__ = ["Answer", "BodyLength", "HttpConnection"]

_DRAIN = 64 << 10  # bodies of refusals up to this size are read: to keep the connection, and for what they say
_PIECE = 1 << 20
_BODILESS = frozenset({*range(100, 200), 204, 304})  # http.client reads no further, but more may come: the true answer
_BUFFER = 16 << 10  # of each answer on its way: headers and a small body; the rest of a long one goes past it

BodyLength = Callable[[int, Mapping[str, str]], int | None]
"""Given status and headers (names in lower case): bytes of body to read, or None if it is no part of the file."""


class Answer(NamedTuple):
    """What came back from one attempt.

    ``headers`` have their names in lower case. ``body`` is of the wanted length, or, where no part of the file was
    sent, what the server says instead (as much as there was to be had in passing).
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpConnection:
    """A connection whose every receive is bound by the deadline of the request that runs on it.

    Parameters
    ----------
    raw : http.client.HTTPConnection
        Connected, TLS included.
    proxy_headers : mapping, optional
        For a proxy that is asked for whole addresses; None without one.
    """

    def __init__(self, raw: http.client.HTTPConnection, proxy_headers: Mapping[str, str] | None) -> None:
        self._raw = raw
        self._socket = raw.sock
        self._proxy_headers = proxy_headers
        self._timed = _TimedSocket(raw.sock)
        raw.sock = self._timed
        # A closed connection must not be opened again behind our back: that socket would have no deadline.
        raw.auto_open = 0
        self.idle_since = 0.0
        """When its last answer was read (seconds of a clock)."""

    def __del__(self) -> None:
        self.close()

    def is_stale(self) -> bool:
        """Tell whether the server closed the idle connection (or sent what nobody asked for)."""
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([self._socket], [], [], 0)[0])

    def send(self, url: str, headers: Mapping[str, str], deadline: Deadline, read_timeout: float) -> None:
        """Send a request; ``read_timeout`` is for its answer, seconds between two pieces."""
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if self._proxy_headers is not None:
            target = f"{parts.scheme}://{parts.netloc}{target}"
            headers = {**headers, **self._proxy_headers}
        self._timed.deadline, self._timed.read_timeout = deadline, read_timeout
        if not any(name.lower() == "host" for name in headers):
            headers = {"Host": parts.netloc, **headers}
        self._raw.putrequest("GET", target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            self._raw.putheader(name, value)
        self._raw.endheaders()

    def receive(self, url: str, body_length: BodyLength, deadline: Deadline) -> tuple[Answer, bool]:
        """Read the answer to the request that was sent; also tell whether the connection can be used again."""
        self._timed.deadline = deadline
        response = self._raw.getresponse()
        received = {name.lower(): value for name, value in response.getheaders()}
        try:
            wanted = body_length(response.status, received)
            if wanted is None:
                announced = response.length
                said = b""
                if announced is None or announced <= _DRAIN:
                    said = _read(response, _DRAIN, deadline)
                reusable = response.isclosed() and response.status not in _BODILESS
                return Answer(response.status, received, said), reusable and not (
                    response.will_close or self._has_more()
                )
            body = _read(response, wanted, deadline)
            surplus = response.read1(1) if len(body) == wanted and not response.isclosed() else b""
        except http.client.IncompleteRead:
            raise TransientError(_short_body(strip_secrets(url))) from None
        finally:
            response.close()
        if len(body) != wanted:
            raise TransientError(_short_body(strip_secrets(url), f" after {len(body)} of {wanted} bytes"))
        if surplus:
            raise SourceProtocolError(
                f"{strip_secrets(url)}: the server sent more than the {wanted} bytes of the range"
            )
        return Answer(response.status, received, body), not (response.will_close or self._has_more())

    def _has_more(self) -> bool:
        """Tell whether TLS has bytes that nobody asked for: :meth:`is_stale` does not see what came with the answer."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def close(self) -> None:
        """Close the socket."""
        self._raw.close()


def _short_body(name: str, amount: str = "") -> SourceProtocolError:
    return SourceProtocolError(f"{name}: the server ended its answer too early{amount}")


def _read(response: http.client.HTTPResponse, nbytes: int, deadline: Deadline) -> bytes:
    pieces = []
    while nbytes > 0:
        piece = response.read1(min(nbytes, _PIECE))
        if not piece:
            break
        pieces.append(piece)
        nbytes -= len(piece)
        deadline.at_most(1)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _TimedSocket:
    """The part of a socket that ``http.client`` uses; sets the time limit before each receive.

    A plain socket timeout begins anew with every packet, so a server that trickles would hold the reader for ever.
    """

    deadline: Deadline
    read_timeout: float

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def sendall(self, data: Any) -> None:
        self._socket.settimeout(self.deadline.at_most(self.read_timeout))
        self._socket.sendall(data)

    def receive_into(self, buffer: Any) -> int:
        until = time.monotonic() + self.read_timeout
        while True:
            self._socket.settimeout(self.deadline.slice_of(max(until - time.monotonic(), 0.001)))
            try:
                return self._socket.recv_into(buffer)
            except TimeoutError:
                if time.monotonic() >= until:
                    raise

    def makefile(self, mode: str, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(_TimedFile(self, self._socket.makefile("rb", buffering=0)), _BUFFER)

    def close(self) -> None:
        self._socket.close()


class _TimedFile(io.RawIOBase):
    """What a response reads from. Holds a file of the socket only because that keeps a closed socket open."""

    def __init__(self, owner: _TimedSocket, raw: Any) -> None:
        self._owner = owner
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._owner.receive_into(buffer)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
            super().close()
