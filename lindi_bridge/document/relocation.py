"""Another address for a source of a document, everywhere that the document names it, so that it still goes together.

Documents of this package name their source by a template, in the ``hdf5`` section, and in links
(``_EXTERNAL_ARRAY_LINK``); those of other programs may name several, each in every chunk reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lindi_bridge.document.chunk_refs import Sources
from lindi_bridge.document.digest import canonical_of_refs, text_digest
from lindi_bridge.document.document import join_document, load_refs, refs_match, split_document
from lindi_bridge.document.problems import MalformedError
from lindi_bridge.document.refs import compact
from lindi_bridge.errors import DocumentError
from lindi_bridge.ranges.address import strip_secrets

__all__ = ["Relocation", "relocate_document", "source_addresses"]

JSONObject = dict[str, Any]

_WITH_LINKS = frozenset([".zattrs", "zarr.json", ".zmetadata"])


@dataclass(frozen=True)
class Relocation:
    """A document with another address.

    Parameters
    ----------
    text : str
        The document.
    moved : mapping
        Old address to new one, for each source that has moved.
    kept : tuple of str
        Addresses of the other sources.
    """

    text: str
    moved: Mapping[str, str]
    kept: tuple[str, ...]


def source_addresses(text: str) -> list[str]:
    """The addresses that a document takes bytes from, templates replaced, in the order in which they are named.

    Raises
    ------
    DocumentError
        Not a reference document.
    """
    head, refs_text = split_document(text)
    return _Addresses(head, load_refs(refs_text)).all()


def relocate_document(text: str, new: str, old: str | None = None) -> Relocation:
    """Change the address of a source.

    Digests are made anew, unless they did not fit before: what somebody edited stays edited. The ETag and the time of
    the last change, which are those of the file at the old address, are left out; the size and the fingerprint stay.

    Parameters
    ----------
    text : str
        The document.
    new : str
        The new address, as it is to stand in the document: absolute, or relative to the document's own.
    old : str, optional
        Which source: as the document names it. With a slash at the end of both, everything below. Not needed where
        the document has one source.

    Raises
    ------
    DocumentError
        Not a reference document; ``new`` may hold a secret or cannot stand in one; no source is called ``old``, or it
        is not given and there are several.
    """
    _check_new(new)
    head, refs_text = split_document(text)
    refs = load_refs(refs_text)
    section = head.get("hdf5")
    fits = section is not None and refs_match(section, refs_text, _templates(head))
    addresses = _Addresses(head, refs)
    named = addresses.all()
    moved = _moves(named, new, old)
    kept = tuple(address for address in named if address not in moved)
    try:
        if addresses.replace(moved):
            refs_text = "{" + ",\n".join(f"{compact(key)}:{compact(value)}" for key, value in refs.items()) + "}"
        if section is not None and fits:
            canonical = canonical_of_refs(refs, _templates(head))
            section["refs"] = {"blake2b": text_digest(refs_text), "canonical": canonical}
        return Relocation(join_document(head, refs_text), moved, kept)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"the document cannot be written anew: {error}") from None


def _check_new(new: str) -> None:
    if not new or "{{" in new or any(ord(c) < 32 or c == "\x7f" for c in new):
        raise DocumentError("the new address is empty, or has characters that cannot stand in a document")
    if strip_secrets(new) != new:
        raise DocumentError(
            f"{strip_secrets(new)}: an address with a query string, a fragment, a user name or a password may be "
            "secret and is not written into a document; leave that out here, and pass the whole address when the "
            "document is opened (source=)"
        )


def _moves(named: list[str], new: str, old: str | None) -> dict[str, str]:
    listed = "; ".join(strip_secrets(address) for address in named[:10]) + ("; ..." if len(named) > 10 else "")
    if not named:
        raise DocumentError("the document names no source")
    if old is None:
        if len(named) > 1:
            raise DocumentError(f"the document has {len(named)} sources ({listed}); say which one has moved")
        return {named[0]: new}
    if old.endswith("/") != new.endswith("/"):
        raise DocumentError("either both addresses end with a slash, for all that lies below, or none does")
    moved = {a: new + a[len(old) :] if old.endswith("/") else new for a in named if _is_at(a, old)}
    if not moved:
        raise DocumentError(f"no source of the document is at {strip_secrets(old)}; it has: {listed}")
    return moved


def _is_at(address: str, old: str) -> bool:
    return address == old or (old.endswith("/") and address.startswith(old))


def _templates(head: Mapping[str, Any]) -> dict[str, str]:
    templates = head.get("templates", {})
    if not isinstance(templates, dict) or not all(isinstance(v, str) for v in templates.values()):
        raise DocumentError("the document's templates are not plain strings")
    return templates


class _Addresses:
    """Every place of a document that names a source."""

    def __init__(self, head: JSONObject, refs: JSONObject) -> None:
        self._head = head
        self._refs = refs
        self._sources = Sources(_templates(head))

    def all(self) -> list[str]:
        """Addresses, templates replaced, each once."""
        found: dict[str, None] = {}
        for source in self._recorded():
            found.setdefault(source["url"])
        for value in self._chunks():
            found.setdefault(self._expand(value[0]))
        for _, link in self._links():
            found.setdefault(self._expand(link["url"]))
        return list(found)

    def replace(self, moved: Mapping[str, str]) -> bool:
        """Write new addresses; tells whether ``refs`` changed."""
        texts: dict[str, str] = {}
        changed = False

        templates = _templates(self._head)
        # What a template stands for is changed there, once, and not in everything that uses it.
        changing = {"{{" + name + "}}" for name, value in templates.items() if value in moved}

        def moved_text(text: str) -> str:
            if text not in texts:
                address = self._expand(text)
                partly = text not in changing and any(template in text for template in changing)
                texts[text] = text if text in changing else moved.get(address, address if partly else text)
            return texts[text]

        for chunk in self._chunks():
            text = moved_text(chunk[0])
            changed |= text != chunk[0]
            chunk[0] = text
        for store, link in self._links():
            text = moved_text(link["url"])
            if text != link["url"]:
                changed, link["url"] = True, text
                store()
        for source in self._recorded():
            if source["url"] in moved:
                source.update(url=moved[source["url"]], etag=None, last_modified=None)
        for name, value in templates.items():
            templates[name] = moved.get(value, value)
        return changed

    def _expand(self, text: str) -> str:
        try:
            return self._sources.expand(text)
        except MalformedError as error:
            raise DocumentError(f"the document has {error}") from None

    def _recorded(self) -> Iterator[JSONObject]:
        section = self._head.get("hdf5")
        sources = section.get("sources") if isinstance(section, dict) else None
        for source in sources if isinstance(sources, list) else ():
            if isinstance(source, dict) and isinstance(source.get("url"), str):
                yield source

    def _chunks(self) -> Iterator[list[Any]]:
        for value in self._refs.values():
            if isinstance(value, list) and value and isinstance(value[0], str) and value[0]:
                yield value

    def _links(self) -> Iterator[tuple[Callable[[], None], JSONObject]]:
        """Links to arrays in HDF5 files, and what puts a changed one back where it stands as text."""
        for key, value in self._refs.items():
            name = key[key.rfind("/") + 1 :]
            if name not in _WITH_LINKS or (isinstance(value, str) and "_EXTERNAL_ARRAY_LINK" not in value):
                continue
            metadata = _parsed(value)
            for attributes in _attributes(name, metadata):
                link = attributes.get("_EXTERNAL_ARRAY_LINK") if isinstance(attributes, dict) else None
                if isinstance(link, dict) and isinstance(link.get("url"), str) and link["url"]:
                    yield self._storing(key, value, metadata), link

    def _storing(self, key: str, value: Any, metadata: JSONObject) -> Callable[[], None]:
        def store() -> None:
            if isinstance(value, str):
                self._refs[key] = compact(metadata)

        return store


def _attributes(name: str, metadata: Any) -> Iterator[Any]:
    """The attributes of the objects that metadata describe."""
    if name == ".zattrs":
        yield metadata
    elif isinstance(metadata, dict) and name == "zarr.json":
        yield metadata.get("attributes")
    elif isinstance(metadata, dict):
        consolidated = metadata.get("metadata")
        for key, value in consolidated.items() if isinstance(consolidated, dict) else ():
            if key.endswith(".zattrs"):
                yield value


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None
