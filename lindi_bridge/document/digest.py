"""Digests of ``refs``, to tell whether somebody edited them.

The first is over the raw text. Another program that saves a document (LINDI does) writes other text with the same
meaning: members in another order, templates expanded, metadata as strings. For those there is a second, canonical one,
over sorted lines: one for each member that is no chunk reference, and one for all the chunk references of an array.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lindi_bridge.document.refs import ChunkMembers, Member, compact
from lindi_bridge.model.chunks import Int64Array

__all__ = ["canonical_of_refs", "canonical_of_written", "text_digest"]

_METADATA = (".zarray", ".zattrs", ".zgroup", ".zmetadata")


def text_digest(text: str | memoryview) -> str:
    """BLAKE2b-128 of a text in UTF-8, hexadecimal."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def canonical_of_written(members: Iterable[Member], url: str) -> str:
    """The canonical digest of members as they are written, for a source at ``url``."""
    lines = []
    for member in members:
        if isinstance(member, ChunkMembers):
            table = member.table
            lines.append(_chunk_line(member.prefix, url, table.coordinates(), table.offset, table.nbytes))
        else:
            ((key, value),) = json.loads("{" + member + "}").items()
            lines.append(_sorted_line({key: _meaning(key, value)}))
    return _of_lines(lines)


def canonical_of_refs(refs: Mapping[str, Any], templates: Mapping[str, str]) -> str:
    """The canonical digest of parsed ``refs``."""
    expand = {"{{" + name + "}}": value for name, value in templates.items()}
    lines: list[str] = []
    chunks: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    for key, value in refs.items():
        prefix, name = key[: key.rfind("/") + 1], key[key.rfind("/") + 1 :]
        if isinstance(value, list) and value and isinstance(value[0], str):
            value = [expand.get(value[0], value[0]), *value[1:]]
            numbers = _numbers(name, value)
            if numbers is not None:
                chunks.setdefault((prefix, value[0]), []).append(numbers)
                continue
        lines.append(_sorted_line({key: _meaning(key, value)}))
    for (prefix, url), rows in chunks.items():
        if len({len(row) for row in rows}) > 1:
            lines.append(_sorted_line({prefix: "chunks of several ranks"}))
            continue
        table = np.array(sorted(rows), np.int64)
        lines.append(_chunk_line(prefix, url, table[:, :-2], table[:, -2], table[:, -1]))
    return _of_lines(lines)


def _numbers(name: str, value: list[Any]) -> tuple[int, ...] | None:
    """Chunk coordinates, offset and length of a chunk reference; None if it is not of the form that we write."""
    parts = name.split(".")
    if len(value) != 3 or not all(type(n) is int and 0 <= n < 1 << 62 for n in value[1:]):
        return None
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        return None
    return (*map(int, parts), *value[1:])


def _meaning(key: str, value: Any) -> Any:
    """The value of a member; metadata may be text or objects."""
    return _parsed(value) if isinstance(value, str) and key[key.rfind("/") + 1 :] in _METADATA else value


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _chunk_line(prefix: str, url: str, coordinates: Int64Array, offset: Int64Array, nbytes: Int64Array) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for column in (*coordinates.T, offset, nbytes):
        digest.update(np.ascontiguousarray(column, "<i8").tobytes())
    return f"{compact(prefix)}:{compact(url)} {coordinates.shape} {digest.hexdigest()}"


def _sorted_line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, separators=(",", ":"), sort_keys=True)[1:-1]


def _of_lines(lines: list[str]) -> str:
    return text_digest("\n".join(sorted(lines)))
