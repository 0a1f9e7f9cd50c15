"""Is it the file that was indexed? Asked of a source that has no strong ETag, or lies at another address."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from lindi_bridge.errors import DocumentError, SourceChangedError
from lindi_bridge.model.snapshot import Fingerprint, Snapshot
from lindi_bridge.ranges import ByteRange, h5py_lock_is_held

__all__ = ["fingerprint", "make_check"]

Read = Callable[[Sequence[ByteRange]], list[bytes]]

_FEW = 4
_METADATA_PIECES = 16
_METADATA_PIECE = 4096


def fingerprint(read: Read, starts: Sequence[int], length: int) -> Fingerprint:
    """Take digests of samples of a source."""
    samples = read([ByteRange(start, length) for start in starts])
    return Fingerprint(tuple(starts), length, tuple(hashlib.blake2b(s, digest_size=8).hexdigest() for s in samples))


def make_check(snapshot: Snapshot, name: str) -> Callable[[Read], None]:
    """Make a check of a source against samples from all over the file and pieces of the embedded metadata.

    Parameters
    ----------
    snapshot : Snapshot
        What was indexed.
    name : str
        Address of the source, for messages.

    Returns
    -------
    callable
        Takes a function that reads ranges, which it calls once. Raises SourceChangedError.
    """
    expected, size = snapshot.fingerprint, snapshot.identity.size
    if len(expected.starts) != len(expected.digests) or any(s + expected.length > size for s in expected.starts):
        raise DocumentError("the document's fingerprint does not fit the file")

    def check(read: Read) -> None:
        samples = list(zip(expected.starts, expected.digests, strict=True))
        pieces = _evenly(sorted([*snapshot.pieces, *snapshot.values]), _METADATA_PIECES)
        if h5py_lock_is_held():  # read one after the other: a few will do
            samples, pieces = _evenly(samples, _FEW), _evenly(pieces, _FEW)
        wanted = [ByteRange(start, expected.length) for start, _ in samples]
        wanted += [ByteRange(start, min(len(piece), _METADATA_PIECE)) for start, piece in pieces]
        found = read(wanted)
        same = all(
            hashlib.blake2b(data, digest_size=8).hexdigest() == digest
            for data, (_, digest) in zip(found, samples, strict=False)
        ) and all(data == piece[: len(data)] for data, (_, piece) in zip(found[len(samples) :], pieces, strict=True))
        if not same:
            raise SourceChangedError(
                f"{name}: not the file that was indexed: the same size, but other bytes; index it again, or pass "
                "source= with the address of the right file"
            )

    return check


def _evenly(items: Sequence[Any], count: int) -> list[Any]:
    """At most ``count`` of the items, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    return [items[k * (len(items) - 1) // (count - 1)] for k in range(count)]
