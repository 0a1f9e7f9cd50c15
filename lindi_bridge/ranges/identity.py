"""Which file is it? Size, entity tag and time of last change of a source."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SourceIdentity"]


@dataclass(frozen=True)
class SourceIdentity:
    """What tells one state of a remote file from another.

    Parameters
    ----------
    size : int
        Bytes.
    etag : str, optional
        The entity tag as the server sends it, quotes included (RFC 9110, section 8.8.3).
    last_modified : str, optional
        The ``Last-Modified`` text, or the modification time of a local file in ISO 8601. For people only:
        copying a file changes it.
    """

    size: int
    etag: str | None = None
    last_modified: str | None = None

    @property
    def strong_etag(self) -> str | None:
        """The entity tag if it can be sent in ``If-Match``: weak tags (``W/``) never match there."""
        return None if self.etag is None or self.etag.startswith("W/") else self.etag

    def differs(self, other: SourceIdentity) -> str | None:
        """Say in words how ``other`` differs for certain, or None if it may be the same file."""
        if self.size != other.size:
            return f"its size is {other.size} bytes, expected {self.size}"
        if self.strong_etag and other.strong_etag and self.strong_etag != other.strong_etag:
            return f"its ETag is {other.etag}, expected {self.etag}"
        return None
