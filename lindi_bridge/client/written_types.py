"""HDF5 datatypes from what a document says of them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np
from h5py import h5t

from lindi_bridge.document.problems import MalformedError
from lindi_bridge.indexer.dtypes import describe_dtype

__all__ = ["described_dtype", "plain_dtype", "stored_type", "type_from_text"]

_MOST_ITEMSIZE = 1 << 28
_MOST_DEPTH = 16
_TYPE_STRING = re.compile(r"[<>|=]?(?:[biufcSV]\d{1,9}|[mM]8(?:\[\d{0,9}[A-Za-z]{1,2}\])?)", re.ASCII)


def described_dtype(description: Any, depth: int = 0) -> np.dtype[Any]:
    """The dtype that an annotation describes; the inverse of ``indexer.dtypes.describe_dtype``.

    Raises
    ------
    MalformedError
        It describes none.
    """
    if depth > _MOST_DEPTH:
        raise MalformedError("a type nested too deep")
    try:
        dtype = _described(description, depth)
    except MalformedError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, MemoryError) as error:
        raise MalformedError(f"its annotation describes no type: {error}") from None
    if dtype.itemsize > _MOST_ITEMSIZE:
        raise MalformedError(f"an element of {dtype.itemsize} bytes is impossibly large")
    return dtype


def _described(description: Any, depth: int) -> np.dtype[Any]:
    if isinstance(description, str):
        return plain_dtype(description)
    if "string" in description:
        length = description.get("length")
        if length is not None and not 0 < length <= _MOST_ITEMSIZE:
            raise MalformedError("a string of an impossible length")
        return h5py.string_dtype(description["string"], length)  # type: ignore[no-any-return]
    if "enum" in description:
        members = {str(name): int(value) for name, value in description["enum"].items()}
        return h5py.enum_dtype(members, plain_dtype(description["base"]))  # type: ignore[no-any-return]
    if "reference" in description:
        kinds = {"object": h5py.ref_dtype, "region": h5py.regionref_dtype}
        return kinds[description["reference"]]  # type: ignore[no-any-return]
    if "vlen" in description:
        return h5py.vlen_dtype(described_dtype(description["vlen"], depth + 1))  # type: ignore[no-any-return]
    if "array" in description:
        base = described_dtype(description["array"], depth + 1)
        shape = tuple(description["shape"])
        if not shape or not all(type(n) is int and 0 < n <= _MOST_ITEMSIZE for n in shape) or len(shape) > 32:
            raise MalformedError("an array type of an impossible shape")
        if base.itemsize * float(np.prod(shape, dtype=np.float64)) > _MOST_ITEMSIZE:
            raise MalformedError("an array type of an impossible shape")
        return np.dtype((base, shape))
    fields = description["compound"]
    return np.dtype(
        {
            "names": [name for name, _, _ in fields],
            "formats": [described_dtype(inner, depth + 1) for _, inner, _ in fields],
            "offsets": [offset for _, _, offset in fields],
            "itemsize": description["itemsize"],
        }
    )


def plain_dtype(text: Any) -> np.dtype[Any]:
    """The dtype of a type string, or of a list of fields as in ``.zarray``, as h5py wants it for HDF5."""
    if isinstance(text, (list, tuple)):
        return np.dtype([_field(f) for f in text])
    if not isinstance(text, str) or not _TYPE_STRING.fullmatch(text):
        raise MalformedError(f"the type {str(text)[:50]!r} has no HDF5 type")
    try:
        dtype = np.dtype(text)
    except (TypeError, ValueError) as error:
        raise MalformedError(f"the type {text!r}: {error}") from None
    if dtype.itemsize == 0 or dtype.itemsize > _MOST_ITEMSIZE:
        raise MalformedError(f"the type {text!r} has an impossible size")
    return h5py.opaque_dtype(dtype) if dtype.kind in "mM" else dtype


def _field(field: Sequence[Any]) -> tuple[Any, ...]:
    name, inner, *shape = field
    return (name, plain_dtype(inner), *(tuple(s) for s in shape))


def type_from_text(text: Any) -> h5t.TypeID:
    """A stored type from its encoding (``H5Tencode``) in base64."""
    try:
        encoded = base64.b64decode(text, validate=True)
        if not 4 < len(encoded) < 1 << 16:
            raise MalformedError("its annotation describes no type")
        return h5t.decode(encoded)
    except (binascii.Error, TypeError, ValueError, RuntimeError, OSError) as error:
        raise MalformedError(f"its annotation describes no type: {error}") from None


def stored_type(annotation: Mapping[str, Any], dtype: np.dtype[Any]) -> h5t.TypeID:
    """The type in the file: the one that the annotation encodes, else what h5py makes of the dtype."""
    if "type" in annotation:
        found = type_from_text(annotation["type"])
        try:
            # numpy's own comparison knows nothing of what elements of variable length, references and enums are.
            same = describe_dtype(found.dtype) == describe_dtype(dtype)
        except TypeError:
            same = False
        if not same:
            raise MalformedError("its annotation describes two types that do not agree")
        return found
    try:
        return h5t.py_create(dtype, logical=True)
    except (TypeError, ValueError) as error:
        raise MalformedError(f"HDF5 has no type for {dtype}: {error}") from None
