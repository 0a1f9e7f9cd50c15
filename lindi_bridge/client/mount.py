"""From an address to a file object under h5py: the document's embedded bytes, the rest from its source.

A document is *mounted*: its ``hdf5`` section serves the metadata from memory. One without a usable section is
*rebuilt* from its annotations. Neither asks the source anything. Of an HDF5 file without a document, names and
attributes are fetched when it is opened, level by level, and the rest as it is asked for.
"""

from __future__ import annotations

import os
from typing import Any

from lindi_bridge.client.access import AccessOptions
from lindi_bridge.client.names import fetch_names
from lindi_bridge.client.rebuild import rebuild
from lindi_bridge.client.sources import HEAD, locate, open_located, open_source
from lindi_bridge.document.document import Document, parse_document
from lindi_bridge.document.document_file import MOST_BYTES, document_json, is_document
from lindi_bridge.errors import DocumentError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.pairs import ChunkPairs
from lindi_bridge.hdf5.walk import index_in_memory
from lindi_bridge.ranges import ByteRange, PairReader, RangeReader, is_local, open_reader, strip_secrets

__all__ = ["HEAD", "AccessOptions", "mount", "open_file_object", "open_source", "read_document_json"]

_PIECE = 8 * 1024 * 1024
_IN_MEMORY = "bytes in memory"


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
        document = _read_document(reader, head) if is_document(head) else None
        file = open_source(reader, head, options.cache_bytes) if document is None else None
    except BaseException:
        reader.close()
        raise
    identity = reader.identity()
    if document is not None:
        try:
            rebuilt = document.snapshot is None or options.prefer == "annotations"
            opened = rebuild(document, name, options) if rebuilt else mount(document, name, options)
        finally:
            reader.close()  # now, when its connections are wanted for the source
        opened.properties["identity"] = identity
        return opened
    assert file is not None
    file.properties["identity"] = identity
    if name:
        file.properties["companion_of"] = name
    if not (name and is_local(name)):
        fetch_names(file)
    return file


def read_document_json(reader: RangeReader, head: bytes) -> bytes:
    """The JSON of a document whose first bytes are known.

    Raises
    ------
    DocumentError
        A damaged or impossible Zstandard frame.
    """
    size = reader.identity().size
    if size > MOST_BYTES:
        raise DocumentError(f"{reader.url}: {size} bytes are too many for a reference document")
    rest = [ByteRange(s, min(_PIECE, size - s)) for s in range(len(head), size, _PIECE)]
    data = b"".join([head, *(reader.read_ranges(rest) if rest else [])])
    try:
        return document_json(data)
    except DocumentError as error:
        raise DocumentError(f"{reader.url}: {error}") from None


def _read_document(reader: RangeReader, head: bytes) -> Document:
    data = read_document_json(reader, head)
    try:
        return parse_document(data)
    except DocumentError as error:
        raise DocumentError(f"{reader.url}: {error}") from error


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
        raise DocumentError(f"{name}: this document has no embedded HDF5 metadata that go with its refs")
    source = locate(snapshot.url, address, options)
    reader, check = open_located(source, address, options, snapshot)
    file = HDF5File(
        reader,
        address=name,
        metadata=snapshot.pieces,
        values=snapshot.values,
        size=snapshot.identity.size,
        cache_bytes=options.cache_bytes,
        verify=check,
        pairs=ChunkPairs(snapshot.pairs, index_in_memory) if isinstance(reader, PairReader) else None,
    )
    file.properties["heaps"] = dict(snapshot.heaps)
    if isinstance(source.place, str):
        file.properties["companion_of"] = source.place
    return file
