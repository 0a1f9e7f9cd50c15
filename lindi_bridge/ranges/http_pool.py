"""Connections that wait for their next request, shared by all readers of a process that read from the same server.

A document and its source often lie on one server, and so do the files of a study: a connection costs two or three
round trips before its first request. They are kept as long as any reader has use for them. Nothing here takes a lock
or waits: dictionaries, sets and lists are used by single operations, which are atomic.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from lindi_bridge.ranges.http_connection import HttpConnection

__all__ = ["Connections", "Server"]


class Server(NamedTuple):
    """What a connection leads to, and how: two connections to one server are as good as each other.

    By process, because a connection inherited by fork() would be shared with the parent. The proxy is there as a
    digest: its address may hold a password.
    """

    process: int
    scheme: str
    host: str
    port: int | None
    proxy: bytes | None
    ca_file: str | None


_LONGEST_IDLE = 240.0
"""Seconds. What lies between may forget a connection that says nothing, and tell nobody."""


def _clock() -> Callable[[], float]:
    # Of those that nobody sets, one that goes on while the machine sleeps: that is when connections are forgotten.
    if not hasattr(time, "clock_gettime"):
        return time.monotonic
    return partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_now = _clock()


class _Kept:
    """Idle connections to one server, and who has use for them: a number for each, and how many it may have."""

    def __init__(self) -> None:
        self.idle: list[HttpConnection] = []
        self.users: dict[int, int] = {}

    def put(self, connection: HttpConnection) -> None:
        self.idle.append(connection)
        self.trim()

    def trim(self) -> None:
        """Close what is more than its users may have."""
        while len(self.idle) > sum(list(self.users.values())):
            connection = self.pop(0)
            if connection is not None:
                connection.close()

    def pop(self, index: int = -1) -> HttpConnection | None:
        try:
            return self.idle.pop(index)
        except IndexError:
            return None  # another thread was faster

    def remove(self, connection: HttpConnection) -> bool:
        try:
            self.idle.remove(connection)
        except ValueError:
            return False  # another thread was faster
        return True


_kept: dict[Server, _Kept] = {}
_numbers = itertools.count()


class Connections:
    """The connections that one reader shares with others.

    Parameters
    ----------
    most : int
        How many the reader uses at one time.
    """

    def __init__(self, most: int) -> None:
        self._most = max(most, 1)
        self._number = next(_numbers)
        self._used: dict[Server, None] = {}
        # A reader that nobody closed may be garbage in a cycle, where its sockets could come first, and complain.
        weakref.finalize(self, _give_up, self._number, self._used).atexit = False

    def claim(self, server: Server) -> None:
        """Have connections kept for this reader, from now until :meth:`close`."""
        self._kept(server)

    def take(self, server: Server) -> HttpConnection | None:
        """The connection that was used last and is still good, or None. It must be given back or closed."""
        kept = self._kept(server)
        while (connection := kept.pop()) is not None and _is_bad(connection):
            connection.close()
        return connection

    def take_beside(self, server: Server) -> tuple[bool, HttpConnection | None]:
        """Take one, and leave the one for others that :meth:`take` would give.

        Returns
        -------
        is_left : bool
            Whether there is one to leave.
        connection : HttpConnection or None
            None if there is no other one.
        """
        kept = self._kept(server)
        idle = list(kept.idle)
        try:
            if not idle or _is_bad(idle[-1]):
                return False, None
        except (OSError, ValueError):
            return False, None  # another thread has it, and closed it just now
        connection = kept.pop(0) if len(idle) > 1 else None
        if connection is idle[-1]:  # others have taken the rest meanwhile
            kept.put(connection)
            return True, None
        if connection is not None and _is_bad(connection):
            connection.close()
            connection = None
        return True, connection

    def give_back(self, server: Server, connection: HttpConnection) -> None:
        """Have a connection kept whose answer was read; it is closed if nobody has use for it any more."""
        connection.idle_since = _now()
        _kept[server].put(connection)

    def distrust(self, server: Server, connection: HttpConnection) -> None:
        """Close those that were idle for as long as one that has failed, or longer: they would fail one by one."""
        kept = _kept[server]
        for other in list(kept.idle):
            if other.idle_since <= connection.idle_since and kept.remove(other):
                other.close()

    def close(self) -> None:
        """Close those that no other reader has use for. Idempotent; used again, new ones are made."""
        _give_up(self._number, self._used)

    def _kept(self, server: Server) -> _Kept:
        kept = _kept.get(server) or _kept.setdefault(server, _Kept())
        # In this order: were it closed between the two, nobody would ever take the user out again.
        kept.users[self._number] = self._most
        self._used[server] = None
        return kept


def _is_bad(connection: HttpConnection) -> bool:
    return _now() - connection.idle_since > _LONGEST_IDLE or connection.is_stale()


def _give_up(number: int, used: dict[Server, None]) -> None:
    while used:
        try:
            server, _ = used.popitem()
        except KeyError:
            return  # another thread was faster
        kept = _kept.get(server)
        if kept is not None:
            kept.users.pop(number, None)
            kept.trim()
