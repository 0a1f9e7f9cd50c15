"""Everything that is wrong with a document, at once: its form, its meaning, and whether its two halves say the same."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from lindi_bridge.client.access import AccessOptions
from lindi_bridge.client.mount import HEAD, read_document_json
from lindi_bridge.document.document import Document, decode_document, join_document, parse_document, split_document
from lindi_bridge.document.document_file import is_document
from lindi_bridge.document.refs import compact
from lindi_bridge.document.schema import schema_problems
from lindi_bridge.errors import DocumentError, LindiBridgeError
from lindi_bridge.inspection.comparison import compare_files
from lindi_bridge.inspection.offline import OfflineFile, opened_from_annotations, opened_from_metadata
from lindi_bridge.inspection.sources import address_faults
from lindi_bridge.inspection.unused_annotations import unused_annotations
from lindi_bridge.inspection.values import reason
from lindi_bridge.model.nodes import ArrayNode, Problem
from lindi_bridge.ranges import open_reader, strip_secrets

__all__ = ["MOST_PROBLEMS", "check", "check_text", "read_document_at"]

MOST_PROBLEMS = 1000
"""Problems of one kind that are told; a damaged document can have one for each of its chunks."""

_MOST_ROUNDS = 8
_FAILURES = (LindiBridgeError, OSError, ValueError, TypeError, RuntimeError, KeyError, OverflowError)


def check(document: Any, **options: Any) -> list[Problem]:
    """Tell everything that is wrong with a reference document. Its sources are not asked anything.

    The document is compared with the JSON Schema of the format; its references and annotations are read as they are
    when it is opened; and where it has embedded HDF5 metadata, they are compared with ``refs``, object by object:
    names, kinds, links, types, shapes, attributes, places of chunks, and small values.

    Parameters
    ----------
    document : str, os.PathLike, bytes, or file object
        The document: a path, a URL, an open file, or its bytes.
    **options
        How to reach it, as for :func:`open`.

    Returns
    -------
    list of Problem
        Empty if nothing is wrong; at most 1000 of each kind. Kinds: ``schema`` (``path`` is a JSON pointer),
        ``duplicate`` (a key that stands twice), ``document``, ``refs``, ``source`` (an address that nothing can or may
        be read from), ``annotation`` (one of an object that is not in ``refs``), and ``contradiction``: the embedded
        metadata and ``refs`` say different things of an object.

    Raises
    ------
    SourceError
        The document cannot be read.
    DocumentError
        It is no document.
    MissingDependencyError
        jsonschema is not installed.
    """
    text = read_document_at(document, AccessOptions(**options))
    name = os.fspath(document) if isinstance(document, os.PathLike) else document
    if text is None:
        raise DocumentError(f"{strip_secrets(name) if isinstance(name, str) else 'the file'}: not a reference document")
    return check_text(text, name if isinstance(name, str) else "")


def read_document_at(address: Any, access: AccessOptions) -> str | None:
    """The text of a document; None of a file that is none."""
    reader = open_reader(address, access.reader_options(address if isinstance(address, str) else "", None))
    try:
        head = reader.read_head(HEAD)
        if not is_document(head):
            return None
        data = read_document_json(reader, head)
    finally:
        reader.close()
    try:
        return decode_document(data)
    except DocumentError as error:
        raise DocumentError(f"{reader.url}: {error}") from None


def check_text(text: str, address: str, *, schema: bool = True) -> list[Problem]:
    """Tell everything that is wrong with a document; see :func:`check`.

    Parameters
    ----------
    text : str
        The document.
    address : str
        Where it came from: relative addresses in it are resolved against this.
    schema : bool
        Compare it with the schema, too.
    """
    problems: list[Problem] = []
    try:
        head, refs_text = split_document(text)
        refs = _parsed(refs_text, problems)
    except DocumentError as error:
        return [*problems, Problem("/", "document", str(error))]
    if schema:
        problems += _first(schema_problems(head, refs))
    try:
        document = parse_document(text)
        if document.origin is not None:
            tuple(document.origin.values)  # decompressed only when values are read
    except DocumentError as error:
        problems.append(Problem("/", "document", str(error)))
        try:  # refs may be looked at all the same
            document = parse_document(join_document({k: v for k, v in head.items() if k != "hdf5"}, refs_text))
        except (DocumentError, ValueError, RecursionError):
            return problems
    return [*problems, *_consolidated(refs), *_meaning(document, refs, address)]


def _first(problems: Iterator[Problem]) -> list[Problem]:
    found: list[Problem] = []
    for problem in problems:
        if len(found) == MOST_PROBLEMS:
            found.append(Problem("/", problem.kind, f"more than {MOST_PROBLEMS}; the rest is not told"))
            break
        found.append(problem)
    return found


def _parsed(refs_text: str, problems: list[Problem]) -> dict[str, Any]:
    """Parse ``refs``, noting keys that stand twice: which value counts is up to who reads them."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) < len(pairs):
            twice = (key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            for key in islice(twice, MOST_PROBLEMS - len(problems)):
                problems.append(Problem("/refs", "duplicate", f"the key {compact(key)[:200]} stands more than once"))
        return out

    try:
        refs = json.loads(refs_text, object_pairs_hook=members)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"the document's refs are broken JSON: {error}") from None
    if not isinstance(refs, dict):
        raise DocumentError("the document's refs are not an object")
    return refs


def _consolidated(refs: Mapping[str, Any]) -> list[Problem]:
    """Metadata that stand once more in ``.zmetadata``, otherwise than in their own place."""

    def parsed(value: Any) -> Any:
        try:
            return json.loads(value) if isinstance(value, str) else value
        except (ValueError, RecursionError):
            return None

    whole = parsed(refs.get(".zmetadata"))
    copies = whole.get("metadata") if isinstance(whole, dict) else None
    if not isinstance(copies, dict):
        return []
    differing = (key for key, value in copies.items() if parsed(refs.get(key)) != value)
    return _first(Problem("/" + key, "contradiction", "other metadata in .zmetadata than here") for key in differing)


# -- meaning ----------------------------------------------------------------------------------------------------------


def _meaning(document: Document, refs: Mapping[str, Any], address: str) -> list[Problem]:
    """What reading the document says, and where its two halves contradict each other.

    Faults come in stages, each of which needs the one before. Objects with faults are taken out, and it is read again,
    until the rest can be opened: so those of all stages are told.
    """
    problems: list[Problem] = []
    out: set[str] = set()
    for _ in range(_MOST_ROUNDS):
        try:
            with opened_from_annotations(document, address) as right:
                right.unsaid |= out
                right.unsaid_attributes |= out
                assert right.tree is not None
                problems += _addresses(document, right, address)
                problems += _contradictions(document, right, address)
                told = {problem.path for problem in problems}
                unused = unused_annotations(document, right.tree)
                problems += _first(problem for problem in unused if problem.path not in told)
            break
        except DocumentError as error:
            faults = error.faults or (("/", str(error)),)
            problems += _first(Problem(path, "refs", message) for path, message in faults)
            broken = {path for path, _ in faults} - out  # nothing new: no further
            if not error.faults or not _take_out(broken, refs, out):
                break
            document, refs = _without(document, refs, out)
        except _FAILURES as error:
            problems.append(Problem("/", "refs", f"it cannot be opened by its annotations: {reason(error)}"))
            break
    return problems


def _addresses(document: Document, right: OfflineFile, address: str) -> list[Problem]:
    """Addresses that nothing can or may be read from."""
    assert right.tree is not None
    linked = [n.external_url for n in right.tree.nodes.values() if isinstance(n, ArrayNode) and n.external_url]
    recorded = [] if document.origin is None or not document.origin.url else [document.origin.url]
    named = dict.fromkeys([*recorded, *right.sources, *linked])
    return _first(Problem("/", "source", message) for message in address_faults(named, address))


def _take_out(broken: set[str], refs: Mapping[str, Any], out: set[str]) -> bool:
    """Add objects to those that are left out, and the links to them; tells whether that is all that is broken."""
    if not broken or not all(path.startswith("/") for path in broken):
        return False
    out |= broken
    for key, value in refs.items():
        link = value.get("_SOFT_LINK") if key.endswith("/.zattrs") and isinstance(value, dict) else None
        if isinstance(link, dict) and isinstance(link.get("path"), str) and link["path"] in broken:
            out.add("/" + key.removesuffix("/.zattrs"))
    return True


def _without(document: Document, refs: Mapping[str, Any], out: set[str]) -> tuple[Document, Mapping[str, Any]]:
    """The document without some objects and all that lies below them; of the root group, without its attributes."""

    def is_out(path: str) -> bool:
        while path not in ("", "/"):
            if path in out:
                return True
            path = path.rpartition("/")[0]
        return False

    kept = {key: value for key, value in refs.items() if not (is_out("/" + key) or (key == ".zattrs" and "/" in out))}
    annotations = {
        path: value for path, value in document.annotations.items() if not (is_out(path) or path == "/" in out)
    }
    return replace(document, refs_json=json.dumps(kept), annotations=annotations), kept


def _contradictions(document: Document, right: OfflineFile, address: str) -> Sequence[Problem]:
    if document.snapshot is None:
        return []  # other program's, or edited: the annotations are all there is
    snapshot = document.snapshot
    assert right.tree is not None
    found: list[Problem] = []
    right.sources = right.tree.sources  # those of chunks alone: another one of all chunks is one contradiction
    for source in right.sources:
        if source != snapshot.url:
            found.append(_contradiction("/", "address of the source", snapshot.url, strip_secrets(source)))
    for path, node in right.tree.nodes.items():
        if isinstance(node, ArrayNode) and node.external_url is not None:
            url = strip_secrets(node.external_url)
            found.append(_contradiction(path, "address of the source", snapshot.url, url))
    try:
        with opened_from_metadata(document, address) as left:
            differences = compare_files(left, right)
            found += _first(_contradiction(d.path, d.what, d.left, d.right) for d in differences)
    except _FAILURES as error:
        found.append(Problem("/", "document", f"it cannot be opened by its embedded HDF5 metadata: {reason(error)}"))
    return found


def _contradiction(path: str, what: str, metadata: str, refs: str) -> Problem:
    return Problem(path, "contradiction", f"{what}: {metadata} by the embedded metadata, {refs} by refs")
