"""What an HTTP answer to a range request means, whichever transport brought it.

The one place that decides whether bytes may be used: 206 with exactly the asked ``Content-Range``, or 200 when the
whole file was asked for; nothing compressed, nothing shorter, nothing from a changed file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from lindi_bridge.errors import (
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    SourcePermissionError,
    SourceProtocolError,
)
from lindi_bridge.ranges.deadline import TransientError
from lindi_bridge.ranges.http_connection import Answer
from lindi_bridge.ranges.identity import SourceIdentity

__all__ = [
    "REDIRECTS",
    "Asked",
    "BodyPlan",
    "changed_midway",
    "is_gone",
    "is_transient",
    "plan_body",
    "refusal",
    "retry_after",
]

REDIRECTS = frozenset({301, 302, 303, 307, 308})

_LASTING_FAILURES = frozenset({501, 505, 511})
# S3 and Google Cloud Storage answer 400 with this code when the credentials that signed an address have expired.
_EXPIRED = re.compile(rb"<Code>\s*(?:ExpiredToken|RequestExpired|TokenRefreshRequired)\s*</Code>")

_SATISFIED = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)", re.IGNORECASE)
_UNSATISFIED = re.compile(r"bytes \*/(\d+)", re.IGNORECASE)


class Asked(NamedTuple):
    """A range as it was asked for. With ``head``, a file that ends earlier is no error."""

    start: int
    length: int
    head: bool = False


class BodyPlan(NamedTuple):
    """What the status line and the headers promise: how many bytes of body to read, and from which file."""

    nbytes: int
    identity: SourceIdentity | None


def _sized(headers: Mapping[str, str], size: int) -> SourceIdentity:
    return SourceIdentity(size, headers.get("etag") or None, headers.get("last-modified") or None)


def plan_body(asked: Asked, status: int, headers: Mapping[str, str], size: int | None, name: str) -> BodyPlan:
    """Decide from status and headers, before any of the body is read, how much of it is wanted.

    Parameters
    ----------
    asked : Asked
        The range in the request.
    status : int
        200, 206 or 416; the caller deals with the others.
    headers : mapping
        Of the answer, names in lower case.
    size : int or None
        Size of the file (bytes) as far as known.
    name : str
        Address without secrets, for messages.

    Raises
    ------
    SourceProtocolError
        The answer is not the range that was asked for.
    SourceChangedError
        The file has another size than before.
    """
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"", "identity"}:
        raise SourceProtocolError(
            f"{name}: the server sends the file compressed (Content-Encoding: {coding[:40]}) although identity was "
            "asked for, so positions in it mean nothing. Turn compression off for this file on the server or its proxy"
        )
    if status == 200 and _is_page(asked, headers, size):
        raise SourceProtocolError(
            f"{name}: the server answered with a web page instead of the file. It may want a login (headers=), or the "
            "address may be that of a page about the file"
        )
    if status == 416:
        return _unsatisfied(asked, headers, size, name)
    announced = _content_length(headers)
    if status == 200:
        return _whole_file(asked, headers, announced, size, name)
    text = headers.get("content-range", "")
    match = _SATISFIED.fullmatch(text.strip())
    if match is None:
        raise SourceProtocolError(
            f"{name}: the server answered 206 with Content-Range {text[:60]!r}, which names no range"
        )
    first, last = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    if total is not None and size is not None and total != size:
        raise SourceChangedError(
            f"{name}: the file has {total} bytes, expected {size}: it is truncated, was replaced, or is another file. "
            "Index it again, or give the address of the file that was indexed by source="
        )
    known = size if total is None else total
    stop = asked.start + asked.length
    if known is not None and stop > known:
        if not asked.head:
            raise SourceError(f"{name}: bytes {asked.start} to {stop} were asked for, but the file has {known}")
        stop = known
    if (first, last + 1) != (asked.start, stop):
        raise SourceProtocolError(
            f"{name}: bytes {asked.start}-{stop - 1} were asked for, but the server sent {first}-{last}"
        )
    if announced is not None and announced != stop - asked.start:
        # A proxy that cut one answer short may do better next time.
        raise TransientError(
            SourceProtocolError(
                f"{name}: the server announced {announced} bytes of body for a range of {stop - asked.start}"
            )
        )
    return BodyPlan(stop - asked.start, None if known is None else _sized(headers, known))


def _content_length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("content-length", "").strip()
    return int(text) if text.isascii() and text.isdigit() and "transfer-encoding" not in headers else None


def _is_page(asked: Asked, headers: Mapping[str, str], size: int | None) -> bool:
    """Tell whether a whole answer is a page of HTML in place of the file.

    What may be the whole file is let through, whatever the server calls it: its content will tell.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    announced = _content_length(headers)
    may_be_all = announced is not None and (
        announced == size or (asked.head and size is None and announced <= asked.length)
    )
    return kind in {"text/html", "application/xhtml+xml"} and not may_be_all


def _whole_file(
    asked: Asked, headers: Mapping[str, str], announced: int | None, size: int | None, name: str
) -> BodyPlan:
    if announced is not None and size is not None and announced != size:
        raise SourceChangedError(
            f"{name}: the file has {announced} bytes, expected {size}: it is truncated or was replaced"
        )
    known = size if announced is None else announced
    fits = known is not None and (asked.length >= known if asked.head else asked.length == known)
    if known is None or asked.start != 0 or not fits:
        raise SourceProtocolError(
            f"{name}: the server ignores range requests (it answered 200 with the whole file). Use a server that "
            "supports them, or download the file and index the local copy with the public address as url="
        )
    return BodyPlan(known, _sized(headers, known))


def _unsatisfied(asked: Asked, headers: Mapping[str, str], size: int | None, name: str) -> BodyPlan:
    match = _UNSATISFIED.fullmatch(headers.get("content-range", "").strip())
    total = int(match[1]) if match else None
    if total is not None and size is not None and total != size:
        raise SourceChangedError(
            f"{name}: the file has {total} bytes, expected {size}: it is truncated or was replaced"
        )
    if total == 0 and asked.head:
        return BodyPlan(0, _sized(headers, 0))
    has = "is shorter" if total is None else f"has {total} bytes"
    raise SourceError(f"{name}: bytes from {asked.start} on were asked for, but the file {has}")


def changed_midway(before: SourceIdentity, now: SourceIdentity) -> str | None:
    """Say in words how a file changed between two answers to one reader, or None.

    Stricter than :meth:`SourceIdentity.differs`, which compares a recorded file with one that may be a copy: here weak
    entity tags count too, and without any tag the time of last change.
    """
    if before.size != now.size:
        return f"its size was {before.size} bytes and is now {now.size}"
    if before.etag and now.etag:
        same = before.etag.removeprefix("W/") == now.etag.removeprefix("W/")
        return None if same else f"its ETag was {before.etag} and is now {now.etag}"
    if not before.etag and not now.etag and before.last_modified and now.last_modified:
        same = before.last_modified == now.last_modified
        return None if same else f"it was last changed on {before.last_modified} and now on {now.last_modified}"
    return None


def is_transient(status: int) -> bool:
    """Tell whether a status may be another one in a moment."""
    return status in {408, 425, 429} or (500 <= status < 600 and status not in _LASTING_FAILURES)


def _is_expired(answer: Answer) -> bool:
    return answer.status == 400 and _EXPIRED.search(answer.body) is not None


def is_gone(answer: Answer, redirected: bool) -> bool:
    """Tell whether a fresh address may help: access is refused, or the server that redirected sent us nowhere."""
    return answer.status in {401, 403} or _is_expired(answer) or (redirected and answer.status in {404, 410})


def refusal(answer: Answer, name: str, hint: str) -> SourceError:
    """Make the error for a status that is no answer to a range request.

    Parameters
    ----------
    answer : Answer
        Its status is not 200 or 206.
    name : str
        Address without secrets.
    hint : str
        Why access may have been refused, and what to do.
    """
    status = answer.status
    if status in {401, 403, 407} or _is_expired(answer):
        return SourcePermissionError(
            f"{name}: the server refuses access (HTTP {status}). {hint}. If the address was presigned it may have "
            "expired: give a fresh one by source=, or a function that makes one by renew="
        )
    if status in {404, 410}:
        return SourceNotFoundError(f"{name}: there is no file at this address (HTTP {status})")
    if status == 412:
        return SourceChangedError(
            f"{name}: the file is not the one that was indexed (HTTP 412: its ETag is another). Index it again"
        )
    if is_transient(status):
        reason = "too many requests" if status == 429 else "a failure of the server"
        wait = retry_after(answer.headers)
        later = "later" if wait is None else f"later (it asks to wait {wait:.0f} seconds)"
        return SourceError(f"{name}: HTTP {status}, {reason}; try again {later}, or with a smaller concurrency=")
    return SourceProtocolError(f"{name}: the server answered HTTP {status} to a range request")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a ``Retry-After`` header (seconds or a date) asks to wait, or None."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max((when - datetime.now(UTC)).total_seconds(), 0.0)
