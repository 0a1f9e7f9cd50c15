"""Chunk references: keys and ``[url, offset, length]``, or text -> a table, and the bytes of text."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lindi_bridge.document.array_metadata import ArrayMetadata
from lindi_bridge.document.problems import MalformedError
from lindi_bridge.model.chunks import ChunkTable, chunk_grid

__all__ = ["ChunkRefs", "Sources", "is_chunk_key"]

_KEY = re.compile(r"(?:c[./]?)?\d*(?:[./]\d+)*", re.ASCII)
_TEMPLATE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_MOST_ADDRESS = 1 << 16
_MOST_OFFSET = 1 << 60
_MOST_DIGITS = 19


def is_chunk_key(key: str) -> bool:
    """Whether a name below an array can be a chunk's."""
    return bool(key) and _KEY.fullmatch(key) is not None


class Sources:
    """The addresses that references name, numbered.

    Parameters
    ----------
    templates : mapping
        Text for each ``{{name}}``. A template is replaced once; what it brings in is not looked at again.
    """

    def __init__(self, templates: Mapping[str, str]) -> None:
        self.addresses: list[str] = []
        self._templates = templates
        self._numbers: dict[str, int] = {}
        self._by_text: dict[str, int] = {}

    def number(self, text: Any) -> int:
        """Number of an address, as it stands in a reference."""
        found = self._by_text.get(text) if isinstance(text, str) else None
        if found is not None:
            return found
        address = self.expand(text)
        number = self._numbers.setdefault(address, len(self._numbers))
        if number == len(self.addresses):
            self.addresses.append(address)
        self._by_text[text] = number
        return number

    def expand(self, text: Any) -> str:
        """Replace the templates in an address."""
        if not isinstance(text, str) or not text or len(text) > _MOST_ADDRESS:
            raise MalformedError("an address is no text of a reasonable length")

        def value(match: re.Match[str]) -> str:
            name = match[1].strip()
            if name not in self._templates:
                raise MalformedError(f"the template {name[:50]!r} is not defined (only plain names are understood)")
            return self._templates[name]

        # The length is looked at before anything is put together.
        if sum(len(value(match)) for match in _TEMPLATE.finditer(text)) > _MOST_ADDRESS:
            raise MalformedError("an address is no text of a reasonable length")
        address = _TEMPLATE.sub(value, text)
        if any(ord(c) < 32 or c == "\x7f" for c in address):
            raise MalformedError("an address with control characters")
        return address


@dataclass(frozen=True)
class FoundTable:
    """A table, and why its chunks cannot be had although it is well-formed."""

    table: ChunkTable
    refusal: str | None = None


@dataclass
class ChunkRefs:
    """What ``refs`` have of the chunks of one array: keys and values."""

    keys: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, key: str, value: Any) -> None:
        """Note a chunk."""
        self.keys.append(key)
        self.values.append(value)

    def read(self, metadata: ArrayMetadata, sources: Sources) -> tuple[FoundTable | None, dict[str, bytes]]:
        """The references as a table (None if there are none) and the bytes of chunks in text, by key.

        Raises
        ------
        MalformedError
            A key or a value is wrong.
        """
        grid = chunk_grid(metadata.shape, metadata.chunks) or (1,)
        inline: dict[str, bytes] = {}
        rows: list[tuple[int, int, int]] = []
        coordinates: list[tuple[int, ...]] = []
        whole = False
        for key, value in zip(self.keys, self.values, strict=True):
            position = _coordinates(key, metadata, grid)
            if isinstance(value, list) and len(value) == 3:
                offset, nbytes = value[1], value[2]
                if type(offset) is not int or type(nbytes) is not int or offset < 0 or nbytes <= 0:
                    raise MalformedError(f"chunk {key}: offset {offset!r} and length {nbytes!r} are no range of bytes")
                if offset + nbytes > _MOST_OFFSET:
                    raise MalformedError(f"chunk {key}: it ends at byte {offset + nbytes}, which no file has")
                rows.append((sources.number(value[0]), offset, nbytes))
                coordinates.append(position)
            elif isinstance(value, str):
                data = _inline_bytes(key, value)
                inline[".".join(map(str, position))] = data
            elif isinstance(value, list) and len(value) == 1:
                rows.append((sources.number(value[0]), 0, 1))
                coordinates.append(position)
                whole = True
            else:
                raise MalformedError(f"chunk {key}: not a reference [address, offset, length], nor text")
        if not rows:
            return None, inline
        columns = np.array(rows, np.int64)
        positions = np.array(coordinates, np.int64).reshape(len(rows), len(grid))
        try:
            table = ChunkTable.from_coordinates(
                grid, positions, columns[:, 1], columns[:, 2], np.zeros(len(rows), np.int64), columns[:, 0]
            )
        except ValueError as error:
            raise MalformedError(str(error)) from None
        refusal = "a reference to a whole file, whose length the document does not tell" if whole else None
        return FoundTable(table, refusal), inline


def _coordinates(key: str, metadata: ArrayMetadata, grid: tuple[int, ...]) -> tuple[int, ...]:
    """Grid coordinates of a chunk key (Zarr v2, "Chunks"; v3, "Chunk key encoding")."""
    rank = len(grid)
    if not metadata.shape:
        only = "c" if metadata.prefix else "0"
        if key == only:
            return (0,)
        raise MalformedError(f"chunk {key[:50]}: an array without axes has the one chunk {only}")
    if not key.startswith(metadata.prefix):
        raise MalformedError(f"chunk {key[:50]}: the key does not begin with {metadata.prefix!r}")
    parts = key[len(metadata.prefix) :].split(metadata.separator)
    if len(parts) != rank or not all(map(_is_number, parts)):
        raise MalformedError(f"chunk {key[:50]}: the key is not {rank} numbers between {metadata.separator!r}")
    position = tuple(map(int, parts))
    for number, count in zip(position, grid, strict=True):
        if number >= count:
            raise MalformedError(f"chunk {key[:50]}: it lies outside the array, which has {grid} chunks")
    return position


def _is_number(text: str) -> bool:
    """Whether it is a number as Zarr writes it: "00" is no other name of the chunk 0."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and (text == "0" or text[0] != "0")


def _inline_bytes(key: str, text: str) -> bytes:
    if not text.startswith("base64:"):
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(text[7:], validate=True)
    except (binascii.Error, ValueError):
        raise MalformedError(f"chunk {key[:50]}: not base64") from None
