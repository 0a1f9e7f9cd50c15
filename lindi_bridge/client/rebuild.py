"""A document without embedded HDF5 metadata, opened as an HDF5 file: one is written in memory from its annotations.

Groups, attributes, links and inline values are written as they are. Of bulk data only the structure is written: each
chunk reference is put in with ``H5Dwrite_chunk``, whose payload is not stored but mapped to its range of a source (see
``client.virtual``). The chunks of a dataset are put in when it is first opened; until then the address of its chunk
index is closed to reading, so that whoever goes round this package gets an error and never fill values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from lindi_bridge.client.access import AccessOptions
from lindi_bridge.client.linked import Link
from lindi_bridge.client.pending import PendingChunks
from lindi_bridge.client.restore import restore
from lindi_bridge.client.sources import HEAD, Source, locate, open_located, open_source
from lindi_bridge.client.virtual import VirtualMemory
from lindi_bridge.client.virtual_file import VirtualFile, VirtualReader
from lindi_bridge.client.written_file import WrittenFile
from lindi_bridge.document.document import Document
from lindi_bridge.document.metadata import read_refs
from lindi_bridge.document.problems import Faults, MalformedError
from lindi_bridge.errors import DocumentError, UnsupportedSchemeError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.walk import header_address
from lindi_bridge.model.nodes import ArrayNode, ReferenceTree
from lindi_bridge.ranges import RangeReader, strip_secrets

__all__ = ["complete", "finish", "rebuild"]

_logger = logging.getLogger(__name__)

_UNBOUNDED = 1 << 61


def rebuild(document: Document, address: str, options: AccessOptions, *, quiet: bool = False) -> HDF5File:
    """Open a document as an HDF5 file that is made of its annotations. Asks the sources nothing.

    Parameters
    ----------
    document : Document
        The document.
    address : str
        Where it came from; relative addresses in it are resolved against this.
    options : AccessOptions
        How to reach the sources.
    quiet : bool
        Log nothing of what is left out; ``properties["problems"]`` of the file has it in any case.

    Returns
    -------
    HDF5File
        Chunks are put in when :func:`complete` is called for a dataset, or for all.

    Raises
    ------
    DocumentError
        The document contradicts itself, with everything that is wrong.
    """
    name = strip_secrets(address) or "bytes in memory"
    try:
        return _rebuild(document, address, name, options, quiet)
    except DocumentError as error:
        error.args = (f"{name}: {error}",)
        raise


def _rebuild(document: Document, address: str, name: str, options: AccessOptions, quiet: bool) -> HDF5File:
    origin = document.origin
    tree = read_refs(document.refs(), document.templates, origin.url if origin is not None else None)
    restore(tree, document.annotations, document.edited, document.generation_metadata.get("profile"))
    openers = _source_openers(document, tree, address, options)
    links = _links(document, tree, address, options)
    memory = VirtualMemory()
    written = WrittenFile(memory, tree, document.annotations, document.edited)
    try:
        written.write()
    except BaseException:
        written.close()
        raise
    for problem in () if quiet else (*tree.problems, *written.problems):
        _logger.warning("%s: %s: %s", name, problem.path, problem.message)
    reader = VirtualReader(memory, openers, written.chunks.refusals, name)
    pending = PendingChunks(written, reader)
    reader.when_closed(pending.close)
    # The reader's libhdf5 learns the end of the file once, and more is put in later.
    written.set_end(_UNBOUNDED)
    file = VirtualFile(memory, reader, address=name, size=_UNBOUNDED, cache_bytes=options.cache_bytes)
    file.properties["pending"] = pending
    file.properties["tree"] = tree
    file.properties["linked"] = {written.addresses[path]: link for path, link in links.items()}
    file.properties["heaps"] = {}
    file.properties["problems"] = [*tree.problems, *written.problems]
    if origin is not None and origin.url:
        place = locate(origin.url, address, options).place
        if isinstance(place, str):
            file.properties["companion_of"] = place
    return file


def complete(file: HDF5File, dataset: Any = None) -> None:
    """Put in the chunks of a dataset, or all that are not in yet; does nothing for files that are no rebuilt ones.

    Parameters
    ----------
    file : HDF5File
        From :func:`rebuild`.
    dataset : h5py.h5d.DatasetID, optional
        A dataset of it.
    """
    pending: PendingChunks | None = file.properties.get("pending")
    if pending is None or not pending:
        return
    if dataset is None:
        pending.put_in_all()
    else:
        pending.put_in(header_address(dataset))


def finish(file: HDF5File) -> None:
    """Put in all chunks and close the file in memory for writing: nothing is left to be done when it is read.

    Parameters
    ----------
    file : HDF5File
        From :func:`rebuild`, and not opened by libhdf5 yet; nothing is done for others.
    """
    pending: PendingChunks | None = file.properties.get("pending")
    if pending is not None:
        pending.put_in_all()
        file.size = pending.finish()


# -- sources ----------------------------------------------------------------------------------------------------------


def _source_openers(
    document: Document, tree: ReferenceTree, address: str, options: AccessOptions
) -> list[Callable[[], tuple[RangeReader, Any]]]:
    """For each source, how it is opened; all addresses that may not be opened at once."""
    faults = Faults()
    openers: list[Callable[[], tuple[RangeReader, Any]]] = []
    for url in tree.sources:
        origin = document.origin if document.origin is not None and document.origin.url == url else None
        try:
            source = _located(url, address, options)
            # Made, though not asked anything, now: an address that nothing can read is an error of the document.
            open_located(source, address, options, origin)[0].close()
            openers.append(partial(open_located, source, address, options, origin))
        except (DocumentError, UnsupportedSchemeError, ValueError) as error:
            faults.add(strip_secrets(url), str(error))
    faults.raise_if_any()
    return openers


def _located(url: str, address: str, options: AccessOptions) -> Source:
    if not url.strip():
        raise MalformedError("an empty address")
    return locate(url, address, options)


def _links(document: Document, tree: ReferenceTree, address: str, options: AccessOptions) -> dict[str, Link]:
    """Arrays whose values lie in other HDF5 files: by path, the file and the path in it."""
    faults = Faults()
    found = {}
    for path, node in tree.nodes.items():
        if not isinstance(node, ArrayNode) or node.external is None:
            continue
        url = node.external_url if node.external_url is not None else document.origin.url if document.origin else ""
        origin = document.origin if document.origin is not None and document.origin.url == url else None
        try:
            source = _located(url, address, options)
            opener = partial(_open_linked, source, address, options, origin)
            found[path] = Link(strip_secrets(source.address), opener, node.external)
        except (DocumentError, ValueError) as error:
            faults.add(path, str(error))
    faults.raise_if_any()
    return found


def _open_linked(source: Source, address: str, options: AccessOptions, origin: Any) -> HDF5File:
    reader, check = open_located(source, address, options, origin)
    if check is not None:
        check(reader.read_ranges)
    file = open_source(reader, reader.read_head(HEAD), options.cache_bytes)
    file.properties["companion_of"] = source.address
    return file
