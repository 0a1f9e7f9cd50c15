"""What the profile ``zarr`` wrote otherwise for plain Zarr readers, put back from the annotations."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from h5py import h5t

from lindi_bridge.client.codecs import MOST_DECODED, decode_plain
from lindi_bridge.client.written_objects import is_object
from lindi_bridge.client.written_types import described_dtype, memory_type, plain_dtype, stored_type
from lindi_bridge.document.problems import Faults, MalformedError
from lindi_bridge.indexer.datasets import JSON_CODEC
from lindi_bridge.indexer.text_rows import json_rows
from lindi_bridge.model.nodes import ArrayNode, GroupNode, Node, ReferenceTree, SoftLinkNode

__all__ = ["restore"]


_MOST_LINKS = 64
"""That one path leads through."""


def restore(
    tree: ReferenceTree, annotations: Mapping[str, Mapping[str, Any]], edited: bool, profile: Any = None
) -> None:
    """Make copies links again, and put back fill values, elements that are arrays, and attributes' only axis.

    Parameters
    ----------
    tree : ReferenceTree
        Read from ``refs``; is changed.
    annotations : mapping
        ``hdf5.annotations``, by path.
    edited : bool
        ``refs`` may be newer than the annotations: what is there in them stays as it is.
    profile : str, optional
        Of the document; only that of the profile ``zarr`` has copies.

    Raises
    ------
    DocumentError
        An annotation makes no sense.
    """
    faults = Faults()
    links: dict[str, SoftLinkNode] = {}
    for path, annotation in annotations.items():
        if "copy_of" in annotation and path in tree.nodes and not edited:
            with faults.at(path):
                if path == "/" or profile != "zarr":
                    raise MalformedError("its annotation says that it is a copy, where there are none")
                links[path] = SoftLinkNode(_target(annotation["copy_of"]))
    for path in list(links):
        with faults.at(path):
            _check_copy(path, tree, links, annotations)
    for path, annotation in annotations.items():
        with faults.at(path):
            if "link" in annotation and path not in tree.nodes:
                if isinstance(tree.nodes.get(posixpath.dirname(path)), GroupNode):
                    links[path] = SoftLinkNode(_target(annotation["link"]))
            elif path in tree.nodes and path not in links:
                tree.nodes[path] = _restored(tree.nodes[path], annotation, edited)
    faults.raise_if_any()
    if links:
        nodes = {path: links.get(path, node) for path, node in tree.nodes.items() if not _is_below(path, links)}
        tree.nodes = nodes | {path: link for path, link in links.items() if not _is_below(path, links)}


def _target(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise MalformedError("its annotation names no path that it is a link to")
    return value


def _check_copy(
    path: str, tree: ReferenceTree, links: Mapping[str, SoftLinkNode], annotations: Mapping[str, Mapping[str, Any]]
) -> None:
    """A copy becomes a link, and what it holds is not looked at any more: it has to be what it leads to."""
    parts, done = _parts(links[path].target), "/"
    steps = 0
    while parts:
        done = posixpath.join(done, parts.pop(0))
        if done in links:
            steps += 1
            if steps > _MOST_LINKS:
                raise MalformedError("its annotation says that it is a copy of itself")
            parts, done = _parts(links[done].target) + parts, "/"
        elif done not in tree.nodes and "link" in annotations.get(done, {}):
            return  # through a link that had no room for a copy
    node, target = tree.nodes[path], tree.nodes.get(done)
    same = type(node) is type(target)
    if isinstance(node, ArrayNode) and isinstance(target, ArrayNode):
        same = (node.shape, node.dtype) == (target.shape, target.dtype)
    if not same:
        raise MalformedError(f"its annotation says that it is a copy of {links[path].target[:100]}, which is another")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _is_below(path: str, links: Mapping[str, SoftLinkNode]) -> bool:
    while path != "/":
        path = posixpath.dirname(path)
        if path in links:
            return True
    return False


def _restored(node: Node, annotation: Mapping[str, Any], edited: bool) -> Node:
    if isinstance(node, SoftLinkNode):
        return node
    typed = annotation.get("attributes")
    typed = typed if isinstance(typed, dict) else {}
    attributes = {
        name: [value] if _lost_its_axis(value, typed.get(name)) else value
        for name, value in node.attributes.items()
        if name != "_ARRAY_DIMENSIONS" or annotation.get("dimensions") is not True
    }
    if isinstance(node, ArrayNode):
        if annotation.get("converted") is True and node.table is None:
            node = _with_stored_bits(node, annotation)
        else:
            node = _of_array_elements(_with_text_rows(node), annotation)
        if "fill_value" in annotation and not edited:
            node = replace(node, fill_value=annotation["fill_value"])
    return replace(node, attributes=attributes)


def _with_text_rows(node: ArrayNode) -> ArrayNode:
    """Records with strings, which HDF5 has of variable length, as the rows in JSON of LINDI's format."""
    if not isinstance(node.dtype, list) or not all(len(f) == 2 and isinstance(f[1], str) for f in node.dtype):
        return node
    if not any("U" in kind for _, kind in node.dtype):
        return node
    dtype = np.dtype([tuple(field) for field in node.dtype])
    nbytes = math.prod(node.chunks) * dtype.itemsize
    if nbytes > MOST_DECODED:
        raise MalformedError("its text stands for too many bytes")
    if node.table is not None and len(node.table):
        return replace(node, dtype="|O", table=None, refusal="UTF-32 text, which HDF5 does not have")
    inline = {}
    for key, data in node.inline.items():
        rows = np.frombuffer(decode_plain(data, node.filters, nbytes), dtype)
        try:
            inline[key] = json_rows(rows)
        except (UnicodeError, ValueError):
            raise MalformedError("text that is no Unicode") from None
    return replace(node, dtype="|O", filters=(JSON_CODEC,), inline=inline, fill_value=None)


def _with_stored_bits(node: ArrayNode, annotation: Mapping[str, Any]) -> ArrayNode:
    """Values that were copied as h5py reads them, in the bits of the stored type again, as opaque elements."""
    dtype = described_dtype(annotation.get("dtype"))
    if dtype.hasobject:
        raise MalformedError("its annotation says that values which point elsewhere were converted")
    stored = stored_type(annotation, dtype)
    read = plain_dtype(node.dtype)
    whole = _of_array_elements(node, annotation)
    if whole is not node:
        read = np.dtype((read, dtype.shape))
    memory = memory_type(_with_strings(read, dtype), stored)
    count, size = math.prod(whole.chunks), max(memory.get_size(), stored.get_size())
    if count * size > MOST_DECODED:
        raise MalformedError("its text stands for too many bytes")
    inline = {}
    for key, data in whole.inline.items():
        raw = decode_plain(data, whole.filters, count * memory.get_size())
        buffer = np.frombuffer(raw.ljust(count * size, b"\0"), "u1").copy()
        try:
            h5t.convert(memory, stored, count, buffer)
        except (TypeError, ValueError, RuntimeError, OSError) as error:
            raise MalformedError(f"its values do not become what its annotation says: {error}") from None
        inline[key] = buffer[: count * stored.get_size()].tobytes()
    return replace(whole, dtype=f"|V{stored.get_size()}", filters=(), inline=inline)


def _with_strings(read: np.dtype[Any], dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What ``.zarray`` says of values, with the encodings of strings that only the annotation tells."""
    if read.subdtype is not None and dtype.subdtype is not None and read.shape == dtype.shape:
        return np.dtype((_with_strings(read.subdtype[0], dtype.subdtype[0]), read.shape))
    if read.names and read.names == dtype.names:
        return np.dtype([(name, _with_strings(read[name], dtype[name])) for name in read.names])
    return dtype if read.kind == dtype.kind == "S" and read.itemsize == dtype.itemsize else read


def _of_array_elements(node: ArrayNode, annotation: Mapping[str, Any]) -> ArrayNode:
    """An array whose last axes are those of its elements, as one of opaque elements of the same bytes."""
    dtype = annotation.get("dtype")
    axes = dtype.get("shape") if isinstance(dtype, dict) and "array" in dtype else None
    if not axes or not isinstance(axes, list) or is_object(node):
        return node
    is_empty = annotation.get("shape", ()) is None and node.shape == (0,)
    rank = 0 if is_empty else len(node.shape) - len(axes)
    if not is_empty and (rank < 0 or list(node.shape[rank:]) != axes or list(node.chunks[rank:]) != axes):
        return node
    nbytes = math.prod(axes) * plain_dtype(node.dtype).itemsize
    if is_empty:
        return replace(node, dtype=f"|V{nbytes}")
    table = node.table
    return replace(
        node,
        shape=node.shape[:rank],
        chunks=node.chunks[:rank],
        dtype=f"|V{nbytes}",
        table=None if table is None else replace(table, grid=table.grid[:rank] or (1,)),
        inline={".".join(key.split(".")[:rank]) or "0": data for key, data in node.inline.items()},
    )


def _lost_its_axis(value: Any, typed: Any) -> bool:
    return isinstance(typed, dict) and typed.get("shape") == [1] and not isinstance(value, list)
