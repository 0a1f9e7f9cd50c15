"""Codecs of numcodecs: as HDF5 filters where the two agree byte for byte, and decoding with bounded memory."""

from __future__ import annotations

import bz2
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lindi_bridge.document import zstd
from lindi_bridge.document.problems import MalformedError

__all__ = [
    "MOST_DECODED",
    "MOST_TEXT",
    "OBJECT_CODECS",
    "Filter",
    "as_filters",
    "decode_objects",
    "decode_plain",
    "skipped_filters",
    "unknown_codec",
]

MOST_DECODED = 256 * 1024 * 1024
"""Bytes that the text of one array may stand for."""
MOST_TEXT = 1 << 30
"""Bytes that the text of a chunk of Python objects may decompress to."""

_PADDING = 8
"""Bytes that are made for the bits that fill up the last byte of packed ones, and taken away again."""
_PIECE = 1 << 20
"""Bytes that are decoded at once with a codec that works with doubles, whatever the elements are."""

Config = Mapping[str, Any]
Filter = tuple[int, tuple[int, ...]]
"""Number and client values of an HDF5 filter."""

OBJECT_CODECS = frozenset(["vlen-utf8", "vlen-bytes", "json2"])
"""Codecs whose result are Python objects, that this package decodes itself."""

_BLOSC_NAMES = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
_SAFE = frozenset(["shuffle", "delta", "fixedscaleoffset", "packbits", "bitround", "crc32", "adler32", "fletcher32"])
"""Further codecs of numcodecs that make no more bytes than the array has, and run no code of the document's."""


def as_filters(configs: Sequence[Config], itemsize: int) -> list[Filter] | str:
    """The HDF5 filters that undo the same codecs, or the name of the first codec that has none.

    Parameters
    ----------
    configs : sequence of dict
        Codec configurations in the order of encoding.
    itemsize : int
        Bytes of an element: HDF5's shuffle filter knows no other size.
    """
    filters: list[Filter] = []
    for config in configs:
        name = str(config["id"])
        if name == "zlib":
            filters.append((1, (_level(config, 0, 9, 4),)))
        elif name == "shuffle" and config.get("elementsize", _SHUFFLED) == itemsize:
            filters.append((2, (itemsize,)))
        elif name == "fletcher32":
            filters.append((3, ()))
        elif name == "bz2":
            filters.append((307, (_level(config, 1, 9, 9),)))
        elif name == "blosc":
            cname = config.get("cname", "lz4")
            number = _BLOSC_NAMES.index(cname) if cname in _BLOSC_NAMES else 1
            shuffle = _level(config, 0, 2, 1, "shuffle")
            filters.append((32001, (0, 0, 0, 0, _level(config, 0, 9, 5, "clevel"), shuffle, number)))
        elif name == "zstd":
            filters.append((32015, (_level(config, 0, 22, 3),)))
        else:
            return name
    return filters


def _level(config: Config, low: int, high: int, default: int, key: str = "level") -> int:
    value = config.get(key, default)
    return value if type(value) is int and low <= value <= high else default


_SHUFFLED = 4
"""Bytes of an element that numcodecs' shuffle takes where it is told none."""

_IDS = {1: "zlib", 2: "shuffle", 3: "fletcher32", 307: "bz2", 32001: "blosc", 32015: "zstd"}


def skipped_filters(pipeline: Sequence[Filter], configs: Sequence[Config], itemsize: int) -> int | None:
    """The filter mask with which a pipeline leaves exactly the given codecs, or None if it cannot.

    Parameters
    ----------
    pipeline : sequence of (int, tuple of int)
        Filters of a dataset, in the order of writing.
    configs : sequence of dict
        Codec configurations in the order of encoding.
    itemsize : int
        Bytes of an element: HDF5's shuffle filter knows no other size.
    """
    mask, position = 0, 0
    for number, (filter_id, _) in enumerate(pipeline):
        if position < len(configs) and _undoes(filter_id, configs[position], itemsize):
            position += 1
        else:
            mask |= 1 << number
    return mask if position == len(configs) else None


def _undoes(filter_id: int, config: Config, itemsize: int) -> bool:
    if _IDS.get(filter_id) != config["id"]:
        return False
    # The other codecs tell in their bytes what decoding has to know.
    return config["id"] != "shuffle" or bool(config.get("elementsize", _SHUFFLED) == itemsize)


# -- decoding -------------------------------------------------------------------------------------------------------


def decode_plain(data: bytes, configs: Sequence[Config], nbytes: int) -> bytes:
    """Undo codecs, to exactly ``nbytes`` bytes.

    Raises
    ------
    MalformedError
        An unknown codec, damaged data, or another length.
    """
    for position in range(len(configs) - 1, -1, -1):
        # Between two codecs there may be a checksum more, or the little that compressing the incompressible adds.
        data = _decode(data, configs[position], nbytes if position == 0 else nbytes + nbytes // 8 + 4096)
    if len(data) != nbytes:
        raise MalformedError(f"its text decodes to {len(data)} bytes, not {nbytes}")
    return data


def decode_objects(data: bytes, configs: Sequence[Config], count: int, limit: int) -> list[Any]:
    """Undo codecs, the first of which makes Python objects: ``count`` strings or JSON values.

    Parameters
    ----------
    data : bytes
        A chunk.
    configs : sequence of dict
        Codec configurations in the order of encoding.
    count : int
        Elements of the chunk.
    limit : int
        Bytes that it may decompress to at the most.
    """
    first, *rest = configs
    for config in reversed(rest):
        data = _decode(data, config, limit)
    if first["id"] == "json2":
        return _json_items(data, count)
    items = _variable_items(data, count)
    try:
        return [item.decode("utf-8") for item in items] if first["id"] == "vlen-utf8" else items
    except UnicodeDecodeError as error:
        raise MalformedError(f"a string that is not UTF-8: {error}") from None


def _variable_items(data: bytes, count: int) -> list[bytes]:
    """Strings as numcodecs' VLenUTF8 and VLenBytes write them: their number, then each with its length before it."""
    if len(data) < 4 or struct.unpack_from("<I", data)[0] != count:
        raise MalformedError(f"its text does not hold {count} strings")
    items, position = [], 4
    for _ in range(count):
        if position + 4 > len(data):
            raise MalformedError("its text is cut off")
        (length,) = struct.unpack_from("<I", data, position)
        position += 4
        if position + length > len(data):
            raise MalformedError("its text is cut off")
        items.append(data[position : position + length])
        position += length
    return items


def _json_items(data: bytes, count: int) -> list[Any]:
    """Values as numcodecs' JSON writes them: nested lists, with the dtype and the shape behind them."""
    try:
        items = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedError("its text is broken JSON") from None
    if not isinstance(items, list) or len(items) < 2 or not isinstance(items[-1], list):
        raise MalformedError("its text is not an array in JSON")
    *flat, _, shape = items
    if not all(type(n) is int and n >= 0 for n in shape):
        raise MalformedError("its text has no shape")
    for _ in shape[1:]:
        if not all(isinstance(item, list) for item in flat):
            raise MalformedError("its text has not the shape that it says")
        flat = [inner for item in flat for inner in item]
    if len(flat) != count:
        raise MalformedError(f"its text holds {len(flat)} values, not {count}")
    return flat


def _decode(data: bytes, config: Config, limit: int) -> bytes:
    name = str(config["id"])
    decode = _BOUNDED.get(name)
    try:
        if decode is not None:
            return decode(data, limit)
        if name in _SAFE:
            import numcodecs

            if _largest(data, config) > limit + _PADDING:
                raise MalformedError(f"its text decodes to more than {limit} bytes")
            codec, step = numcodecs.get_codec(dict(config)), _PIECE if name == "fixedscaleoffset" else max(1, len(data))
            pieces = [data[start : start + step] for start in range(0, len(data), step)] or [data]
            return _checked(b"".join(np.asarray(codec.decode(piece)).tobytes() for piece in pieces), limit)
    except MalformedError:
        raise
    except (ValueError, RuntimeError, TypeError, KeyError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise MalformedError(f"its text cannot be decoded with {name!r}: {error}") from None
    raise MalformedError(f"the codec {name[:50]!r} is not one that this package decodes")


def _largest(data: bytes, config: Config) -> int:
    """Bytes that a codec of :data:`_SAFE` makes of so many at the most, before it has made them."""
    name = config["id"]
    if name == "packbits":  # the first one says how many bits of the last one count
        return 8 * (len(data) - 1)
    if name not in ("delta", "fixedscaleoffset"):
        return len(data)
    decoded = np.dtype(config["dtype"])
    encoded = np.dtype(config.get("astype") or decoded)
    if decoded.kind not in "iufb" or encoded.kind not in "iufb":
        raise MalformedError(f"{name!r} of elements that are no numbers")
    return len(data) // encoded.itemsize * decoded.itemsize


def _inflate(data: bytes, limit: int, wbits: int) -> bytes:
    inflater = zlib.decompressobj(wbits)
    out = inflater.decompress(data, limit + 1)
    return _checked(out, limit)


def _incremental(make: Callable[[], Any]) -> Callable[[bytes, int], bytes]:
    return lambda data, limit: _checked(make().decompress(data, limit + 1), limit)


def _checked(out: bytes, limit: int) -> bytes:
    if len(out) > limit:
        raise MalformedError(f"its text decompresses to more than {limit} bytes")
    return out


def _declared(size: Callable[[bytes], int], name: str) -> Callable[[bytes, int], bytes]:
    """Decode with numcodecs what says in its header how large it will be."""

    def decode(data: bytes, limit: int) -> bytes:
        if size(data) > limit:
            raise MalformedError(f"its text decompresses to more than {limit} bytes")
        import numcodecs

        return bytes(numcodecs.get_codec({"id": name}).decode(data))

    return decode


def _blosc_size(data: bytes) -> int:
    if len(data) < 16:
        raise MalformedError("its text is cut off")
    (nbytes,) = struct.unpack_from("<I", data, 4)
    (compressed,) = struct.unpack_from("<I", data, 12)
    if compressed != len(data):
        raise MalformedError("its text is cut off")
    return int(nbytes)


def _zstd_size(data: bytes) -> int:
    if (len(data) < zstd.LONGEST_HEADER and not data.startswith(zstd.MAGIC)) or len(data) < 6:
        raise MalformedError("its text is no Zstandard frame")
    size = zstd.decoded_size(data)
    if size is None:
        raise MalformedError("its Zstandard frame does not tell its size")
    return size


def _lz4_size(data: bytes) -> int:
    return int.from_bytes(data[:4], "little")


_BOUNDED: dict[str, Callable[[bytes, int], bytes]] = {
    "zlib": lambda data, limit: _inflate(data, limit, zlib.MAX_WBITS),
    "gzip": lambda data, limit: _inflate(data, limit, zlib.MAX_WBITS | 16),
    "bz2": _incremental(bz2.BZ2Decompressor),
    "lzma": _incremental(lzma.LZMADecompressor),
    "blosc": _declared(_blosc_size, "blosc"),
    "zstd": _declared(_zstd_size, "zstd"),
    "lz4": _declared(_lz4_size, "lz4"),
}


def unknown_codec(configs: Sequence[Config]) -> str | None:
    """The name of the first codec that :func:`decode_plain` does not undo, if there is one."""
    names = (str(config["id"]) for config in configs)
    return next((name[:50] for name in names if name not in _BOUNDED and name not in _SAFE), None)
