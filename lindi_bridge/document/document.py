"""A reference document as a whole: writing it, and reading it without parsing what is not needed.

A JSON object ``{version, generationMetadata, templates, hdf5, refs}``. ``refs`` is the last key, so that a digest
over its raw text tells that nobody edited it, at the speed of the disk.
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

__all__ = ["Document", "dump_document", "parse_document"]

JSONObject = dict[str, Any]


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
    refs_text : str
        The JSON text of ``refs``.
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
    refs_text: str
    templates: Mapping[str, str]
    origin: Snapshot | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)

    def refs(self) -> JSONObject:
        """Parse ``refs`` (slow for many chunks; a mount never does)."""
        return _loads(self.refs_text)


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
    return compact(head)[:-1] + ',\n"refs":' + refs + "}\n"


def parse_document(text: str) -> Document:
    """Read a document; ``refs`` only as far as needed to tell whether they were edited.

    Raises
    ------
    DocumentError
        Not a reference document, or damaged.
    """
    head, refs_text = _split(text)
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
        edited = not _refs_match(section, refs_text, templates)
        origin = snapshot_from_json(section)
        annotations = section.get("annotations", {})
        if not isinstance(annotations, dict) or not all(isinstance(v, dict) for v in annotations.values()):
            raise DocumentError("the document's annotations are damaged")
    return Document(
        snapshot=None if edited else origin,
        edited=edited,
        problems=tuple(p for p in problems if isinstance(p, dict)) if isinstance(problems, list) else (),
        generation_metadata=metadata,
        refs_text=refs_text,
        templates=templates,
        origin=origin,
        annotations=annotations,
    )


def _split(text: str) -> tuple[JSONObject, str]:
    """All members of the top-level object but ``refs``, and the text of ``refs``."""
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
            if text[position : position + 1] != ":":
                raise DocumentError("not a reference document: broken JSON")
            position = skip(position + 1)
            if key == "refs":
                end = len(text.rstrip()) - 1
                last = text[position:end].rstrip()
                if _is_last_member(last, position, text):
                    refs = last
                    break
                _, end = decoder.raw_decode(text, position)
                refs = text[position:end]
                position = end
            else:
                head[key], position = decoder.raw_decode(text, position)
            position = skip(position)
            if text[position : position + 1] == ",":
                position = skip(position + 1)
    except (json.JSONDecodeError, RecursionError, StopIteration) as error:
        raise DocumentError(f"not a reference document: broken JSON ({error})") from None
    if not refs.startswith("{"):
        raise DocumentError("not a reference document: it has no refs object")
    return head, refs


def _is_last_member(candidate: str, position: int, text: str) -> bool:
    """Whether the rest of the text can be the value of the last key, as our writer leaves it.

    Only documents with our own digest take this path; a wrong guess does not match the digest.
    """
    return candidate.startswith("{") and candidate.endswith("}") and '"hdf5"' in text[:position]


def _refs_match(section: Any, refs_text: str, templates: Mapping[str, str]) -> bool:
    digests = section.get("refs") if isinstance(section, dict) else None
    if not isinstance(digests, dict):
        raise DocumentError("the document's hdf5 section has no digests of refs")
    if digests.get("blake2b") == text_digest(refs_text):
        return True
    return bool(digests.get("canonical") == canonical_of_refs(_loads(refs_text), templates))


def _loads(text: str) -> JSONObject:
    try:
        refs = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DocumentError(f"the document's refs are broken JSON: {error}") from None
    if not isinstance(refs, dict):
        raise DocumentError("the document's refs are not an object")
    return refs
