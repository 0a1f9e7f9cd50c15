"""How a caller wants a document and its sources to be reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lindi_bridge.ranges import ReaderOptions, is_local, same_origin, strip_secrets

__all__ = ["AccessOptions"]


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
    credentials_for : sequence of str
        Further origins (``https://host``) that ``headers`` may be sent to.
    cache_bytes : int
        Bytes of fetched data held in memory.
    allow_external : bool
        Companion files outside the folder of a local source may be opened.
    prefer : str, optional
        ``"annotations"``: build the file anew from the document's metadata, although the document carries what opens
        it as it is.
    connect_timeout, read_timeout, total_timeout : float
        Seconds; see :class:`~lindi_bridge.ranges.ReaderOptions`.
    """

    source: Any = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    credentials_for: Sequence[str] = ()
    cache_bytes: int = 256 * 1024 * 1024
    allow_external: bool = False
    prefer: str | None = None
    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    total_timeout: float = 120.0

    def __post_init__(self) -> None:
        if self.prefer not in (None, "annotations"):
            raise ValueError(f"prefer={self.prefer!r}: only 'annotations' can be preferred")

    def public(self) -> dict[str, Any]:
        """The options without anything that may be secret."""
        return {
            "source": strip_secrets(self.source) if isinstance(self.source, str) else None,
            "cache_bytes": self.cache_bytes,
            "allow_external": self.allow_external,
            "prefer": self.prefer,
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
            this machine, to any store that a local document names.
        """
        known = named_by is None or any(same_origin(url, o) for o in (named_by, *self.credentials_for))
        foreign = named_by is not None and not is_local(named_by) and not known
        return ReaderOptions(
            headers=self.headers if known else {},
            storage_options={} if foreign else self.storage_options,
            connect_timeout=self.connect_timeout,
            read_timeout=self.read_timeout,
            total_timeout=self.total_timeout,
            restricted=named_by is not None and not is_local(named_by),
            withheld=bool(self.headers) and not known,
        )
