"""Many reads at one time: a wave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
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
    futures: dict[int, Future[T]] = {}
    try:
        for index, wanted in enumerate(ranges):
            try:
                futures[index] = workers.submit(partial(read, wanted))
            except RuntimeError:  # the interpreter is ending, and starts no more threads
                futures[index] = Future()
                futures[index].set_result(read(wanted))
        with waiting_for(abandoned):
            done = wait_for(futures.values())
        # A future holds its exception, and that holds this frame. No future stays in a local variable when one is
        # raised, or all of it would be garbage in a cycle, with the reader and its sockets.
        while done:
            done.pop().result()
        return [futures.pop(index).result() for index in range(len(ranges))]
    finally:
        abandoned.set()
        while futures:
            futures.popitem()[1].cancel()
