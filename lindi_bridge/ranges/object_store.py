"""Byte ranges of an object on S3, Google Cloud Storage or Azure, by obstore."""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from threading import Event
from typing import Any
from urllib.parse import quote, urlsplit

from lindi_bridge.errors import (
    MissingDependencyError,
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    SourcePermissionError,
    SourceTimeoutError,
)
from lindi_bridge.ranges.address import strip_secrets
from lindi_bridge.ranges.filesystem import check_expected, check_length
from lindi_bridge.ranges.http_answer import changed_midway
from lindi_bridge.ranges.identity import SourceIdentity
from lindi_bridge.ranges.lock import refuse_under_lock
from lindi_bridge.ranges.object_store_config import configuration, store_address
from lindi_bridge.ranges.reader import ByteRange, ReaderOptions, ReadStatistics, Tally, check_range
from lindi_bridge.ranges.wave import run_wave

__all__ = ["ObjectStoreReader"]


class ObjectStoreReader:
    """An object of ``s3://``, ``gs://``, ``az://`` or ``abfs(s)://``.

    obstore's I/O runs in threads of Rust, which take no Python lock, so its blocking calls are used under h5py's lock
    as well. Those threads do not survive fork(): in a forked child every read raises at once.

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
        self._config, self._client = configuration(
            self._address, self._options.storage_options, self._options.restricted
        )
        self._expected = expected
        self._pinned: dict[str, SourceIdentity] = {}
        self._tally = Tally()
        self._pid = os.getpid()
        self._executors: list[ThreadPoolExecutor] = []
        self._store: Any = self._make_store()

    def __repr__(self) -> str:
        return f"<ObjectStoreReader {self._name}>"

    @property
    def url(self) -> str:
        """The address; it holds no secrets."""
        return self._name

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
            return self._read(ByteRange(0, max(length, 1)), head=True)[:length]
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
        return self._read(wanted)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Read all ranges, ``options.concurrency`` at a time; see :class:`RangeReader`."""
        refuse_under_lock(self._name)
        self._refuse_child()
        for wanted in ranges:
            check_range(wanted, self._size(), self._name)
        if not any(wanted.length for wanted in ranges):
            return [b""] * len(ranges)
        self._tally.add(waves=1)
        return run_wave(self._executor(), self._read, ranges, Event())

    def lock_safe(self) -> AbstractContextManager[None]:
        """Do nothing: :meth:`read_locked` is always possible."""
        return nullcontext()

    def close(self) -> None:
        """Stop the threads of waves. Idempotent."""
        while self._executors:
            self._executors.pop().shutdown(wait=False, cancel_futures=True)

    def _executor(self) -> ThreadPoolExecutor:
        if not self._executors:
            workers = max(self._options.concurrency, 1)
            self._executors.append(ThreadPoolExecutor(workers, thread_name_prefix="lindi-bridge-store"))
        return self._executors[0]

    def _size(self) -> int | None:
        known = self._pinned.get("identity", self._expected)
        return None if known is None else known.size

    def _refuse_child(self) -> None:
        if os.getpid() != self._pid:
            raise SourceError(
                f"{self._name}: opened in another process; object stores cannot be read after fork(). Start the "
                'workers by multiprocessing\'s "spawn" or "forkserver" method, or open the file in the worker'
            )

    def _make_store(self) -> Any:
        try:
            from obstore.store import AzureStore, GCSStore, S3Store
        except ImportError as problem:
            raise MissingDependencyError(
                f"{self._name}: the package obstore is needed (pip install obstore)"
            ) from problem
        options = self._options
        client = {
            "connect_timeout": timedelta(seconds=options.connect_timeout),
            "read_timeout": timedelta(seconds=options.read_timeout),
            "timeout": timedelta(seconds=options.total_timeout),
            **self._client,
        }
        retry = {
            "max_retries": options.retries,
            "retry_timeout": timedelta(seconds=options.total_timeout),
            "backoff": {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=10), "base": 2},
        }
        kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[self._address.kind]
        try:
            return kind(self._address.bucket, config=self._config, client_options=client, retry_config=retry)
        except Exception as problem:
            raise self._translate(problem) from None

    def _read(self, wanted: ByteRange, head: bool = False) -> bytes:
        self._refuse_child()
        request: dict[str, Any] = {"range": (wanted.start, wanted.stop)}
        if self._expected is not None and self._expected.strong_etag:
            request["if_match"] = self._expected.strong_etag
        answer, data = self._call(lambda: _get(self._store, self._address.key, request))
        self._pin(answer.meta)
        size = int(answer.meta["size"])
        if not head:
            check_range(wanted, size, self._name)
        exact = ByteRange(wanted.start, min(wanted.stop, size) - wanted.start)
        self._tally.add(nbytes=len(data))
        if tuple(answer.range) != (exact.start, exact.stop):
            raise SourceError(f"{self._name}: bytes {exact.start}-{exact.stop} were asked for, others came")
        return check_length(data, exact, self._name)

    def _call(self, request: Callable[[], Any]) -> Any:
        self._tally.add(requests=1)
        try:
            return request()
        except Exception as problem:
            region = self._find_region() if "configured region" in str(problem) else None
            if region is None:
                raise self._translate(problem) from None
        # The bucket lies in another region than the default one: learn it once.
        self._config = {**self._config, "region": region}
        self._store = self._make_store()
        self._tally.add(requests=1)
        try:
            return request()
        except Exception as problem:
            raise self._translate(problem) from None

    def _find_region(self) -> str | None:
        """Ask S3 in which region the bucket lies: any answer of it, also a refusal, says so in a header."""
        if self._address.kind != "s3":
            return None
        endpoint = urlsplit(str(self._config.get("endpoint") or "https://s3.amazonaws.com"))
        kind = http.client.HTTPSConnection if endpoint.scheme == "https" else http.client.HTTPConnection
        connection = kind(endpoint.hostname or "", endpoint.port, timeout=self._options.connect_timeout)
        try:
            connection.request("HEAD", f"/{quote(self._address.bucket)}")
            return connection.getresponse().getheader("x-amz-bucket-region")
        except (OSError, http.client.HTTPException):
            return None  # the error of obstore, which is raised then, names the region
        finally:
            connection.close()

    def _is_empty(self) -> bool:
        import obstore

        try:
            meta = obstore.head(self._store, self._address.key)
        except Exception:  # whatever it is, the error of the read itself says more
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

    def _translate(self, problem: Exception) -> Exception:
        """Make our error of obstore's, whose text is left out: it holds signed addresses and header values."""
        from obstore import exceptions

        if isinstance(problem, SourceError):
            return problem
        signed = not self._config.get("skip_signature")
        text = str(problem)
        if isinstance(problem, FileNotFoundError):
            return SourceNotFoundError(f"{self._name}: there is no such object (or bucket)")
        if isinstance(problem, exceptions.PreconditionError):
            return SourceChangedError(
                f"{self._name}: the object is not the one that was indexed (ETag). Index it again"
            )
        if isinstance(problem, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError) or (
            "InvalidAccessKeyId" in text or "SignatureDoesNotMatch" in text
        ):
            hint = (
                "The credentials were refused: check those in storage_options, the environment and ~/.aws/credentials; "
                "for a public bucket pass storage_options={'anon': True}"
                if signed
                else "It was asked anonymously: pass storage_options={'key': ..., 'secret': ...} or set credentials in "
                "the environment (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY)"
            )
            return SourcePermissionError(f"{self._name}: the store refuses access. {hint}")
        if isinstance(problem, exceptions.UnknownConfigurationKeyError | TypeError | ValueError):
            names = ", ".join(sorted(self._config))
            return SourceError(f"{self._name}: a name or value among these storage_options is not known: {names}")
        if "configured region" in text:
            return SourceError(f"{self._name}: the bucket is in another region: pass storage_options={{'region': ...}}")
        if "TimedOut" in text or "timed out" in text:
            return SourceTimeoutError(f"{self._name}: the store did not answer in time (read_timeout, total_timeout)")
        if "416" in text:
            return SourceError(f"{self._name}: the range lies outside the object")
        return SourceError(
            f"{self._name}: the store could not be read ({type(problem).__name__}); check the network, and "
            "endpoint and region in storage_options"
        )


def _get(store: Any, key: str, request: dict[str, Any]) -> tuple[Any, bytes]:
    import obstore

    answer = obstore.get(store, key, options=request)  # type: ignore[arg-type]
    return answer, bytes(answer.bytes())
