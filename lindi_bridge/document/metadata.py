"""``refs`` of any program -> the reference tree. Everything is checked, and all faults are reported at once.

Zarr v2 metadata (``.zgroup``, ``.zarray``, ``.zattrs``) as objects or as text, with LINDI's annotations; Zarr v3
(``zarr.json``) as VirtualiZarr writes it. A document may come from a stranger: nothing here allocates by a number
that the document claims.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lindi_bridge.document.array_metadata import ArrayMetadata, read_v2, read_v3
from lindi_bridge.document.chunk_refs import ChunkRefs, Sources, is_chunk_key
from lindi_bridge.document.problems import Faults, MalformedError
from lindi_bridge.model.nodes import ArrayNode, GroupNode, Node, Problem, ReferenceTree, SoftLinkNode

__all__ = ["read_refs"]

JSONObject = dict[str, Any]

_METADATA = frozenset([".zgroup", ".zarray", ".zattrs", "zarr.json"])
_IGNORED = frozenset([".zmetadata"])
_MOST_LEVELS = 256
_LINK_KEYS = ("_SOFT_LINK", "_EXTERNAL_ARRAY_LINK")


def read_refs(refs: Mapping[str, Any], templates: Mapping[str, str], source: str | None = None) -> ReferenceTree:
    """Read the reference file system of a document.

    Parameters
    ----------
    refs : mapping
        The parsed ``refs``.
    templates : mapping
        Names that stand for text in addresses: only plain ``{{name}}``.
    source : str, optional
        Address of the HDF5 file that the document was made from, if it says so: links to it are links to the source.

    Returns
    -------
    ReferenceTree
        Parents come before their members. ``problems`` are arrays whose values nothing can be told of.

    Raises
    ------
    DocumentError
        With everything that is wrong.
    """
    return _Reader(refs, templates, source).tree()


class _Reader:
    def __init__(self, refs: Mapping[str, Any], templates: Mapping[str, str], source: str | None) -> None:
        self._source = source
        self._faults = Faults()
        self._sources = Sources(templates)
        self._metadata: dict[str, dict[str, Any]] = {}
        self._chunks: dict[str, ChunkRefs] = {}
        others: list[tuple[str, str, Any]] = []
        for key, value in refs.items():
            parent, _, name = key.rpartition("/")
            if name in _METADATA:
                self._metadata.setdefault("/" + parent, {})[name] = value
            elif name not in _IGNORED:
                others.append((parent, name, value))
        self._problems: list[Problem] = []
        self._assign_chunks(others)

    def tree(self) -> ReferenceTree:
        nodes: dict[str, Node] = {"/": GroupNode()}
        for path, metadata in self._metadata.items():
            with self._faults.at(path):
                for parent in _parents(path):
                    nodes.setdefault(parent, GroupNode())
                nodes[path] = self._node(path, metadata)
        if not isinstance(nodes["/"], GroupNode):
            self._faults.add("/", "the root is an array; a document of a single array has no HDF5 form")
        for path in nodes:
            parent = path.rpartition("/")[0] or "/"
            if path != "/" and not isinstance(nodes.get(parent), GroupNode):
                self._faults.add(path, f"it lies in {parent}, which is no group")
        self._faults.raise_if_any()
        return ReferenceTree(nodes, problems=self._problems, sources=self._sources.addresses)

    # -- keys -----------------------------------------------------------------------------------------------------

    def _assign_chunks(self, others: list[tuple[str, str, Any]]) -> None:
        """Give each chunk reference to its array, which is the nearest one above it."""
        arrays = {path for path, metadata in self._metadata.items() if ".zarray" in metadata or "zarr.json" in metadata}
        for parent, name, value in others:
            path, key = "/" + parent, name
            while path not in arrays and path != "/":
                path, _, last = path.rpartition("/")
                path, key = path or "/", f"{last}/{key}"
            if path in arrays and is_chunk_key(key):
                self._chunks.setdefault(path, ChunkRefs()).add(key, value)
            elif path in arrays or isinstance(value, list):
                # Files of other kinds may lie in a reference file system, but a reference must not be lost.
                self._faults.add("/" + "/".join(filter(None, (parent, name))), "a reference that belongs to no array")

    # -- nodes ----------------------------------------------------------------------------------------------------

    def _node(self, path: str, metadata: Mapping[str, Any]) -> Node:
        _check_path(path)
        attributes = _json_object(metadata.get(".zattrs", {}), ".zattrs")
        array: ArrayMetadata | None = None
        if "zarr.json" in metadata:
            v3 = _json_object(metadata["zarr.json"], "zarr.json")
            attributes = _json_object(v3.get("attributes", {}), "attributes") or attributes
            if v3.get("node_type") == "array":
                array = read_v3(v3)
            elif v3.get("node_type") != "group":
                raise MalformedError(f"zarr.json has the node_type {v3.get('node_type')!r}")
        elif ".zarray" in metadata:
            array = read_v2(_json_object(metadata[".zarray"], ".zarray"))
        elif ".zgroup" in metadata:
            _json_object(metadata[".zgroup"], ".zgroup")
        if array is not None:
            return self._array(path, array, attributes)
        if "_SOFT_LINK" in attributes and path != "/":
            return SoftLinkNode(_link_target(path, attributes["_SOFT_LINK"]))
        return GroupNode(attributes)

    def _array(self, path: str, metadata: ArrayMetadata, attributes: JSONObject) -> ArrayNode:
        external = external_url = None
        if "_EXTERNAL_ARRAY_LINK" in attributes:
            external, external_url = self._external(attributes["_EXTERNAL_ARRAY_LINK"])
        refs = self._chunks.get(path) or ChunkRefs()
        refusal = metadata.refusal
        table, inline = refs.read(metadata, self._sources)
        if table is not None and refusal is None:
            refusal = table.refusal
        if refusal is not None:
            self._problems.append(Problem(path, "unreadable", refusal))
        return ArrayNode(
            shape=metadata.shape,
            chunks=metadata.chunks,
            dtype=metadata.dtype,
            fill_value=metadata.fill_value,
            filters=metadata.filters,
            attributes={k: v for k, v in attributes.items() if k not in _LINK_KEYS},
            table=None if table is None else table.table,
            inline=inline,
            external=external,
            external_url=external_url,
            refusal=refusal,
        )

    def _external(self, link: Any) -> tuple[str, str | None]:
        if not (
            isinstance(link, dict)
            and link.get("link_type") == "hdf5_dataset"
            and isinstance(link.get("name"), str)
            and isinstance(link.get("url"), str)
        ):
            raise MalformedError("_EXTERNAL_ARRAY_LINK is not {link_type: 'hdf5_dataset', url, name}")
        url = self._sources.expand(link["url"])
        return "/" + link["name"].lstrip("/"), None if url == self._source else url


def _parents(path: str) -> Iterator[str]:
    """The groups above a path, the root first."""
    parts = path.split("/")[1:-1]
    if len(parts) > _MOST_LEVELS:
        raise MalformedError(f"it lies {len(parts)} levels deep; {_MOST_LEVELS} are the most")
    yield "/"
    for count in range(1, len(parts) + 1):
        yield "/" + "/".join(parts[:count])


def _check_path(path: str) -> None:
    parts = path.split("/")[1:]
    if path != "/" and any(part in ("", ".") or "\0" in part for part in parts):
        raise MalformedError("an empty name, a dot or a null character in its path")


def _json_object(value: Any, what: str) -> JSONObject:
    """Metadata as an object: they may stand in a document as text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise MalformedError(f"{what} is broken JSON") from None
    if not isinstance(value, dict):
        raise MalformedError(f"{what} is not a JSON object")
    return value


def _link_target(path: str, link: Any) -> str:
    target = link.get("path") if isinstance(link, dict) else None
    if not isinstance(target, str) or not target or "\0" in target:
        raise MalformedError("_SOFT_LINK is not {path: ...}")
    return target
