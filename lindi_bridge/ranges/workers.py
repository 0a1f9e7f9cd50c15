"""Threads that read for others, and never keep the process alive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

__all__ = ["Workers", "wait_for", "waiting_for"]

T = TypeVar("T")
_Task = tuple["Future[Any]", Callable[[], Any]]

_STEP = 0.5
"""Seconds."""

_waited_for: dict[int, threading.Event] = {}
"""By thread: what makes the reads stop that it waits for."""


@contextmanager
def waiting_for(abandoned: threading.Event) -> Iterator[None]:
    """Let others know how to end what the calling thread waits for."""
    _waited_for[threading.get_ident()] = abandoned
    try:
        yield
    finally:
        del _waited_for[threading.get_ident()]


def wait_for(futures: Collection[Future[T]]) -> set[Future[T]]:
    """Wait until all futures are done, or one of them has failed; those that are done.

    In steps: a signal that comes just before the main thread begins to wait is seen only when it looks up.
    """
    while True:
        done, rest = wait(futures, timeout=_STEP, return_when=FIRST_EXCEPTION)
        if not rest or any(future.exception() is not None for future in done):
            return done


class Workers:
    """Up to ``most`` daemon threads, started as they are needed.

    Those of :class:`concurrent.futures.ThreadPoolExecutor` are waited for when the interpreter ends: one read that
    the server does not answer would hold the process until its time limit, also after ctrl-C.

    Parameters
    ----------
    most : int
        Number of threads; one at the least.
    name : str
        What the threads are called.
    """

    def __init__(self, most: int, name: str) -> None:
        self.most = max(most, 1)
        self._name = name
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def __del__(self) -> None:
        self.close()

    def submit(self, task: Callable[[], T]) -> Future[T]:
        """Have a task done; the result, or what it raised, is in the future.

        Raises
        ------
        RuntimeError
            The interpreter is ending and starts no more threads.
        """
        future: Future[T] = Future()
        # Counting is not exact when several threads submit at one time: a thread more or less does no harm.
        if not self._idle.acquire(blocking=False) and len(self._threads) < self.most:
            # The thread knows the queue and not this object, so that it does not keep it alive.
            thread = threading.Thread(target=_work, args=(self._tasks, self._idle), name=self._name, daemon=True)
            thread.start()
            self._threads.append(thread)
        self._tasks.put((future, task))
        return future

    def abandon(self) -> None:
        """End the waves that these threads wait for, if they can be: nobody wants them any more."""
        for thread in self._threads:
            abandoned = _waited_for.get(thread.ident or 0)
            if abandoned is not None:
                abandoned.set()

    def close(self) -> None:
        """Let all threads end, each when its task is done. Idempotent."""
        while self._threads:
            self._threads.pop()
            self._tasks.put(None)


def _work(tasks: SimpleQueue[_Task | None], idle: threading.Semaphore) -> None:
    while (item := tasks.get()) is not None:
        _do(*item)
        del item  # or the last result would live as long as the thread waits
        idle.release()


def _do(future: Future[Any], task: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = task()
    except BaseException as problem:
        future.set_exception(problem)
        # The traceback of the problem holds this frame, which would hold the future, which holds the problem.
        del future, task
    else:
        future.set_result(result)
