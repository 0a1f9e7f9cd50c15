"""Many reads at one time: a wave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Event
from typing import TypeVar

from lindi_bridge.ranges.reader import ByteRange
from lindi_bridge.ranges.workers import Workers, wait_for, waiting_for

__all__ = ["run_wave"]

T = TypeVar("T")


def run_wave(
    workers: Workers, read: Callable[[ByteRange], T], ranges: Sequence[ByteRange], abandoned: Event
) -> list[T]:
    """Read all ranges in the threads of ``workers``; the first failure ends the wave.

    Parameters
    ----------
    workers : Workers
        Their number is the number of reads in flight.
    read : callable
        Reads one range.
    ranges : sequence of ByteRange
        What to read.
    abandoned : threading.Event
        Set at the end, whatever it is, so that reads still in flight can stop early.

    Returns
    -------
    list
        What ``read`` returned, in the order of ``ranges``.
    """
    results: dict[int, T] = {}
    numbers = iter(range(len(ranges)))  # shared by the threads: each takes the next when it has read one

    def read_some() -> None:
        for number in numbers:
            if abandoned.is_set():
                return
            results[number] = read(ranges[number])

    futures: list[Future[None]] = []
    try:
        for _ in range(min(workers.most, len(ranges))):
            try:
                futures.append(workers.submit(read_some))
            except RuntimeError:  # the interpreter is ending, and starts no more threads
                read_some()
        with waiting_for(abandoned):
            done = wait_for(futures)
        # A future holds its exception, and that holds this frame. No future stays in a local variable when one is
        # raised, or all of it would be garbage in a cycle, with the reader and its sockets.
        while done:
            done.pop().result()
        return [results[number] for number in range(len(ranges))]
    finally:
        abandoned.set()
        while futures:
            futures.pop().cancel()
