"""Keys of a Zarr v3 store: ``path/zarr.json``, and ``path/c/0/1`` of chunks.

Zarr core specification v3.1, "Chunk key encoding".
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["ZARR_JSON", "ChunkKey", "chunk_coordinates", "chunk_key", "join", "split_chunk_key", "split_metadata_key"]

ZARR_JSON = "zarr.json"

_NUMBER = re.compile("0|[1-9][0-9]*")
_OTHER_NAMES = frozenset(["", "."])


class ChunkKey(NamedTuple):
    """Path of the array, the key below it, and the coordinates in the grid of chunks."""

    path: str
    below: str
    coordinates: tuple[int, ...]


def join(path: str, name: str) -> str:
    """A key below a path; the root's path is empty."""
    return f"{path}/{name}" if path else name


def chunk_key(path: str, coordinates: tuple[int, ...]) -> str:
    """The key of a chunk."""
    return join(path, "/".join(["c", *map(str, coordinates)]))


def split_metadata_key(key: str) -> str | None:
    """The path of the node whose metadata a key names, or None if it is another key."""
    if key == ZARR_JSON:
        return ""
    return key.removesuffix(f"/{ZARR_JSON}") if key.endswith(f"/{ZARR_JSON}") else None


def split_chunk_key(key: str) -> ChunkKey | None:
    """Take the key of a chunk apart, or None if it is another key. The root is never an array."""
    parts = key.split("/")
    end = len(parts)
    while end and _NUMBER.fullmatch(parts[end - 1]):
        end -= 1
    # HDF5 would take empty parts and dots for the group itself.
    if end < 2 or parts[end - 1] != "c" or not _OTHER_NAMES.isdisjoint(parts):
        return None
    return ChunkKey("/".join(parts[: end - 1]), "/".join(parts[end - 1 :]), tuple(map(int, parts[end:])))


def chunk_coordinates(below: str) -> tuple[int, ...]:
    """The coordinates in a chunk key below its array."""
    return tuple(map(int, below.split("/")[1:]))
