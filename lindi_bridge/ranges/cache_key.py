"""Under which names the bytes of a remote file lie on the disk: digests of where it is, and of which state of it.

Both are digests because an address may hold secrets. Signatures are left out of them, so that a file behind a fresh
signature is found again; every other part of a query string counts, since it may say which file is meant.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import unquote, urlsplit

from lindi_bridge.ranges.address import OBJECT_STORE_SCHEMES, scheme_of
from lindi_bridge.ranges.identity import SourceIdentity
from lindi_bridge.ranges.object_store_config import store_address

__all__ = ["address_digest", "state_digest", "without_signature"]

_SETTLED_AFTER = 60.0
"""Seconds. A time of last change says which bytes they are only when it is old: it counts whole seconds, and a file may
be written twice in one (RFC 9110, section 8.8.2.2)."""

_SIGNATURES: tuple[tuple[frozenset[str], frozenset[str]], ...] = tuple(
    (frozenset(marks.split()), frozenset(others.split()))
    for marks, others in (
        # AWS Signature Version 4 in query parameters, and the same of Google Cloud Storage and Alibaba OSS
        (
            "x-amz-signature",
            "x-amz-algorithm x-amz-credential x-amz-date x-amz-expires x-amz-security-token x-amz-signedheaders",
        ),
        ("x-goog-signature", "x-goog-algorithm x-goog-credential x-goog-date x-goog-expires x-goog-signedheaders"),
        (
            "x-oss-signature",
            "x-oss-signature-version x-oss-credential x-oss-date x-oss-expires x-oss-security-token "
            "x-oss-additional-headers",
        ),
        # their older forms
        ("awsaccesskeyid signature", "expires x-amz-security-token"),
        ("googleaccessid signature", "expires"),
        ("ossaccesskeyid signature", "expires security-token"),
        # CloudFront signed URLs, with a canned and with a custom policy
        ("key-pair-id signature", "expires policy hash-algorithm"),
        # Azure shared access signatures
        (
            "sv sig",
            "ss srt sr st se sp spr sip si sdd ses skoid sktid skt ske sks skv skdutid sduoid saoid suoid scid",
        ),
    )
)
"""Parameters that show that a query string is signed, in lower case, and those that then belong to the signature."""


def address_digest(address: str, place: Iterable[str] = ()) -> str:
    """Digest (hexadecimal) of where a file is.

    Parameters
    ----------
    address : str
        http(s), or an object store's; complete, as it is read.
    place : iterable of str
        For object stores, which store it is: the same bucket and key at two endpoints are two files.
    """
    if scheme_of(address) in OBJECT_STORE_SCHEMES:
        return _digest("store", *store_address(address), *place)
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2].lower()
    return _digest("http", parts.scheme.lower(), host, parts.path, without_signature(parts.query))


def state_digest(identity: SourceIdentity) -> str | None:
    """Digest (hexadecimal) of the state of a file, or None where nothing tells one state from another for certain.

    A strong entity tag does, with the size. Without one, size and time of last change do, once that is a minute ago.
    """
    if identity.strong_etag:
        return _digest("etag", str(identity.size), identity.strong_etag)
    if identity.last_modified and _is_settled(identity.last_modified):
        return _digest("time", str(identity.size), identity.last_modified, identity.etag or "")
    return None


def without_signature(query: str) -> str:
    """Query string without the parameters of a presigned address; those that are left keep their order."""
    parts = [part for part in query.split("&") if part]
    names = {unquote(part.partition("=")[0]).lower() for part in parts}
    dropped: set[str] = set()
    for marks, others in _SIGNATURES:
        if marks <= names:
            dropped |= marks | others
    return "&".join(part for part in parts if unquote(part.partition("=")[0]).lower() not in dropped)


def _digest(*texts: str) -> str:
    # The length before each text: no two lists of texts run together into the same bytes.
    data = b"".join(b"%d:%s" % (len(t), t) for t in (text.encode("utf-8", "surrogateescape") for text in texts))
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _is_settled(text: str) -> bool:
    """Whether a time of last change (as in HTTP, or ISO 8601) was more than a minute ago."""
    try:
        changed = datetime.fromisoformat(text)
    except ValueError:
        try:
            changed = parsedate_to_datetime(text)
        except ValueError:
            return False
    if changed.tzinfo is None:
        changed = changed.replace(tzinfo=UTC)
    return time.time() - changed.timestamp() > _SETTLED_AFTER
