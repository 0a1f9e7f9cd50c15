"""Attributes as plain Zarr readers take them: what stands in ``.zattrs`` is the value, and nothing else is there."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from lindi_bridge.indexer.values import (
    ABSENT,
    RESERVED_ATTRIBUTES,
    EncodedAttribute,
    ReferenceEncoder,
    encode_attribute,
    typed_attribute,
)
from lindi_bridge.model.text import stored_name

__all__ = ["encode_zarr_attribute"]

JSONValue = Any

_SAID_OTHERWISE = {"DIMENSION_LIST", "REFERENCE_LIST"}
"""Of the HDF5 Dimension Scales Specification: ``_ARRAY_DIMENSIONS`` says the same."""


def encode_zarr_attribute(
    attributes: h5py.AttributeManager, name: str, reference: ReferenceEncoder
) -> EncodedAttribute:
    """Encode one attribute.

    NaN and infinities, for which JSON has no number, are left out and not written as text. References to objects are
    LINDI's ``_REFERENCE``, which nobody takes for another value.
    """
    found = encode_attribute(attributes, name, reference)
    value, annotation = found.value, found.annotation
    attribute_id = attributes.get_id(stored_name(name))
    dtype: np.dtype[Any] = attribute_id.dtype
    if value is not ABSENT:
        if dtype.kind != "f" or not _holds_text(value):
            return found
        typed = annotation or typed_attribute(attributes, name)
        # The fill value of the array says it, and JSON of other writers does not.
        said = name == "_FillValue" and attribute_id.shape in ((), (1,))
        loss = None if said else "is left out: JSON has no number for NaN and infinities"
        return EncodedAttribute(ABSENT, typed | {"value": value}, loss)
    if name in _SAID_OTHERWISE:
        return found
    if attribute_id.shape is not None and name not in RESERVED_ATTRIBUTES and h5py.check_string_dtype(dtype):
        text = annotation["value"]
        if _holds_only_text(text):  # "NaN" as a string; LINDI's readers take it for a number
            return EncodedAttribute(text, {key: v for key, v in annotation.items() if key != "value"})
    return found._replace(loss=f"is left out: {_why_absent(name, dtype, attribute_id.shape)}")


def _holds_text(value: JSONValue) -> bool:
    return any(map(_holds_text, value)) if isinstance(value, list) else isinstance(value, str)


def _holds_only_text(value: JSONValue) -> bool:
    return all(map(_holds_only_text, value)) if isinstance(value, list) else isinstance(value, str)


def _why_absent(name: str, dtype: np.dtype[Any], shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "JSON has no empty value with a type"
    if name in RESERVED_ATTRIBUTES:
        return "readers of LINDI's format take it for an annotation"
    return f"JSON has no values of type {dtype}"
