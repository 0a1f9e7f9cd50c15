"""The files that a document takes its bytes from: where they are now, and whether they are still the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lindi_bridge.client.access import AccessOptions
from lindi_bridge.client.verify import make_check
from lindi_bridge.errors import DocumentError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.model.snapshot import Snapshot
from lindi_bridge.ranges import (
    ByteRange,
    CachedReader,
    RangeReader,
    SourceIdentity,
    is_local,
    is_private_host,
    join,
    open_reader,
    scheme_of,
    strip_secrets,
)
from lindi_bridge.ranges.address import is_chain

__all__ = ["HEAD", "Source", "Verify", "locate", "open_located", "open_source"]

HEAD = 64 * 1024
"""Bytes that are read first of everything that is opened."""

_WHOLE_FILE = 16 * 1024 * 1024

Verify = Callable[[Callable[[Sequence[ByteRange]], list[bytes]]], None]


class Source(NamedTuple):
    """Where a source is.

    ``place`` is what is opened: an address, or an object that the caller gave. ``recorded`` is the address that the
    document has. ``given`` tells that the caller named the place himself.
    """

    place: Any
    recorded: str
    given: bool

    @property
    def address(self) -> str:
        """The place, if it is an address; else what the document has."""
        return self.place if isinstance(self.place, str) else self.recorded


def locate(url: str, document: str, options: AccessOptions) -> Source:
    """Where a source that a document names is.

    Parameters
    ----------
    url : str
        As the document has it.
    document : str
        Address of the document; relative addresses are relative to it.
    options : AccessOptions
        ``source`` may say where it is now.

    Raises
    ------
    DocumentError
        A document from the network names a file of this machine or its network, or a chain of file systems.
    """
    moved = _relocated(options.source, url)
    return Source(_resolve(url, document) if moved is None else moved, url, moved is not None)


def open_located(
    source: Source, document: str, options: AccessOptions, origin: Snapshot | None
) -> tuple[RangeReader, Verify | None]:
    """A reader of a source, and what checks that it is the file that was indexed. Asks the source nothing.

    Parameters
    ----------
    source : Source
        Where it is.
    document : str
        Address of the document that names it.
    options : AccessOptions
        How to reach it.
    origin : Snapshot, optional
        What the document knows of it.
    """
    place = source.place
    reader_options = options.reader_options(place if isinstance(place, str) else "", None if source.given else document)
    if origin is None:
        return open_reader(place, reader_options), None
    identity = origin.identity
    by_etag = identity.strong_etag is not None and _is_same_address(place, source.recorded, document)
    reader = open_reader(place, reader_options, identity if by_etag else SourceIdentity(identity.size))
    if by_etag:
        return reader, None
    check = make_check(origin, reader.url)
    if isinstance(reader, CachedReader):
        # The samples must be the source's own: which of its states lie on the disk is not known before.
        at_source = reader.read_source
        return reader, lambda _: check(at_source)
    return reader, check


def open_source(reader: RangeReader, head: bytes, cache_bytes: int) -> HDF5File:
    """Open an HDF5 file itself, whose first bytes are known; a small one is fetched whole."""
    size = reader.identity().size
    name = reader.url or "bytes in memory"
    file = HDF5File(reader, address=name, metadata=[(0, head)], size=size, cache_bytes=cache_bytes)
    if size <= _WHOLE_FILE:
        file.ensure([ByteRange(0, size)])
    return file


def _resolve(url: str, address: str) -> str:
    """The source's address; a relative one lies relative to the document."""
    if not url:
        raise DocumentError(f"{strip_secrets(address)}: the document does not say where its source is; pass source=")
    if not (scheme_of(url) or os.path.isabs(url)):
        return join(address, url)
    if not is_local(address) and (
        is_local(url) or is_chain(url) or (is_private_host(url) and not is_private_host(address))
    ):
        raise DocumentError(
            f"{strip_secrets(address)}: a document from the network names a file of this machine or its network "
            f"({strip_secrets(url)}); download the document first if you trust it, or pass source="
        )
    return url


def _relocated(source: Any, recorded: str) -> Any:
    if isinstance(source, Mapping):
        return source.get(recorded)
    return os.fspath(source) if isinstance(source, os.PathLike) else source


def _is_same_address(place: Any, recorded: str, address: str) -> bool:
    """Whether the source is read from where it was indexed, signatures aside."""
    if recorded and not (scheme_of(recorded) or os.path.isabs(recorded)):
        recorded = join(address, recorded)
    return isinstance(place, str) and strip_secrets(place) == strip_secrets(recorded)
