"""HTTP for waves of concurrent ranges: one pooled ``requests`` session per process."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lindi_bridge.errors import SourceError, SourceProtocolError, SourceTimeoutError
from lindi_bridge.ranges.address import strip_secrets
from lindi_bridge.ranges.deadline import Deadline, TransientError
from lindi_bridge.ranges.reader import ReaderOptions
from lindi_bridge.ranges.transport import Answer, BodyLength, no_route, short_body, untrusted

if TYPE_CHECKING:
    import requests

__all__ = ["PooledTransport"]

_DRAIN = 64 << 10
_PIECE = 1 << 20


class PooledTransport:
    """Requests from many threads over kept connections. Must not be used while h5py's lock is held.

    Parameters
    ----------
    options : ReaderOptions
        Time limits in seconds, number of connections.
    """

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._sessions: dict[int, requests.Session] = {}

    def fetch(self, url: str, headers: Mapping[str, str], body_length: BodyLength, deadline: Deadline) -> Answer:
        """Make one attempt; see :class:`~lindi_bridge.ranges.transport.Transport`."""
        import requests
        import urllib3

        name = strip_secrets(url)
        limits = (deadline.at_most(self._options.connect_timeout), deadline.at_most(self._options.read_timeout))
        try:
            with _quiet_urls():
                response = self._session().get(
                    url, headers=dict(headers), auth=_as_given, stream=True, allow_redirects=False, timeout=limits
                )
                with response:
                    return self._receive(response, name, body_length, deadline)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as problem:
            if isinstance(problem, SourceError):
                raise
            # "from None": the exceptions of requests carry the whole URL.
            raise _translate(problem, name) from None

    def close(self) -> None:
        """Close the connections of this process."""
        session = self._sessions.pop(os.getpid(), None)
        if session is not None:
            session.close()

    def _session(self) -> requests.Session:
        session = self._sessions.get(os.getpid())
        # setdefault is atomic, so threads that race agree on one session.
        return session or self._sessions.setdefault(os.getpid(), _make_session(self._options.concurrency))

    def _receive(self, response: requests.Response, name: str, body_length: BodyLength, deadline: Deadline) -> Answer:
        headers = {key.lower(): value for key, value in response.headers.items()}
        wanted = body_length(response.status_code, headers)
        raw = response.raw
        if wanted is None:
            announced = headers.get("content-length", "")
            if announced.isdigit() and int(announced) <= _DRAIN:
                self._read(raw, int(announced) + 1, deadline)
                raw.release_conn()
            return Answer(response.status_code, headers, b"")
        # One more than wanted: to see a surplus, and to let the pool see the end and keep the connection.
        body = self._read(raw, wanted + 1, deadline)
        if len(body) < wanted:
            raise TransientError(short_body(name, len(body), wanted))
        if len(body) > wanted:
            raise SourceProtocolError(f"{name}: the server sent more than the {wanted} bytes of the range")
        raw.release_conn()
        return Answer(response.status_code, headers, body)

    def _read(self, raw: Any, nbytes: int, deadline: Deadline) -> bytes:
        # read1 comes back after every packet, so that the deadline is seen even if the server trickles.
        pieces = []
        while nbytes > 0:
            piece = raw.read1(min(nbytes, _PIECE), decode_content=False)
            if not piece:
                break
            pieces.append(piece)
            nbytes -= len(piece)
            deadline.at_most(1)
        return b"".join(pieces)


def _make_session(connections: int) -> requests.Session:
    from http.cookiejar import DefaultCookiePolicy

    import requests
    from requests.adapters import HTTPAdapter

    session = requests.Session()
    session.headers.clear()
    # What a server sets must not travel to another range or host.
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    adapter = HTTPAdapter(pool_connections=8, pool_maxsize=connections, max_retries=0)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


def _as_given(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Change nothing: without an authentication, requests lets ~/.netrc override the caller's headers."""
    return request


_ours = threading.local()


def _shorten(record: logging.LogRecord) -> bool:
    if getattr(_ours, "active", False) and isinstance(record.args, tuple):
        record.args = tuple(a.partition("?")[0] if isinstance(a, str) else a for a in record.args)
    return True


@contextmanager
def _quiet_urls() -> Iterator[None]:
    """Keep query strings (signatures) out of what urllib3 logs about our requests, and only ours."""
    logging.getLogger("urllib3.connectionpool").addFilter(_shorten)  # adding it again changes nothing
    _ours.active = True
    try:
        yield
    finally:
        _ours.active = False


def _causes(problem: BaseException) -> Iterator[BaseException]:
    """Walk all exceptions that ``problem`` wraps: requests and urllib3 put them in args, ``reason`` and context."""
    seen: set[int] = set()
    stack: list[Any] = [problem]
    while stack:
        current = stack.pop()
        if isinstance(current, BaseException) and id(current) not in seen:
            seen.add(id(current))
            yield current
            stack += [current.__cause__, current.__context__, getattr(current, "reason", None), *current.args]


def _translate(problem: BaseException, name: str) -> SourceError | TransientError:
    import requests
    import urllib3

    causes = list(_causes(problem))
    if any(isinstance(c, ssl.SSLCertVerificationError) for c in causes):
        return untrusted(name)
    if any(isinstance(c, socket.gaierror) and c.errno != socket.EAI_AGAIN for c in causes):
        return no_route(name)
    if any(isinstance(c, requests.Timeout | urllib3.exceptions.ReadTimeoutError | TimeoutError) for c in causes):
        return TransientError(
            SourceTimeoutError(f"{name}: the server stopped answering (connect_timeout, read_timeout)")
        )
    if isinstance(problem, requests.ConnectionError | requests.exceptions.ChunkedEncodingError) or not isinstance(
        problem, requests.RequestException
    ):
        if any(isinstance(c, urllib3.exceptions.IncompleteRead) for c in causes):
            return TransientError(short_body(name))
        system = (c for c in causes if isinstance(c, OSError) and not isinstance(c, requests.RequestException))
        reason = next((c.strerror for c in system if c.strerror), type(causes[-1]).__name__)
        return TransientError(SourceError(f"{name}: the connection failed ({reason})"))
    return SourceProtocolError(f"{name}: the request could not be made ({type(problem).__name__})")
