"""What arrays hold that are no plain bytes, where no annotation tells: rows of compounds, references, strings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import h5py
import numpy as np

from lindi_bridge.client.codecs import MOST_DECODED, MOST_TEXT, OBJECT_CODECS, decode_objects, decode_plain
from lindi_bridge.client.written_types import plain_dtype
from lindi_bridge.document.problems import MalformedError
from lindi_bridge.model.chunks import chunk_grid
from lindi_bridge.model.nodes import ArrayNode

__all__ = [
    "as_strings",
    "is_object",
    "is_opaque_record",
    "is_unicode",
    "object_dtype",
    "object_refusal",
    "opaque_record",
]


def is_object(node: ArrayNode) -> bool:
    """Whether the elements of an array are Python objects."""
    return node.dtype in ("|O", "O", "|O8")


def is_opaque_record(dtype: Any) -> bool:
    """Whether elements are records with objects or UTF-32 text in them, of which HDF5 cannot have the bytes."""
    if isinstance(dtype, str):
        return "O" in dtype or "U" in dtype
    return any(is_opaque_record(field[1]) for field in dtype)


def opaque_record(fields: list[Any]) -> np.dtype[Any]:
    """What such records are in HDF5, were they there: their objects and texts are strings of variable length."""
    out = []
    for name, inner, *shape in fields:
        if isinstance(inner, list):
            dtype = opaque_record(inner)
        else:
            dtype = h5py.string_dtype() if is_opaque_record(inner) else plain_dtype(inner)
        out.append((name, dtype, *map(tuple, shape)))
    return np.dtype(out)


def is_unicode(dtype: Any) -> bool:
    """Whether elements are numpy's strings of UTF-32."""
    return isinstance(dtype, str) and "U" in dtype


def object_refusal(node: ArrayNode) -> str | None:
    """Why the values of an array of objects cannot be had, if they cannot."""
    if node.table is not None and len(node.table):
        return "strings or other objects in another file than the document"
    if 0 in node.shape:
        return None
    if not node.filters or node.filters[0]["id"] not in OBJECT_CODECS:
        codec = str(node.filters[0]["id"])[:50] if node.filters else "none"
        return f"objects with the codec {codec!r}, which this package does not decode"
    if not node.inline and node.fill_value is None:
        return "the program that made the document left them out"
    if len(node.inline) < math.prod(chunk_grid(node.shape, node.chunks)) and not isinstance(node.fill_value, str):
        return f"some of its chunks are missing, and its fill value {str(node.fill_value)[:50]} is no text"
    return None


def object_dtype(node: ArrayNode) -> tuple[np.dtype[Any], str | None]:
    """What an array of objects holds: rows of a compound, references, or strings; and why that cannot be told.

    Raises
    ------
    MalformedError
        Its text cannot be decoded, or its annotation makes no sense.
    """
    fields = node.attributes.get("_COMPOUND_DTYPE")
    if fields is not None:
        return _compound_dtype(fields, node), None
    codec = node.filters[0]["id"] if node.filters else None
    if codec == "json2" and node.inline:
        kinds = set()
        for data in node.inline.values():
            for item in decode_objects(data, node.filters, math.prod(node.chunks), MOST_TEXT):
                region = isinstance(item, dict) and "selection" in (item.get("_REFERENCE") or {})
                kinds.add("region" if region else type(item).__name__)
        if kinds == {"dict"}:
            return h5py.ref_dtype, None
        if kinds == {"region"}:
            return h5py.regionref_dtype, None
        if kinds != {"str"}:
            listed = ", ".join(sorted(kinds))
            return h5py.string_dtype(), f"objects of several kinds, or of one that HDF5 does not have: {listed}"
    return h5py.string_dtype(), None


def _compound_dtype(fields: Any, node: ArrayNode) -> np.dtype[Any]:
    if not isinstance(fields, list) or not all(isinstance(f, list) and len(f) == 2 for f in fields) or not fields:
        raise MalformedError("_COMPOUND_DTYPE is not a list of [name, type]")
    out = []
    for number, (name, text) in enumerate(fields):
        if text == "<REFERENCE>":
            # LINDI 0.4.6 says so of strings as well.
            dtype = h5py.string_dtype() if _is_text(node, number) else h5py.ref_dtype
        elif text == "object":
            dtype = h5py.string_dtype()
        else:
            try:
                dtype = plain_dtype(np.dtype(text).str)
            except (TypeError, ValueError):
                raise MalformedError(f"a field of the unknown type {str(text)[:50]!r}") from None
        out.append((str(name), dtype))
    try:
        return np.dtype(out)
    except ValueError as error:
        raise MalformedError(f"_COMPOUND_DTYPE: {error}") from None


def _is_text(node: ArrayNode, number: int) -> bool:
    """Whether a field of the rows in JSON holds strings."""
    count = math.prod(node.chunks)
    rows = (row for data in node.inline.values() for row in decode_objects(data, node.filters, count, MOST_TEXT))
    values = [row[number] for row in rows if isinstance(row, list) and number < len(row)]
    return bool(values) and all(isinstance(value, str) for value in values)


def as_strings(node: ArrayNode) -> ArrayNode:
    """An array of numpy's unicode strings, which HDF5 does not have, as one of strings of variable length."""
    itemsize = np.dtype(node.dtype).itemsize
    if node.table is not None and len(node.table):
        return replace(node, dtype="|O", filters=({"id": "none"},), refusal="UTF-32 text, which HDF5 does not have")
    count = math.prod(node.chunks)
    if count * itemsize * max(1, len(node.inline)) > MOST_DECODED:
        raise MalformedError("its text stands for too many bytes")
    inline = {}
    for key, data in node.inline.items():
        chunk = np.frombuffer(decode_plain(data, node.filters, count * itemsize), np.dtype(node.dtype))
        try:
            texts = [str(text).encode("utf-8") for text in chunk]
        except (UnicodeError, ValueError):
            raise MalformedError("text that is no Unicode") from None
        parts = [len(texts).to_bytes(4, "little")]
        for text in texts:
            parts += [len(text).to_bytes(4, "little"), text]
        inline[key] = b"".join(parts)
    return replace(node, dtype="|O", filters=({"id": "vlen-utf8"},), fill_value=node.fill_value or "", inline=inline)
