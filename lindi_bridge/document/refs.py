"""The ``refs`` of a reference document: Zarr v2 metadata and chunk references as JSON text.

Format: LINDI's annotations (seeds of the project) over version 1 of the reference file system that fsspec and
kerchunk read. Text is written straight from the chunk tables. In the profile ``zarr`` metadata are text inside the
JSON, as not every reader takes objects, and stand once more in ``.zmetadata`` (consolidated metadata).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from lindi_bridge.model.chunks import ChunkTable
from lindi_bridge.model.nodes import ArrayNode, GroupNode, Node, ReferenceTree, SoftLinkNode

__all__ = ["SOURCE_TEMPLATE", "ChunkMembers", "Member", "compact", "inline_text", "write_refs"]

SOURCE_TEMPLATE = "u"
"""Name of the template that stands for the address of the source in every chunk reference."""


def compact(value: Any) -> str:
    """JSON without white space."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


class ChunkMembers(NamedTuple):
    """The members of ``refs`` that refer to the chunks of one array.

    Parameters
    ----------
    prefix : str
        What their keys begin with: the path of the array and a slash.
    table : ChunkTable
        The chunks.
    """

    prefix: str
    table: ChunkTable

    def text(self) -> str:
        """JSON text, one member a line; no object is made for a chunk but its line."""
        start, table = compact(self.prefix)[:-1], self.table
        columns = [map(str, column) for column in table.coordinates().T.tolist()]
        keys = columns[0] if len(columns) == 1 else map(".".join, zip(*columns, strict=True))
        middle = f'":["{{{{{SOURCE_TEMPLATE}}}}}",'
        return ",\n".join(
            [
                f"{start}{key}{middle}{offset},{nbytes}]"
                for key, offset, nbytes in zip(keys, table.offset.tolist(), table.nbytes.tolist(), strict=True)
            ]
        )


Member = str | ChunkMembers
"""``"key":value`` as JSON text, or all chunks of an array."""


def write_refs(tree: ReferenceTree, url: str) -> list[Member]:
    """The members of ``refs``, in order.

    Parameters
    ----------
    tree : ReferenceTree
        What to write.
    url : str
        Address of the source as links into it name it (chunk references name it by a template).
    """
    plain = tree.profile == "zarr"
    members: list[Member] = []
    consolidated: dict[str, Any] = {}
    for path, node in tree.nodes.items():
        prefix = path.lstrip("/") + "/" if path != "/" else ""
        for key, value in _metadata(prefix, node, url):
            members.append(_entry(key, compact(value) if plain else value))
            if plain:
                consolidated[key] = value
        if isinstance(node, ArrayNode):
            members += [_entry(prefix + key, inline_text(data)) for key, data in node.inline.items()]
            if node.table is not None and len(node.table):
                members.append(ChunkMembers(prefix, node.table))
    if plain:
        members.insert(0, _entry(".zmetadata", compact({"zarr_consolidated_format": 1, "metadata": consolidated})))
    return members


def _metadata(prefix: str, node: Node, url: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, SoftLinkNode):
        yield prefix + ".zgroup", {"zarr_format": 2}
        yield prefix + ".zattrs", {"_SOFT_LINK": {"path": node.target}}
    elif isinstance(node, GroupNode):
        yield prefix + ".zgroup", {"zarr_format": 2}
        if node.attributes:
            yield prefix + ".zattrs", node.attributes
    else:
        yield from _array_metadata(prefix, node, url)


def _entry(key: str, value: Any) -> str:
    return f"{compact(key)}:{compact(value)}"


def _array_metadata(prefix: str, node: ArrayNode, url: str) -> Iterator[tuple[str, Any]]:
    *filters, last = node.filters or (None,)
    # Zarr v2 has one place for the last codec; codecs of objects must stand among the filters.
    if last is not None and last["id"] in ("vlen-utf8", "vlen-bytes", "json2", "shuffle", "fletcher32"):
        filters, last = [*filters, last], None
    yield (
        prefix + ".zarray",
        {
            "zarr_format": 2,
            "shape": node.shape,
            "chunks": node.chunks,
            "dtype": node.dtype,
            "fill_value": node.fill_value,
            "order": "C",
            "filters": filters or None,
            "compressor": last,
        },
    )
    attributes = dict(node.attributes)
    if node.external is not None:
        attributes["_EXTERNAL_ARRAY_LINK"] = {
            "link_type": "hdf5_dataset",
            "url": node.external_url or url,
            "name": node.external,
        }
    if attributes:
        yield prefix + ".zattrs", attributes


def inline_text(data: bytes) -> str:
    """Inline bytes as text: as they are where they are printable ASCII that cannot be mistaken, else base64."""
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if text and text.isprintable() and not text.startswith("base64:") and "{{" not in text:
        return text
    return "base64:" + base64.standard_b64encode(data).decode("ascii")
