"""Metadata of zarr-python for the nodes of a hierarchy: as its own objects, and as the text of ``zarr.json``."""

from __future__ import annotations

import functools
import json
import threading
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from zarr.core.group import ConsolidatedMetadata, GroupMetadata
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.dtype import parse_dtype
from zarr.registry import get_codec_class

from lindi_bridge.store.bursts import AnnouncingKeyEncoding
from lindi_bridge.store.nodes import ArrayNode, Node

__all__ = ["array_metadata", "consolidated_json", "group_metadata"]

JSONValue = Any

_quiet = threading.Lock()
_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")


def group_metadata(nodes: Mapping[str, Node], path: str = "") -> GroupMetadata:
    """The metadata of a group with those of all nodes below it.

    Parameters
    ----------
    nodes : mapping
        All nodes by path, parents before their members.
    path : str
        Of the group.
    """
    known: dict[int, ArrayV3Metadata] = {}
    made: dict[str, GroupMetadata] = {}
    for below in reversed(list(_below(nodes, path))):
        node = nodes[below]
        if isinstance(node, ArrayNode):
            if id(node) not in known:
                known[id(node)] = array_metadata(node)
            continue
        members: dict[str, Any] = {}
        for name in node.members:
            child = f"{below}/{name}" if below else name
            member = nodes[child]
            members[name] = known[id(member)] if isinstance(member, ArrayNode) else made.pop(child)
        made[below] = GroupMetadata(
            attributes=dict(node.attributes), zarr_format=3, consolidated_metadata=ConsolidatedMetadata(members)
        )
    return made[path]


def _below(nodes: Mapping[str, Node], path: str) -> Iterable[str]:
    """A group and everything below it, parents first."""
    if not path:
        return nodes
    return (name for name in nodes if name == path or name.startswith(f"{path}/"))


def array_metadata(node: ArrayNode) -> ArrayV3Metadata:
    """The metadata of an array."""
    shown = node.presentation
    return ArrayV3Metadata(
        shape=shown.shape,
        data_type=_data_type(shown.element.dtype),
        chunk_grid={"name": "regular", "configuration": {"chunk_shape": shown.chunks}},
        chunk_key_encoding=AnnouncingKeyEncoding(),
        fill_value=shown.fill_value,
        codecs=_codecs(node),
        attributes=dict(node.attributes),
        dimension_names=node.dimensions,
    )


def consolidated_json(nodes: Mapping[str, Node], path: str) -> str:
    """The text of ``zarr.json`` of the node at a path; of a group with that of all nodes below it."""
    node = nodes[path]
    if isinstance(node, ArrayNode):
        return json.dumps(_array_json(node))
    members = {
        below.removeprefix(f"{path}/" if path else ""): _node_json(nodes[below])
        for below in _below(nodes, path)
        if below != path
    }
    consolidated = {"kind": "inline", "must_understand": False, "metadata": members}
    return json.dumps(_node_json(node) | {"consolidated_metadata": consolidated})


def _node_json(node: Node) -> dict[str, JSONValue]:
    if isinstance(node, ArrayNode):
        return _array_json(node)
    return {"zarr_format": 3, "node_type": "group", "attributes": node.attributes}


def _array_json(node: ArrayNode) -> dict[str, JSONValue]:
    shown = node.presentation
    data_type = _data_type(shown.element.dtype)
    found: dict[str, JSONValue] = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shown.shape,
        "data_type": _data_type_json(shown.element.dtype),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shown.chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": data_type.to_json_scalar(data_type.cast_scalar(shown.fill_value), zarr_format=3),
        "codecs": [codec.to_dict() for codec in _codecs(node)],
        "attributes": node.attributes,
    }
    if node.dimensions is not None:
        found["dimension_names"] = node.dimensions
    return found


# Making a codec or the name of a type that is in no specification yet, zarr warns whoever writes such a file. Nothing
# is written here, so it is made quietly, once for each kind.


@functools.cache
def _data_type(dtype: np.dtype[Any] | None) -> Any:
    return parse_dtype(np.dtypes.StringDType() if dtype is None else dtype.newbyteorder("="), zarr_format=3)


@functools.cache
def _data_type_json(dtype: np.dtype[Any] | None) -> JSONValue:
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _data_type(dtype).to_json(zarr_format=3)


def _codecs(node: ArrayNode) -> list[Any]:
    shown = node.presentation
    dtype = shown.element.dtype
    if dtype is None:
        return [_codec("vlen-utf8", "{}")]
    # Types of one byte, and those that are not numbers, have no byte order; zarr 3.4 wants one of records.
    ordered = dtype.names is not None or (dtype.kind in "iufcmM" and dtype.itemsize > 1)
    endian = "big" if dtype.byteorder == ">" else "little"
    made = [_codec("bytes", json.dumps({"endian": endian if ordered else None}))]
    for config in shown.codecs:
        name, options = _translated(config, dtype.itemsize)
        made.append(_codec(name, json.dumps(options)))
    return made


def _translated(config: Mapping[str, Any], itemsize: int) -> tuple[str, dict[str, Any]]:
    """A codec of numcodecs as one that the specification of Zarr v3 has, or as zarr's own version of it."""
    options = {key: value for key, value in config.items() if key != "id"}
    if config["id"] == "blosc":
        options["shuffle"] = _SHUFFLES[options["shuffle"]]
        options["clevel"] = min(max(options["clevel"], 0), 9)
        return "blosc", options | {"typesize": itemsize}
    if config["id"] == "zstd":
        return "zstd", {"level": min(max(options["level"], 0), 22), "checksum": False}
    return f"numcodecs.{config['id']}", options


@functools.cache
def _codec(name: str, options: str) -> Any:
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_codec_class(name)(**json.loads(options))
