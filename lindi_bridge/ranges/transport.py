"""What a transport of HTTP ranges does, and the words that both transports use for the same failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from lindi_bridge.errors import SourceError, SourceProtocolError
from lindi_bridge.ranges.deadline import Deadline

__all__ = ["Answer", "BodyLength", "Transport", "no_route", "short_body", "untrusted"]

BodyLength = Callable[[int, Mapping[str, str]], int | None]
"""Given status and headers (names in lower case): bytes of body to read, or None if the body is of no interest."""


class Answer(NamedTuple):
    """What came back from one attempt; ``headers`` with names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Makes single GET requests; follows no redirect, retries nothing, judges nothing."""

    def fetch(self, url: str, headers: Mapping[str, str], body_length: BodyLength, deadline: Deadline) -> Answer:
        """Make one attempt.

        Parameters
        ----------
        url : str
            Complete, with its query string.
        headers : mapping
            All headers to send.
        body_length : callable
            Asked once the status and the headers are there, so that a body of the wrong kind is never downloaded.
        deadline : Deadline
            For everything together.

        Raises
        ------
        TransientError
            The connection failed or the body was short: worth another attempt.
        SourceError
            It will not get better. No message holds more of the address than may be shown.
        """

    def close(self) -> None:
        """Close the connections."""


def short_body(name: str, got: int | None = None, wanted: int | None = None) -> SourceProtocolError:
    """Make the error for a body that ended early (bytes got and wanted, if known)."""
    amount = "" if got is None else f" after {got} of {wanted} bytes"
    return SourceProtocolError(f"{name}: the server ended its answer too early{amount}")


def untrusted(name: str) -> SourceError:
    """Make the error for a certificate that cannot be verified."""
    return SourceError(
        f"{name}: the server's certificate cannot be verified; if it is your own authority's, name its file in the "
        "environment variable REQUESTS_CA_BUNDLE"
    )


def no_route(name: str) -> SourceError:
    """Make the error for a host name that is not known."""
    return SourceError(f"{name}: the host is not known; check the address and the network")
