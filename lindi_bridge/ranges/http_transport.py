"""HTTP in the calling thread, over kept connections.

Made for reads under h5py's global lock, and good enough for all others. ``requests`` cannot be used there: urllib3
logs each request, and its pool and the handlers of ``logging`` take Python locks that another thread may hold. This is
``http.client`` on connections of our own; it takes no Python lock, logs nothing, and imports nothing once it is made.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - getaddrinfo would import it during the first request
import hashlib
import http.client
import os
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple, TypeGuard
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from lindi_bridge.errors import SourceError, SourceProtocolError, SourceTimeoutError
from lindi_bridge.ranges.address import strip_secrets
from lindi_bridge.ranges.deadline import Deadline, TransientError
from lindi_bridge.ranges.http_connection import Answer, BodyLength, HttpConnection
from lindi_bridge.ranges.http_pool import Connections, Server
from lindi_bridge.ranges.reader import ReaderOptions

__all__ = ["HttpTransport", "SentRequest"]


class SentRequest(NamedTuple):
    """A request whose answer was not read yet: on which connection to ``server``, one that was ``reused`` or not."""

    url: str
    connection: HttpConnection
    reused: bool
    server: Server

    def abandon(self) -> None:
        """Close the connection: nobody wants the answer."""
        self.connection.close()


class HttpTransport:
    """Makes single GET requests, each in the calling thread; any number of threads may.

    Follows no redirect, retries nothing, judges nothing.

    Parameters
    ----------
    options : ReaderOptions
        Time limits in seconds.
    """

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._proxies = getproxies()
        self._ca_file = _ca_file()
        self._connections = Connections(options.concurrency)
        self._proxy_of: dict[str, str | None] = {}

    def send(self, url: str, headers: Mapping[str, str], deadline: Deadline) -> SentRequest:
        """Send a request, the first half of an attempt. The answer must be received or abandoned.

        Parameters
        ----------
        url : str
            Complete, with its query string.
        headers : mapping
            All headers to send.
        deadline : Deadline
            For everything together.

        Raises
        ------
        TransientError
            The connection failed: worth another attempt.
        SourceError
            It will not get better. No message holds more of the address than may be shown.
        """
        server = self._server(url)
        return self._send(self._connections.take(server), server, url, headers, deadline)

    def send_beside(self, url: str, headers: Mapping[str, str], deadline: Deadline) -> SentRequest | None:
        """Send a request on another connection than the one that :meth:`send` takes next, as that does.

        Returns
        -------
        SentRequest or None
            None if there is no connection for the next request yet. A server may serve one connection only at a time,
            and would wait for us to receive this answer while we wait for that one.
        """
        server = self._server(url)
        is_left, connection = self._connections.take_beside(server)
        return self._send(connection, server, url, headers, deadline) if is_left else None

    def claim(self, url: str) -> None:
        """Have connections to the server of an address kept that others leave."""
        self._connections.claim(self._server(url))

    def _server(self, url: str) -> Server:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            raise SourceProtocolError(
                f"{strip_secrets(url)}: no valid address; a port is a number up to 65535"
            ) from None
        proxy = self._proxy(url)
        digest = None if proxy is None else hashlib.blake2b(proxy.encode("utf-8", "surrogateescape")).digest()
        return Server(os.getpid(), parts.scheme, parts.hostname or "", port, digest, self._ca_file)

    def _proxy(self, url: str) -> str | None:
        """Address of the proxy for an address, as the environment has it; it takes long to find out."""
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        origin = f"{parts.scheme}://{host}"
        if origin not in self._proxy_of:
            self._proxy_of[origin] = None if proxy_bypass(host) else self._proxies.get(parts.scheme)
        return self._proxy_of[origin]

    def _send(
        self,
        connection: HttpConnection | None,
        server: Server,
        url: str,
        headers: Mapping[str, str],
        deadline: Deadline,
    ) -> SentRequest:
        reused = connection is not None
        try:
            if connection is None:
                connection = self._connect(url, deadline)
            connection.send(url, headers, deadline, self._options.read_timeout)
        except BaseException as problem:
            if connection is not None:
                connection.close()
            if _is_of_the_connection(problem):
                raise self._failure(problem, url, server, connection if reused else None) from None
            raise
        return SentRequest(url, connection, reused, server)

    def receive(self, sent: SentRequest, body_length: BodyLength, deadline: Deadline) -> Answer:
        """Read the answer to a request that was sent, the second half of an attempt.

        Parameters
        ----------
        sent : SentRequest
            Where it will come.
        body_length : callable
            Asked once the status and the headers are there, so that a body of the wrong kind is never downloaded.
        deadline : Deadline
            For everything together.

        Raises
        ------
        TransientError, SourceError
            As for :meth:`send`; also where the body is short or too long.
        """
        url, connection, reused, server = sent
        try:
            answer, reusable = connection.receive(url, body_length, deadline)
        except BaseException as problem:
            connection.close()
            if _is_of_the_connection(problem):
                raise self._failure(problem, url, server, connection if reused else None) from None
            raise
        if reusable:
            self._connections.give_back(server, connection)
        else:
            connection.close()
        return answer

    def _failure(
        self, problem: OSError | http.client.HTTPException, url: str, server: Server, reused: HttpConnection | None
    ) -> SourceError | TransientError:
        """What a failed attempt means; if it was on a kept connection, those that were kept for as long are closed."""
        if reused is not None:
            self._connections.distrust(server, reused)
        return _translate(problem, strip_secrets(url), reused is not None)

    def close(self) -> None:
        """Close the idle connections that no other transport has use for."""
        self._connections.close()

    def _connect(self, url: str, deadline: Deadline) -> HttpConnection:
        parts = urlsplit(url)
        host, secure = parts.hostname or "", parts.scheme == "https"
        proxy_url = self._proxy(url)
        proxy = urlsplit(proxy_url if "://" in proxy_url else f"http://{proxy_url}") if proxy_url else None
        if proxy is not None and proxy.scheme != "http":
            raise SourceError(
                f"{strip_secrets(url)}: the environment names a proxy that is spoken to by {proxy.scheme}; only "
                "http:// proxies can be used (HTTPS_PROXY=http://... serves https addresses too)"
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
        try:
            raw.connect()
            if secure:
                raw.sock = _tls_context(self._ca_file, strip_secrets(url)).wrap_socket(raw.sock, server_hostname=host)
            raw.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            raw.close()
            raise
        through_proxy = authorization if proxy is not None and not secure else None
        return HttpConnection(raw, through_proxy)

    def prepare(self, url: str) -> None:
        """Do once, in the calling thread, what the threads of a wave would all do at the same time."""
        if urlsplit(url).scheme == "https":
            _tls_context(self._ca_file, strip_secrets(url))


_tls_contexts: dict[str | None, ssl.SSLContext] = {}


def _tls_context(path: str | None, name: str) -> ssl.SSLContext:
    """The context with the certificates at ``path``; to load those takes long, so it is kept."""
    context = _tls_contexts.get(path)
    if context is None:
        folder = path is not None and os.path.isdir(path)
        try:
            context = ssl.create_default_context(cafile=None if folder else path, capath=path if folder else None)
        except OSError as problem:  # ssl.SSLError is one
            raise SourceError(
                f"{name}: the certificates in {path} cannot be read ({problem.strerror}); see the environment "
                "variables REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE"
            ) from None
        context = _tls_contexts.setdefault(path, context)
    return context


def _is_of_the_connection(problem: BaseException) -> TypeGuard[OSError | http.client.HTTPException]:
    return isinstance(problem, OSError | http.client.HTTPException) and not isinstance(problem, SourceError)


def _translate(problem: OSError | http.client.HTTPException, name: str, reused: bool) -> SourceError | TransientError:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return SourceError(
            f"{name}: the server's certificate cannot be verified; if it is your own authority's, name its file in the "
            "environment variable REQUESTS_CA_BUNDLE"
        )
    if isinstance(problem, http.client.InvalidURL):
        return SourceProtocolError(f"{name}: no valid address")
    if isinstance(problem, socket.gaierror) and problem.errno != socket.EAI_AGAIN:
        return SourceError(f"{name}: the host is not known; check the address and the network")
    if isinstance(problem, TimeoutError):
        return TransientError(
            SourceTimeoutError(f"{name}: the server stopped answering (connect_timeout, read_timeout)")
        )
    if str(problem).startswith("Tunnel connection failed"):  # http.client's words, for what a proxy answers to CONNECT
        return SourceError(f"{name}: the proxy that the environment names refuses: {problem}")
    # A kept connection that the server closed just now says nothing about the server: try again at once.
    reason = type(problem).__name__ if isinstance(problem, http.client.HTTPException) else problem.strerror or "cut"
    return TransientError(SourceError(f"{name}: the connection failed ({reason})"), at_once=reused)


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
