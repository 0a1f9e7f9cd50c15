"""The metadata of one array: ``.zarray`` of Zarr v2, ``zarr.json`` of v3, in the terms of v2."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lindi_bridge.document.problems import MalformedError

__all__ = ["ArrayMetadata", "read_v2", "read_v3"]

_MOST_AXES = 32  # of HDF5 (H5S_MAX_RANK)
_MOST_ELEMENTS = 1 << 62
_MOST_ITEMSIZE = 1 << 28
_MOST_FIELDS = 4096
_MOST_CODECS = 32
_DTYPE = re.compile(r"[<>|=]?(?:[biufcSUV]\d{1,9}|[mM]8(?:\[\d{0,9}[A-Za-z]{1,2}\])?|O8?)", re.ASCII)


@dataclass(frozen=True)
class ArrayMetadata:
    """What an array's metadata say, checked.

    Parameters
    ----------
    shape, chunks : tuple of int
        Of the array.
    dtype : str or list
        Zarr v2 type string, or the list of fields of a structured type.
    fill_value : JSON value
        In Zarr v2's encoding.
    filters : tuple of dict
        Codec configurations in the order of encoding.
    separator : str
        Between the numbers of a chunk key.
    prefix : str
        Before them.
    refusal : str, optional
        Why its values cannot be had from the chunks.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: Any
    fill_value: Any
    filters: tuple[Mapping[str, Any], ...]
    separator: str = "."
    prefix: str = ""
    refusal: str | None = None


def read_v2(zarray: Mapping[str, Any]) -> ArrayMetadata:
    """Check a ``.zarray`` (Zarr specification v2, "Metadata")."""
    if zarray.get("zarr_format") != 2:
        raise MalformedError(f".zarray has the zarr_format {zarray.get('zarr_format')!r}, not 2")
    shape, chunks = _grid(zarray.get("shape"), zarray.get("chunks"))
    dtype = _check_dtype(zarray.get("dtype"))
    filters = zarray.get("filters") or []
    if not isinstance(filters, list):
        raise MalformedError("filters are not a list")
    codecs = [*filters, *([zarray["compressor"]] if zarray.get("compressor") else [])]
    if len(codecs) > _MOST_CODECS or not all(isinstance(c, dict) and isinstance(c.get("id"), str) for c in codecs):
        raise MalformedError("filters and compressor are not a few codec configurations")
    if zarray.get("order", "C") not in ("C", "F"):
        raise MalformedError(f"the order is {zarray['order']!r}")
    separator = zarray.get("dimension_separator", ".")
    if separator not in (".", "/"):
        raise MalformedError(f"the dimension_separator is {separator!r}")
    column_major = zarray.get("order") == "F" and sum(n > 1 for n in chunks) > 1
    return ArrayMetadata(
        shape,
        chunks,
        dtype,
        zarray.get("fill_value"),
        tuple(codecs),
        separator,
        refusal="its chunks are in column-major order, which HDF5 does not have" if column_major else None,
    )


def _grid(shape: Any, chunks: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not _is_axes(shape) or not _is_axes(chunks) or len(shape) != len(chunks):
        raise MalformedError("shape and chunks are not lists of as many sizes")
    if any(n < 1 for n in chunks):
        # A length of zero has chunks of zero in documents of some programs.
        chunks = [max(1, n) for n in chunks] if 0 in shape else []
    if len(shape) != len(chunks):
        raise MalformedError("a chunk has no size along an axis")
    if math.prod(max(1, n) for n in shape) > _MOST_ELEMENTS or math.prod(chunks) > _MOST_ELEMENTS:
        raise MalformedError("shape or chunks are impossibly large")
    return tuple(shape), tuple(chunks)


def _is_axes(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= _MOST_AXES
        and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= _MOST_ELEMENTS for n in value)
    )


def _check_dtype(dtype: Any) -> Any:
    if isinstance(dtype, str):
        if not _DTYPE.fullmatch(dtype):
            raise MalformedError(f"the dtype is {dtype[:50]!r}, which this package does not know")
        try:
            itemsize = np.dtype(dtype).itemsize
        except (TypeError, ValueError) as error:
            raise MalformedError(f"the dtype is {dtype!r}: {error}") from None
        if itemsize > _MOST_ITEMSIZE:
            raise MalformedError(f"an element of {itemsize} bytes is impossibly large")
        return dtype
    _check_fields(dtype, 0)
    return dtype


def _check_fields(fields: Any, depth: int) -> None:
    if depth > 8 or not isinstance(fields, list) or not 0 < len(fields) <= _MOST_FIELDS:
        raise MalformedError("the dtype is neither a type string nor a list of fields")
    for field in fields:
        if not isinstance(field, list) or len(field) not in (2, 3) or not isinstance(field[0], str) or not field[0]:
            raise MalformedError("a field of the dtype is not [name, type] or [name, type, shape]")
        if isinstance(field[1], str):
            _check_dtype(field[1])
        else:
            _check_fields(field[1], depth + 1)
        if len(field) == 3 and (not _is_axes(field[2]) or math.prod(field[2]) > _MOST_ITEMSIZE):
            raise MalformedError("the shape of a field of the dtype is no list of sizes")
    names = [field[0] for field in fields]
    if len(set(names)) != len(names):
        raise MalformedError("two fields of the dtype have the same name")


# -- Zarr v3 --------------------------------------------------------------------------------------------------------

_V3_TYPES = {
    "bool": "|b1",
    "string": "|O",
    **{f"{sign}int{8 * n}": f"{kind}{n}" for sign, kind in (("", "i"), ("u", "u")) for n in (1, 2, 4, 8)},
    **{f"float{8 * n}": f"f{n}" for n in (2, 4, 8)},
    "complex64": "c8",
    "complex128": "c16",
}


def read_v3(metadata: Mapping[str, Any]) -> ArrayMetadata:
    """Check the ``zarr.json`` of an array (Zarr core specification v3.1, "Array metadata") and say it in v2's terms."""
    if metadata.get("zarr_format") != 3:
        raise MalformedError(f"zarr.json has the zarr_format {metadata.get('zarr_format')!r}, not 3")
    grid = _configuration(metadata.get("chunk_grid"), "regular")
    shape, chunks = _grid(metadata.get("shape"), grid.get("chunk_shape"))
    keys = metadata.get("chunk_key_encoding") or {"name": "default"}
    if not isinstance(keys, dict) or keys.get("name") not in ("default", "v2"):
        raise MalformedError("an unknown chunk_key_encoding")
    is_default = keys["name"] == "default"
    options = keys.get("configuration") or {}
    separator = options.get("separator", "/" if is_default else ".") if isinstance(options, dict) else None
    if separator not in (".", "/"):
        raise MalformedError(f"the separator of chunk keys is {separator!r}")
    codecs = metadata.get("codecs")
    if not isinstance(codecs, list) or len(codecs) > _MOST_CODECS or not all(isinstance(c, dict) for c in codecs):
        raise MalformedError("codecs are not a list of a few configurations")
    filters, endian, refusal = _v3_codecs(codecs)
    dtype = _v3_dtype(metadata.get("data_type"), endian)
    return ArrayMetadata(
        shape,
        chunks,
        dtype,
        metadata.get("fill_value"),
        tuple(filters),
        separator,
        f"c{separator}" if is_default else "",
        refusal,
    )


def _configuration(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or value.get("name") != name or not isinstance(value.get("configuration"), dict):
        raise MalformedError(f"not a {name!r} configuration")
    return value["configuration"]  # type: ignore[no-any-return]


def _v3_dtype(data_type: Any, endian: str) -> str:
    if isinstance(data_type, str):
        if data_type in _V3_TYPES:
            found = _V3_TYPES[data_type]
            return found if found.startswith("|") else _check_dtype("|" + found if found[1:] == "1" else endian + found)
        if re.fullmatch(r"r\d{1,9}", data_type) and int(data_type[1:]) % 8 == 0:
            return _check_dtype(f"|V{int(data_type[1:]) // 8}")  # type: ignore[no-any-return]
    if isinstance(data_type, dict) and data_type.get("name") == "null_terminated_bytes":
        length = _configuration(data_type, "null_terminated_bytes").get("length_bytes")
        return _check_dtype(f"|S{length}")  # type: ignore[no-any-return]
    raise MalformedError(f"the data_type is {str(data_type)[:80]}, which this package does not know")


def _v3_codecs(codecs: Sequence[Any]) -> tuple[list[Mapping[str, Any]], str, str | None]:
    """Codecs of numcodecs in the order of encoding, the byte order, and why the chunks cannot be decoded."""
    filters: list[Mapping[str, Any]] = []
    endian, refusal = "<", None
    for codec in codecs:
        name = codec.get("name")
        options = codec.get("configuration") or {}
        if not isinstance(name, str) or not isinstance(options, dict):
            raise MalformedError("a codec without a name")
        if name == "bytes":
            endian = ">" if options.get("endian") == "big" else "<"
        elif name == "vlen-utf8":
            filters.append({"id": "vlen-utf8"})
        elif name.startswith("numcodecs."):
            filters.append({"id": name.removeprefix("numcodecs."), **{k: v for k, v in options.items() if k != "id"}})
        elif name in ("gzip", "zstd"):
            filters.append({"id": name, "level": options.get("level", 0)})
        elif name == "blosc":
            shuffles = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
            shuffle = shuffles.get(str(options.get("shuffle")), 0)
            filters.append({"id": "blosc", **options, "shuffle": shuffle})
        else:
            refusal = f"its codec {name[:50]!r} is not one of HDF5's filters nor of numcodecs"
    return filters, endian, refusal
