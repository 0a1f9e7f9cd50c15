"""Fetches of one file that other threads make while its bytes are being read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial

from lindi_bridge.errors import LindiBridgeError
from lindi_bridge.ranges import ByteRange
from lindi_bridge.ranges.workers import Workers, wait_for

__all__ = ["Fetch", "UnderWay", "without"]

_MOST_AT_ONCE = 8
_LOGGER = logging.getLogger(__name__)


class Fetch:
    """Requests that a thread makes, or is going to make.

    Parameters
    ----------
    requests : sequence of ByteRange
        Sorted and disjoint.
    """

    def __init__(self, requests: Sequence[ByteRange]) -> None:
        self.requests = requests
        self.is_wanted = True
        self.future: Future[None] | None = None


class UnderWay:
    """Begins fetches, and knows which are under way. Not to be used while h5py's lock is held, but for :meth:`abandon`.

    A fetch that fails is no error here: whoever needs its bytes finds them missing, and asks for them again.
    """

    def __init__(self) -> None:
        self._fetches: list[Fetch] = []
        self._lock = threading.Lock()
        self._workers = Workers(_MOST_AT_ONCE, "lindi-bridge-ahead")

    def begin(
        self,
        ranges: Iterable[ByteRange],
        missing: Callable[[list[ByteRange]], list[ByteRange]],
        fetch: Callable[[Sequence[ByteRange]], None],
    ) -> None:
        """Begin to fetch what is missing of some ranges and not under way yet.

        Parameters
        ----------
        ranges : iterable of ByteRange
            What is wanted.
        missing : callable
            The requests that bring what is not in memory of ranges.
        fetch : callable
            Makes requests and keeps the answers; called in another thread.
        """
        with self._lock:
            requests = missing(without(ranges, [r for known in self._fetches for r in known.requests]))
            if not requests:
                return
            begun = Fetch(requests)
            try:
                begun.future = self._workers.submit(partial(self._fetch, begun, fetch))
            except RuntimeError:  # the interpreter is ending, and starts no more threads
                return
            self._fetches.append(begun)

    def _fetch(self, begun: Fetch, fetch: Callable[[Sequence[ByteRange]], None]) -> None:
        try:
            if begun.is_wanted:
                fetch(begun.requests)
        except (LindiBridgeError, OSError, ValueError) as problem:
            _LOGGER.debug("fetching ahead failed: %s", problem)
        finally:
            with self._lock:  # which begin() holds until it knows this fetch
                self._fetches = [known for known in self._fetches if known is not begun]

    def overlapping(self, ranges: Iterable[ByteRange]) -> list[Fetch]:
        """The fetches under way that bring some of the bytes of ranges."""
        if not self._fetches:
            return []
        wanted = list(ranges)
        total = sum(r.length for r in without(wanted, []))
        return [
            known for known in list(self._fetches) if sum(r.length for r in without(wanted, known.requests)) < total
        ]

    def wait(self, fetches: Iterable[Fetch]) -> None:
        """Wait until fetches have come to an end, a good one or not."""
        for known in fetches:
            if known.future is not None:
                wait_for([known.future])

    def abandon(self) -> None:
        """End all fetches as soon as possible: nobody wants them any more. Waits for nothing."""
        for known in list(self._fetches):
            known.is_wanted = False
        self._workers.abandon()

    def close(self) -> None:
        """End all fetches and threads; waits for nothing."""
        self.abandon()
        self._workers.close()


def without(ranges: Iterable[ByteRange], others: Iterable[ByteRange]) -> list[ByteRange]:
    """The parts of ranges that lie in none of the others; sorted and disjoint."""
    holes = sorted(others)
    out: list[ByteRange] = []
    number, position = 0, 0
    for start, length in sorted(ranges):
        stop = start + length
        position = max(position, start)
        while position < stop:
            while number < len(holes) and holes[number].stop <= position:
                number += 1
            if number == len(holes) or holes[number].start >= stop:
                out.append(ByteRange(position, stop - position))
                position = stop
            else:
                if holes[number].start > position:
                    out.append(ByteRange(position, holes[number].start - position))
                position = holes[number].stop
    return out
