"""The ``hdf5`` section of a document: the bytes that open it as the file it was made from, as JSON."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from lindi_bridge.errors import DocumentError
from lindi_bridge.model.snapshot import Departure, Fingerprint, HeapMap, Snapshot
from lindi_bridge.ranges.identity import SourceIdentity

__all__ = ["snapshot_from_json", "snapshot_to_json"]

VERSION = 1
_MOST_EMBEDDED = 1 << 30
_LEVEL = 4
"""Of zlib: a tenth of the time of level 9, for a few per cent more bytes."""

JSONObject = dict[str, Any]


def snapshot_to_json(snapshot: Snapshot) -> JSONObject:
    """The section as JSON, without the digests of ``refs``."""
    identity = snapshot.identity
    values = tuple(snapshot.values)
    return {
        "version": VERSION,
        "sources": [
            {
                "url": snapshot.url,
                "size": identity.size,
                "etag": identity.etag,
                "last_modified": identity.last_modified,
            }
        ],
        "fingerprint": {
            "starts": list(snapshot.fingerprint.starts),
            "length": snapshot.fingerprint.length,
            "blake2b": list(snapshot.fingerprint.digests),
        },
        "external": [{"path": d.path, "kind": d.kind, "files": list(d.files)} for d in snapshot.departures],
        "heaps": {
            str(address): {
                "step": heap.step,
                "collections": heap.collections.tolist(),
                "blocks": heap.blocks.tolist(),
            }
            for address, heap in snapshot.heaps.items()
        },
        "sparse": [list(pair) for pair in snapshot.pairs],
        "metadata": _packed(snapshot.pieces),
        **({"values": _packed(values)} if values else {}),
    }


def _packed(pieces: Sequence[tuple[int, bytes]]) -> JSONObject:
    data = b"".join(piece for _, piece in pieces)
    return {
        "nbytes": len(data),
        "ranges": [[start, len(piece)] for start, piece in pieces],
        "zlib": base64.standard_b64encode(zlib.compress(data, _LEVEL)).decode("ascii"),
    }


def snapshot_from_json(section: Any) -> Snapshot:
    """Read the section.

    Raises
    ------
    DocumentError
        It is not what :func:`snapshot_to_json` writes, contradicts itself, or claims absurd sizes.
    """
    with _damage():
        return _parse(section)


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except DocumentError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise DocumentError(f"the document's hdf5 section is damaged: {type(error).__name__}: {error}") from error


def _parse(section: Mapping[str, Any]) -> Snapshot:
    if section["version"] != VERSION:
        raise DocumentError(
            f"the document's hdf5 section has version {section['version']!r}, this package reads {VERSION}; "
            "install a newer lindi_bridge"
        )
    (source,) = section["sources"]
    size = _count(source["size"])
    fingerprint = section["fingerprint"]
    return Snapshot(
        url=_text(source["url"]),
        identity=SourceIdentity(size, _header_text(source.get("etag")), _header_text(source.get("last_modified"))),
        pieces=_pieces(section["metadata"], size),
        fingerprint=Fingerprint(
            tuple(_count(s) for s in fingerprint["starts"]),
            _count(fingerprint["length"]),
            tuple(map(_text, fingerprint["blake2b"])),
        ),
        heaps={int(address): _heap(heap, size) for address, heap in section["heaps"].items()},
        departures=tuple(
            Departure(_text(d["path"]), _text(d["kind"]), tuple(map(_text, d["files"]))) for d in section["external"]
        ),
        pairs=_pairs(section.get("sparse", [])),
        values=_Packed(section["values"], size) if "values" in section else (),
    )


class _Packed:
    """Pieces of the file that are decompressed when they are first asked for.

    Takes no lock, since that may be while h5py's is held: two threads that ask at the same time do the same.

    Parameters
    ----------
    packed : mapping
        As it stands in the document.
    size : int
        Bytes of the file.
    """

    def __init__(self, packed: Any, size: int) -> None:
        self._packed = packed
        self._size = size
        self._pieces: tuple[tuple[int, bytes], ...] | None = None

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        if self._pieces is None:
            with _damage():
                self._pieces = _pieces(self._packed, self._size)
            self._packed = None
        return iter(self._pieces)


def _pairs(pairs: Any) -> tuple[tuple[int, int], ...]:
    if not isinstance(pairs, list):
        raise DocumentError("the document's pairs of sparse arrays are not a list")
    return tuple((_count(first), _count(second)) for first, second in pairs)


def _pieces(metadata: Mapping[str, Any], size: int) -> tuple[tuple[int, bytes], ...]:
    ranges = [(_count(start), _count(length)) for start, length in metadata["ranges"]]
    position = 0
    for start, length in ranges:
        if start < position or start + length > size:
            raise DocumentError("the document's embedded metadata ranges overlap or lie outside the file")
        position = start + length
    nbytes = _count(metadata["nbytes"])
    if nbytes != sum(length for _, length in ranges) or nbytes > _MOST_EMBEDDED:
        raise DocumentError(f"the document's embedded metadata has an impossible size: {nbytes} bytes")
    data = memoryview(_inflate(metadata["zlib"], nbytes))
    pieces, position = [], 0
    for start, length in ranges:
        pieces.append((start, data[position : position + length]))
        position += length
    return tuple(pieces)  # type: ignore[arg-type]


def _inflate(text: Any, nbytes: int) -> bytes:
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(text, validate=True), nbytes + 1)
    except (binascii.Error, zlib.error) as error:
        raise DocumentError(f"the document's embedded metadata is damaged: {error}") from error
    if len(data) != nbytes:
        raise DocumentError("the document's embedded metadata is not as long as it says")
    return data


def _heap(heap: Mapping[str, Any], size: int) -> HeapMap:
    collections = np.array(heap["collections"], np.int64).reshape(-1, 2)
    blocks = np.array(heap["blocks"], np.int64).reshape(-1, 2)
    if (collections < 0).any() or (collections.sum(axis=1) > size).any():
        raise DocumentError("the document's heap collections lie outside the file")
    if (blocks < 0).any() or (blocks > len(collections)).any():
        raise DocumentError("the document's heap blocks name collections that are not listed")
    return HeapMap(_count(heap["step"]), collections, blocks)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise DocumentError(f"the document's hdf5 section has {value!r} where a size or address belongs")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise DocumentError(f"the document's hdf5 section has {type(value).__name__} where a string belongs")
    return value


def _header_text(value: Any) -> str | None:
    """What was in a header of an answer and may stand in one of a request, or null."""
    if value is not None and not _text(value).isprintable():
        raise DocumentError("the document's hdf5 section has an ETag or a time with control characters")
    return value  # type: ignore[no-any-return]
