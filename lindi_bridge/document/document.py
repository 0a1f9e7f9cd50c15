"""A reference document as a whole: writing it, and reading it without parsing what is not needed.

A JSON object ``{version, generationMetadata, templates, hdf5, refs}``. ``refs`` is the last key and begins a line, so
that it is found, and a digest over its raw bytes tells that nobody edited it, at the speed of the disk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lindi_bridge.document.digest import canonical_of_refs, canonical_of_written, text_digest
from lindi_bridge.document.refs import SOURCE_TEMPLATE, compact, write_refs
from lindi_bridge.document.snapshot import snapshot_from_json, snapshot_to_json
from lindi_bridge.errors import DocumentError
from lindi_bridge.model.nodes import ReferenceTree
from lindi_bridge.model.snapshot import Snapshot

__all__ = [
    "Document",
    "decode_document",
    "dump_document",
    "join_document",
    "load_refs",
    "parse_document",
    "refs_match",
    "split_document",
]

JSONObject = dict[str, Any]

_REFS = ',\n"refs":'
"""What our writer puts before ``refs``; there is no other line like it, since it escapes the line ends of strings."""


@dataclass(frozen=True)
class Document:
    """A parsed document.

    Parameters
    ----------
    snapshot : Snapshot, optional
        The embedded HDF5 metadata; None where the document has none, or where ``refs`` were edited since.
    edited : bool
        There is embedded metadata, but ``refs`` are not the ones it goes with.
    problems : tuple of dict
        ``generationMetadata.problems``: what the document could not express.
    generation_metadata : mapping
        As it stands in the document.
    refs_json : str or memoryview
        The JSON of ``refs``, as text or in UTF-8.
    templates : mapping
        As it stands in the document.
    origin : Snapshot, optional
        What the document says of its source, even where ``refs`` were edited since.
    annotations : mapping
        ``hdf5.annotations``: what ``refs`` lose, by path.
    """

    snapshot: Snapshot | None
    edited: bool
    problems: tuple[JSONObject, ...]
    generation_metadata: Mapping[str, Any]
    refs_json: str | memoryview
    templates: Mapping[str, str]
    origin: Snapshot | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)

    def refs(self) -> JSONObject:
        """Parse ``refs`` (slow for many chunks; a mount never does)."""
        return load_refs(self.refs_json)


def dump_document(tree: ReferenceTree, snapshot: Snapshot, generation_metadata: Mapping[str, Any]) -> str:
    """Write a document.

    Parameters
    ----------
    tree : ReferenceTree
        Becomes ``refs``.
    snapshot : Snapshot
        Becomes ``hdf5``; ``snapshot.url`` is written as the address of the source.
    generation_metadata : mapping
        Who made it; ``problems`` are added.
    """
    members = write_refs(tree, snapshot.url)
    refs = "{" + ",\n".join([m if isinstance(m, str) else m.text() for m in members]) + "}"
    section = snapshot_to_json(snapshot)
    section["annotations"] = tree.annotations
    section["refs"] = {"blake2b": text_digest(refs), "canonical": canonical_of_written(members, snapshot.url)}
    problems = [{"path": p.path, "kind": p.kind, "message": p.message} for p in tree.problems]
    head = {
        "version": 1,
        "generationMetadata": {**generation_metadata, "problems": problems},
        "templates": {SOURCE_TEMPLATE: snapshot.url},
        "hdf5": section,
    }
    return join_document(head, refs)


def join_document(head: Mapping[str, Any], refs_text: str) -> str:
    """The text of a document: all members of its top-level object but ``refs``, and the text of ``refs`` at the end."""
    begin = _REFS if head else _REFS.removeprefix(",\n")
    return compact(head)[:-1] + begin + refs_text + "}\n"


def parse_document(document: str | bytes) -> Document:
    """Read a document; ``refs`` only as far as needed to tell whether they were edited.

    Parameters
    ----------
    document : str or bytes
        Its JSON, as text or in UTF-8.

    Raises
    ------
    DocumentError
        Not a reference document, or damaged.
    """
    unchanged = _split_unchanged(document) if isinstance(document, bytes) else None
    head, refs_json = unchanged or split_document(decode_document(document))
    templates = head.get("templates", {})
    metadata = head.get("generationMetadata", {})
    if not isinstance(templates, dict) or not all(isinstance(v, str) for v in templates.values()):
        raise DocumentError("the document's templates are not plain strings")
    if "gen" in head:
        raise DocumentError("the document generates references (gen), which no LINDI reader understands")
    metadata = metadata if isinstance(metadata, dict) else {}
    problems = metadata.get("problems", [])
    origin, edited, annotations = None, False, {}
    if "hdf5" in head:
        section = head["hdf5"]
        edited = not (unchanged or refs_match(section, refs_json, templates))
        origin = snapshot_from_json(section)
        annotations = section.get("annotations", {})
        if not isinstance(annotations, dict) or not all(
            path.startswith("/") and isinstance(v, dict) for path, v in annotations.items()
        ):
            raise DocumentError("the document's annotations are damaged")
    return Document(
        snapshot=None if edited else origin,
        edited=edited,
        problems=tuple(p for p in problems if isinstance(p, dict)) if isinstance(problems, list) else (),
        generation_metadata=metadata,
        refs_json=refs_json,
        templates=templates,
        origin=origin,
        annotations=annotations,
    )


def decode_document(document: str | bytes) -> str:
    """The text of a document.

    Raises
    ------
    DocumentError
        It is not UTF-8.
    """
    if isinstance(document, str):
        return document
    try:
        return document.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DocumentError("not a reference document: it is not UTF-8 text") from None


def _split_unchanged(document: bytes) -> tuple[JSONObject, memoryview] | None:
    """A document as our writer left it, without a copy of ``refs``; None for all others."""
    position = document.find(_REFS.encode())
    end = len(document) - document.endswith(b"\n") - 1
    if position < 0 or document[end : end + 1] != b"}" or not document.isascii():
        return None
    try:
        head = json.loads(document[:position] + b"}")
    except (ValueError, RecursionError):
        return None
    refs = memoryview(document)[position + len(_REFS) : end]
    unchanged = isinstance(head, dict) and "refs" not in head and _has_digest(head, refs)
    return (head, refs) if unchanged else None


def split_document(text: str) -> tuple[JSONObject, str]:
    """All members of the top-level object but ``refs``, and the text of ``refs``.

    Parameters
    ----------
    text : str
        The document.

    Raises
    ------
    DocumentError
        Not a JSON object with ``refs``.
    """
    decoder = json.JSONDecoder()
    whitespace = json.decoder.WHITESPACE  # type: ignore[attr-defined]
    head: JSONObject = {}
    refs = ""

    def skip(position: int) -> int:
        end: int = whitespace.match(text, position).end()
        return end

    try:
        position = skip(0)
        if text[position : position + 1] != "{":
            raise DocumentError("not a reference document: it is not a JSON object")
        position = skip(position + 1)
        while text[position : position + 1] != "}":
            key, position = decoder.raw_decode(text, position)
            position = skip(position)
            if not isinstance(key, str) or text[position : position + 1] != ":":
                raise DocumentError("not a reference document: broken JSON")
            position = skip(position + 1)
            value, end = decoder.raw_decode(text, position)
            if key == "refs":
                refs = text[position:end]
            else:
                head[key] = value
            position = skip(end)
            if text[position : position + 1] == ",":
                position = skip(position + 1)
                if text[position : position + 1] == "}":
                    raise DocumentError("not a reference document: broken JSON (a comma without a member)")
            elif text[position : position + 1] != "}":
                raise DocumentError("not a reference document: broken JSON")
        if skip(position + 1) != len(text):
            raise DocumentError("not a reference document: broken JSON (more after its end)")
    except DocumentError:
        raise
    except (ValueError, RecursionError, StopIteration) as error:  # ValueError: also a number of too many digits
        raise DocumentError(f"not a reference document: broken JSON ({error})") from None
    if not refs.startswith("{"):
        raise DocumentError("not a reference document: it has no refs object")
    return head, refs


def _has_digest(head: Mapping[str, Any], refs_json: str | memoryview) -> bool:
    """Whether the JSON of ``refs`` is the one that the ``hdf5`` section was made with."""
    section = head.get("hdf5")
    digests = section.get("refs") if isinstance(section, dict) else None
    return isinstance(digests, dict) and digests.get("blake2b") == text_digest(refs_json)


def refs_match(section: Any, refs_json: str | memoryview, templates: Mapping[str, str]) -> bool:
    """Whether the ``hdf5`` section of a document goes with its ``refs``."""
    digests = section.get("refs") if isinstance(section, dict) else None
    if not isinstance(digests, dict):
        raise DocumentError("the document's hdf5 section has no digests of refs")
    if digests.get("blake2b") == text_digest(refs_json):
        return True
    return bool(digests.get("canonical") == canonical_of_refs(load_refs(refs_json), templates))


def load_refs(refs_json: str | memoryview) -> JSONObject:
    """Parse the JSON of ``refs``.

    Raises
    ------
    DocumentError
        Broken JSON, or no object.
    """
    try:
        refs = json.loads(refs_json if isinstance(refs_json, str) else bytes(refs_json))
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"the document's refs are broken JSON: {error}") from None
    if not isinstance(refs, dict):
        raise DocumentError("the document's refs are not an object")
    return refs
