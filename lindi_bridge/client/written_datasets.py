"""Datasets of a document, created in the file in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from lindi_bridge.client.codecs import MOST_DECODED, MOST_TEXT, decode_objects, decode_plain
from lindi_bridge.client.written_layout import Layout, set_filters
from lindi_bridge.client.written_nans import with_nan_bits
from lindi_bridge.client.written_values import ReferenceMaker, array_of
from lindi_bridge.document.problems import MalformedError
from lindi_bridge.hdf5.heaps import stored_layout
from lindi_bridge.indexer.dtypes import contains_references, without_gaps
from lindi_bridge.model.chunks import chunk_grid
from lindi_bridge.model.floats import number_bytes
from lindi_bridge.model.nodes import ArrayNode

__all__ = ["PlannedDataset"]

_MOST_OBJECTS = 1 << 26


@dataclass
class PlannedDataset:
    """How one array is written.

    Parameters
    ----------
    path : str
        Of the array.
    node : ArrayNode
        The array.
    dtype : numpy.dtype
        Of its elements, as h5py shows it.
    type_id : h5py.h5t.TypeID
        In the file.
    shape : tuple of int, optional
        Of the dataset; None for an empty one.
    layout : Layout
        Chunks, maximal shape, filters.
    mask : int
        Filter mask of chunks that are references.
    decode : bool
        Its chunks are fetched whole, decoded by numcodecs and written, when the dataset is opened.
    refusal : str, optional
        Why its values cannot be had.
    refused_source : int
        What its bytes are mapped to then.
    nan : JSON value
        The bits of NaNs among values in JSON, as the annotation has them.
    """

    path: str
    node: ArrayNode
    dtype: np.dtype[Any]
    type_id: h5t.TypeID
    shape: tuple[int, ...] | None
    layout: Layout
    mask: int = 0
    decode: bool = False
    refusal: str | None = None
    refused_source: int = 0
    nan: Any = None

    @property
    def stored_itemsize(self) -> int:
        """Bytes of an element in the file; values of variable length are descriptors there."""
        itemsize: int = stored_layout(self.type_id)[0]
        return itemsize

    @property
    def chunk_count(self) -> int:
        """Chunks of the dataset in the file."""
        return math.prod(chunk_grid(self.node.shape, self.layout.chunks)) if self.layout.chunks else 0

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of a decoded chunk."""
        return math.prod(self.node.chunks) * int(self.type_id.get_size())

    @property
    def shrinks(self) -> bool:
        """Whether a filter that is used may change the size of a chunk."""
        active = [number for k, (number, *_) in enumerate(self.layout.filters) if not self.mask >> k & 1]
        return any(number not in (2, 3) for number in active)

    @property
    def full_nbytes(self) -> int:
        """Bytes of a stored chunk, where no filter changes its size but for checksums."""
        active = [number for k, (number, *_) in enumerate(self.layout.filters) if not self.mask >> k & 1]
        return self.chunk_nbytes + 4 * active.count(3)

    @property
    def has_references(self) -> bool:
        """Whether its values can be written only after all objects are there."""
        return contains_references(self.dtype)

    def create(self, parent: h5py.h5g.GroupID, name: bytes, links: h5p.PropLCID) -> h5d.DatasetID:
        """Create the dataset, without values."""
        create = h5p.create(h5p.DATASET_CREATE)
        layout = self.layout
        if layout.attribute_order:
            create.set_attr_creation_order(layout.attribute_order)
        if layout.compact:
            create.set_layout(h5d.COMPACT)
        elif layout.chunks is not None:
            create.set_chunk(layout.chunks)
            set_filters(create, layout.filters)
        elif self.is_mapped or self.refusal is not None or self.has_references:
            create.set_alloc_time(h5d.ALLOC_TIME_EARLY)
            if not self.dtype.hasobject:  # HDF5 fills those always
                create.set_fill_time(h5d.FILL_TIME_NEVER)
        if layout.never_filled and not self.dtype.hasobject:
            create.set_fill_time(h5d.FILL_TIME_NEVER)
        if layout.fill_value is not None:
            create.set_fill_value(_as_h5py_takes_it(layout.fill_value))
        if self.shape is None:
            space = h5s.create(h5s.NULL)
        elif self.shape == ():
            space = h5s.create(h5s.SCALAR)
        else:
            space = h5s.create_simple(self.shape, layout.maxshape)
        dataset = h5d.create(parent, name, self.type_id, space, create, links)
        if layout.fill_value is not None:
            self._check_fill_value(dataset, layout.fill_value)
        return dataset

    def _check_fill_value(self, dataset: h5d.DatasetID, fill_value: np.ndarray[Any, Any]) -> None:
        written = np.asarray(h5py.Dataset(dataset).fillvalue)
        if fill_value.dtype.kind == "O":
            is_same = written.item() == fill_value.item()
        elif fill_value.dtype.kind in "fc":
            is_same = number_bytes(written.astype(fill_value.dtype)) == number_bytes(fill_value)
        else:
            both = written.astype(fill_value.dtype), fill_value
            is_same = without_gaps(both[0]).tobytes() == without_gaps(both[1]).tobytes()
        if not is_same:
            raise MalformedError(f"the fill value {str(self.node.fill_value)[:60]} cannot be written into an HDF5 file")

    @property
    def is_mapped(self) -> bool:
        """Whether its values are contiguous in pieces that lie in sources."""
        return self.layout.chunks is None and self.node.table is not None and len(self.node.table) > 0

    def objects(self, reference: ReferenceMaker) -> np.ndarray[Any, Any] | None:
        """The values of an array of objects, for h5py to write; None if there are none."""
        node = self.node
        if self.shape is None or 0 in node.shape or not (node.inline or node.fill_value):
            return None
        if math.prod(node.shape) > _MOST_OBJECTS:
            raise MalformedError("more elements than its text has use for")
        whole = np.full(node.shape or (1,), node.fill_value, object)
        for box, data in self._boxes():
            items = np.empty(math.prod(node.chunks), object)
            for position, item in enumerate(decode_objects(data, node.filters, len(items), MOST_TEXT)):
                items[position] = item
            place = whole[box]
            place[...] = items.reshape(node.chunks or (1,))[tuple(slice(0, n) for n in place.shape)]
        values = with_nan_bits(whole.reshape(-1).tolist(), self.nan or {})
        return array_of(values, self.dtype, self.shape, reference)

    def plain(self) -> np.ndarray[Any, Any] | None:
        """The values of an array of plain bytes that stands in the document, whole; None if there are none."""
        node = self.node
        if self.shape is None or 0 in node.shape or not node.inline:
            return None
        if math.prod(node.shape) * self.byte_dtype.itemsize > MOST_DECODED:
            raise MalformedError("many more bytes than its text has use for")
        values = np.zeros(node.shape or (1,), self.byte_dtype)
        if self.layout.fill_value is not None and not self.layout.never_filled:
            values[...] = np.frombuffer(self.layout.fill_value.tobytes(), self.byte_dtype)[0]
        for box, data in self._boxes():
            chunk = np.frombuffer(self.inline_bytes(data), self.byte_dtype).reshape(node.chunks or (1,))
            place = values[box]
            place[...] = chunk[tuple(slice(0, n) for n in place.shape)]
        return values

    def _boxes(self) -> Iterator[tuple[tuple[slice, ...], bytes]]:
        """Where each chunk in text belongs, and its text."""
        chunks = self.node.chunks or (1,)
        for key, data in self.node.inline.items():
            corner = (int(number) * length for number, length in zip(key.split("."), chunks, strict=True))
            yield tuple(slice(c, c + length) for c, length in zip(corner, chunks, strict=True)), data

    @property
    def byte_dtype(self) -> np.dtype[Any]:
        """A dtype of opaque bytes of the size of an element."""
        return np.dtype(f"V{self.type_id.get_size()}")

    def inline_bytes(self, data: bytes) -> bytes:
        """The decoded bytes of a chunk in text."""
        return decode_plain(data, self.node.filters, self.chunk_nbytes)


def _as_h5py_takes_it(fill_value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A fill value for ``set_fill_value``, which takes strings of fixed length for pointers to text."""
    if fill_value.dtype.kind != "S":
        return fill_value
    return np.array(fill_value.item(), h5py.string_dtype("ascii"))
