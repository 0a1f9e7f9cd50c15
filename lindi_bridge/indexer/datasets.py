"""One dataset -> one array node in LINDI's terms: chunk references, else inline values, else a link into the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5t

from lindi_bridge.hdf5.damage import DAMAGE, refuse_source_error
from lindi_bridge.hdf5.stored_types import has_overlapping_members, lists_padded_strings
from lindi_bridge.indexer.dtypes import (
    declared_fill,
    describe_dtype,
    encode_exact_fill,
    encoded_type,
    fill_value,
    has_fill_value,
    holds_nested_array,
    is_never_filled,
    is_same_fill,
    stored_dtype,
    without_gaps,
    zarr_dtype,
)
from lindi_bridge.indexer.nans import nan_bits
from lindi_bridge.indexer.storage import (
    DatasetStorage,
    NotExpressibleError,
    chunk_shape,
    object_vector,
    refuse_departures,
)
from lindi_bridge.indexer.values import ReferenceEncoder, encode_element
from lindi_bridge.model.nodes import ArrayNode

__all__ = ["JSON_CODEC", "DatasetIndexer", "describe_dataset", "loses_fill", "string_array", "type_of_elements"]

JSONValue = Any

JSON_CODEC = {
    "id": "json2",
    "encoding": "utf-8",
    "strict": True,
    "skipkeys": False,
    "ensure_ascii": True,
    "check_circular": True,
    "allow_nan": True,
    "sort_keys": True,
    "indent": None,
    "separators": [",", ":"],
}


class DatasetIndexer:
    """Makes array nodes of the datasets of one file.

    Parameters
    ----------
    storage : DatasetStorage
        Where their values lie.
    reference : ReferenceEncoder
        For values that are references.
    """

    def __init__(self, storage: DatasetStorage, reference: ReferenceEncoder) -> None:
        self._storage = storage
        self._reference = reference

    def node(self, dataset: h5py.Dataset, path: str) -> tuple[ArrayNode, dict[str, JSONValue]]:
        """Make the node of a dataset, and the annotation of what it loses.

        Raises
        ------
        NotExpressibleError
            The values cannot be had, by reference, inline or through HDF5 alone.
        """
        refuse_departures(dataset)
        plain = type_of_elements(dataset, stored_dtype)
        annotation = describe_dataset(dataset, plain)
        if dataset.shape is None:
            empty = self._object_array((0,), [])
            if plain is not None:
                empty = ArrayNode((0,), (1,), zarr_dtype(plain), fill_value(dataset, plain))
            return empty, annotation | {"shape": None}
        found = None
        if not self._storage.has_too_many_chunks(dataset):
            found = self._plain(dataset, plain) if plain is not None else self._object(dataset, annotation)
        node = found or self._link(dataset, path, plain)
        if dataset.shape == ():
            node = replace(node, attributes={**node.attributes, "_SCALAR": True})
        return node, annotation

    def _plain(self, dataset: h5py.Dataset, dtype: np.dtype[Any]) -> ArrayNode | None:
        shape = dataset.shape or (1,)
        empty = ArrayNode(shape, chunk_shape(dataset, shape), zarr_dtype(dtype), fill_value(dataset, dtype))
        return self._storage.plain(dataset, empty, dtype)

    # -- values that point elsewhere ------------------------------------------------------------------------------

    def _object(self, dataset: h5py.Dataset, annotation: dict[str, JSONValue]) -> ArrayNode | None:
        """The values in JSON, if they may be copied; adds what JSON loses of them to the annotation."""
        dtype = dataset.dtype
        shape = dataset.shape or (1,)
        string = h5py.check_string_dtype(dtype)
        if 0 in shape and string is None:
            return self._object_array(shape, [])
        if dtype.subdtype is not None or not self._storage.may_inline(int(np.prod(shape)) * max(16, dtype.itemsize)):
            return None
        if string is None and h5py.check_ref_dtype(dtype) is None and not dtype.names:
            return None  # odd integers, variable-length arrays: LINDI has no way to say them
        if _is_left_out_in_part(dataset) or lists_padded_strings(dataset.id.get_type()):
            return None  # a copy would have zeros there, or could not be written into a file
        values = np.asarray(self._storage.read(dataset), dtype).reshape(-1)
        if string is not None:
            try:
                texts = [v.decode("utf-8") if isinstance(v, bytes) else v for v in values]
            except UnicodeDecodeError:
                return None
            if sum(map(len, texts)) > self._storage.policy.dataset:
                return None
            return string_array(self._storage, shape, texts)
        try:
            encoded = [encode_element(v, dtype, self._reference) for v in values]
        except ValueError:
            return None  # a reference to what is no longer there
        bits = nan_bits(encoded)
        if bits:
            annotation["nan"] = bits
        node = self._object_array(shape, encoded)
        if dtype.names:
            fields = [[name, _field_type(dtype[name])] for name in dtype.names]
            node = replace(node, attributes={"_COMPOUND_DTYPE": fields})
        return node

    def _object_array(self, shape: tuple[int, ...], encoded: list[JSONValue]) -> ArrayNode:
        from numcodecs import JSON

        empty = ArrayNode(shape, tuple(max(1, n) for n in shape), "|O", None, (JSON_CODEC,))
        if 0 in shape:
            return empty
        return self._storage.one_chunk(empty, bytes(JSON().encode(object_vector(encoded).reshape(shape))))

    def _link(self, dataset: h5py.Dataset, path: str, plain: np.dtype[Any] | None) -> ArrayNode:
        shape = dataset.shape or (1,)
        chunks = chunk_shape(dataset, shape)
        if plain is not None:
            return ArrayNode(shape, chunks, zarr_dtype(plain), fill_value(dataset, plain), external=path)
        string = h5py.check_string_dtype(dataset.dtype) is not None
        codec = {"id": "vlen-utf8"} if string else JSON_CODEC
        return ArrayNode(shape, chunks, "|O", "" if string else None, (codec,), external=path)


def describe_dataset(dataset: h5py.Dataset, plain: np.dtype[Any] | None) -> dict[str, JSONValue]:
    """The annotation of what an array loses of a dataset (docs/format.md, 5.7).

    Parameters
    ----------
    dataset : h5py.Dataset
        The dataset.
    plain : numpy.dtype, optional
        Of the array, where it is the stored one.
    """
    create = dataset.id.get_create_plist()
    annotation: dict[str, JSONValue] = {}
    if plain is None or describe_dtype(dataset.dtype) != plain.str:
        annotation["dtype"] = describe_dtype(dataset.dtype)
    if dataset.maxshape != dataset.shape:
        annotation["maxshape"] = list(dataset.maxshape)
    if create.get_layout() in (h5d.CONTIGUOUS, h5d.COMPACT):
        annotation["layout"] = "contiguous" if create.get_layout() == h5d.CONTIGUOUS else "compact"
    if create.get_nfilters():
        found = [create.get_filter(k) for k in range(create.get_nfilters())]
        annotation["filters"] = [[number, list(values), flags] for number, flags, values, _ in found]
    if dataset.chunks:
        annotation["chunks"] = list(dataset.chunks)
    stored = encoded_type(dataset.id.get_type(), dataset.dtype)
    if stored is not None:
        annotation["type"] = stored
    if plain is None:
        if fill := _fill_of_objects(dataset):
            annotation["fill_value"] = fill
    elif plain.subdtype is None and has_fill_value(dataset):  # h5py cannot give that of an array
        fill = encode_exact_fill(declared_fill(dataset, plain), plain)
        if not is_same_fill(fill, fill_value(dataset, plain)):
            annotation["fill_value"] = fill
    if is_never_filled(dataset):
        annotation["fill_time"] = "never"
    return annotation


def _fill_of_objects(dataset: h5py.Dataset) -> JSONValue:
    """The fill value, where it is not zero or empty and the elements are stored otherwise than numpy has them."""
    dtype = dataset.dtype
    string = h5py.check_string_dtype(dtype)
    if not has_fill_value(dataset):
        return None
    if string is not None and string.length is None:
        return encode_element(bytes(dataset.fillvalue), dtype, _no_reference)
    if dtype.hasobject or dtype.subdtype is not None:  # h5py has no fill values of arrays
        return None
    value = without_gaps(np.asarray(dataset.fillvalue, dtype))
    return encode_exact_fill(value, dtype) if value.tobytes().strip(b"\0") else None


def _is_left_out_in_part(dataset: h5py.Dataset) -> bool:
    """Whether there is something that was neither written nor filled, which h5py's ``read_direct`` leaves as it was."""
    is_whole = dataset.id.get_space_status() == h5d.SPACE_STATUS_ALLOCATED
    return not dataset.dtype.hasobject and is_never_filled(dataset) and not is_whole


def loses_fill(dataset: h5py.Dataset) -> bool:
    """Whether there is a fill value that no annotation says: of arrays, references or lists; or none at all."""
    dtype = dataset.dtype
    if not has_fill_value(dataset):
        return True
    if h5py.check_string_dtype(dtype) is not None or not (dtype.hasobject or dtype.subdtype is not None):
        return False
    return bool(dataset.id.get_create_plist().fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED)


def _no_reference(value: Any) -> JSONValue:
    raise ValueError("a string is no reference")


def type_of_elements(
    dataset: h5py.Dataset, of_type: Callable[[h5t.TypeID], np.dtype[Any] | None]
) -> np.dtype[Any] | None:
    """What ``of_type`` makes of the stored type of a dataset.

    Raises
    ------
    NotExpressibleError
        numpy has no such type, or the document cannot describe it.
    """
    try:
        plain = of_type(dataset.id.get_type())
        dtype = dataset.dtype
    except DAMAGE as error:
        refuse_source_error(error)
        raise NotExpressibleError("unreadable", f"numpy has no type for its elements: {error}") from error
    if has_overlapping_members(dtype):
        raise NotExpressibleError("unreadable", f"h5py has members in each other for it: {dtype}")
    if holds_nested_array(dtype) and (dtype.names or dtype.subdtype is not None):  # lists of arrays are linked to
        raise NotExpressibleError("datatype", f"no description of arrays of arrays, or of lists of them: {dtype}")
    return plain


def string_array(storage: DatasetStorage, shape: tuple[int, ...], texts: list[str]) -> ArrayNode:
    """Strings of variable length as one chunk in the document."""
    from numcodecs import VLenUTF8

    data = bytes(VLenUTF8().encode(object_vector(texts))) if texts else b""
    empty = ArrayNode(shape, tuple(max(1, n) for n in shape), "|O", "", ({"id": "vlen-utf8"},))
    return storage.one_chunk(empty, data) if 0 not in shape else empty


def _field_type(dtype: np.dtype[Any]) -> str:
    if h5py.check_ref_dtype(dtype) is h5py.Reference:
        return "<REFERENCE>"
    return str(np.dtype(dtype.str)) if dtype.kind != "V" else str(dtype)
