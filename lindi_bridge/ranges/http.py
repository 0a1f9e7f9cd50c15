"""Byte ranges of a file on an HTTP server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import Event

from lindi_bridge.errors import SourceChangedError, SourceError, SourceProtocolError, SourceTimeoutError
from lindi_bridge.ranges.deadline import LEAST_PATIENCE, Deadline, TransientError, patience
from lindi_bridge.ranges.http_answer import (
    REDIRECTS,
    Asked,
    BodyPlan,
    changed_midway,
    is_gone,
    is_transient,
    plan_body,
    refusal,
    retry_after,
)
from lindi_bridge.ranges.http_connection import Answer
from lindi_bridge.ranges.http_location import HttpLocation, Place, Refused
from lindi_bridge.ranges.http_transport import HttpTransport, SentRequest
from lindi_bridge.ranges.identity import SourceIdentity
from lindi_bridge.ranges.lock import refuse_under_lock
from lindi_bridge.ranges.reader import ByteRange, ReaderOptions, ReadStatistics, Tally, check_range
from lindi_bridge.ranges.wave import run_wave
from lindi_bridge.ranges.workers import Workers

__all__ = ["HttpReader"]

_MAX_REDIRECTS = 10

_Sent = SentRequest | bytes | None
"""A request for what may be needed; empty if it was not made, None if that failed."""


class HttpReader:
    """A file on an HTTP server, read by range requests.

    The size and the entity tag are learned from the first answer (never by HEAD, which presigned addresses refuse)
    and hold for the life of the reader: an answer from another state of the file is an error.

    Parameters
    ----------
    url : str
        ``http://`` or ``https://``. A query string (signature) and ``user:password@`` are used and never shown.
    options : ReaderOptions, optional
        Headers, ``renew``, time limits (seconds), number of attempts and of concurrent requests.
    expected : SourceIdentity, optional
        The file that it must be. A strong entity tag in it is sent as ``If-Match``.
    """

    def __init__(self, url: str, options: ReaderOptions | None = None, expected: SourceIdentity | None = None) -> None:
        self._options = options or ReaderOptions()
        self._location = HttpLocation(url, self._options)
        self._name = self._location.name
        self._expected = expected
        self._pinned: dict[str, SourceIdentity] = {}
        self._tally = Tally()
        self._transport = HttpTransport(self._options)
        self._transport.claim(self._location.place.url)
        self._workers: dict[int, Workers] = {}

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
        return self._read_here(Asked(0, max(length, 1), head=True))[:length]

    def read_locked(self, start: int, length: int) -> bytes:
        """Read one range in the calling thread, without locks and logging; see :class:`RangeReader`."""
        check_range(ByteRange(start, length), self._size(), self._name)
        if length == 0:
            return b""
        self._tally.add(waves=1)
        return self._read_here(Asked(start, length))

    def read_locked_beside(self, wanted: ByteRange, hints: Sequence[ByteRange]) -> tuple[bytes, list[bytes | None]]:
        """Read one range, and others on connections of their own meanwhile; see :class:`PairReader`.

        Their requests are sent first. The answers wait in the system's buffers until the wanted range is there. If that
        takes another attempt, they are given up.
        """
        for asked in (wanted, *hints):
            check_range(asked, self._size(), self._name)
        if not wanted.length:
            return b"", [b""] * len(hints)
        self._tally.add(waves=1)
        also = max(self._options.concurrency - 1, 0)
        sent = [self._send_hint(Asked(*hint)) if number < also else b"" for number, hint in enumerate(hints)]
        try:
            began = time.monotonic()
            data = self._read_here(Asked(*wanted), partial(_abandon, sent))
            seconds = patience(time.monotonic() - began, wanted.length, sum(hint.length for hint in hints))
            deadline = Deadline(seconds, self._name)
            along: list[bytes | None] = []
            for number, hint in enumerate(hints):
                request, sent[number] = sent[number], None
                along.append(self._receive_hint(Asked(*hint), request, deadline))
        except BaseException:
            _abandon(sent)
            raise
        return data, along

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Read all ranges, ``options.concurrency`` at a time; see :class:`RangeReader`."""
        refuse_under_lock(self._name)
        for wanted in ranges:
            check_range(wanted, self._size(), self._name)
        found = {index: b"" for index, wanted in enumerate(ranges) if not wanted.length}
        tried: set[str] = set()
        soon_gone = 0
        while len(found) < len(ranges):
            left = [index for index in range(len(ranges)) if index not in found]
            outcomes = dict(zip(left, self._read_wave([ranges[index] for index in left]), strict=True))
            arrived = {index: data for index, data in outcomes.items() if isinstance(data, bytes)}
            if arrived:
                tried.clear()  # it got on: what refuses now has expired since
            found |= arrived
            refused = next((r for r in outcomes.values() if isinstance(r, Refused)), None)
            if refused is not None and refused.place.redirected and 0 < len(arrived) < len(outcomes) // 2:
                soon_gone += 1
            if soon_gone == 2:  # once may be chance: an address expires now and then
                self._location.ask_every_time()
            del outcomes
            if refused is not None:
                self._move_or_raise(refused, tried)
        return [found[index] for index in range(len(ranges))]

    def lock_safe(self) -> AbstractContextManager[None]:
        """Do nothing: :meth:`read_locked` is always possible."""
        return nullcontext()

    def close(self) -> None:
        """Close all connections and end all threads. Idempotent; the reader makes new ones if it is used again."""
        self._end_workers()
        self._transport.close()

    def _end_workers(self) -> None:
        workers = self._workers.pop(os.getpid(), None)
        if workers is not None:
            workers.close()

    def _size(self) -> int | None:
        known = self._pinned.get("identity", self._expected)
        return None if known is None else known.size

    def _read_here(self, asked: Asked, failed: Callable[[], None] | None = None) -> bytes:
        tried: set[str] = set()
        while not isinstance(outcome := self._read(asked, None, failed=failed), bytes):
            self._move_or_raise(outcome, tried)
        return outcome

    def _move_or_raise(self, refused: Refused, tried: set[str]) -> None:
        if not self._location.move(refused.place, tried):
            raise refused.make_error()

    def _read_wave(self, ranges: Sequence[ByteRange]) -> list[bytes | Refused]:
        self._tally.add(waves=1)
        self._transport.prepare(self._location.place.url)
        if self._location.must_resolve:
            outcome = self._read(Asked(0, 1, head=True), None, resolve=True)
            if isinstance(outcome, Refused):
                return [outcome] * len(ranges)
        refusals: list[Refused] = []

        def read(wanted: ByteRange) -> bytes | Refused:
            # One refusal is enough: the rest of the wave need not ask there as well.
            if refusals and refusals[0].place == self._location.place:
                return refusals[0]
            outcome = self._read(Asked(*wanted), abandoned)
            if isinstance(outcome, Refused):
                refusals.insert(0, outcome)
            return outcome

        abandoned = Event()
        try:
            return run_wave(self._own_workers(), read, ranges, abandoned)
        except KeyboardInterrupt:
            self._end_workers()  # whoever goes on reads with fresh ones
            raise

    def _own_workers(self) -> Workers:
        # Threads do not survive fork(), so each process has its own.
        workers = self._workers.get(os.getpid())
        if workers is None:
            fresh = Workers(self._options.concurrency, "lindi-bridge-http")
            workers = self._workers.setdefault(os.getpid(), fresh)
        return workers

    def _read(
        self,
        asked: Asked,
        abandoned: Event | None,
        resolve: bool = False,
        failed: Callable[[], None] | None = None,
    ) -> bytes | Refused:
        """Read one range with retries, ``failed`` called before each. All reads come through here."""
        deadline = Deadline(self._options.total_timeout, self._name, abandoned)
        failures: list[TransientError] = []
        while True:
            try:
                return self._attempt(asked, deadline, resolve)
            except TransientError as problem:
                failures.append(problem)
            # Raised only now, outside of the handler: an error whose context leads back to it would be garbage in a
            # cycle, with the reader and its sockets.
            if deadline.left() <= 0 and isinstance(failures[-1].error, SourceTimeoutError):
                raise deadline.error()  # the last receive was cut short by the deadline itself
            if failed is not None:
                failed()
            pause = failures[-1].pause(len(failures) - 1)
            if len(failures) > self._options.retries or pause >= deadline.left():
                raise failures.pop().error
            deadline.pause(pause)

    def _attempt(self, asked: Asked, deadline: Deadline, resolve: bool) -> bytes | Refused:
        place = self._location.place
        url, hops = place.url, 0
        while True:
            answer, is_file = self._ask(url, asked, deadline)
            if is_file:
                self._location.arrived(place, url)
                return answer.body
            if answer.status not in REDIRECTS:
                return self._refused(place, url, answer)
            hops += 1
            if hops > _MAX_REDIRECTS:
                raise SourceProtocolError(f"{self._name}: the server redirects more than {_MAX_REDIRECTS} times")
            url = self._location.follow(url, answer.headers.get("location"))
            if resolve:
                self._location.arrived(place, url)
                return b""

    def _ask(self, url: str, asked: Asked, deadline: Deadline) -> tuple[Answer, bool]:
        """Make one request; also tell whether the answer is the asked part of the file."""
        return self._judge(self._send(url, asked, deadline), asked, deadline)

    def _send(self, url: str, asked: Asked, deadline: Deadline) -> SentRequest:
        self._tally.add(requests=1)
        return self._transport.send(url, self._request_headers(url, asked), deadline)

    def _judge(self, sent: SentRequest, asked: Asked, deadline: Deadline) -> tuple[Answer, bool]:
        """Read an answer; also tell whether it is the asked part of the file."""
        plans: list[BodyPlan] = []

        def body_length(status: int, headers: Mapping[str, str]) -> int | None:
            if status not in {200, 206, 416}:
                return None
            plan = plan_body(asked, status, headers, self._size(), self._name)
            self._pin(plan)
            plans.append(plan)
            return plan.nbytes if status != 416 else None

        answer = self._transport.receive(sent, body_length, deadline)
        if not plans:
            return answer, False
        if answer.status == 416:
            answer = answer._replace(body=b"")
        self._tally.add(nbytes=len(answer.body))
        return answer, True

    def _send_hint(self, asked: Asked) -> _Sent:
        """Ask for a range that may be needed."""
        # Where the server redirects each time, the answer would be no part of the file.
        if self._location.asks_every_time:
            return b""
        url = self._location.place.url
        try:
            sent = self._transport.send_beside(
                url, self._request_headers(url, asked), Deadline(LEAST_PATIENCE, self._name)
            )
        except (SourceError, TransientError):
            return None
        if sent is None:
            return b""
        self._tally.add(requests=1)
        return sent

    def _receive_hint(self, asked: Asked, sent: _Sent, deadline: Deadline) -> bytes | None:
        """The answer to a range that may be needed, if it is good and comes in time."""
        if not isinstance(sent, SentRequest):
            return sent
        try:
            answer, is_file = self._judge(sent, asked, deadline)
        except (SourceError, TransientError):
            return None
        return answer.body if is_file else None

    def _refused(self, place: Place, url: str, answer: Answer) -> Refused:
        """What a refusal means for the read.

        Raises
        ------
        TransientError, SourceError
            Another place would not help, or there is none.
        """
        make_error = partial(refusal, answer, self._name, self._location.hint(url))
        if is_transient(answer.status):
            raise TransientError(make_error(), retry_after(answer.headers))
        if is_gone(answer, place.redirected) and self._location.can_move(place):
            return Refused(place, make_error)
        raise make_error()

    def _request_headers(self, url: str, asked: Asked) -> dict[str, str]:
        headers = {"User-Agent": "lindi-bridge", "Accept": "*/*"}
        headers |= self._location.headers_for(url)
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


def _abandon(sent: list[_Sent]) -> None:
    """Give up requests whose answers were not received."""
    for number, request in enumerate(sent):
        if isinstance(request, SentRequest):
            sent[number] = None
            request.abandon()
