"""Many reads at one time: a wave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, wait
from threading import Event

from lindi_bridge.ranges.reader import ByteRange

__all__ = ["run_wave"]


def run_wave(
    executor: Executor, read: Callable[[ByteRange], bytes], ranges: Sequence[ByteRange], abandoned: Event
) -> list[bytes]:
    """Read all ranges in the threads of ``executor``; the first failure ends the wave.

    Parameters
    ----------
    executor : Executor
        Its number of threads is the number of reads in flight.
    read : callable
        Reads one range.
    ranges : sequence of ByteRange
        Empty ones are not asked for.
    abandoned : threading.Event
        Set at the end, whatever it is, so that reads still in flight can stop early.

    Returns
    -------
    list of bytes
        In the order of ``ranges``.
    """
    futures: dict[int, Future[bytes]] = {}
    try:
        for index, wanted in enumerate(ranges):
            if wanted.length:
                try:
                    futures[index] = executor.submit(read, wanted)
                except RuntimeError:  # the interpreter is ending, and starts no more threads
                    futures[index] = Future()
                    futures[index].set_result(read(wanted))
        done, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
        # A future holds its exception, and that holds this frame. No future stays in a local variable when one is
        # raised, or all of it would be garbage in a cycle, with the reader and its sockets.
        while done:
            done.pop().result()
        return [futures.pop(index).result() if wanted.length else b"" for index, wanted in enumerate(ranges)]
    finally:
        abandoned.set()
        while futures:
            futures.popitem()[1].cancel()
