"""How long a read may take, and how long to wait before the next attempt."""

from __future__ import annotations

import random
import time
from threading import Event

from lindi_bridge.errors import SourceError, SourceTimeoutError

__all__ = ["LEAST_PATIENCE", "Deadline", "TransientError", "backoff", "patience"]

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0
LEAST_PATIENCE, _MOST_PATIENCE = 1.0, 5.0
"""Seconds to wait for what is only a hint."""
_GLANCE = 0.25
"""Seconds after which a read that may be abandoned looks whether it was."""


class Deadline:
    """The time left for one range, all attempts included.

    Parameters
    ----------
    seconds : float
        From now on, by the monotonic clock.
    url : str
        Address without secrets, for the message.
    abandoned : threading.Event, optional
        Set when nobody waits for the result any more; the read then ends at its next step.
    """

    def __init__(self, seconds: float, url: str, abandoned: Event | None = None) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._url = url
        self._abandoned = abandoned

    def left(self) -> float:
        """Seconds left; not below zero."""
        return max(self._end - time.monotonic(), 0.0)

    def at_most(self, seconds: float) -> float:
        """Time limit (seconds, above zero) for the next step.

        Raises
        ------
        SourceTimeoutError
            The time is over, or the read was abandoned.
        """
        left = self.left()
        if left <= 0:
            raise self.error()
        if self._abandoned is not None and self._abandoned.is_set():
            raise SourceTimeoutError(f"{self._url}: the read was abandoned, because another one of its wave failed")
        return min(seconds, left)

    def slice_of(self, seconds: float) -> float:
        """Time limit (seconds) for a part of the next step: short where it matters whether the read was abandoned."""
        limit = self.at_most(seconds)
        return limit if self._abandoned is None else min(limit, _GLANCE)

    def pause(self, seconds: float) -> None:
        """Sleep in the calling thread, waking up now and then to see whether the read was abandoned."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            time.sleep(self.at_most(min(rest, 0.1)))

    def error(self) -> SourceTimeoutError:
        """Make the error that says that the time is over."""
        return SourceTimeoutError(
            f"{self._url}: no complete answer within {self._seconds:g} seconds (total_timeout, all attempts included)"
        )


class TransientError(Exception):
    """An attempt failed in a way that may be different next time. Never leaves this layer.

    Parameters
    ----------
    error : SourceError
        What to raise when no attempt is left.
    retry_after : float, optional
        Seconds that the server asks to wait.
    at_once : bool
        Nothing is wrong with the server: no need to wait.
    """

    def __init__(self, error: SourceError, retry_after: float | None = None, at_once: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after
        self.at_once = at_once

    def pause(self, attempt: int) -> float:
        """Seconds to wait after failed attempt number ``attempt`` (from 0).

        What the server asks for comes on top of our own pause, whose jitter keeps the readers of a wave from coming
        back all at one time.
        """
        return 0.0 if self.at_once else (self.retry_after or 0.0) + backoff(attempt)


def backoff(attempt: int) -> float:
    """Seconds to wait after failed attempt number ``attempt`` (from 0): doubling, with jitter of half."""
    pause = min(_FIRST_PAUSE * 2.0**attempt, _LONGEST_PAUSE)
    return pause * (0.5 + random.random() / 2)


def patience(seconds: float, nbytes: int, hinted: int) -> float:
    """Seconds to wait for the answer to a hint.

    Parameters
    ----------
    seconds : float
        How long the range took that was asked for at the same time.
    nbytes : int
        Bytes of that range; not 0.
    hinted : int
        Bytes of the hint.
    """
    expected = seconds / nbytes * max(nbytes, hinted)
    return min(max(LEAST_PATIENCE, 2 * expected), _MOST_PATIENCE)
