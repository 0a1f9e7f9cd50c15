"""How a caller wants a document and its sources to be reached."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lindi_bridge.ranges import ReaderOptions, Renew, is_local, same_origin, strip_secrets

__all__ = ["AccessOptions"]

_CACHE = "LINDI_BRIDGE_CACHE"
_CACHE_BYTES = "LINDI_BRIDGE_CACHE_BYTES"


@dataclass(frozen=True)
class AccessOptions:
    """How to reach a document and its source. May hold secrets; only :meth:`public` is ever pickled.

    Parameters
    ----------
    source : str, file object, or mapping, optional
        Where the bytes of the source are now, if not at the address in the document (a presigned URL, a mirror, a
        local copy, an open file). A mapping goes from the address in the document to the new one.
    headers : mapping, optional
        HTTP headers for the origin of the address given by the caller, and of ``source``.
    storage_options : mapping, optional
        For s3, gs, az and fsspec.
    renew : callable, optional
        ``renew(address) -> str``: gives a fresh address of the same file when the server (http, https) refuses access
        or says that a signature has expired; ``address`` is the one in use, without its query string. It may give a
        mapping of fresh headers instead. Called in the thread that reads, once for each expiry; possibly while h5py's
        lock is held, so that it must not use h5py nor wait for other threads. Never pickled.
    credentials_for : sequence of str
        Further origins (``https://host``) that ``headers`` may be sent to and ``renew`` be used for.
    cache_bytes : int
        Bytes of fetched data held in memory.
    cache_dir : str or os.PathLike, optional
        Folder in which fetched data are kept for the next time. Without it, what the environment variable
        ``LINDI_BRIDGE_CACHE`` names; an empty string: none, whatever the environment says.
    cache_dir_bytes : int, optional
        Bytes that this folder may hold; what was used least recently makes room. Without it, what
        ``LINDI_BRIDGE_CACHE_BYTES`` says, or 10 GiB.
    allow_external : bool
        Companion files outside the folder of a local source may be opened.
    prefer : str, optional
        ``"annotations"``: build the file anew from the document's metadata, although the document carries what opens
        it as it is.
    connect_timeout, read_timeout, total_timeout : float
        Seconds; see :class:`~lindi_bridge.ranges.ReaderOptions`.
    retries : int
        Further attempts of one read after what may pass.
    concurrency : int
        Reads in flight at one time.
    left_behind : sequence of str
        Names of options that the file had in the process that pickled it; for messages.
    """

    source: Any = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    renew: Renew | None = field(default=None, repr=False)
    credentials_for: Sequence[str] = ()
    cache_bytes: int = 256 * 1024 * 1024
    cache_dir: str | os.PathLike[str] | None = None
    cache_dir_bytes: int | None = None
    allow_external: bool = False
    prefer: str | None = None
    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    total_timeout: float = 120.0
    retries: int = 4
    concurrency: int = 128
    left_behind: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.prefer not in (None, "annotations"):
            raise ValueError(f"prefer={self.prefer!r}: only 'annotations' can be preferred")
        if self.cache_dir_bytes is not None and self.cache_dir_bytes <= 0:
            raise ValueError(
                f"cache_dir_bytes={self.cache_dir_bytes!r}: not a number of bytes; cache_dir='' is no cache"
            )

    def for_companion(self) -> AccessOptions:
        """The options for a file that lies beside the source.

        Without ``renew``: a function that ignores its argument would put the source in the place of the other file.
        """
        return replace(self, source=None, renew=None)

    def public(self) -> dict[str, Any]:
        """The options without anything that may be secret, and the names of those that are left out."""
        given = os.fspath(self.source) if isinstance(self.source, os.PathLike) else self.source
        source = strip_secrets(given) if isinstance(given, str) else None
        secret = {
            "source": source != given,
            "headers": bool(self.headers),
            "storage_options": bool(self.storage_options),
            "renew": self.renew is not None,
        }
        return {
            "source": source,
            "cache_bytes": self.cache_bytes,
            "cache_dir": self.cache_dir,
            "cache_dir_bytes": self.cache_dir_bytes,
            "allow_external": self.allow_external,
            "prefer": self.prefer,
            "connect_timeout": self.connect_timeout,
            "read_timeout": self.read_timeout,
            "total_timeout": self.total_timeout,
            "retries": self.retries,
            "concurrency": self.concurrency,
            "left_behind": (*self.left_behind, *(name for name, left in secret.items() if left)),
        }

    def reader_options(self, url: str, named_by: str | None) -> ReaderOptions:
        """Options for a reader of ``url``.

        Parameters
        ----------
        url : str
            What will be read.
        named_by : str, optional
            Address of the document that names ``url``; None where the caller gave it himself. Headers then go to
            the document's own origin and to ``credentials_for`` only; keys of object stores, which never leave
            this machine, and ``renew`` are used for whatever a local document names as well.
        """
        known = named_by is None or any(same_origin(url, o) for o in (named_by, *self.credentials_for))
        foreign = named_by is not None and not is_local(named_by) and not known
        return ReaderOptions(
            headers=self.headers if known else {},
            storage_options={} if foreign else self.storage_options,
            connect_timeout=self.connect_timeout,
            read_timeout=self.read_timeout,
            total_timeout=self.total_timeout,
            retries=self.retries,
            concurrency=self.concurrency,
            restricted=named_by is not None and not is_local(named_by),
            renew=None if foreign else self.renew,
            withheld=(bool(self.headers) and not known) or (self.renew is not None and foreign),
            left_behind=tuple(self.left_behind),
            cache_dir=os.environ.get(_CACHE) if self.cache_dir is None else os.fspath(self.cache_dir),
            cache_dir_bytes=_cache_dir_bytes() if self.cache_dir_bytes is None else self.cache_dir_bytes,
        )


def _cache_dir_bytes() -> int:
    text = os.environ.get(_CACHE_BYTES, "").strip()
    if text and not (text.isascii() and text.isdigit() and int(text)):
        raise ValueError(
            f"{_CACHE_BYTES}={text[:40]!r}: not a number of bytes, such as {ReaderOptions.cache_dir_bytes}"
        )
    return int(text or ReaderOptions.cache_dir_bytes)
