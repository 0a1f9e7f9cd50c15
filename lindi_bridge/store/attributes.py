"""Attributes of HDF5 objects as the plain values that users of Zarr expect: anndata and xarray among them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from lindi_bridge.indexer.values import ReferenceEncoder, encode_element
from lindi_bridge.store.text import reference_path

__all__ = ["collapsed", "plain_attribute", "xarray_fill_value"]

JSONValue = Any


def plain_attribute(
    value: Any, dtype: np.dtype[Any], shape: tuple[int, ...] | None, reference: ReferenceEncoder
) -> JSONValue:
    """An attribute as a value that JSON has, NaN and infinities as numbers.

    Parameters
    ----------
    value
        As h5py reads it.
    dtype, shape
        As h5py shows them; the shape is None for an empty attribute.
    reference : ReferenceEncoder
        For references, which become paths.

    Returns
    -------
    JSON value
        None for an empty attribute. Arrays are nested lists, also those of one element.
    """
    if shape is None:
        return None
    if dtype.subdtype is not None:
        dtype, shape = dtype.subdtype[0], np.shape(value)
    if dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize <= 8):
        return np.asarray(value).tolist()
    if shape == ():
        return _element(value, dtype, reference)
    return _nest([_element(v, dtype, reference) for v in np.asarray(value).reshape(-1)], shape)


def _element(value: Any, dtype: np.dtype[Any], reference: ReferenceEncoder) -> JSONValue:
    if h5py.check_ref_dtype(dtype) is h5py.Reference:
        return reference_path(value, reference)
    return encode_element(value, dtype, reference)


def _nest(flat: list[JSONValue], shape: tuple[int, ...]) -> JSONValue:
    if len(shape) == 1:
        return flat
    step = int(np.prod(shape[1:]))
    return [_nest(flat[k * step : (k + 1) * step], shape[1:]) for k in range(shape[0])]


def xarray_fill_value(value: JSONValue, dtype: np.dtype[Any] | None) -> JSONValue:
    """``_FillValue`` as xarray writes it into Zarr of version 3 (its ``FillValueCoder``), or None where it has no form.

    Floats are the base64 of a little-endian double; complex numbers two of these; bytes their base64.
    """
    if isinstance(value, list):
        if len(value) != 1:
            return None
        value = value[0]
    if value is None:
        return None
    kind = "U" if dtype is None else dtype.kind
    if kind == "f":
        return _double(value)
    if kind == "c":
        return [_double(part) for part in value] if isinstance(value, list) else [_double(value), _double(0.0)]
    if kind in "iu":
        return int(value)
    if kind == "b":
        return bool(value)
    if kind == "S":
        return base64.standard_b64encode(str(value).encode("utf-8")).decode("ascii")
    return str(value)


def _double(value: Any) -> str:
    return base64.standard_b64encode(struct.pack("<d", float(value))).decode("ascii")


def collapsed(attributes: Mapping[str, JSONValue]) -> dict[str, JSONValue]:
    """Attributes with lists of one value made that value: netCDF has no attributes of rank 0."""
    return {
        name: v[0] if isinstance(v, list) and len(v) == 1 and not isinstance(v[0], list) else v
        for name, v in attributes.items()
    }
