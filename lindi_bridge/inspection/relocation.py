"""Giving the source of a document file another address."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lindi_bridge.client.access import AccessOptions
from lindi_bridge.document.document import parse_document
from lindi_bridge.document.document_file import address_beside, write_document_file
from lindi_bridge.document.relocation import relocate_document
from lindi_bridge.errors import DocumentError
from lindi_bridge.inspection.check import read_document_at
from lindi_bridge.inspection.sources import source_errors
from lindi_bridge.ranges import scheme_of, strip_secrets

__all__ = ["relocate"]


def relocate(
    document: str | os.PathLike[str],
    new_url: str,
    output: str | os.PathLike[str] | None = None,
    *,
    old_url: str | None = None,
    verify: bool = False,
    **options: Any,
) -> Mapping[str, str]:
    """Write a document with another address of its source, whole or not at all.

    The rest of the document stays as it is, and it opens as before. What it knows of the file at the old address alone
    (its ETag and time) is left out; the first read compares the new file with samples of the old one.

    Parameters
    ----------
    document : str or os.PathLike
        Path or URL of the document, of whatever program.
    new_url : str
        Where the source is now. A local path in the folder of the document or below is written relative to it.
    output : str or os.PathLike, optional
        Where to write, ``.json`` or ``.json.zst``; over the document if not given.
    old_url : str, optional
        Which source, as the document names it; needed where it names several. With a slash at the end of both
        addresses, all that lies below is moved.
    verify : bool
        Ask the source at the new address, and write nothing if it is not the file that was indexed. A document of
        another program has no samples: its source must only be as long as the chunks reach.
    **options
        How to reach the document and the source, as for :func:`open`. ``headers`` go to the host of the document, or,
        if that is local, to the source's.

    Returns
    -------
    mapping
        Old address to new one, as the document has them.

    Raises
    ------
    DocumentError
        Not a document; no such source in it; several, and ``old_url`` is not given; or ``new_url`` has a query string,
        user name or password, which may be secret: those are passed with ``source=`` when the document is opened.
    SourceError
        The document cannot be read, or ``verify`` and the source is not there or another file.
    """
    access = AccessOptions(**options)
    name = os.fspath(document)
    path = os.fspath(output) if output is not None else name
    if scheme_of(path):
        raise DocumentError(f"{strip_secrets(path)}: a document on a server is not written to; say where to write")
    text = read_document_at(name, access)
    if text is None:
        raise DocumentError(f"{strip_secrets(name)}: not a reference document")
    if not scheme_of(new_url):
        new_url = address_beside(os.path.abspath(new_url), path) + ("/" if new_url.endswith("/") else "")
    moved = relocate_document(text, new_url, old_url)
    _refuse_broken(moved.kept, name, path)
    if verify:
        if not scheme_of(name):  # no other host has a better claim to the headers than the one that was typed
            access = replace(access, credentials_for=[*access.credentials_for, new_url])
        for error in source_errors(parse_document(moved.text), path, access, set(moved.moved.values())):
            raise error
    write_document_file(path, moved.text)
    return moved.moved


def _refuse_broken(kept: tuple[str, ...], document: str, output: str) -> None:
    """Refuse another folder for a document that names further sources relative to its own."""
    relative = [address for address in kept if not (scheme_of(address) or os.path.isabs(address))]
    folders = {os.path.realpath(os.path.dirname(os.path.abspath(path))) for path in (document, output)}
    if relative and (scheme_of(document) or len(folders) > 1):
        raise DocumentError(
            f"{strip_secrets(document)}: names {strip_secrets(relative[0])} relative to its own folder, and would not "
            "find it from another one; write the document to the same folder, or relocate that source first"
        )
