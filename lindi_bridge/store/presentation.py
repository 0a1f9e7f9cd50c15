"""How one dataset is presented as a Zarr array: shape, chunks, type, codecs, and where its chunks come from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p

from lindi_bridge.hdf5.damage import refuse_source_error
from lindi_bridge.hdf5.heaps import pipeline
from lindi_bridge.indexer.dtypes import declared_fill, describe_dtype, is_never_filled
from lindi_bridge.indexer.filters import codec_configs
from lindi_bridge.indexer.text_rows import RoomError, with_room
from lindi_bridge.store.element_types import ElementType, Text, element_type

__all__ = ["NotPresentableError", "Presentation", "Storage", "present"]

JSONValue = Any

_PIECE = 1024 * 1024
"""Bytes of a chunk of data that HDF5 has in one block: a slice should not fetch much more than itself."""
_MOST_MEASURED = 1024 * 1024
"""Bytes (stored) that are read to learn how long the strings in a compound are."""
_MOST_ROOM = 64 * 1024 * 1024
"""Bytes of a table whose strings have room for the longest."""


class NotPresentableError(Exception):
    """A dataset that Zarr has no array for; carries the kind and message of a problem."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Storage(Enum):
    """Where the chunks of an array come from."""

    CHUNKS = "stored chunks, as they are"
    BLOCK = "pieces of one block of the file"
    HDF5 = "read by libhdf5 and encoded anew"


@dataclass(frozen=True, eq=False)
class Presentation:
    """A dataset as a Zarr array.

    Parameters
    ----------
    shape, chunks : tuple of int
        Of the Zarr array; chunks are at least 1 long.
    element : ElementType
        Its type.
    storage : Storage
        Where chunks come from.
    fill_value : numpy scalar or str
        Of chunks that HDF5 never allocated.
    codecs : tuple of dict
        Configurations of numcodecs in the order of encoding.
    notes : mapping
        Attributes that say what the Zarr type does not.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    element: ElementType
    storage: Storage
    fill_value: Any
    codecs: tuple[Mapping[str, JSONValue], ...] = ()
    notes: Mapping[str, JSONValue] = field(default_factory=dict)

    @property
    def fill_is_exact(self) -> bool:
        """Whether Zarr's metadata can say the fill value to the bit: they know one NaN only."""
        value = np.asarray(self.fill_value)
        if value.dtype.kind not in "fc" or not np.isnan(value):
            return True
        parts = (value.real, value.imag) if value.dtype.kind == "c" else (value,)
        return all(not np.isnan(p) or p.tobytes() == np.array(np.nan, p.dtype).tobytes() for p in parts)

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(-(-length // chunk) for length, chunk in zip(self.shape, self.chunks, strict=True))


def present(dataset: h5py.Dataset, create: h5p.PropDCID, *, strings: bool, linked: bool) -> Presentation:
    """Decide how a dataset is presented. Reads no values, but for the lengths of strings in a small compound.

    Parameters
    ----------
    dataset : h5py.Dataset
        The dataset.
    create : h5py.h5p.PropDCID
        Its creation properties.
    strings : bool
        Whether bytes of fixed length are meant as strings.
    linked : bool
        Its values lie in another file, which the document names.

    Raises
    ------
    NotPresentableError
        numpy has no type for its elements, or their length cannot be told.
    """
    try:
        type_id, dtype = dataset.id.get_type(), dataset.dtype
    except TypeError as error:
        raise NotPresentableError("datatype", f"numpy has no type for its elements: {error}") from None
    element = element_type(type_id, dtype, strings)
    notes: dict[str, JSONValue] = {}
    if element.text in (Text.PATH, Text.JSON) or h5py.check_enum_dtype(dtype) is not None:
        notes["_HDF5_DTYPE"] = describe_dtype(dtype)
    shape = dataset.shape
    if shape is None:
        notes["_HDF5_EMPTY"] = True
        if element.measured:
            element = _with_room(element, np.empty(0, dtype))
        return Presentation((0,), (1,), replace(element, inner=()), Storage.HDF5, _zero(element), (), notes)
    if element.measured:
        element = _measure(dataset, element)
    layout = create.get_layout()
    is_stored_here = layout != h5d.VIRTUAL and create.get_external_count() <= 0 and not linked
    storage, configs = Storage.HDF5, None
    if is_stored_here and element.stored and layout == h5d.CONTIGUOUS:
        storage = Storage.BLOCK
    elif is_stored_here and element.stored and layout == h5d.CHUNKED:
        configs = codec_configs(pipeline(create))
        storage = Storage.HDF5 if configs is None else Storage.CHUNKS
    inner_chunks = tuple(max(1, n) for n in element.inner)
    if is_stored_here and layout == h5d.CHUNKED:
        chunks = create.get_chunk()
    else:
        itemsize = 16 if element.dtype is None else element.dtype.itemsize
        chunks = _cut(shape, itemsize * math.prod(inner_chunks))
    fill = _zero(element) if storage is Storage.HDF5 else _fill_value(dataset, create, element)
    return Presentation(
        (*shape, *element.inner), (*chunks, *inner_chunks), element, storage, fill, configs or (), notes
    )


def _cut(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Chunks of about a mebibyte, each one run of bytes: outer axes of length 1, one axis cut, inner axes whole."""
    chunks = [max(1, n) for n in shape]
    for axis in range(len(shape)):
        row = itemsize * math.prod(chunks[axis + 1 :])
        chunks[axis] = min(chunks[axis], max(1, _PIECE // row))
        if row <= _PIECE:
            break
    return tuple(chunks)


def _zero(element: ElementType) -> Any:
    return "" if element.dtype is None else np.zeros((), element.dtype)[()]


def _fill_value(dataset: h5py.Dataset, create: h5p.PropDCID, element: ElementType) -> Any:
    if is_never_filled(dataset) or create.fill_value_defined() != h5d.FILL_VALUE_USER_DEFINED:
        return _zero(element)
    assert element.dtype is not None  # text is read through HDF5
    return declared_fill(dataset, element.dtype)[()]


def _measure(dataset: h5py.Dataset, element: ElementType) -> ElementType:
    """Give the strings in records room for the longest."""
    if dataset.nbytes > _MOST_MEASURED:
        raise NotPresentableError(
            "too_large",
            f"a table of {dataset.nbytes} bytes with strings of variable length; Zarr wants to know the longest, and "
            "only reading all of it would tell",
        )
    try:
        return _with_room(element, dataset[()])
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        refuse_source_error(error)
        raise NotPresentableError("unreadable", f"the strings in it cannot be read: {error}") from error
    except RoomError as error:
        raise NotPresentableError("too_large", f"its strings would take {error.nbytes} bytes in all rows") from None


def _with_room(element: ElementType, values: np.ndarray[Any, Any]) -> ElementType:
    return replace(element, dtype=with_room(np.asarray(values), _MOST_ROOM).dtype.newbyteorder("<"))
