"""The bytes of an HDF5 file that a document carries, and what it knows of the source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lindi_bridge.ranges.identity import SourceIdentity

__all__ = ["Departure", "Fingerprint", "HeapMap", "Snapshot"]


@dataclass(frozen=True)
class Departure:
    """An object whose content lies in another file.

    Parameters
    ----------
    path : str
        The object.
    kind : str
        ``external_link``, ``virtual_dataset`` or ``external_storage``.
    files : tuple of str
        Names of the other files, as the HDF5 file has them.
    """

    path: str
    kind: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Fingerprint:
    """Digests of samples of the source, to recognise a copy whose ETag is another.

    Parameters
    ----------
    starts : tuple of int
        Addresses of the samples.
    length : int
        Bytes of each.
    digests : tuple of str
        BLAKE2b-64 of each sample, hexadecimal.
    """

    starts: tuple[int, ...]
    length: int
    digests: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class HeapMap:
    """Which global heap collections the values of one variable-length dataset lie in.

    Parameters
    ----------
    step : int
        Elements along axis 0 a block; for chunked datasets a block is a chunk and ``step`` is 0.
    collections : (n, 2) int64 array
        Address and size (bytes) of each collection, ascending.
    blocks : (m, 2) int64 array
        First and last (exclusive) collection of each block: rows of the chunk table, or blocks of ``step`` rows.
    """

    step: int
    collections: npt.NDArray[np.int64]
    blocks: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Snapshot:
    """What opens a document as the HDF5 file it was made from.

    Parameters
    ----------
    url : str
        Address of the source, without secrets; may be relative to the document's own address.
    identity : SourceIdentity
        Of the source when it was indexed.
    pieces : tuple of (int, bytes)
        Bytes of the source by address: metadata. Sorted and disjoint.
    fingerprint : Fingerprint
        Samples of the source.
    heaps : mapping
        By address of the dataset's object header.
    departures : tuple of Departure
        What leaves the file.
    values : iterable of (int, bytes)
        Further bytes, in which only whoever reads values is interested: indexes of chunks, small values. Of a parsed
        document they are decompressed when they are first asked for.
    pairs : tuple of (int, int)
        Addresses of the object headers of datasets that are read in turn and have the same chunks: ``data`` and
        ``indices`` of each sparse matrix. A hint.
    """

    url: str
    identity: SourceIdentity
    pieces: tuple[tuple[int, bytes], ...]
    fingerprint: Fingerprint
    heaps: Mapping[int, HeapMap] = field(default_factory=dict)
    departures: tuple[Departure, ...] = ()
    values: Iterable[tuple[int, bytes]] = ()
    pairs: tuple[tuple[int, int], ...] = ()
