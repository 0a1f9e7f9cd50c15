"""Whether the sources of a document are where it says, and are the files that were indexed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace

import numpy as np

from lindi_bridge.client.access import AccessOptions
from lindi_bridge.client.sources import locate, open_located
from lindi_bridge.client.verify import make_check
from lindi_bridge.document.document import Document
from lindi_bridge.document.metadata import read_refs
from lindi_bridge.errors import DocumentError, SourceChangedError, SourceError, UnsupportedSchemeError
from lindi_bridge.model.nodes import ArrayNode
from lindi_bridge.model.snapshot import Snapshot

__all__ = ["address_faults", "source_errors"]

_MOST_SOURCES = 64


def address_faults(addresses: Iterable[str], document: str) -> Iterator[str]:
    """Why nothing may be read from some addresses that a document names. Asks them nothing.

    Parameters
    ----------
    addresses : iterable of str
        As the document has them, templates replaced.
    document : str
        Address of the document.
    """
    access = AccessOptions()
    for address in addresses:
        try:
            open_located(locate(address, document, access), document, access, None)[0].close()
        except SourceError:
            pass  # a local file that is not there; that is for those to tell who ask the sources
        except (DocumentError, UnsupportedSchemeError, ValueError) as error:
            yield str(error)


def source_errors(
    document: Document, address: str, access: AccessOptions, wanted: Container[str] | None = None
) -> Iterator[SourceError]:
    """Ask the sources of a document for their size, and for the samples that the document has of them.

    Of a source without samples (in documents of other programs) only the size can be told: it must reach as far as the
    last chunk.

    Parameters
    ----------
    document : Document
        The document.
    address : str
        Where it is, or will be.
    access : AccessOptions
        How to reach the sources.
    wanted : container of str, optional
        Addresses of those to ask, as the document has them; else the first 64.

    Yields
    ------
    SourceError
        A source that cannot be read, or is another file.
    """
    access = replace(access, cache_dir="")  # what lies on this disk says nothing about the source
    ends = _ends(document)
    asked = list(ends)[:_MOST_SOURCES] if wanted is None else [url for url in ends if url in wanted]
    for url in asked:
        known = document.origin if document.origin is not None and document.origin.url == url else None
        try:
            _ask(url, ends[url], known, address, access)
        except SourceError as error:
            yield error


def _ends(document: Document) -> dict[str, int]:
    """How far the chunks in each source reach (bytes)."""
    origin = document.origin
    if origin is not None and not document.edited:
        return {origin.url: 0}  # its size is known
    tree = read_refs(document.refs(), document.templates, None if origin is None else origin.url)
    ends = dict.fromkeys(tree.sources, 0)
    for node in tree.nodes.values():
        if not isinstance(node, ArrayNode) or node.table is None:
            continue
        numbers = np.zeros(len(node.table), np.int64) if node.table.source is None else node.table.source
        for k in np.unique(numbers).tolist():
            end = int((node.table.offset + node.table.nbytes)[numbers == k].max())
            ends[tree.sources[k]] = max(ends[tree.sources[k]], end)
    return ends


def _ask(url: str, end: int, known: Snapshot | None, address: str, access: AccessOptions) -> None:
    reader, _ = open_located(locate(url, address, access), address, access, known)
    try:
        size = reader.identity().size
        if size < end:
            raise SourceChangedError(
                f"{reader.url}: has {size} bytes, but the document has chunks up to byte {end}; it is another file, or "
                "cut off"
            )
        if known is not None:
            make_check(known, reader.url)(reader.read_ranges)
    finally:
        reader.close()
