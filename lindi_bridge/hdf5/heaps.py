"""Where the contents of variable-length values lie: global heap collections.

A variable-length value is stored in its dataset as a 16-byte descriptor: length (4 bytes), address of a global
heap collection (8), index in it (4) (HDF5 File Format Specification 3.0, sections III.E "Global Heap" and IV.A.2.d
class 9). A collection begins with ``GCOL``, a version, and its size. This is used for hints only: which
collections will be read. The strings themselves are read by libhdf5.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from h5py import h5p, h5t

__all__ = ["collection_addresses", "collection_size", "decode_stored", "pipeline", "stored_layout"]

_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3


_DESCRIPTOR = 16


def stored_layout(type_id: h5t.TypeID) -> tuple[int, list[int]]:
    """How one element lies in the file.

    libhdf5 reports the sizes and offsets of a type as they would be in memory, where a string is a pointer of
    8 bytes; in the file it is a descriptor of 16.

    Returns
    -------
    itemsize : int
        Bytes of an element in the file.
    offsets : list of int
        Byte offsets of the variable-length descriptors in it; empty if there are none.
    """
    if isinstance(type_id, h5t.TypeVlenID) or (isinstance(type_id, h5t.TypeStringID) and type_id.is_variable_str()):
        return _DESCRIPTOR, [0]
    if isinstance(type_id, h5t.TypeCompoundID):
        itemsize, offsets = type_id.get_size(), []
        members = range(type_id.get_nmembers())
        for member in sorted(members, key=type_id.get_member_offset):
            inner = type_id.get_member_type(member)
            grown = itemsize - type_id.get_size()
            size, within = stored_layout(inner)
            offsets += [type_id.get_member_offset(member) + grown + offset for offset in within]
            itemsize += size - inner.get_size()
        return itemsize, offsets
    if isinstance(type_id, h5t.TypeArrayID):
        size, within = stored_layout(type_id.get_super())
        count = int(np.prod(type_id.get_array_dims()))
        return count * size, [k * size + offset for k in range(count) for offset in within]
    return type_id.get_size(), []


def decode_stored(
    data: bytes, filters: Sequence[tuple[int, tuple[int, ...]]], mask: int, most: int | None = None
) -> bytes | None:
    """Undo deflate, shuffle and fletcher32.

    Parameters
    ----------
    data : bytes
        A chunk as it is stored.
    filters : sequence
        The pipeline, as :func:`pipeline` gives it.
    mask : int
        Bit k set: filter k was skipped.
    most : int, optional
        Bytes to decompress at the most.

    Returns
    -------
    bytes or None
        None where another filter was used, the data is damaged, or it is more than ``most``.
    """
    for position, (filter_id, values) in reversed(list(enumerate(filters))):
        if mask >> position & 1:
            continue
        if filter_id == _DEFLATE:
            inflater = zlib.decompressobj()
            try:
                data = inflater.decompress(data, 0 if most is None else most)
            except zlib.error:
                return None
            if not inflater.eof:
                return None
        elif filter_id == _SHUFFLE:
            size = values[0] if values else 1  # told no size, as for variable-length types, it does nothing
            whole = len(data) // size * size
            shuffled = np.frombuffer(data, np.uint8, whole).reshape(size, -1)
            data = shuffled.T.tobytes() + data[whole:]
        elif filter_id == _FLETCHER32:
            data = data[:-4]
        else:
            return None
    return data


def pipeline(create: h5p.PropDCID) -> list[tuple[int, tuple[int, ...]]]:
    """The filters of a dataset creation property list: (id, client values)."""
    return [(f[0], tuple(f[2])) for f in (create.get_filter(k) for k in range(create.get_nfilters()))]


def collection_addresses(data: bytes, itemsize: int, offsets: Sequence[int]) -> npt.NDArray[np.int64]:
    """Distinct addresses of the heap collections that raw elements point to, sorted."""
    rows = np.frombuffer(data, np.uint8, len(data) // itemsize * itemsize).reshape(-1, itemsize)
    found = []
    for offset in offsets:
        length = np.ascontiguousarray(rows[:, offset : offset + 4]).view("<u4")[:, 0]
        address = np.ascontiguousarray(rows[:, offset + 4 : offset + 12]).view("<i8")[:, 0]
        found.append(address[(length > 0) & (address > 0)])
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def collection_size(header: bytes) -> int | None:
    """Bytes of a heap collection from its first 16 bytes, or None if that is none."""
    if header[:4] != b"GCOL" or len(header) < 16:
        return None
    return int.from_bytes(header[8:16], "little")
