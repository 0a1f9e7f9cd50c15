"""HTTP in the calling thread, for reads under h5py's global lock.

``requests`` cannot be used there: urllib3 logs each request, and its pool and the handlers of ``logging`` take Python
locks that another thread may hold. This transport is ``http.client`` on connections of its own; it takes no Python
lock, logs nothing, and imports nothing once it is made.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - getaddrinfo would import it during the first request
import http.client
import io
import os
import select
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from lindi_bridge.errors import SourceError, SourceProtocolError, SourceTimeoutError
from lindi_bridge.ranges.address import strip_secrets
from lindi_bridge.ranges.deadline import Deadline, TransientError
from lindi_bridge.ranges.reader import ReaderOptions
from lindi_bridge.ranges.transport import Answer, BodyLength, no_route, short_body, untrusted

__all__ = ["DirectTransport"]

_DRAIN = 64 << 10  # bodies of refusals up to this size are read to keep the connection
_PIECE = 1 << 20


class DirectTransport:
    """One request at a time on a persistent connection, in the calling thread.

    Parameters
    ----------
    options : ReaderOptions
        Time limits in seconds.
    """

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._proxies = getproxies()
        self._ca_file = _ca_file()
        self._context: ssl.SSLContext | None = None
        # By process, because a connection inherited by fork() would be shared with the parent. One per thread that
        # ever read at the same time as another; list.append and list.pop are atomic, so no lock is needed.
        self._idle: dict[tuple[int, str, str], list[_Connection]] = {}

    def fetch(self, url: str, headers: Mapping[str, str], body_length: BodyLength, deadline: Deadline) -> Answer:
        """Make one attempt; see :class:`~lindi_bridge.ranges.transport.Transport`."""
        name = strip_secrets(url)
        parts = urlsplit(url)
        idle = self._idle.setdefault((os.getpid(), parts.scheme, parts.netloc), [])
        connection = _pop(idle)
        while connection is not None and connection.is_stale():
            connection.close()
            connection = _pop(idle)
        reused = connection is not None
        try:
            if connection is None:
                connection = self._connect(url, deadline)
            answer, reusable = connection.exchange(url, headers, body_length, deadline)
        except BaseException as problem:
            if connection is not None:
                connection.close()
            if isinstance(problem, SourceError | TransientError | KeyboardInterrupt):
                raise
            if isinstance(problem, OSError | http.client.HTTPException):
                raise _translate(problem, name, reused) from None
            raise
        if reusable:
            idle.append(connection)
        else:
            connection.close()
        return answer

    def close(self) -> None:
        """Close the idle connections."""
        for idle in list(self._idle.values()):
            while (connection := _pop(idle)) is not None:
                connection.close()

    def _connect(self, url: str, deadline: Deadline) -> _Connection:
        parts = urlsplit(url)
        host, secure = parts.hostname or "", parts.scheme == "https"
        proxy_url = None if proxy_bypass(parts.netloc.rpartition("@")[2]) else self._proxies.get(parts.scheme)
        proxy = urlsplit(proxy_url if "://" in proxy_url else f"http://{proxy_url}") if proxy_url else None
        if proxy is not None and proxy.scheme != "http":
            raise SourceError(
                f"{strip_secrets(url)}: the environment names a proxy that is spoken to by {proxy.scheme}; h5py's own "
                "reads go through http:// proxies only (HTTPS_PROXY=http://... serves https addresses too)"
            )
        authorization = {}
        if proxy is not None and proxy.username is not None:
            pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
            authorization["Proxy-Authorization"] = "Basic " + b64encode(pair).decode("ascii")
        limit = deadline.at_most(self._options.connect_timeout)
        first = proxy if proxy is not None else parts
        # The plain class always; TLS goes on top below, whether or not a tunnel was opened first.
        raw = http.client.HTTPConnection(first.hostname or "", first.port or (443 if secure else 80), timeout=limit)
        if proxy is not None and secure:
            raw.set_tunnel(host, parts.port or 443, headers=authorization)
        raw.connect()
        if secure:
            raw.sock = self._tls().wrap_socket(raw.sock, server_hostname=host)
        raw.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        through_proxy = authorization if proxy is not None and not secure else None
        return _Connection(raw, self._options.read_timeout, through_proxy)

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            path = self._ca_file
            is_folder = path is not None and os.path.isdir(path)
            self._context = ssl.create_default_context(
                cafile=None if is_folder else path, capath=path if is_folder else None
            )
        return self._context


def _pop(idle: list[_Connection]) -> _Connection | None:
    try:
        return idle.pop()
    except IndexError:
        return None


class _Connection:
    """A connection whose every receive is bound by the deadline of the request that runs on it."""

    def __init__(
        self, raw: http.client.HTTPConnection, read_timeout: float, proxy_headers: Mapping[str, str] | None
    ) -> None:
        self._raw = raw
        self._socket = raw.sock
        self._proxy_headers = proxy_headers
        self._timed = _TimedSocket(raw.sock, read_timeout)
        raw.sock = self._timed
        # A closed connection must not be opened again behind our back: that socket would have no deadline.
        raw.auto_open = 0

    def __del__(self) -> None:
        self.close()

    def is_stale(self) -> bool:
        """Tell whether the server closed the idle connection (or sent what nobody asked for)."""
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([self._socket], [], [], 0)[0])

    def exchange(
        self, url: str, headers: Mapping[str, str], body_length: BodyLength, deadline: Deadline
    ) -> tuple[Answer, bool]:
        """Send the request and read the answer; also tell whether the connection can be used again."""
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if self._proxy_headers is not None:
            target = f"{parts.scheme}://{parts.netloc}{target}"
            headers = {**headers, **self._proxy_headers}
        self._timed.deadline = deadline
        if not any(name.lower() == "host" for name in headers):
            headers = {"Host": parts.netloc, **headers}
        self._raw.putrequest("GET", target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            self._raw.putheader(name, value)
        self._raw.endheaders()
        response = self._raw.getresponse()
        received = {name.lower(): value for name, value in response.getheaders()}
        try:
            wanted = body_length(response.status, received)
            if wanted is None:
                announced = response.length
                if announced is not None and announced <= _DRAIN:
                    _read(response, announced, deadline)
                return Answer(response.status, received, b""), response.isclosed() and not response.will_close
            body = _read(response, wanted, deadline)
            surplus = response.read1(1) if len(body) == wanted and not response.isclosed() else b""
        except http.client.IncompleteRead:
            raise TransientError(short_body(strip_secrets(url))) from None
        finally:
            response.close()
        if len(body) != wanted:
            raise TransientError(short_body(strip_secrets(url), len(body), wanted))
        if surplus:
            raise SourceProtocolError(
                f"{strip_secrets(url)}: the server sent more than the {wanted} bytes of the range"
            )
        return Answer(response.status, received, body), not response.will_close

    def close(self) -> None:
        self._raw.close()


def _read(response: http.client.HTTPResponse, nbytes: int, deadline: Deadline) -> bytes:
    pieces = []
    while nbytes > 0:
        piece = response.read1(min(nbytes, _PIECE))
        if not piece:
            break
        pieces.append(piece)
        nbytes -= len(piece)
        deadline.at_most(1)
    return b"".join(pieces)


class _TimedSocket:
    """The part of a socket that ``http.client`` uses; sets the time limit before each receive.

    A plain socket timeout begins anew with every packet, so a server that trickles would hold the reader for ever.
    """

    deadline: Deadline

    def __init__(self, sock: socket.socket, read_timeout: float) -> None:
        self._socket = sock
        self._read_timeout = read_timeout

    def arm(self) -> None:
        self._socket.settimeout(self.deadline.at_most(self._read_timeout))

    def sendall(self, data: Any) -> None:
        self.arm()
        self._socket.sendall(data)

    def makefile(self, mode: str, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(_TimedFile(self, self._socket.makefile("rb", buffering=0)), 64 << 10)

    def close(self) -> None:
        self._socket.close()


class _TimedFile(io.RawIOBase):
    def __init__(self, owner: _TimedSocket, raw: Any) -> None:
        self._owner = owner
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._owner.arm()
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
            super().close()


def _translate(problem: OSError | http.client.HTTPException, name: str, reused: bool) -> SourceError | TransientError:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return untrusted(name)
    if isinstance(problem, http.client.InvalidURL):
        return SourceProtocolError(f"{name}: no valid address")
    if isinstance(problem, socket.gaierror) and problem.errno != socket.EAI_AGAIN:
        return no_route(name)
    if isinstance(problem, TimeoutError):
        return TransientError(
            SourceTimeoutError(f"{name}: the server stopped answering (connect_timeout, read_timeout)")
        )
    # A kept connection that the server closed just now says nothing about the server: try again at once.
    reason = type(problem).__name__ if isinstance(problem, http.client.HTTPException) else problem.strerror or "cut"
    return TransientError(SourceError(f"{name}: the connection failed ({reason})"), 0.0 if reused else None)


def _ca_file() -> str | None:
    """Certificates as requests finds them: the environment, then certifi, then the system."""
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if os.environ.get(variable):
            return os.environ[variable]
    try:
        import certifi
    except ImportError:
        return None
    return certifi.where()
