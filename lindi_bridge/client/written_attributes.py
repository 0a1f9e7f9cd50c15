"""Attributes of a document, written to the file in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import h5py
import numpy as np
from h5py import h5a, h5p, h5s, h5t

from lindi_bridge.client.written_nans import with_nan_bits
from lindi_bridge.client.written_types import described_dtype, memory_type, stored_type
from lindi_bridge.client.written_values import SPECIAL, ReferenceMaker, array_of
from lindi_bridge.document.problems import MalformedError
from lindi_bridge.model.text import stored_name

__all__ = [
    "ANNOTATION_NAMES",
    "Attribute",
    "RefusedError",
    "attribute_nbytes",
    "attribute_order",
    "attributes_of",
    "inferred_attribute",
    "write_attribute",
]

ANNOTATION_NAMES = frozenset(["_SCALAR", "_SOFT_LINK", "_COMPOUND_DTYPE", "_EXTERNAL_ARRAY_LINK"])
"""Members of ``.zattrs`` that say something of the object and are no attributes of it."""

_LARGE = 60_000
"""Bytes. Larger than 64 KiB need the storage that goes with a recorded order (``H5Pset_attr_phase_change``)."""


_MOST_BYTES = 64 * 1024 * 1024
"""Of one attribute."""


class RefusedError(MalformedError):
    """A value that is one of its type, and that libhdf5 does not take all the same."""


class Attribute(NamedTuple):
    """One attribute, ready to be written but for references.

    ``committed_type`` is the path of the committed datatype that it has.
    """

    name: str
    dtype: np.dtype[Any]
    type_id: h5t.TypeID
    shape: tuple[int, ...] | None
    items: list[Any]
    committed_type: str | None = None


def attributes_of(plain: Mapping[str, Any], annotation: Mapping[str, Any], edited: bool) -> Iterator[Attribute]:
    """The attributes of an object.

    Parameters
    ----------
    plain : mapping
        ``.zattrs``.
    annotation : mapping
        What the document says of the object besides.
    edited : bool
        ``.zattrs`` may be newer than the annotation: a type that does not fit is left out of account.

    Raises
    ------
    MalformedError
        A value has no HDF5 form.
    """
    typed = annotation.get("attributes", {})
    if not isinstance(typed, dict) or not all(isinstance(t, dict) for t in typed.values()):
        raise MalformedError("its annotation has damaged attributes")
    for name in (*plain, *typed):
        try:
            stored_name(name)
        except UnicodeEncodeError:
            raise MalformedError(f"an attribute whose name {name[:100]!a} is no Unicode") from None
    names = [name for name in plain if name not in ANNOTATION_NAMES or name in typed]
    names += [name for name, t in typed.items() if name not in plain and _has_value(t)]
    order = annotation.get("attributes_in_order")
    if isinstance(order, list):
        position = {name: k for k, name in enumerate(order) if isinstance(name, str)}
        names.sort(key=lambda name: position.get(name, len(position)))
    else:
        names.sort(key=stored_name)
    for name in names:
        if not name or "\0" in name:
            raise MalformedError("an attribute without a name")
        own = typed.get(name)
        try:
            if own is None:
                yield inferred_attribute(name, plain[name])
                continue
            # Names of annotations say something else in .zattrs.
            if name in plain and name not in ANNOTATION_NAMES and _has_value(own):
                if not edited:
                    raise MalformedError("its annotation has a value of it, and .zattrs have one too")
                yield inferred_attribute(name, plain[name])
                continue
            try:
                yield _typed(name, own, plain.get(name))
            except MalformedError:
                if not edited or name not in plain:
                    raise
                yield inferred_attribute(name, plain[name])
        except MalformedError as error:
            raise MalformedError(f"attribute {name[:100]!r}: {error}") from None


def _has_value(typed: Mapping[str, Any]) -> bool:
    """Whether an annotation says an attribute without ``.zattrs``."""
    return "value" in typed or typed.get("shape", ()) is None


def inferred_attribute(name: str, value: Any) -> Attribute:
    """An attribute of which only its JSON is known."""
    dtype, shape, items = _infer(value)
    return Attribute(name, dtype, h5t.py_create(dtype, logical=True), shape, items)


def _typed(name: str, annotation: Mapping[str, Any], value: Any) -> Attribute:
    dtype = described_dtype(annotation.get("dtype"))
    type_id = stored_type(annotation, dtype)
    committed = annotation.get("committed_type")
    shape = annotation.get("shape", [])
    if shape is None:
        return Attribute(name, dtype, type_id, None, [], committed)
    if not isinstance(shape, list) or len(shape) > 32 or not all(type(n) is int and n >= 0 for n in shape):
        raise MalformedError("its annotation has an impossible shape")
    items = with_nan_bits([annotation.get("value", value)], annotation.get("nan", {}))
    for length in shape:
        if not all(isinstance(item, list) and len(item) == length for item in items):
            raise MalformedError("its value has not the shape that its annotation says")
        items = [inner for item in items for inner in item]
    if len(items) * max(dtype.itemsize, int(type_id.get_size())) > _MOST_BYTES:
        raise MalformedError(f"its annotation says a value of more than {_MOST_BYTES} bytes")
    return Attribute(name, dtype, type_id, tuple(shape), items, committed)


def attribute_order(attributes: list[Attribute]) -> int:
    """The order that an object must record to have its attributes: 0 unless one of them is large."""
    if any(attribute_nbytes(attribute) > _LARGE for attribute in attributes):
        return int(h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED)
    return 0


def attribute_nbytes(attribute: Attribute) -> int:
    """Bytes of an attribute; values of variable length lie elsewhere, and count as their descriptors."""
    return len(attribute.items) * int(attribute.type_id.get_size())


def write_attribute(obj: Any, attribute: Attribute, reference: ReferenceMaker) -> None:
    """Write an attribute to an object.

    Raises
    ------
    MissingTargetError
        A reference leads nowhere.
    RefusedError
        libhdf5 refuses the value; nothing of it is left.
    MalformedError
        The value is none of its type.
    """
    name = stored_name(attribute.name)
    try:
        if attribute.shape is None:
            h5a.create(obj, name, attribute.type_id, h5s.create(h5s.NULL))
            return
        values = _values(attribute.items, attribute.dtype, attribute.shape, reference)
        memory = memory_type(attribute.dtype, attribute.type_id)
        space = h5s.create_simple(attribute.shape) if attribute.shape else h5s.create(h5s.SCALAR)
        made = h5a.create(obj, name, attribute.type_id, space)
        if values.size:
            _write(obj, name, made, values, memory)
    except MalformedError as error:
        raise type(error)(f"attribute {attribute.name[:100]!r}: {error}") from None
    except (OSError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise RefusedError(f"attribute {attribute.name[:100]!r} cannot be written: {error}") from None


def _values(
    items: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...], reference: ReferenceMaker
) -> np.ndarray[Any, Any]:
    try:
        return array_of(items, dtype, shape, reference)
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, MalformedError):
            raise
        raise MalformedError(f"its value does not fit the type {dtype}: {error}") from None


def _write(obj: Any, name: bytes, made: h5a.AttrID, values: np.ndarray[Any, Any], memory: h5t.TypeID) -> None:
    try:
        made.write(values, memory)
    except BaseException:
        h5a.delete(obj, name)
        raise


# -- attributes without a type ------------------------------------------------------------------------------------


def _infer(value: Any) -> tuple[np.dtype[Any], tuple[int, ...] | None, list[Any]]:
    """Dtype, shape and elements of an attribute of which only its JSON is known, as h5py would write it.

    Integers are 64 bits wide, floats doubles, strings of variable length; lists whose members have one type are arrays.
    ``"NaN"`` and the infinities are numbers, as LINDI writes them. Null is an empty attribute. Anything else has no
    HDF5 type, and is kept as its JSON text.
    """
    if value is None:
        return np.dtype("f8"), None, []
    flat, shape = _regular(value)
    dtype = _common_dtype(flat) if flat is not None else None
    if dtype is None:
        return h5py.string_dtype(), (), [json.dumps(value)]
    assert flat is not None
    return dtype, shape, flat


def _regular(value: Any) -> tuple[list[Any] | None, tuple[int, ...]]:
    """The elements and the shape of nested lists; None if they are ragged."""
    shape: list[int] = []
    flat = [value]
    while flat and isinstance(flat[0], list):
        lengths = {len(item) if isinstance(item, list) else -1 for item in flat}
        if len(lengths) > 1 or len(shape) == 32:
            return None, ()
        shape.append(lengths.pop())
        flat = [inner for item in flat for inner in item]
    if any(isinstance(item, list) for item in flat):
        return None, ()
    return flat, tuple(shape)


def _common_dtype(flat: list[Any]) -> np.dtype[Any] | None:
    if not flat:
        return np.dtype("f8")
    if all(isinstance(item, bool) for item in flat):
        return np.dtype(np.bool_)
    if all(type(item) is int for item in flat):
        if min(flat) >= -(1 << 63) and max(flat) < 1 << 63:
            return np.dtype("i8")
        return np.dtype("u8") if min(flat) >= 0 and max(flat) < 1 << 64 else None
    if all(_is_double(item) for item in flat):
        return np.dtype("f8")
    if all(isinstance(item, str) for item in flat):
        text: np.dtype[Any] = h5py.string_dtype()
        return None if any("\0" in item for item in flat) else text
    if all(isinstance(item, dict) and isinstance(item.get("_REFERENCE"), dict) for item in flat):
        regions = ["selection" in item["_REFERENCE"] for item in flat]
        if all(regions) or not any(regions):
            reference: np.dtype[Any] = h5py.regionref_dtype if regions[0] else h5py.ref_dtype
            return reference
    return None


def _is_double(item: Any) -> bool:
    """Whether a double holds a member of an attribute, and all of it."""
    if type(item) is int:
        return abs(item) <= 1 << 53
    return type(item) is float or (isinstance(item, str) and item in SPECIAL)
