"""Stored datatypes, compared by all that the file says of them."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
from h5py import h5t

__all__ = ["described_type", "has_overlapping_members", "is_type", "lists_padded_strings"]


def described_type(type_id: h5t.TypeID) -> Any:
    """A stored type, as nested tuples that are equal where the types are.

    Encodings (``H5Tencode``) and ``H5Tequal`` tell types of two files apart by how and where they are stored, and
    ``H5Tequal`` takes strings of variable length for equal whatever their padding is.
    """
    out: list[Any] = [type(type_id).__name__, type_id.get_size()]
    if isinstance(type_id, h5t.TypeCompoundID):
        for k in range(type_id.get_nmembers()):
            member = described_type(type_id.get_member_type(k))
            out.append((type_id.get_member_name(k), type_id.get_member_offset(k), member))
    elif isinstance(type_id, h5t.TypeEnumID):
        out.append(described_type(type_id.get_super()))
        out += [(type_id.get_member_name(k), type_id.get_member_value(k)) for k in range(type_id.get_nmembers())]
    elif isinstance(type_id, h5t.TypeArrayID):
        out += [type_id.get_array_dims(), described_type(type_id.get_super())]
    elif isinstance(type_id, h5t.TypeVlenID):
        out.append(described_type(type_id.get_super()))
    elif isinstance(type_id, h5t.TypeStringID):
        out += [type_id.is_variable_str(), type_id.get_cset(), type_id.get_strpad()]
    elif isinstance(type_id, h5t.TypeOpaqueID):
        out.append(type_id.get_tag())
    elif isinstance(type_id, h5t.TypeReferenceID):
        out += [type_id.equal(kind) for kind in (h5t.STD_REF_OBJ, h5t.STD_REF_DSETREG)]
    elif isinstance(type_id, h5t.TypeAtomicID):
        out += [type_id.get_order(), type_id.get_precision(), type_id.get_offset(), type_id.get_pad()]
        if isinstance(type_id, h5t.TypeIntegerID):
            out.append(type_id.get_sign())
        if isinstance(type_id, h5t.TypeFloatID):
            out += [type_id.get_fields(), type_id.get_ebias(), type_id.get_norm(), type_id.get_inpad()]
    return tuple(out)


def is_type(found: h5t.TypeID, wanted: h5t.TypeID) -> bool:
    """Whether two types, of one file or of none, are the same."""
    return found == wanted and bool(described_type(found) == described_type(wanted))


def lists_padded_strings(stored: h5t.TypeID, in_list: bool = False) -> bool:
    """Whether an element holds lists of variable length of strings that are padded with spaces or end in a null.

    h5py reads them, and writes none: in memory it has lists of strings that are padded with nulls only.
    """
    if isinstance(stored, h5t.TypeStringID):
        return in_list and not stored.is_variable_str() and stored.get_strpad() != h5t.STR_NULLPAD
    if isinstance(stored, (h5t.TypeArrayID, h5t.TypeVlenID)):
        return lists_padded_strings(stored.get_super(), in_list or isinstance(stored, h5t.TypeVlenID))
    if isinstance(stored, h5t.TypeCompoundID):
        members = (stored.get_member_type(k) for k in range(stored.get_nmembers()))
        return any(lists_padded_strings(member, in_list) for member in members)
    return False


def has_overlapping_members(dtype: np.dtype[Any]) -> bool:
    """Whether members of a compound lie in each other, as h5py has it for numbers that numpy takes more bytes for.

    Reading such a value with h5py 3.16 goes beyond its memory.
    """
    if dtype.subdtype is not None:
        return has_overlapping_members(dtype.subdtype[0])
    vlen = h5py.check_vlen_dtype(dtype)
    if vlen is not None and h5py.check_string_dtype(dtype) is None:
        return has_overlapping_members(np.dtype(vlen))
    if dtype.names is None or dtype.fields is None:
        return False
    places = sorted((dtype.fields[name][1], dtype[name].itemsize) for name in dtype.names)
    ends = [*(offset for offset, _ in places[1:]), dtype.itemsize]
    return any(offset + size > end for (offset, size), end in zip(places, ends, strict=True)) or any(
        has_overlapping_members(dtype[name]) for name in dtype.names
    )
