"""Datatypes that plain Zarr readers have: numbers, booleans, strings, opaque bytes, and records of these."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
from h5py import h5t

from lindi_bridge.indexer.dtypes import contains_references, stored_dtype, zarr_dtype
from lindi_bridge.model.text import text_name

__all__ = ["converted_dtype", "describe_kind", "element_dtype", "zarr_type"]

# Of numpy's kinds; zarr 3 has no floats longer than 8 bytes.
_LONGEST = {"f": 8, "c": 16}


def element_dtype(type_id: h5t.TypeID) -> np.dtype[Any] | None:
    """The numpy dtype whose bytes are the stored bytes of an HDF5 type, and that Zarr has; else None.

    An array type becomes a dtype with a shape (``subdtype``), whose axes belong to the Zarr array. A compound is a
    structured dtype where nothing lies between its members, as Zarr v2 cannot say more.
    """
    if isinstance(type_id, h5t.TypeArrayID):
        base = element_dtype(type_id.get_super())
        return None if base is None else np.dtype((base, type_id.get_array_dims()))
    plain = stored_dtype(type_id)
    if plain is not None or not isinstance(type_id, h5t.TypeCompoundID):
        return plain if plain is not None and _is_known(plain) else None
    fields = []
    for position in range(type_id.get_nmembers()):
        member = element_dtype(type_id.get_member_type(position))
        name = text_name(type_id.get_member_name(position))
        if member is None or not _may_be_field(member) or not name:
            return None
        fields.append((name, member))
    packed = np.dtype(fields)
    offsets = [type_id.get_member_offset(position) for position in range(len(fields))]
    found: dict[str, Any] = dict(packed.fields or {})
    same = offsets == [found[name][1] for name, _ in fields] and packed.itemsize == type_id.get_size()
    return packed if same else None


def converted_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The dtype that values have as h5py reads them, without metadata and gaps, if Zarr has it; else None."""
    if dtype.subdtype is not None:
        base = converted_dtype(dtype.subdtype[0])
        return None if base is None else np.dtype((base, dtype.subdtype[1]))
    if dtype.names is None:
        return np.dtype(dtype.str) if _is_known(dtype) else None
    members = [converted_dtype(dtype[name]) for name in dtype.names]
    if any(member is None or not _may_be_field(member) for member in members):
        return None
    return np.dtype(list(zip(dtype.names, members, strict=True)))


def _is_known(dtype: np.dtype[Any]) -> bool:
    if dtype.kind not in "biufcSVmM" or dtype.itemsize == 0:
        return False
    return dtype.itemsize <= _LONGEST.get(dtype.kind, dtype.itemsize)


def _may_be_field(dtype: np.dtype[Any]) -> bool:
    """Neither records nor arrays: zarr 3.1 knows none in records, and then reads nothing of the whole group."""
    return dtype.names is None and dtype.subdtype is None


def zarr_type(dtype: np.dtype[Any]) -> str | list[list[str]]:
    """``dtype`` of ``.zarray`` (Zarr specification v2, "Data type encoding")."""
    if dtype.names is None:
        return zarr_dtype(dtype)
    return [[name, zarr_dtype(dtype[name])] for name in dtype.names]


def describe_kind(dtype: np.dtype[Any]) -> str:
    """What a dtype that Zarr does not have is, for people."""
    if contains_references(dtype):
        return "references" if h5py.check_ref_dtype(dtype) is not None else "values that hold references"
    if h5py.check_vlen_dtype(dtype) is not None:
        return "lists of variable length"
    if dtype.names is not None:
        return "compounds with members that are no plain values themselves"
    return f"values of type {dtype}"
