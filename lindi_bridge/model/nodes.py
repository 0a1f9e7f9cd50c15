"""The reference tree: what a file holds, in the terms of Zarr v2 and LINDI's annotations.

The indexer fills it, the document writes and reads it. No I/O, no h5py, no zarr.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lindi_bridge.model.chunks import ChunkTable

__all__ = ["ArrayNode", "GroupNode", "Node", "Problem", "ReferenceTree", "SoftLinkNode"]

JSONValue = Any


@dataclass(frozen=True)
class Problem:
    """Something that a document cannot express.

    Parameters
    ----------
    path : str
        The object in the HDF5 file.
    kind : str
        One word for programs: ``external_link``, ``virtual_dataset``, ``external_storage``, ``committed_datatype``,
        ``attribute``, ``unreadable``, ``chunk_index``; in the profile ``zarr`` also ``datatype``, ``too_large``,
        ``link``, ``name``, ``dimension``.
    message : str
        A sentence for people.
    """

    path: str
    kind: str
    message: str


@dataclass(frozen=True)
class GroupNode:
    """A group with its attributes, annotations included."""

    attributes: Mapping[str, JSONValue] = field(default_factory=dict)


@dataclass(frozen=True)
class SoftLinkNode:
    """A soft link, or the second name of a hard-linked object.

    Parameters
    ----------
    target : str
        Absolute path.
    """

    target: str


@dataclass(frozen=True)
class ArrayNode:
    """A dataset as a Zarr v2 array.

    Parameters
    ----------
    shape, chunks : tuple of int
        As in ``.zarray``. A scalar dataset has shape ``(1,)`` and the annotation ``_SCALAR``.
    dtype : str or list
        Zarr v2 type string, or the list of names and type strings of a structured type.
    fill_value : JSON value
        As in ``.zarray``.
    filters : tuple of dict
        Codec configurations of numcodecs in the order of encoding.
    attributes : mapping
        Attributes, annotations included.
    table : ChunkTable, optional
        Chunks that are byte ranges of the source.
    inline : mapping
        Chunk key to encoded bytes.
    external : str, optional
        Path of the dataset in the source, where its values can be had only through HDF5
        (``_EXTERNAL_ARRAY_LINK``).
    external_url : str, optional
        Address of the HDF5 file that ``external`` lies in, if not the source of the tree.
    refusal : str, optional
        Why nothing can be told of the values, for a document of another program.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: Any
    fill_value: JSONValue = None
    filters: tuple[Mapping[str, JSONValue], ...] = ()
    attributes: Mapping[str, JSONValue] = field(default_factory=dict)
    table: ChunkTable | None = None
    inline: Mapping[str, bytes] = field(default_factory=dict)
    external: str | None = None
    external_url: str | None = None
    refusal: str | None = None


Node = GroupNode | ArrayNode | SoftLinkNode


@dataclass
class ReferenceTree:
    """All nodes of a file by absolute path, the root group first, and what could not be expressed.

    ``annotations`` keeps, by path, what plain JSON loses of a node (see docs/format.md). ``sources`` are the addresses
    that chunk tables number; empty where there is the one that the tree was made from. ``profile`` names the readers
    that it is meant for (see docs/format.md): ``lindi`` or ``zarr``.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    annotations: dict[str, dict[str, JSONValue]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    profile: str = "lindi"
