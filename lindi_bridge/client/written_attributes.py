"""Attributes of a document, written to the file in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from h5py import h5a, h5p, h5s, h5t

from lindi_bridge.client.written_types import described_dtype, stored_type
from lindi_bridge.client.written_values import ReferenceMaker, array_of, infer_attribute
from lindi_bridge.document.problems import MalformedError

__all__ = ["ANNOTATION_NAMES", "Attribute", "attribute_order", "attributes_of", "inferred_attribute", "write_attribute"]

ANNOTATION_NAMES = frozenset(["_SCALAR", "_SOFT_LINK", "_COMPOUND_DTYPE", "_EXTERNAL_ARRAY_LINK"])
"""Members of ``.zattrs`` that say something of the object and are no attributes of it."""

_LARGE = 60_000
"""Bytes. Larger than 64 KiB need the storage that goes with a recorded order (``H5Pset_attr_phase_change``)."""


class Attribute(NamedTuple):
    """One attribute, ready to be written but for references."""

    name: str
    dtype: np.dtype[Any]
    type_id: h5t.TypeID
    shape: tuple[int, ...] | None
    items: list[Any]


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
    names = [name for name in plain if name not in ANNOTATION_NAMES or name in typed]
    names += [name for name, t in typed.items() if name not in plain and ("value" in t or t.get("shape", ()) is None)]
    order = annotation.get("attributes_in_order")
    if isinstance(order, list):
        position = {name: k for k, name in enumerate(order) if isinstance(name, str)}
        names.sort(key=lambda name: position.get(name, len(position)))
    else:
        names.sort(key=lambda name: name.encode("utf-8", "surrogateescape"))
    for name in names:
        if not name or "\0" in name:
            raise MalformedError("an attribute without a name")
        own = typed.get(name)
        try:
            if own is None:
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


def inferred_attribute(name: str, value: Any) -> Attribute:
    """An attribute of which only its JSON is known."""
    dtype, shape, items = infer_attribute(value)
    return Attribute(name, dtype, h5t.py_create(dtype, logical=True), shape, items)


def _typed(name: str, annotation: Mapping[str, Any], value: Any) -> Attribute:
    dtype = described_dtype(annotation.get("dtype"))
    type_id = stored_type(annotation, dtype)
    shape = annotation.get("shape", [])
    if shape is None:
        return Attribute(name, dtype, type_id, None, [])
    if not isinstance(shape, list) or len(shape) > 32 or not all(type(n) is int and n >= 0 for n in shape):
        raise MalformedError("its annotation has an impossible shape")
    items = [annotation.get("value", value)]
    for length in shape:
        if not all(isinstance(item, list) and len(item) == length for item in items):
            raise MalformedError("its value has not the shape that its annotation says")
        items = [inner for item in items for inner in item]
    return Attribute(name, dtype, type_id, tuple(shape), items)


def attribute_order(attributes: list[Attribute]) -> int:
    """The order that an object must record to have its attributes: 0 unless one of them is large."""
    if any(_size(attribute) > _LARGE for attribute in attributes):
        return int(h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED)
    return 0


def _size(attribute: Attribute) -> int:
    # Values of variable length lie elsewhere, and count as their descriptors.
    return len(attribute.items) * int(attribute.type_id.get_size())


def write_attribute(obj: Any, attribute: Attribute, reference: ReferenceMaker) -> None:
    """Write an attribute to an object.

    Raises
    ------
    MalformedError
        A reference leads nowhere, or libhdf5 refuses.
    """
    name = attribute.name.encode("utf-8", "surrogateescape")
    try:
        if attribute.shape is None:
            h5a.create(obj, name, attribute.type_id, h5s.create(h5s.NULL))
            return
        values = array_of(attribute.items, attribute.dtype, attribute.shape, reference)
        space = h5s.create_simple(attribute.shape) if attribute.shape else h5s.create(h5s.SCALAR)
        made = h5a.create(obj, name, attribute.type_id, space)
        if values.size:
            made.write(values, h5t.py_create(attribute.dtype))
    except MalformedError as error:
        raise type(error)(f"attribute {attribute.name[:100]!r}: {error}") from None
    except (OSError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise MalformedError(f"attribute {attribute.name[:100]!r} cannot be written: {error}") from None
