"""One dataset -> one array node that plain Zarr readers understand: chunk references, else a copy, else nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NoReturn

import h5py
import numpy as np
from h5py import h5d

from lindi_bridge.hdf5.walk import is_stored_here
from lindi_bridge.indexer.attribute import attribute_or_none
from lindi_bridge.indexer.datasets import describe_dataset, string_array, type_of_elements
from lindi_bridge.indexer.dtypes import encode_fill, fill_value, has_fill_value, is_same_fill
from lindi_bridge.indexer.storage import (
    DatasetStorage,
    NotExpressibleError,
    chunk_shape,
    object_vector,
    refuse_departures,
)
from lindi_bridge.indexer.text_rows import RoomError, is_text_row, with_room
from lindi_bridge.indexer.values import ReferenceEncoder
from lindi_bridge.indexer.zarr_types import converted_dtype, describe_kind, element_dtype, zarr_type
from lindi_bridge.model.chunks import chunk_grid
from lindi_bridge.model.nodes import ArrayNode

__all__ = ["ZarrDatasetIndexer"]

JSONValue = Any

_DESCRIPTOR = 16
"""Bytes of memory that a string takes at the least."""


class ZarrDatasetIndexer:
    """Makes array nodes of the datasets of one file, without annotations in them.

    Parameters
    ----------
    storage : DatasetStorage
        Where their values lie.
    reference : ReferenceEncoder
        Not used: plain Zarr has no references.
    """

    def __init__(self, storage: DatasetStorage, reference: ReferenceEncoder) -> None:
        self._storage = storage

    def node(self, dataset: h5py.Dataset, path: str) -> tuple[ArrayNode, dict[str, JSONValue]]:
        """Make the node of a dataset, and the annotation of what it loses.

        Raises
        ------
        NotExpressibleError
            Plain Zarr has no such elements, or no codec for its chunks, and they are too large to be copied.
        """
        refuse_departures(dataset)
        stored = type_of_elements(dataset, element_dtype)
        string = h5py.check_string_dtype(dataset.dtype)
        if string is not None and string.length is None:
            return self._strings(dataset)
        if is_text_row(dataset.dtype):
            return self._text_rows(dataset)
        dtype = stored if stored is not None else converted_dtype(dataset.dtype)
        if dtype is None:
            raise NotExpressibleError("datatype", f"Zarr has no type for its elements: {describe_kind(dataset.dtype)}")
        annotation = _annotation(dataset, stored)
        base, further = dtype.subdtype or (dtype, ())
        fill = None if further or stored is None else fill_value(dataset, base)
        if dataset.shape is None:
            node = self._filled(dataset, ArrayNode((0,), (1,), zarr_type(base), fill), base, annotation)
            return node, annotation | {"shape": None}
        empty = ArrayNode(
            shape=dataset.shape + further,
            chunks=chunk_shape(dataset, dataset.shape) + further,
            dtype=zarr_type(base),
            fill_value=fill,
        )
        is_stored = stored is not None and dataset.shape != ()
        found = self._storage.plain(dataset, empty, base) if is_stored else None
        if found is None or (further and _is_incomplete(found)):
            found = self._storage.inline(dataset, empty, base)
        if found is None:
            self._refuse(dataset, math.prod(empty.shape) * base.itemsize, is_converted=stored is None)
        return self._filled(dataset, found, base, annotation), annotation

    def _strings(self, dataset: h5py.Dataset) -> tuple[ArrayNode, dict[str, JSONValue]]:
        annotation = describe_dataset(dataset, None)
        shape = dataset.shape
        if shape is None:
            return replace(string_array(self._storage, (0,), []), fill_value=None), annotation | {"shape": None}
        most = self._storage.policy.dataset
        if math.prod(shape) * _DESCRIPTOR > most:
            self._refuse(dataset, math.prod(shape) * _DESCRIPTOR, is_string=True)
        values = np.asarray(self._storage.read(dataset), object).reshape(-1)
        encoded = [value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape") for value in values]
        nbytes = sum(map(len, encoded)) + 4 * len(encoded)
        if not self._storage.may_inline(nbytes):
            self._refuse(dataset, nbytes, is_string=True)
        try:
            node = string_array(self._storage, shape, [value.decode("utf-8") for value in encoded])
        except UnicodeDecodeError:
            node = _bytes_array(self._storage, shape, encoded)
        return replace(node, fill_value=None), annotation

    def _text_rows(self, dataset: h5py.Dataset) -> tuple[ArrayNode, dict[str, JSONValue]]:
        annotation = describe_dataset(dataset, None)
        shape = dataset.shape
        nbytes = math.prod(shape or ()) * max(_DESCRIPTOR, dataset.dtype.itemsize)
        if nbytes > self._storage.policy.dataset:
            self._refuse(dataset, nbytes, is_string=True)
        values = np.zeros(0, dataset.dtype) if shape is None else np.asarray(self._storage.read(dataset), dataset.dtype)
        try:
            rows = with_room(values, self._storage.policy.dataset)
        except RoomError as error:
            self._refuse(dataset, error.nbytes, is_string=True)
        except ValueError as error:
            raise NotExpressibleError("datatype", f"Zarr has no type for strings that are not UTF-8: {error}") from None
        empty = ArrayNode(rows.shape, tuple(max(1, n) for n in rows.shape), zarr_type(rows.dtype))
        if 0 in rows.shape:
            return empty, annotation | ({"shape": None} if shape is None else {})
        if not self._storage.may_inline(rows.nbytes):
            self._refuse(dataset, rows.nbytes, is_string=True)
        return self._storage.one_chunk(empty, rows.tobytes()), annotation

    def _filled(
        self, dataset: h5py.Dataset, node: ArrayNode, dtype: np.dtype[Any], annotation: dict[str, JSONValue]
    ) -> ArrayNode:
        """The fill value where a chunk is missing, or where the netCDF attribute says that it marks missing values.

        xarray takes the fill value of Zarr v2 for such a mark, which that of HDF5, mostly zero, is not.
        """
        if _is_incomplete(node):
            return node
        declared = _declared_fill(dataset, dtype)
        if not is_same_fill(node.fill_value, declared) and not (declared is None and _is_zero(dataset)):
            annotation.setdefault("fill_value", node.fill_value)  # the declared one, where that is never written
        return replace(node, fill_value=declared)

    def _refuse(
        self, dataset: h5py.Dataset, nbytes: int, is_converted: bool = False, is_string: bool = False
    ) -> NoReturn:
        if is_string:
            reason = "strings of variable length can only be copied"
        elif is_converted:
            reason = "its values are not stored as Zarr has them"
        else:
            reason = _why_not_referred_to(dataset)
        policy = self._storage.policy
        raise NotExpressibleError(
            "too_large",
            f"{reason}, and {nbytes} bytes are too many to copy (at most {policy.dataset} of a dataset, "
            f"{policy.document} in all)",
        )


def _annotation(dataset: h5py.Dataset, stored: np.dtype[Any] | None) -> dict[str, JSONValue]:
    """What the array loses of the dataset, and whether its values have been converted."""
    return describe_dataset(dataset, stored) | ({} if stored is not None else {"converted": True})


def _bytes_array(storage: DatasetStorage, shape: tuple[int, ...], items: list[bytes]) -> ArrayNode:
    from numcodecs import VLenBytes

    empty = ArrayNode(shape, tuple(max(1, n) for n in shape), "|O", filters=({"id": "vlen-bytes"},))
    return storage.one_chunk(empty, bytes(VLenBytes().encode(object_vector(items))))


def _is_incomplete(node: ArrayNode) -> bool:
    """Whether a chunk is missing, which is the fill value then."""
    there = len(node.inline) + (len(node.table) if node.table is not None else 0)
    return there < math.prod(chunk_grid(node.shape, node.chunks))


def _is_zero(dataset: h5py.Dataset) -> bool:
    """Whether the fill value is HDF5's default, or there is none."""
    return not (has_fill_value(dataset) and np.asarray(dataset.fillvalue).tobytes().strip(b"\0"))


def _declared_fill(dataset: h5py.Dataset, dtype: np.dtype[Any]) -> JSONValue:
    """The attribute ``_FillValue`` (NetCDF Users Guide, "Attribute Conventions") as ``.zarray`` has it, or None."""
    if dtype.kind not in "iuf":
        return None
    found = attribute_or_none(dataset.attrs, "_FillValue")
    if found is None or isinstance(found, h5py.Empty):
        return None
    value = np.asarray(found)
    if value.size != 1 or value.dtype.kind not in ("iu" if dtype.kind in "iu" else "iuf"):
        return None
    mark = value.reshape(()).astype(dtype)
    # One that the type does not have marks nothing.
    return encode_fill(mark, dtype) if np.array_equal(mark, value.reshape(()), equal_nan=dtype.kind == "f") else None


def _why_not_referred_to(dataset: h5py.Dataset) -> str:
    create = dataset.id.get_create_plist()
    if not is_stored_here(dataset.id):
        return "it is a virtual dataset"
    if create.get_layout() == h5d.CHUNKED and create.get_nfilters():
        names = [create.get_filter(k) for k in range(create.get_nfilters())]
        listed = ", ".join(name.decode("utf-8", "replace") or str(number) for number, _, _, name in names)
        return f"Zarr has no codecs for its filters as they are used ({listed})"
    return "its chunks cannot be referred to"
