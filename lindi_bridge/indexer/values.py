"""Attribute values and elements of datasets as JSON, with the type where JSON would lose it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import h5py
import numpy as np
from h5py import h5o, h5r, h5s, h5t

from lindi_bridge.hdf5.stored_types import has_overlapping_members, lists_padded_strings
from lindi_bridge.hdf5.walk import header_address
from lindi_bridge.indexer.attribute import attribute_or_none
from lindi_bridge.indexer.dtypes import (
    describe_dtype,
    encoded_type,
    holds_nested_array,
)
from lindi_bridge.indexer.nans import nan_bits
from lindi_bridge.model.floats import UnusualNaN, is_usual_nan, number_bytes, real_parts
from lindi_bridge.model.text import stored_name

__all__ = [
    "ABSENT",
    "NAMELESS_TYPE",
    "RESERVED_ATTRIBUTES",
    "EncodedAttribute",
    "ReferenceEncoder",
    "encode_attribute",
    "encode_element",
    "typed_attribute",
]

JSONValue = Any

RESERVED_ATTRIBUTES = frozenset(["_SCALAR", "_SOFT_LINK", "_REFERENCE", "_COMPOUND_DTYPE", "_EXTERNAL_ARRAY_LINK"])
"""Names that readers take for annotations, so that a user's attribute cannot have them in ``.zattrs``."""

NAMELESS_TYPE = "is committed and has no name, which counts in the HDF5 file only"
"""What is to be said of a committed datatype whose links have been deleted."""
_SPECIAL = {"NaN", "Infinity", "-Infinity"}
ABSENT = object()


class ReferenceEncoder:
    """Turns references into LINDI's ``_REFERENCE`` objects.

    Parameters
    ----------
    root : h5py.Group
        Root group of the file.
    path_of : callable
        Canonical path of an object by the address of its header, or None.
    """

    def __init__(self, root: h5py.Group, path_of: Callable[[int], str | None]) -> None:
        self._root = root
        self._path_of = path_of
        self._source_object_id = _text(attribute_or_none(root.attrs, "object_id"))

    def path_of_type(self, type_id: h5t.TypeID) -> str | None:
        """The path of a committed datatype; None of one that has no name any more."""
        return self._path_of(h5o.get_info(type_id).addr)

    def __call__(self, reference: h5py.Reference) -> JSONValue:
        """Encode an object or region reference; a null reference has path null."""
        if not reference:
            return {"_REFERENCE": {"source": ".", "path": None, "object_id": None, "source_object_id": None}}
        try:
            target = h5r.dereference(reference, self._root.id)
        except (KeyError, OSError, RuntimeError) as problem:
            raise ValueError("the reference is damaged") from problem
        if target is None:
            raise ValueError("the reference points to nothing")
        path = self._path_of(header_address(target))
        if path is None:
            raise ValueError("the reference points to an object without a name")
        attributes = h5py.AttributeManager(h5py.HLObject(target))
        value: dict[str, JSONValue] = {
            "source": ".",
            "path": path,
            "object_id": _text(attribute_or_none(attributes, "object_id")),
            "source_object_id": self._source_object_id,
        }
        if isinstance(reference, h5py.RegionReference):
            value["selection"] = _selection(h5r.get_region(reference, self._root.id))
        return {"_REFERENCE": value}


def _selection(space: h5s.SpaceID) -> JSONValue:
    """A dataspace selection: ``all``, ``none``, or its points or blocks (first and last corner, inclusive)."""
    kind = space.get_select_type()
    if kind == h5s.SEL_ALL:
        return "all"
    if kind == h5s.SEL_NONE:
        return "none"
    if kind == h5s.SEL_POINTS:
        return {"points": space.get_select_elem_pointlist().tolist()}
    return {"blocks": space.get_select_hyper_blocklist().tolist()}


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def encode_element(value: Any, dtype: np.dtype[Any], reference: Callable[[Any], JSONValue]) -> JSONValue:
    """One element of an array of ``dtype``, or an array field of it, as JSON.

    NaN (an ``UnusualNaN`` where it has other bits than that text says) and infinities as LINDI writes them; complex
    numbers as ``[real, imaginary]``; bytes that are not UTF-8, and opaque values, as ``{"base64": ...}``.
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return _nest([encode_element(v, base, reference) for v in np.asarray(value, base).reshape(-1)], shape)
    if dtype.names:
        return [encode_element(value[name], dtype[name], reference) for name in dtype.names]
    if h5py.check_ref_dtype(dtype) is not None:
        return reference(value)
    vlen = h5py.check_vlen_dtype(dtype)
    if vlen is not None and h5py.check_string_dtype(dtype) is None:
        base = np.dtype(vlen)
        return [encode_element(v, base, reference) for v in _in_stored_order(np.asarray(value), base)]
    return _encode_scalar(value, dtype)


def _in_stored_order(items: np.ndarray[Any, Any], base: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A list of variable length with the numbers that are stored; h5py 3.16 takes foreign byte order for its own.

    Dates in lists, which are opaque in HDF5, lose their unit as well.
    """
    if base.kind in "mM" and items.dtype.kind == base.kind:
        return items.view(base)
    mistaken = not base.isnative and items.dtype == base.newbyteorder("=") and _takes_foreign_order_for_native()
    return items.view(base) if mistaken else items


@cache
def _takes_foreign_order_for_native() -> bool:
    foreign = np.dtype("i2").newbyteorder()
    with h5py.File("a", "w", driver="core", backing_store=False) as file:
        dataset = file.create_dataset("x", (1,), h5py.vlen_dtype(foreign))
        dataset[0] = np.ones(1, foreign)
        return int(dataset[0][0]) != 1


def _base64(data: bytes) -> str:
    return base64.standard_b64encode(data).decode("ascii")


def _encode_scalar(value: Any, dtype: np.dtype[Any]) -> JSONValue:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": _base64(value)}
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    # numpy takes lengths of time for integers.
    if isinstance(value, (int, np.integer)) and not isinstance(value, np.timedelta64):
        return int(value)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if number != number:
            stored = np.asarray(value).astype(dtype)
            return "NaN" if is_usual_nan(stored) else UnusualNaN(number_bytes(stored))
        if type(value)(number) != value:  # a long double
            return {"base64": _base64(number_bytes(np.asarray(value).astype(dtype)))}
        if number in (np.inf, -np.inf):
            return "Infinity" if number > 0 else "-Infinity"
        return number
    if isinstance(value, (complex, np.complexfloating)):
        stored = np.asarray(value).astype(dtype)
        parts = [_encode_scalar(part, real_parts(stored).dtype) for part in real_parts(stored)]
        # Else a complex of long doubles.
        return {"base64": _base64(number_bytes(stored))} if any(isinstance(p, dict) for p in parts) else parts
    stored = np.asarray(value)
    return {"base64": _base64((stored.astype(dtype) if dtype.kind in "mM" else stored).tobytes())}


def typed_attribute(attributes: h5py.AttributeManager, name: str) -> dict[str, JSONValue]:
    """The type and shape of an attribute."""
    attribute_id = attributes.get_id(stored_name(name))
    dtype, shape = attribute_id.dtype, attribute_id.shape
    annotation: dict[str, JSONValue] = {"dtype": describe_dtype(dtype), "shape": None if shape is None else list(shape)}
    stored = encoded_type(attribute_id.get_type(), dtype)
    if stored is not None:
        annotation["type"] = stored
    return annotation


class EncodedAttribute(NamedTuple):
    """One attribute in JSON.

    Parameters
    ----------
    value : JSON value
        What other readers see in ``.zattrs``, or ``ABSENT`` where plain JSON cannot say it.
    annotation : JSON value
        ``{dtype, shape}`` where JSON loses the type, or the bits of NaNs, which are ``nan`` then; with ``value`` where
        ``value`` is ABSENT; None otherwise. ``shape`` is null for an empty dataspace.
    loss : str, optional
        What is to be said of it, after its name, where other readers, or those that build the file anew, do not have it
        or not whole.
    """

    value: JSONValue
    annotation: JSONValue
    loss: str | None = None


def encode_attribute(attributes: h5py.AttributeManager, name: str, reference: ReferenceEncoder) -> EncodedAttribute:
    """Encode one attribute for LINDI's readers.

    Raises
    ------
    ValueError
        It has no JSON form, a dangling reference for one.
    """
    attribute_id = attributes.get_id(stored_name(name))
    dtype, shape = attribute_id.dtype, attribute_id.shape
    if holds_nested_array(dtype):
        raise ValueError(f"arrays of arrays or lists of arrays: {dtype}")
    if has_overlapping_members(dtype):
        raise ValueError(f"h5py has members in each other for it: {dtype}")
    annotation = typed_attribute(attributes, name)
    type_id, loss = attribute_id.get_type(), None
    if type_id.committed():
        committed = reference.path_of_type(type_id)
        if committed is None:
            loss = f"has a type that {NAMELESS_TYPE}"
        else:
            annotation["committed_type"] = committed
    value = attributes[stored_name(name)]
    if isinstance(value, h5py.Empty):
        return EncodedAttribute(ABSENT, annotation, loss)
    encoded = _encode_array(value, dtype, shape, reference)
    bits = nan_bits(encoded)
    if bits:
        annotation["nan"] = bits
    if name in RESERVED_ATTRIBUTES or not _is_plain(dtype, encoded):
        if lists_padded_strings(type_id):
            loss = "counts in the HDF5 file only: lists of strings that are padded with spaces or end in a null"
        return EncodedAttribute(ABSENT, annotation | {"value": encoded}, loss)
    untyped = annotation.keys() == {"dtype", "shape"} and _is_default(dtype, shape, encoded)
    return EncodedAttribute(encoded, None if untyped else annotation, loss)


def _encode_array(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], reference: ReferenceEncoder) -> JSONValue:
    if dtype.subdtype is not None:
        dtype, shape = dtype.subdtype[0], np.shape(value)
    if shape == ():
        return encode_element(value, dtype, reference)
    flat = [encode_element(v, dtype, reference) for v in np.asarray(value).reshape(-1)]
    return _nest(flat, shape)


def _nest(flat: list[JSONValue], shape: tuple[int, ...]) -> JSONValue:
    if len(shape) == 1:
        return flat
    step = int(np.prod(shape[1:]))
    return [_nest(flat[k * step : (k + 1) * step], shape[1:]) for k in range(shape[0])]


def _is_plain(dtype: np.dtype[Any], encoded: JSONValue) -> bool:
    """Whether LINDI's readers get the value right from plain JSON."""
    if h5py.check_ref_dtype(dtype) is h5py.Reference:
        return isinstance(encoded, dict) and encoded["_REFERENCE"]["path"] is not None
    if dtype.kind in "OS":
        return h5py.check_string_dtype(dtype) is not None and _only_plain_strings(encoded)
    return dtype.kind in "biuf" and dtype.subdtype is None and not _holds_base64(encoded)


def _holds_base64(encoded: JSONValue) -> bool:
    return any(map(_holds_base64, encoded)) if isinstance(encoded, list) else isinstance(encoded, dict)


def _only_plain_strings(encoded: JSONValue) -> bool:
    if isinstance(encoded, list):
        return all(_only_plain_strings(item) for item in encoded)
    return isinstance(encoded, str) and encoded not in _SPECIAL


def _is_default(dtype: np.dtype[Any], shape: tuple[int, ...], encoded: JSONValue) -> bool:
    """Whether the value alone tells type and shape: int64, float64, bool, UTF-8 strings, object references."""
    if isinstance(encoded, list) and not encoded:
        return False
    if h5py.check_ref_dtype(dtype) is h5py.Reference:
        return True
    string = h5py.check_string_dtype(dtype)
    if string is not None:
        return string.encoding == "utf-8" and string.length is None
    return h5py.check_enum_dtype(dtype) is None and dtype in (np.dtype("<i8"), np.dtype("<f8"), np.dtype(np.bool_))
