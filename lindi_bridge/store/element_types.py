"""Which Zarr data type the elements of a dataset have, and whether their stored bytes are already those of Zarr."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import h5py
import numpy as np
from h5py import h5t

from lindi_bridge.indexer.text_rows import is_text_row
from lindi_bridge.indexer.zarr_types import converted_dtype, element_dtype

__all__ = ["ElementType", "Text", "element_type"]


class Text(Enum):
    """What the strings of an array say that Zarr has no other type for."""

    STRING = "the strings themselves"
    PATH = "the path of the object that a reference leads to; empty for a null reference"
    JSON = "the element in JSON"


@dataclass(frozen=True)
class ElementType:
    """The type of an array's elements.

    Parameters
    ----------
    dtype : numpy.dtype, optional
        Of the values that zarr hands out; None for strings, and for records that have to be measured.
    stored : bool
        The stored bytes of an element are those of ``dtype``, so that chunks can be handed on as they are.
    text : Text, optional
        What the strings are, where ``dtype`` is None.
    inner : tuple of int
        Further axes, where an HDF5 element is itself an array.
    measured : bool
        Records with strings, which need room for the longest: only the values tell.
    """

    dtype: np.dtype[Any] | None
    stored: bool = False
    text: Text | None = None
    inner: tuple[int, ...] = ()
    measured: bool = False


def element_type(type_id: h5t.TypeID, dtype: np.dtype[Any], strings: bool) -> ElementType:
    """The type that the elements of a dataset have in Zarr. There is one for everything that numpy can read.

    Parameters
    ----------
    type_id : h5py.h5t.TypeID
        The stored type.
    dtype : numpy.dtype
        The same as h5py shows it.
    strings : bool
        Whether bytes of fixed length are meant as strings.
    """
    string = h5py.check_string_dtype(dtype)
    if string is not None and (string.length is None or strings):
        return ElementType(None, text=Text.STRING)
    if h5py.check_ref_dtype(dtype) is h5py.Reference:
        return ElementType(None, text=Text.PATH)
    if dtype.subdtype is not None:
        base, inner = dtype.subdtype
        found = element_type(type_id.get_super(), base, strings)
        return replace(found, stored=False, inner=(*inner, *found.inner))
    stored = element_dtype(type_id)
    if stored is not None and (stored.names is None or stored == stored.newbyteorder("<")):
        return ElementType(stored, stored=True)
    converted = converted_dtype(dtype)
    if converted is not None:
        return ElementType(converted.newbyteorder("<"))
    return ElementType(None, measured=True) if is_text_row(dtype) else ElementType(None, text=Text.JSON)
