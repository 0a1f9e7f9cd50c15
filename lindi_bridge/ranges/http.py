"""Byte ranges of a file on an HTTP server."""

from __future__ import annotations

import netrc
import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from threading import Event
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from lindi_bridge.errors import SourceChangedError, SourceError, SourceProtocolError, SourceTimeoutError
from lindi_bridge.ranges.address import check_redirect, same_origin, strip_secrets
from lindi_bridge.ranges.deadline import Deadline, TransientError, backoff
from lindi_bridge.ranges.http_answer import (
    REDIRECTS,
    TRANSIENT,
    Asked,
    BodyPlan,
    changed_midway,
    plan_body,
    refusal,
    retry_after,
)
from lindi_bridge.ranges.http_direct import DirectTransport
from lindi_bridge.ranges.http_pooled import PooledTransport
from lindi_bridge.ranges.identity import SourceIdentity
from lindi_bridge.ranges.lock import refuse_under_lock
from lindi_bridge.ranges.reader import ByteRange, ReaderOptions, ReadStatistics, Tally, check_range
from lindi_bridge.ranges.transport import Answer, Transport
from lindi_bridge.ranges.wave import run_wave

__all__ = ["HttpReader"]

_MAX_REDIRECTS = 10
_OURS = frozenset({"accept-encoding", "range", "if-match", "if-range", "connection"})


class HttpReader:
    """A file on an HTTP server, read by range requests.

    The size and the entity tag are learned from the first answer (never by HEAD, which presigned addresses refuse)
    and hold for the life of the reader: an answer from another state of the file is an error.

    Parameters
    ----------
    url : str
        ``http://`` or ``https://``. A query string (signature) and ``user:password@`` are used and never shown.
    options : ReaderOptions, optional
        Headers, time limits (seconds), number of attempts and of concurrent requests.
    expected : SourceIdentity, optional
        The file that it must be. A strong entity tag in it is sent as ``If-Match``.
    """

    def __init__(self, url: str, options: ReaderOptions | None = None, expected: SourceIdentity | None = None) -> None:
        self._options = options or ReaderOptions()
        self._name = strip_secrets(url)
        self._target, userinfo = _request_url(url)
        self._credentials = _credentials(self._target, userinfo, self._options)
        self._expected = expected
        self._pinned: dict[str, SourceIdentity] = {}
        self._resolved: str | None = None
        self._tally = Tally()
        self._direct = DirectTransport(self._options)
        self._pooled = PooledTransport(self._options)
        self._executors: dict[int, ThreadPoolExecutor] = {}

    def __repr__(self) -> str:
        return f"<HttpReader {self._name}>"

    @property
    def url(self) -> str:
        """The address without query string and credentials."""
        return self._name

    @property
    def statistics(self) -> ReadStatistics:
        """What was asked of the server so far; every attempt and every redirect is a request."""
        return self._tally.total()

    def identity(self) -> SourceIdentity:
        """Size and tags of the file, from the first answer; asks for one byte if there was none yet."""
        if "identity" not in self._pinned:
            self.read_head(1)
        if "identity" not in self._pinned:
            raise SourceProtocolError(
                f"{self._name}: the server does not tell the size of the file (no total in Content-Range)"
            )
        return self._pinned["identity"]

    def read_head(self, length: int) -> bytes:
        """Read up to ``length`` first bytes in the calling thread; see :class:`RangeReader`."""
        self._tally.add(waves=1)
        return self._read(Asked(0, max(length, 1), head=True), self._direct, None)[:length]

    def read_locked(self, start: int, length: int) -> bytes:
        """Read one range in the calling thread, without locks and logging; see :class:`RangeReader`."""
        check_range(ByteRange(start, length), self._size(), self._name)
        if length == 0:
            return b""
        self._tally.add(waves=1)
        return self._read(Asked(start, length), self._direct, None)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Read all ranges, ``options.concurrency`` at a time; see :class:`RangeReader`."""
        refuse_under_lock(self._name)
        for wanted in ranges:
            check_range(wanted, self._size(), self._name)
        if not any(wanted.length for wanted in ranges):
            return [b""] * len(ranges)
        self._tally.add(waves=1)
        abandoned = Event()
        return run_wave(
            self._executor(), lambda wanted: self._read(Asked(*wanted), self._pooled, abandoned), ranges, abandoned
        )

    def lock_safe(self) -> AbstractContextManager[None]:
        """Do nothing: :meth:`read_locked` is always possible."""
        return nullcontext()

    def close(self) -> None:
        """Close all connections. Idempotent; the reader opens new ones if it is used again."""
        executor = self._executors.pop(os.getpid(), None)
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
        self._direct.close()
        self._pooled.close()

    def _executor(self) -> ThreadPoolExecutor:
        # Threads do not survive fork(), so each process has its own.
        executor = self._executors.get(os.getpid())
        if executor is None:
            fresh = ThreadPoolExecutor(max(self._options.concurrency, 1), thread_name_prefix="lindi-bridge-http")
            executor = self._executors.setdefault(os.getpid(), fresh)
        return executor

    def _size(self) -> int | None:
        known = self._pinned.get("identity", self._expected)
        return None if known is None else known.size

    def _read(self, asked: Asked, transport: Transport, abandoned: Event | None) -> bytes:
        """Read one range with retries; both transports come through here."""
        deadline = Deadline(self._options.total_timeout, self._name, abandoned)
        attempt = 0
        while True:
            try:
                return self._attempt(asked, transport, deadline)
            except TransientError as problem:
                pause = backoff(attempt) if problem.retry_after is None else problem.retry_after
                attempt += 1
                if deadline.left() <= 0 and isinstance(problem.error, SourceTimeoutError):
                    raise deadline.error() from None  # the last receive was cut short by the deadline itself
                if attempt > self._options.retries or pause >= deadline.left():
                    raise problem.error from None
            deadline.pause(pause)

    def _attempt(self, asked: Asked, transport: Transport, deadline: Deadline) -> bytes:
        remembered = self._resolved
        url = remembered or self._target
        hops = 0
        plans: list[BodyPlan] = []

        def body_length(status: int, headers: Mapping[str, str]) -> int | None:
            if status not in {200, 206, 416}:
                return None
            plan = plan_body(asked, status, headers, self._size(), self._name)
            self._pin(plan)
            plans.append(plan)
            return plan.nbytes if status != 416 else None

        while True:
            self._tally.add(requests=1)
            answer = transport.fetch(url, self._headers(url, asked), body_length, deadline)
            self._tally.add(nbytes=len(answer.body))
            if answer.status in REDIRECTS:
                hops += 1
                url = self._follow(url, answer, hops)
            elif answer.status in {401, 403, 404} and remembered is not None:
                # What the server redirected to has expired: ask it again, once.
                self._resolved = remembered = None
                url = self._target
            else:
                break
        if not plans:
            raise self._refusal(url, answer)
        self._resolved = None if url == self._target else url
        return answer.body

    def _refusal(self, url: str, answer: Answer) -> SourceError | TransientError:
        given = bool(self._credentials)
        sent = given and same_origin(url, self._target)
        error = refusal(
            answer.status,
            self._name,
            _origin_text(self._target),
            given=given,
            sent=sent,
            withheld=self._options.withheld,
        )
        return TransientError(error, retry_after(answer.headers)) if answer.status in TRANSIENT else error

    def _follow(self, url: str, answer: Answer, hops: int) -> str:
        location = answer.headers.get("location")
        if not location or hops > _MAX_REDIRECTS:
            why = "redirects without saying where" if not location else f"redirects more than {_MAX_REDIRECTS} times"
            raise SourceProtocolError(f"{self._name}: the server {why}")
        # Header values arrive as latin-1; some servers send UTF-8 unescaped.
        following = urljoin(url, quote(location.encode("latin-1", "replace"), safe="%/:=&?~#+!$,;'@()*[]|"))
        check_redirect(self._target, following, self._options.restricted)
        return _request_url(following)[0]

    def _headers(self, url: str, asked: Asked) -> dict[str, str]:
        headers = {
            "User-Agent": "lindi-bridge",
            "Accept": "*/*",
        }
        if same_origin(url, self._target):
            headers |= self._credentials
        headers["Accept-Encoding"] = "identity"
        headers["Range"] = f"bytes={asked.start}-{asked.start + asked.length - 1}"
        if self._expected is not None and self._expected.strong_etag:
            headers["If-Match"] = self._expected.strong_etag
        return headers

    def _pin(self, plan: BodyPlan) -> None:
        """Compare an answer with the file that is expected and with the answers before."""
        if plan.identity is None:
            return
        difference = self._expected and self._expected.differs(plan.identity)
        if not difference:
            # setdefault is atomic: of two first answers one wins and the other is compared with it.
            difference = changed_midway(self._pinned.setdefault("identity", plan.identity), plan.identity)
        if difference:
            raise SourceChangedError(
                f"{self._name}: the file is not the one that was indexed or opened: {difference}. Index it again, or "
                "give the address of the right file by source="
            )


def _request_url(url: str) -> tuple[str, str]:
    """URL as it is requested (no fragment, no user name), and ``user:password`` apart."""
    parts = urlsplit(url)
    userinfo, _, host = parts.netloc.rpartition("@")
    # Characters that no request line may hold are escaped; what is escaped already stays as it is (signatures).
    path = quote(parts.path, safe="%/:=&~+!$,;'@()*[]|") or "/"
    query = quote(parts.query, safe="%/:=&?~+!$,;'@()*[]|")
    return urlunsplit((parts.scheme.lower(), host, path, query, "")), userinfo


def _origin_text(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _credentials(url: str, userinfo: str, options: ReaderOptions) -> dict[str, str]:
    """Headers that go to the origin of ``url`` and to no other."""
    given = {name: value for name, value in options.headers.items() if name.lower() not in _OURS}
    if any(name.lower() == "authorization" for name in given):
        return given
    pair: tuple[str, str] | None = None
    if userinfo:
        user, _, password = userinfo.partition(":")
        pair = unquote(user), unquote(password)
    elif not options.restricted:  # a stranger's document may not make us send what lies in ~/.netrc
        pair = _from_netrc(urlsplit(url).hostname or "")
    if pair is not None:
        given["Authorization"] = "Basic " + b64encode(":".join(pair).encode()).decode("ascii")
    return given


def _from_netrc(host: str) -> tuple[str, str] | None:
    path = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
    if not os.path.isfile(path):
        return None
    try:
        entry = netrc.netrc(path).authenticators(host)
    except (netrc.NetrcParseError, OSError, UnicodeError):
        return None  # as curl and requests do: a broken file means no credentials
    return None if entry is None else (entry[0] or entry[1] or "", entry[2] or "")
