"""How an object store is reached: with which credentials, in which region, and what its errors mean."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from lindi_bridge.errors import (
    MissingDependencyError,
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    SourcePermissionError,
    SourceProtocolError,
    SourceTimeoutError,
)
from lindi_bridge.ranges.aside import ask
from lindi_bridge.ranges.lock import h5py_lock_is_held
from lindi_bridge.ranges.object_store_config import (
    StoreAddress,
    StoreConfiguration,
    configuration,
    provided_credentials,
)
from lindi_bridge.ranges.object_store_pool import shared_store
from lindi_bridge.ranges.reader import ReaderOptions, Tally

__all__ = ["StoreAccess"]

T = TypeVar("T")
_IN_TIME = timedelta(seconds=60)
_NAMES = re.compile(r"\bhttps?://[^\s,]*|<(Key|Resource|BucketName)>.*?</\1>")
_PAYER = {
    "s3": "; for a bucket whose readers pay, storage_options={'request_payer': True}",
    "gs": "; for a bucket whose readers pay, storage_options={'requester_pays': 'project'}",
    "az": "",
}


class StoreAccess:
    """A store of obstore, made anew when it turns out that other credentials or another region are needed.

    Credentials of the environment that are refused are read once more (another program may have renewed them), and then
    left out: public data need none. What the caller gave is taken at his word. Temporary credentials
    (``credential_provider``) are asked for in the thread that reads and never by obstore's own threads: those would
    need Python while a thread that holds h5py's lock waits for them.

    Parameters
    ----------
    address : StoreAddress
        The object.
    name : str
        Its address without secrets, for messages.
    options : ReaderOptions
        ``storage_options``, time limits, attempts.
    """

    def __init__(self, address: StoreAddress, name: str, options: ReaderOptions) -> None:
        self._address = address
        self._name = name
        self._options = options
        self._lock = Lock()
        self._works = False
        self._due: datetime | None = None
        self._refused_ambient = False
        self._configuration = self._configure()
        self._store: Any = None
        if self._configuration.provider is None:
            self._store = self._make_store(self._configuration)

    @property
    def place(self) -> tuple[str, ...]:
        """What tells the store from others of its kind; no secrets."""
        return self._configuration.place

    def refresh(self) -> None:
        """Make the store if there is none, or if its credentials are about to expire. In the thread that reads."""
        if self._store is None or (self._due is not None and datetime.now(UTC) >= self._due):
            stale = self._store
            with self._alone():
                if self._store is stale:
                    self._use(self._configuration)

    def call(self, request: Callable[[Any], T], tally: Tally) -> T:
        """Make a request of the store, again if the store turned out to need something else.

        Raises
        ------
        SourceError
            What obstore's error means.
        """
        tried: set[str] = set()
        while True:
            if self._store is None:
                self.refresh()
            store = self._store
            tally.add(requests=1)
            try:
                answer = request(store)
            except Exception as problem:
                if not self._adapt(problem, store, tried):
                    raise self._translate(problem) from None
            else:
                self._works = True
                return answer

    def call_once(self, request: Callable[[Any], T], tally: Tally) -> T:
        """Make a request of the store as it is, asking for no credentials and taking no lock.

        For a thread that runs beside one that holds h5py's lock: what provides credentials may have a lock of its own,
        which the one would hold while it waits for h5py's, and the other would wait for.

        Raises
        ------
        SourceError
            What obstore's error means, or there is no store: it was closed.
        """
        store = self._store
        if store is None:
            raise SourceError(f"{self._name}: closed before it was asked")
        tally.add(requests=1)
        try:
            return request(store)
        except Exception as problem:
            raise self._translate(problem) from None

    def close(self) -> None:
        """Give up the connections; used again, it makes new ones."""
        self._store = None

    def _alone(self) -> AbstractContextManager[Any]:
        # While h5py's lock is held nobody is waited for. Two threads may then make a store each; the last one stays.
        return nullcontext() if h5py_lock_is_held() else self._lock

    def _configure(self) -> StoreConfiguration:
        return configuration(self._address, self._options.storage_options, self._options.restricted)

    def _use(self, made: StoreConfiguration) -> None:
        """Make the store, with fresh credentials if they are provided."""
        config = made.config
        if made.provider is not None:
            try:
                credentials = ask(made.provider, self._options.read_timeout)
                config = {**config, **provided_credentials(self._address.kind, credentials)}
            except Exception as problem:
                raise SourcePermissionError(
                    f"{self._name}: credentials could not be had: what provides them failed with "
                    f"{type(problem).__name__}"
                ) from problem
            self._due = _due(credentials.get("expires_at"))
        else:
            self._due = None
        self._store = self._make_store(made._replace(config=config))
        self._configuration = made

    def _adapt(self, problem: Exception, store: Any, tried: set[str]) -> bool:
        """Change what may be the cause of a problem; False if there is nothing left to change."""
        with self._alone():
            if self._store is not store and "again" not in tried:
                tried.add("again")
                return True  # another thread was faster
            if "configured region" in _words(problem) and "region" not in tried:
                tried.add("region")
                region = self._find_region()
                if region is not None:  # not the default one: learn it once
                    made = self._configuration
                    self._use(made._replace(config={**made.config, "region": region}))
                return region is not None
            if not _is_refusal(problem):
                return False
            if self._configuration.provider is not None and self._works and "provider" not in tried:
                tried.add("provider")
                self._use(self._configuration)
                return True
            if self._configuration.ambient and "reread" not in tried:
                tried.add("reread")
                region = self._configuration.config.get("region")
                found = self._configure()
                if region is not None:
                    found.config.setdefault("region", region)
                if found.config != self._configuration.config:
                    self._use(found)
                    return True
            if self._configuration.ambient and not self._works:
                self._refused_ambient = True
                self._use(self._configuration.anonymous())
                return True
        return False

    def _make_store(self, made: StoreConfiguration) -> Any:
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
            **made.client,
        }
        retry = {
            "max_retries": options.retries,
            "retry_timeout": timedelta(seconds=options.total_timeout),
            "backoff": {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=10), "base": 2},
        }
        kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[self._address.kind]

        def make() -> Any:
            try:
                return kind(self._address.bucket, config=made.config, client_options=client, retry_config=retry)
            except Exception as problem:
                raise self._translate(problem) from None

        return shared_store([self._address.kind, self._address.bucket, made.config, client, retry], make)

    def _find_region(self) -> str | None:
        """Ask S3 in which region the bucket lies: any answer of it, also a refusal, says so in a header."""
        if self._address.kind != "s3":
            return None
        endpoint = urlsplit(self._configuration.endpoint or "https://s3.amazonaws.com")
        kind = http.client.HTTPSConnection if endpoint.scheme == "https" else http.client.HTTPConnection
        connection = kind(endpoint.hostname or "", endpoint.port, timeout=self._options.connect_timeout)
        try:
            connection.request("HEAD", f"/{quote(self._address.bucket)}")
            return connection.getresponse().getheader("x-amz-bucket-region")
        except (OSError, http.client.HTTPException):
            return None  # the error of obstore, which is raised then, names the region
        finally:
            connection.close()

    def _translate(self, problem: Exception) -> Exception:
        """Make our error of obstore's, whose text is left out: it holds signed addresses and header values."""
        from obstore import exceptions

        name = self._name
        if isinstance(problem, SourceError):
            return problem
        text = _words(problem)
        if isinstance(problem, FileNotFoundError):
            return SourceNotFoundError(f"{name}: there is no such object (or bucket)")
        if isinstance(problem, exceptions.PreconditionError):
            return SourceChangedError(f"{name}: the object is not the one that was indexed (ETag). Index it again")
        if _is_refusal(problem):
            return SourcePermissionError(f"{name}: the store refuses access. {self._hint()}")
        if isinstance(problem, exceptions.UnknownConfigurationKeyError | TypeError | ValueError):
            names = ", ".join(sorted(self._options.storage_options))
            return SourceError(f"{name}: a name or value among these storage_options is not known: {names}")
        if "configured region" in text:
            return SourceError(f"{name}: the bucket is in another region: pass storage_options={{'region': ...}}")
        if "TimedOut" in text or "timed out" in text:
            return SourceTimeoutError(f"{name}: the store did not answer in time (read_timeout, total_timeout)")
        if "status code: 416 " in text:
            return SourceError(f"{name}: the range lies outside the object")
        if isinstance(problem, exceptions.NotSupportedError):
            return SourceProtocolError(f"{name}: the server of the store ignores range requests; use another endpoint")
        return SourceError(
            f"{name}: the store could not be read ({type(problem).__name__}); check the network, and "
            "endpoint and region in storage_options, and try again later"
        )

    def _hint(self) -> str:
        made = self._configuration
        if pickled := self._options.pickled_hint():
            return pickled
        if self._refused_ambient:
            return (
                "Both the credentials of the environment and an anonymous request were refused: pass others by "
                f"storage_options={{'key': ..., 'secret': ...}}{_PAYER[self._address.kind]}"
            )
        if made.signed:
            return (
                "The credentials were refused: check those in storage_options, the environment and ~/.aws/credentials"
                f"{_PAYER[self._address.kind]}; for a public bucket pass storage_options={{'anon': True}}"
            )
        hint = (
            "It was asked anonymously: pass storage_options={'key': ..., 'secret': ...} or set credentials in "
            "the environment (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY)"
            f"{_PAYER[self._address.kind]}"
        )
        return f"{hint}. {made.hint}" if made.hint else hint


def _due(expires: Any) -> datetime | None:
    """When to ask for new credentials: in good time before they expire, and not all the time if that is soon."""
    if not isinstance(expires, datetime):
        return None
    now = datetime.now(UTC)
    left = (expires if expires.tzinfo is not None else expires.replace(tzinfo=UTC)) - now
    return now + left - min(_IN_TIME, left / 4)


def _is_refusal(problem: Exception) -> bool:
    from obstore import exceptions

    if isinstance(problem, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return True
    codes = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
    return any(code in _words(problem) for code in codes)


def _words(problem: Exception) -> str:
    """What an error of obstore says, without the address and names of the object, in which anything may stand."""
    return _NAMES.sub("", str(problem))
