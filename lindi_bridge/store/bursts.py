"""What zarr is about to read: the keys of all chunks of one selection, known before the first of them is asked for.

zarr asks its store for ten chunks at a time (``zarr.config["async.concurrency"]``), each from a task of its own. Before
that, the task of the read makes the keys of all of them. A chunk key encoding that notes these in a context variable,
which the tasks inherit, lets the store fetch them together. A hint: without it everything works, ten at a time.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from zarr.core.chunk_key_encodings import DefaultChunkKeyEncoding

__all__ = ["AnnouncingKeyEncoding", "Burst", "current_burst"]


@dataclass(eq=False)
class Burst:
    """One read: the keys (below the array) that it announced and has not asked for yet.

    Parameters
    ----------
    task : asyncio.Task
        That reads.
    encoding : DefaultChunkKeyEncoding
        Of the array.
    keys : dict
        In the order in which they will be asked for; the values mean nothing.
    fetched : set of str
        Keys whose bytes were fetched along with others.
    began : bool
        The first key was asked for.
    wave : asyncio.Future, optional
        Done when the wave that is under way has come: what is missing after it goes into the next.
    error : Exception, optional
        What a wave failed with. zarr raises that, and all the same asks for the chunks that are left.
    """

    task: Any
    encoding: DefaultChunkKeyEncoding
    keys: dict[str, None] = field(default_factory=dict)
    fetched: set[str] = field(default_factory=set)
    began: bool = False
    wave: asyncio.Future[None] | None = None
    error: Exception | None = None

    def following(self) -> tuple[str, ...]:
        """Keys that can be fetched along with the one that is asked for now."""
        return tuple(key for key in self.keys if key not in self.fetched)


_current: ContextVar[Burst | None] = ContextVar("lindi_bridge_burst", default=None)


class AnnouncingKeyEncoding(DefaultChunkKeyEncoding):
    """Zarr's default chunk keys; those that a read makes are noted for the store."""

    def encode_chunk_key(self, chunk_coords: tuple[int, ...]) -> str:
        """The key of a chunk, below its array."""
        key = super().encode_chunk_key(chunk_coords)
        task = _task()
        if task is not None:
            burst = _current.get()
            if burst is None or burst.began or burst.task is not task or burst.encoding is not self:
                burst = Burst(task, self)
                _current.set(burst)
            burst.keys[key] = None
        return key


def current_burst(key: str) -> Burst | None:
    """The read that a key (below its array) was announced by, if the running task is a part of it."""
    burst = _current.get()
    if burst is None or key not in burst.keys:
        return None
    burst.began = True
    del burst.keys[key]
    return burst


def _task() -> Any:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop in this thread
        return None
