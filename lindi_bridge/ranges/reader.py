"""The vocabulary of byte ranges: what a reader of a remote file can do, and how ranges are merged.

Knows nothing of HDF5, Zarr or JSON.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lindi_bridge.errors import SourceError
from lindi_bridge.ranges.identity import SourceIdentity

__all__ = [
    "ByteRange",
    "PairReader",
    "RangeReader",
    "ReadStatistics",
    "ReaderOptions",
    "Renew",
    "Tally",
    "check_range",
    "coalesce",
]

Renew = Callable[[str], str | Mapping[str, str]]
"""Given an address without its query string: a fresh address of the same file, or fresh headers for it."""


class ByteRange(NamedTuple):
    """``length`` bytes from byte ``start`` of a file."""

    start: int
    length: int

    @property
    def stop(self) -> int:
        """First byte after the range."""
        return self.start + self.length


@dataclass
class ReadStatistics:
    """What a reader asked of its source so far.

    A *wave* is one batch of ranges that were in flight together; a single read is a wave of its own.
    """

    requests: int = 0
    waves: int = 0
    nbytes: int = 0


class Tally:
    """Counts what many threads do, without a lock (it is also used while h5py's lock is held).

    Each thread adds to a record of its own; the records are summed when somebody asks.
    """

    def __init__(self) -> None:
        self._by_thread: dict[int, ReadStatistics] = {}

    def add(self, *, requests: int = 0, waves: int = 0, nbytes: int = 0) -> None:
        """Add to the record of the calling thread."""
        mine = self._by_thread.get(get_ident())
        if mine is None:
            mine = self._by_thread.setdefault(get_ident(), ReadStatistics())
        mine.requests += requests
        mine.waves += waves
        mine.nbytes += nbytes

    def total(self) -> ReadStatistics:
        """Sum of all threads, as a new record."""
        records = list(self._by_thread.values())
        return ReadStatistics(
            sum(r.requests for r in records), sum(r.waves for r in records), sum(r.nbytes for r in records)
        )


@dataclass(frozen=True)
class ReaderOptions:
    """How to reach a source. Holds secrets: it is never written, logged or pickled.

    Parameters
    ----------
    headers : mapping, optional
        Extra HTTP headers, sent to the origin of the address that the user gave and to no other.
    storage_options : mapping, optional
        For s3/gs/az: obstore's configuration keys (``access_key_id``, ``endpoint``, ...; fsspec's common names
        ``anon``, ``key``, ``secret``, ``endpoint_url`` are understood too). For other schemes: fsspec's.
    connect_timeout, read_timeout : float
        Seconds to wait for a connection, and between two pieces of an answer.
    total_timeout : float
        Seconds for one range, all retries included.
    retries : int
        Further attempts after 408, 429, 5xx, and cut or stalled connections.
    concurrency : int
        Ranges in flight at one time.
    restricted : bool
        The address was named by a document that came over the network: no redirect from a public host to
        loopback or link-local addresses.
    renew : callable, optional
        For http(s): called with the address (without query string) when the server answers 401 or 403, or says that
        what signed the address has expired. Gives a fresh address, or a mapping of fresh headers.
    withheld : bool
        The caller has headers or ``renew``, which were not given to this reader because a document names its address.
        For the message of a refusal.
    left_behind : tuple of str
        Names of options that this file had in the process that pickled it. For the message of a refusal.
    cache_dir : str, optional
        Folder on the disk in which the bytes of http(s), s3, gs and az addresses are kept.
    cache_dir_bytes : int
        What it may hold.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    total_timeout: float = 120.0
    retries: int = 4
    concurrency: int = 128
    restricted: bool = False
    renew: Renew | None = field(default=None, repr=False)
    withheld: bool = False
    left_behind: tuple[str, ...] = ()
    cache_dir: str | None = None
    cache_dir_bytes: int = 10 * 1024**3

    def __reduce__(self) -> Any:
        raise TypeError("ReaderOptions may hold secrets and cannot be pickled")

    def pickled_hint(self) -> str:
        """What to do about access that was left behind in another process; empty if nothing was."""
        if not self.left_behind:
            return ""
        listed = ", ".join(f"{name}=" for name in self.left_behind)
        return (
            f"The file was pickled, and what may be secret does not travel with it: {listed}. Open it anew in this "
            f"process, with {listed}"
        )


@runtime_checkable
class RangeReader(Protocol):
    """A file that can be read in byte ranges."""

    @property
    def url(self) -> str:
        """The address without query string and credentials, for messages and documents."""

    @property
    def statistics(self) -> ReadStatistics:
        """What was asked of the source so far."""

    def identity(self) -> SourceIdentity:
        """Size and tags of the file. Asks the source if they are not known yet."""

    def read_head(self, length: int) -> bytes:
        """Read the first ``length`` bytes, or the whole file if it is shorter; the identity is known afterwards.

        Works in the calling thread, as :meth:`read_locked` does.
        """

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Read all ranges, concurrently, exactly; must not be called while h5py's lock is held.

        A range that runs past the end of the file is an error, never a short answer.
        """

    def read_locked(self, start: int, length: int) -> bytes:
        """Read one range in the calling thread, waiting for no other Python thread and logging nothing.

        Meant for the callbacks that h5py makes while it holds its global lock.
        """

    def lock_safe(self) -> AbstractContextManager[None]:
        """Make :meth:`read_locked` possible for a while where it is not always.

        Does nothing for most readers. Where the bytes come through another Python thread (fsspec's
        asynchronous file systems), garbage collection is paused inside the context, so that no object
        of h5py can be freed in that thread.
        """

    def close(self) -> None:
        """Free connections. Idempotent."""


@runtime_checkable
class PairReader(RangeReader, Protocol):
    """One that can ask for several ranges at one time under h5py's lock, without waiting for locks and logging."""

    def read_locked_beside(self, wanted: ByteRange, hints: Sequence[ByteRange]) -> tuple[bytes, list[bytes | None]]:
        """Read one range as :meth:`read_locked` does, and others at the same time if that is no trouble.

        Parameters
        ----------
        wanted : ByteRange
            What is needed; its errors are raised.
        hints : sequence of ByteRange
            What may be needed next. The same checks hold for the answers; what goes wrong with one is passed over, and
            it is waited for no longer than about as long as for what is needed.

        Returns
        -------
        data : bytes
            Of what is needed.
        along : list of (bytes or None)
            Of the others; None for what was asked for and did not come, empty for what was not asked for.
        """


def check_range(wanted: ByteRange, size: int | None, url: str) -> None:
    """Refuse a range that cannot lie in the file.

    Parameters
    ----------
    wanted : ByteRange
        What is to be read.
    size : int or None
        Bytes of the file, if known.
    url : str
        For the message.

    Raises
    ------
    ValueError
        A negative start or length.
    SourceError
        The range runs past the end of the file.
    """
    if wanted.start < 0 or wanted.length < 0:
        raise ValueError(f"no byte range: start {wanted.start}, length {wanted.length}")
    if size is not None and wanted.stop > size:
        raise SourceError(
            f"{url}: bytes {wanted.start} to {wanted.stop} were asked for, but the file has {size}. "
            "It is truncated, or it is not the file that the reference document describes"
        )


def coalesce(ranges: Sequence[ByteRange], *, gap: int, waste: int, limit: int) -> list[ByteRange]:
    """Merge ranges into fewer, larger requests.

    Parameters
    ----------
    ranges : sequence of ByteRange
        In any order; may overlap.
    gap : int
        Largest hole (bytes) that is read through to save a request.
    waste : int
        Largest sum of holes (bytes) that may be read in all; the smallest holes are taken first.
    limit : int
        Two ranges are not merged into a request of more than ``limit`` bytes.

    Returns
    -------
    list of ByteRange
        Sorted, disjoint; together they hold every byte asked for.
    """
    merged: list[list[int]] = []
    for start, length in sorted(r for r in ranges if r.length > 0):
        if merged and start < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], start + length)
        else:
            merged.append([start, start + length])
    holes = sorted(
        (right[0] - left[1], index)
        for index, (left, right) in enumerate(itertools.pairwise(merged))
        if right[0] - left[1] <= gap
    )
    joined = set()
    for hole, index in holes:
        if hole > waste:
            break
        waste -= hole
        joined.add(index)
    out: list[list[int]] = []
    for index, (start, stop) in enumerate(merged):
        if out and index - 1 in joined and stop - out[-1][0] <= limit:
            out[-1][1] = stop
        else:
            out.append([start, stop])
    return [ByteRange(start, stop - start) for start, stop in out]
