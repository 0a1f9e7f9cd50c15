"""Stores of obstore, shared by all readers that need the same: each has connections of its own, which cost round trips.

Like connections over HTTP, nothing here takes a lock or waits.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from datetime import timedelta
from stat import S_ISREG
from typing import Any
from weakref import WeakValueDictionary

__all__ = ["shared_store"]

_stores: WeakValueDictionary[tuple[int, bytes], Any] = WeakValueDictionary()
"""Those in use, by process (after fork() a store of the parent hangs) and a digest of what they were made with."""

_READ = ("AWS_", "GOOGLE_", "AZURE_", "SSL_CERT_")
_GOOGLE_LOGIN = "~/.config/gcloud/application_default_credentials.json"


def shared_store(made_with: list[Any], make: Callable[[], Any]) -> Any:
    """The store that somebody made with the same, or else a new one.

    Parameters
    ----------
    made_with : list
        Everything that the caller gives to obstore. Secrets in it are not kept.
    make : callable
        Makes the store. obstore then reads the environment as well, and files that are named in it or in the
        configuration: where those have changed since, the store is another one.
    """
    surroundings = _environment()
    try:
        text = json.dumps([made_with, surroundings], sort_keys=True, default=_exactly)
    except (TypeError, ValueError):
        return make()  # it holds something whose content cannot be compared
    files = [_state(path) for path in (os.path.expanduser(_GOOGLE_LOGIN), *_strings([made_with, surroundings]))]
    key = (os.getpid(), hashlib.blake2b(f"{text}{files}".encode("utf-8", "surrogateescape")).digest())
    store = _stores.get(key)
    if store is None:
        store = _stores[key] = make()
    return store


def _environment() -> dict[str, str | None]:
    """What obstore and its HTTP client look at: credentials, proxies and certificates."""
    names = [name for name in list(os.environ) if name.startswith(_READ) or name.upper().endswith("_PROXY")]
    return {name: os.environ.get(name) for name in names}


def _exactly(value: object) -> str:
    # Never the repr() of what is not known: it may hide what differs (as that of a secret does).
    if isinstance(value, timedelta):
        return f"{value.total_seconds()} s"
    if isinstance(value, bytes):
        return f"bytes {value.hex()}"
    raise TypeError(type(value).__name__)


def _strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _strings(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _strings(item)]
    return [value] if isinstance(value, str) else []


def _state(path: str) -> tuple[int, ...] | None:
    """What changes when a file is written anew; None for what is no file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if S_ISREG(found.st_mode) else None
