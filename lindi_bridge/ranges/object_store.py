"""Byte ranges of an object on S3, Google Cloud Storage or Azure, by obstore."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from lindi_bridge.errors import SourceChangedError, SourceError, SourceProtocolError
from lindi_bridge.ranges.address import strip_secrets
from lindi_bridge.ranges.aside import Aside
from lindi_bridge.ranges.deadline import patience
from lindi_bridge.ranges.filesystem import check_expected, check_length
from lindi_bridge.ranges.http_answer import changed_midway
from lindi_bridge.ranges.identity import SourceIdentity
from lindi_bridge.ranges.lock import h5py_lock_is_held, refuse_under_lock
from lindi_bridge.ranges.object_store_access import StoreAccess
from lindi_bridge.ranges.object_store_config import store_address
from lindi_bridge.ranges.reader import ByteRange, ReaderOptions, ReadStatistics, Tally, check_range
from lindi_bridge.ranges.wave import run_wave
from lindi_bridge.ranges.workers import Workers

__all__ = ["ObjectStoreReader"]

T = TypeVar("T")


class ObjectStoreReader:
    """An object of ``s3://``, ``gs://``, ``az://`` or ``abfs(s)://``.

    obstore's I/O runs in threads of Rust, which take no Python lock, so its blocking calls are used under h5py's lock
    as well. Those threads do not survive fork(): in a forked child every read raises at once. A blocking call cannot be
    interrupted, so that the main thread, where ctrl-C arrives, has another thread wait for it whenever it may.

    Parameters
    ----------
    url : str
        ``s3://bucket/key``, ``gs://bucket/key``, ``az://container/key``, ``abfs://container@account.host/key``.
    options : ReaderOptions, optional
        ``storage_options`` in obstore's or fsspec's words (see :func:`configuration` for where credentials are looked
        for), time limits in seconds, attempts, concurrency.
    expected : SourceIdentity, optional
        The object that it must be. A strong entity tag in it is sent as ``If-Match``.
    """

    def __init__(self, url: str, options: ReaderOptions | None = None, expected: SourceIdentity | None = None) -> None:
        self._options = options or ReaderOptions()
        self._name = strip_secrets(url)
        self._address = store_address(url)
        self._expected = expected
        self._pinned: dict[str, SourceIdentity] = {}
        self._tally = Tally()
        self._pid = os.getpid()
        self._workers: list[Workers] = []
        self._access = StoreAccess(self._address, self._name, self._options)

    def __repr__(self) -> str:
        return f"<ObjectStoreReader {self._name}>"

    @property
    def url(self) -> str:
        """The address; it holds no secrets."""
        return self._name

    @property
    def place(self) -> tuple[str, ...]:
        """What tells the store from others of its kind, endpoint and account; no secrets."""
        return self._access.place

    @property
    def statistics(self) -> ReadStatistics:
        """What was asked of the store so far; obstore's own retries are not seen."""
        return self._tally.total()

    def identity(self) -> SourceIdentity:
        """Size and tag of the object, from the first answer; asks for one byte if there was none yet."""
        if "identity" not in self._pinned:
            self.read_head(1)
        return self._pinned["identity"]

    def read_head(self, length: int) -> bytes:
        """Read up to ``length`` first bytes in the calling thread; see :class:`RangeReader`."""
        self._tally.add(waves=1)
        try:
            return self._read_here(ByteRange(0, max(length, 1)), head=True)[:length]
        except SourceError:
            # A range of an empty object is always refused; its size comes by HEAD.
            if self._is_empty():
                return b""
            raise

    def read_locked(self, start: int, length: int) -> bytes:
        """Read one range in the calling thread; see :class:`RangeReader`."""
        wanted = ByteRange(start, length)
        check_range(wanted, self._size(), self._name)
        if length == 0:
            return b""
        self._tally.add(waves=1)
        return self._read_here(wanted)

    def read_locked_beside(self, wanted: ByteRange, hints: Sequence[ByteRange]) -> tuple[bytes, list[bytes | None]]:
        """Read one range, and others in threads of their own meanwhile; see :class:`PairReader`."""
        for asked in (wanted, *hints):
            check_range(asked, self._size(), self._name)
        if not wanted.length:
            return b"", [b""] * len(hints)
        self._tally.add(waves=1)
        self._refuse_child()
        self._access.refresh()
        also = max(self._options.concurrency - 1, 0)
        under_way = [self._begin(hint) if number < also else None for number, hint in enumerate(hints)]
        began = time.monotonic()
        data = self._read_here(wanted)
        now = time.monotonic()
        limit = now + patience(now - began, wanted.length, sum(hint.length for hint in hints))
        return data, [b"" if hint is None else _come_until(limit, hint) for hint in under_way]

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Read all ranges, ``options.concurrency`` at a time; see :class:`RangeReader`."""
        refuse_under_lock(self._name)
        self._refuse_child()
        for wanted in ranges:
            check_range(wanted, self._size(), self._name)
        wanted_ranges = [wanted for wanted in ranges if wanted.length]
        if not wanted_ranges:
            return [b""] * len(ranges)
        self._tally.add(waves=1)
        self._access.refresh()
        found = iter(self._run_wave(self._read, wanted_ranges))
        return [next(found) if wanted.length else b"" for wanted in ranges]

    def lock_safe(self) -> AbstractContextManager[None]:
        """Do nothing: :meth:`read_locked` is always possible."""
        return nullcontext()

    def close(self) -> None:
        """Let the threads of waves and the connections end. Idempotent; used again, the reader makes new ones."""
        self._end_workers()
        self._access.close()

    def _begin(self, wanted: ByteRange) -> Aside[bytes] | None:
        try:
            return Aside(partial(self._read, wanted, once=True)) if wanted.length else None
        except RuntimeError:
            return None

    def _end_workers(self) -> None:
        while self._workers:
            self._workers.pop().close()

    def _run_wave(self, read: Callable[[ByteRange], T], ranges: Sequence[ByteRange]) -> list[T]:
        if not self._workers:
            self._workers.append(Workers(self._options.concurrency, "lindi-bridge-store"))
        try:
            return run_wave(self._workers[0], read, ranges, threading.Event())
        except KeyboardInterrupt:
            self._end_workers()  # those in flight go on to their time limit; whoever goes on reads with fresh ones
            raise

    def _size(self) -> int | None:
        known = self._pinned.get("identity", self._expected)
        return None if known is None else known.size

    def _refuse_child(self) -> None:
        if os.getpid() != self._pid:
            raise SourceError(
                f"{self._name}: opened in another process; object stores cannot be read after fork(). Start the "
                'workers by multiprocessing\'s "spawn" or "forkserver" method, or open the file in the worker'
            )

    def _read_here(self, wanted: ByteRange, head: bool = False) -> bytes:
        self._refuse_child()
        self._access.refresh()
        read = partial(self._read, head=head)
        if threading.current_thread() is threading.main_thread() and not h5py_lock_is_held():
            return self._run_wave(read, [wanted])[0]
        return read(wanted)

    def _read(self, wanted: ByteRange, head: bool = False, once: bool = False) -> bytes:
        request: dict[str, Any] = {"range": (wanted.start, wanted.stop)}
        if self._expected is not None and self._expected.strong_etag:
            request["if_match"] = self._expected.strong_etag
        call = self._access.call_once if once else self._access.call
        answer, data = call(lambda store: _get(store, self._address.key, request), self._tally)
        coding = answer.attributes.get("Content-Encoding")
        if coding not in {None, "", "identity"}:
            raise SourceProtocolError(
                f"{self._name}: the object is stored compressed (Content-Encoding: {str(coding)[:40]}), so that "
                "positions in it mean nothing; store it as it is"
            )
        self._pin(answer.meta)
        size = int(answer.meta["size"])
        if not head:
            check_range(wanted, size, self._name)
        exact = ByteRange(wanted.start, min(wanted.stop, size) - wanted.start)
        self._tally.add(nbytes=len(data))
        if tuple(answer.range) != (exact.start, exact.stop):
            raise SourceProtocolError(f"{self._name}: bytes {exact.start}-{exact.stop} were asked for, others came")
        return check_length(data, exact, self._name)

    def _is_empty(self) -> bool:
        import obstore

        try:
            meta = self._access.call(lambda store: obstore.head(store, self._address.key), self._tally)
        except SourceError:  # whatever it is, the error of the read itself says more
            return False
        if meta["size"] == 0:
            self._pin(meta)
        return bool(meta["size"] == 0)

    def _pin(self, meta: Any) -> None:
        changed = meta.get("last_modified")
        found = SourceIdentity(
            int(meta["size"]),
            meta.get("e_tag") or None,
            changed.isoformat() if isinstance(changed, datetime) else None,
        )
        check_expected(self._expected, found, self._name)
        difference = changed_midway(self._pinned.setdefault("identity", found), found)
        if difference:
            raise SourceChangedError(f"{self._name}: the object changed while it was read: {difference}")


def _come_until(limit: float, hint: Aside[bytes]) -> bytes | None:
    """What was read beside, if it came in time (of the monotonic clock); what went wrong is met by whoever needs it."""
    try:
        return hint.result(max(0.0, limit - time.monotonic()))
    except (SourceError, TimeoutError):
        return None


def _get(store: Any, key: str, request: dict[str, Any]) -> tuple[Any, bytes]:
    import obstore

    answer = obstore.get(store, key, options=request)  # type: ignore[arg-type]
    return answer, bytes(answer.bytes())
