"""Requests that come within one turn of an event loop, answered together in a thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from lindi_bridge.ranges.workers import Workers

__all__ = ["Gatherer"]

_THREADS = 8
"""Waves in flight. A wave has its own concurrency; several arise when several threads read at one time."""

Item = TypeVar("Item")

Answer = Callable[[Sequence[Item]], list[Any]]


class Gatherer(Generic[Item]):
    """Hands all items that are asked for in one turn of an event loop to a function that may block.

    Parameters
    ----------
    answer : callable
        Given a list of items, returns a result for each; a result that is an exception is raised where that item was
        asked for. Called in a thread without any lock.
    """

    def __init__(self, answer: Answer[Item]) -> None:
        self._answer = answer
        self._pending: dict[Any, list[tuple[Item, asyncio.Future[Any]]]] = {}
        self._pool: tuple[int, Workers] | None = None

    async def get(self, item: Item) -> Any:
        """The result for an item."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if loop not in self._pending:
            self._pending[loop] = []
            # Tasks that were started together all come before this.
            loop.call_soon(self._flush, loop)
        self._pending[loop].append((item, future))
        return await future

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call a function that may block."""
        return await asyncio.wrap_future(self._workers().submit(function))

    def close(self) -> None:
        """Let the threads end."""
        pool, self._pool = self._pool, None
        if pool is not None and pool[0] == os.getpid():
            pool[1].close()

    def _workers(self) -> Workers:
        # The threads of a parent process are not there after a fork.
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = os.getpid(), Workers(_THREADS, "lindi_bridge-zarr")
        return self._pool[1]

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        pending = self._pending.pop(loop)
        try:
            task = self._workers().submit(partial(self._answer, [item for item, _ in pending]))
            running = asyncio.wrap_future(task, loop=loop)
        except RuntimeError as error:  # the interpreter is ending
            _settle(pending, [error] * len(pending))
            return
        running.add_done_callback(lambda done: _settle(pending, _results(done, len(pending))))


def _results(done: asyncio.Future[list[Any]], count: int) -> list[Any]:
    if done.cancelled():
        return [asyncio.CancelledError()] * count
    error = done.exception()
    return done.result() if error is None else [error] * count


def _settle(pending: Sequence[tuple[Any, asyncio.Future[Any]]], results: Sequence[Any]) -> None:
    for (_, future), result in zip(pending, results, strict=True):
        if future.done():  # whoever asked has gone
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
