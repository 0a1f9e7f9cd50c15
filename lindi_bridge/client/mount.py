"""From an address to a file object under h5py: the document's embedded bytes, the rest from its source.

A document is *mounted*: its ``hdf5`` section serves the metadata from memory, and opening it asks the source
nothing. An HDF5 file without a document is read over the network as it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lindi_bridge.client.verify import make_check
from lindi_bridge.document.document import Document, parse_document
from lindi_bridge.errors import DocumentError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.ranges import (
    ByteRange,
    RangeReader,
    ReaderOptions,
    SourceIdentity,
    is_local,
    is_private_host,
    join,
    open_reader,
    same_origin,
    scheme_of,
    strip_secrets,
)

__all__ = ["HEAD", "AccessOptions", "mount", "open_file_object", "open_source"]

HEAD = 64 * 1024
"""Bytes that are read first of everything that is opened."""

_WHOLE_FILE = 16 * 1024 * 1024
_PIECE = 8 * 1024 * 1024
_IN_MEMORY = "bytes in memory"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_HEADER = 18
"""Bytes: the longest header of a frame, which no frame with a document in it is shorter than."""
_MOST_DOCUMENT = 4 * 1024**3


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
    connect_timeout, read_timeout, total_timeout : float
        Seconds; see :class:`~lindi_bridge.ranges.ReaderOptions`.
    """

    source: Any = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    credentials_for: Sequence[str] = ()
    cache_bytes: int = 256 * 1024 * 1024
    allow_external: bool = False
    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    total_timeout: float = 120.0

    def public(self) -> dict[str, Any]:
        """The options without anything that may be secret."""
        return {
            "source": strip_secrets(self.source) if isinstance(self.source, str) else None,
            "cache_bytes": self.cache_bytes,
            "allow_external": self.allow_external,
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


def open_file_object(address: Any, options: AccessOptions) -> HDF5File:
    """Open a document, or an HDF5 file itself, as a file object for h5py.

    Parameters
    ----------
    address : str, os.PathLike, bytes, or file object
        A document or an HDF5 file, told apart by content.
    options : AccessOptions
        How to reach it.

    Raises
    ------
    DocumentError
        A document that is broken or cannot be mounted.
    SourceError
        The address cannot be read.
    """
    if isinstance(address, os.PathLike):
        address = os.fspath(address)
    reader = open_reader(address, options.reader_options(address if isinstance(address, str) else "", None))
    name = address if isinstance(address, str) else reader.url
    try:
        head = reader.read_head(HEAD)
        document = _read_document(reader, head) if _is_document(head) else None
        file = open_source(reader, head, options.cache_bytes) if document is None else None
    except BaseException:
        reader.close()
        raise
    if document is not None:
        reader.close()
        return mount(document, name, options)
    assert file is not None
    if name:
        file.properties["companion_of"] = name
    return file


def open_source(reader: RangeReader, head: bytes, cache_bytes: int) -> HDF5File:
    """Open an HDF5 file itself, whose first bytes are known; a small one is fetched whole."""
    size = reader.identity().size
    file = HDF5File(reader, address=reader.url or _IN_MEMORY, metadata=[(0, head)], size=size, cache_bytes=cache_bytes)
    if size <= _WHOLE_FILE:
        file.ensure([ByteRange(0, size)])
    return file


def _is_document(head: bytes) -> bool:
    return head.startswith(_ZSTD_MAGIC) or head.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{")


def _read_document(reader: RangeReader, head: bytes) -> Document:
    size = reader.identity().size
    if size > _MOST_DOCUMENT:
        raise DocumentError(f"{reader.url}: {size} bytes are too many for a reference document")
    rest = [ByteRange(s, min(_PIECE, size - s)) for s in range(len(head), size, _PIECE)]
    data = b"".join([head, *(reader.read_ranges(rest) if rest else [])])
    try:
        if data.startswith(_ZSTD_MAGIC):
            data = _decompress(data)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DocumentError(f"{reader.url}: not a reference document: it is not UTF-8 text") from None
    except DocumentError as error:
        raise DocumentError(f"{reader.url}: {error}") from None
    try:
        return parse_document(text)
    except DocumentError as error:
        raise DocumentError(f"{reader.url}: {error}") from error


def _decompress(data: bytes) -> bytes:
    """Decompress one Zstandard frame whose header tells its size (RFC 8878, section 3.1.1.1)."""
    from numcodecs import Zstd

    if len(data) < _ZSTD_HEADER:
        raise DocumentError("the Zstandard frame is cut off")
    descriptor = data[4]
    position = 5 + (0 if descriptor & 0x20 else 1) + (0, 1, 2, 4)[descriptor & 3]
    width = (1 if descriptor & 0x20 else 0, 2, 4, 8)[descriptor >> 6]
    if width == 0:
        raise DocumentError("the Zstandard frame does not tell its size; decompress the document first")
    size = int.from_bytes(data[position : position + width], "little") + (256 if width == 2 else 0)
    if size > _MOST_DOCUMENT:
        raise DocumentError(f"{size} bytes are too many for a reference document")
    try:
        return bytes(Zstd().decode(data))
    except RuntimeError as error:
        raise DocumentError(f"the Zstandard frame is damaged: {error}") from error


def mount(document: Document, address: str, options: AccessOptions) -> HDF5File:
    """Open a document as the HDF5 file that it was made from. Asks the source nothing.

    Parameters
    ----------
    document : Document
        The document.
    address : str
        Where it came from; relative addresses in it are resolved against this.
    options : AccessOptions
        How to reach the source.
    """
    name = strip_secrets(address) or _IN_MEMORY
    snapshot = document.snapshot
    if snapshot is None:
        reason = (
            "its refs were edited after the embedded HDF5 metadata was written"
            if document.edited
            else "it has no embedded HDF5 metadata (it was made by another program)"
        )
        raise DocumentError(f"{name}: this document cannot be mounted: {reason}; index the source again")
    moved = _relocated(options.source, snapshot.url)
    url: Any = _resolve(snapshot.url, address) if moved is None else moved
    reader_options = options.reader_options(url if isinstance(url, str) else "", address if moved is None else None)
    identity = snapshot.identity
    by_etag = identity.strong_etag is not None and _is_same_address(url, snapshot.url, address)
    expected = identity if by_etag else SourceIdentity(identity.size)
    reader = open_reader(url, reader_options, expected)
    file = HDF5File(
        reader,
        address=name,
        metadata=snapshot.pieces,
        size=identity.size,
        cache_bytes=options.cache_bytes,
        verify=None if by_etag else make_check(snapshot, reader.url),
    )
    file.properties["heaps"] = dict(snapshot.heaps)
    if isinstance(url, str):
        file.properties["companion_of"] = url
    return file


def _is_same_address(url: Any, recorded: str, address: str) -> bool:
    """Whether the source is read from where it was indexed, signatures aside."""
    if not (scheme_of(recorded) or os.path.isabs(recorded)):
        recorded = join(address, recorded)
    return isinstance(url, str) and strip_secrets(url) == strip_secrets(recorded)


def _resolve(url: str, address: str) -> str:
    """The source's address; a relative one lies relative to the document."""
    if not url:
        raise DocumentError(f"{strip_secrets(address)}: the document does not say where its source is; pass source=")
    if not (scheme_of(url) or os.path.isabs(url)):
        return join(address, url)
    if not is_local(address) and (is_local(url) or (is_private_host(url) and not is_private_host(address))):
        raise DocumentError(
            f"{strip_secrets(address)}: a document from the network names a file of this machine or its network "
            f"({strip_secrets(url)}); download the document first if you trust it, or pass source="
        )
    return url


def _relocated(source: Any, recorded: str) -> Any:
    if isinstance(source, Mapping):
        return source.get(recorded)
    return os.fspath(source) if isinstance(source, os.PathLike) else source
