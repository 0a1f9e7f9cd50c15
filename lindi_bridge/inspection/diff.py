"""What two documents, or a document and an HDF5 file, say differently."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from lindi_bridge.api import index
from lindi_bridge.client.access import AccessOptions
from lindi_bridge.client.sources import locate
from lindi_bridge.document.document import Document, parse_document
from lindi_bridge.errors import DocumentError
from lindi_bridge.inspection.answers import Difference
from lindi_bridge.inspection.check import read_document_at
from lindi_bridge.inspection.comparison import compare_files, sources_alike
from lindi_bridge.inspection.offline import OfflineFile, opened_from_annotations, opened_from_metadata
from lindi_bridge.ranges import same_origin, scheme_of, strip_secrets

__all__ = ["diff"]

_INDEX_OPTIONS = ("headers", "storage_options", "connect_timeout", "read_timeout", "total_timeout")


def diff(left: Any, right: Any, **options: Any) -> Iterator[Difference]:
    """Compare two documents, or documents with HDF5 files, which are indexed first.

    Compared are the sources, and of each object its name, kind, links, type, shape, storage, attributes, and where its
    chunks lie; values as far as both documents have them (small ones). Bulk data are not read: where the chunks of two
    files lie at the same places, only the samples that documents have of their sources tell whether their bytes differ.

    Parameters
    ----------
    left, right : str or os.PathLike
        Paths or URLs.
    **options
        How to reach them, as for :func:`open`. ``headers`` go to the host of the first that is on one, and to
        ``credentials_for``.

    Yields
    ------
    Difference
        The sources first, at path ``/``; then depth first.

    Raises
    ------
    DocumentError, SourceError, NotHDF5Error
        One of them cannot be opened.
    """
    access = AccessOptions(**options)
    addresses = os.fspath(left), os.fspath(right)
    documents = [(_document(side, _access_to(side, addresses, access)), side) for side in addresses]
    with _opened(*documents[0]) as first, _opened(*documents[1]) as second:
        first.sources, second.sources = (
            [_located(url, side, access) for url in opened.sources]
            for opened, (_, side) in zip((first, second), documents, strict=True)
        )
        yield from _sources(documents[0][0], first, documents[1][0], second)
        yield from compare_files(first, second)


def _access_to(address: str, addresses: tuple[str, str], access: AccessOptions) -> AccessOptions:
    """Options for one of two addresses: headers go to one host, that of the first address that has one."""
    homes = [a for a in addresses if scheme_of(a)][:1]
    known = any(same_origin(address, origin) for origin in (*homes, *access.credentials_for))
    return access if known or not scheme_of(address) else replace(access, headers={})


def _document(address: str, access: AccessOptions) -> Document:
    text = read_document_at(address, access)
    if text is None:
        made = index(address, **{name: getattr(access, name) for name in _INDEX_OPTIONS})
        text = made.to_json()
    try:
        return parse_document(text)
    except DocumentError as error:
        raise DocumentError(f"{strip_secrets(address)}: {error}") from None


@contextmanager
def _opened(document: Document, address: str) -> Iterator[OfflineFile]:
    opening = opened_from_annotations if document.snapshot is None else opened_from_metadata
    with opening(document, address) as opened:
        # What a document says that it does not express is a difference all the same.
        opened.unsaid.clear()
        opened.unsaid_attributes.clear()
        yield opened


def _located(url: str, document: str, access: AccessOptions) -> str:
    """An address that may be relative to that of the document, so that two documents' can be compared."""
    place: str = locate(url, document, AccessOptions()).place
    return os.path.abspath(place) if not scheme_of(place) else strip_secrets(place)


def _sources(left: Document, first: OfflineFile, right: Document, second: OfflineFile) -> Iterator[Difference]:
    same = sources_alike(first.sources, second.sources)
    for k, address in enumerate(first.sources):
        other = second.sources[same[k]] if k in same else "no such source"
        if address != other:
            yield Difference("/", "source", address, other)
    for k, address in enumerate(second.sources):
        if k not in same.values():
            yield Difference("/", "source", "no such source", address)
    a, b = left.origin, right.origin
    if a is None or b is None:
        return
    if a.identity.size != b.identity.size:
        yield Difference("/", "size of the source", f"{a.identity.size} bytes", f"{b.identity.size} bytes")
    elif a.fingerprint != b.fingerprint:
        yield Difference("/", "samples of the source", "its bytes", "other bytes")
