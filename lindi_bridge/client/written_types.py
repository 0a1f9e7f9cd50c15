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
from lindi_bridge.hdf5.stored_types import lists_padded_strings
from lindi_bridge.indexer.dtypes import describe_dtype
from lindi_bridge.model.text import stored_name

__all__ = ["described_dtype", "memory_type", "plain_dtype", "stored_type", "type_from_text"]

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


def memory_type(dtype: np.dtype[Any], stored: h5t.TypeID) -> h5t.TypeID:
    """The type of values in memory that are written as elements of a stored type.

    h5py's, but for strings of fixed length, which are padded as the stored ones are: else libhdf5 cuts the last
    character of a string that fills its room where the file has strings that end in a null, and loses spaces at the end
    where it has them padded with spaces.

    Parameters
    ----------
    dtype : numpy.dtype
        Of the values.
    stored : h5py.h5t.TypeID
        In the file; its members need not lie where those of ``dtype`` do.

    Raises
    ------
    TypeError
        Strings in lists of variable length, whose type in memory is h5py's own affair.
    """
    if isinstance(stored, h5t.TypeStringID) and dtype.kind == "S" and dtype.itemsize == stored.get_size():
        return stored
    if isinstance(stored, h5t.TypeArrayID) and dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return h5t.array_create(memory_type(base, stored.get_super()), shape)
    if isinstance(stored, h5t.TypeVlenID) and lists_padded_strings(stored):
        raise TypeError("h5py writes no lists of strings that are padded with spaces or end in a null")
    if isinstance(stored, h5t.TypeCompoundID) and dtype.names and dtype.fields is not None:
        members = {stored.get_member_name(k): stored.get_member_type(k) for k in range(stored.get_nmembers())}
        made = h5t.create(h5t.COMPOUND, dtype.itemsize)
        for name in dtype.names:
            inner, offset = dtype.fields[name][:2]
            encoded = stored_name(name)
            member = members.get(encoded)
            made.insert(encoded, offset, h5t.py_create(inner) if member is None else memory_type(inner, member))
        return made
    return h5t.py_create(dtype)
