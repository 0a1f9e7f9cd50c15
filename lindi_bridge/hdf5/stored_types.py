"""Stored datatypes, compared by all that the file says of them."""

from __future__ import annotations

from typing import Any

from h5py import h5t

__all__ = ["described_type", "is_type", "lists_padded_strings"]


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
