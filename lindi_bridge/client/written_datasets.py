"""Datasets of a document, created in the file in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from lindi_bridge.client.codecs import OBJECT_CODECS, as_filters, decode_objects, decode_plain, skipped_filters
from lindi_bridge.client.written_layout import Layout, choose_layout, set_filters
from lindi_bridge.client.written_types import described_dtype, plain_dtype, stored_type
from lindi_bridge.client.written_values import ReferenceMaker, array_of
from lindi_bridge.document.problems import MalformedError
from lindi_bridge.hdf5.heaps import stored_layout
from lindi_bridge.indexer.dtypes import contains_references
from lindi_bridge.model.chunks import chunk_grid
from lindi_bridge.model.nodes import ArrayNode

__all__ = ["PlannedDataset", "plan_dataset"]

_MOST_DECODED = 256 * 1024 * 1024
_MOST_TEXT = 1 << 30
_MOST_OBJECTS = 1 << 26
_FETCHED_WHOLE = 16 * 1024 * 1024
_MOST_FILLED = 1 << 20
_MOST_BYTES = 1 << 56
"""Of address space for one dataset."""


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
            is_same = written.item() == fill_value.item().encode("utf-8")
        elif fill_value.dtype.char in "gG":  # long doubles are padded with whatever was there
            is_same = np.array_equal(written, fill_value, equal_nan=True)
        else:
            is_same = written.astype(fill_value.dtype).tobytes() == fill_value.tobytes()
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
            for position, item in enumerate(decode_objects(data, node.filters, len(items), _MOST_TEXT)):
                items[position] = item
            place = whole[box]
            place[...] = items.reshape(node.chunks or (1,))[tuple(slice(0, n) for n in place.shape)]
        return array_of(whole.reshape(-1).tolist(), self.dtype, self.shape, reference)

    def plain(self) -> np.ndarray[Any, Any] | None:
        """The values of an array of plain bytes that stands in the document, whole; None if there are none."""
        node = self.node
        if self.shape is None or 0 in node.shape or not node.inline:
            return None
        if math.prod(node.shape) * self.byte_dtype.itemsize > _MOST_DECODED:
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


def plan_dataset(path: str, node: ArrayNode, annotation: Mapping[str, Any]) -> PlannedDataset:
    """Decide how an array is written.

    Parameters
    ----------
    path : str
        Of the array.
    node : ArrayNode
        The array.
    annotation : mapping
        What the document says of it besides.

    Raises
    ------
    MalformedError
        Its metadata, its annotation and its chunks contradict each other.
    """
    scalar = node.attributes.get("_SCALAR") is True
    if scalar and math.prod(node.shape) != 1:
        raise MalformedError("_SCALAR, but not of one element")
    shape = None if annotation.get("shape", ()) is None else () if scalar else node.shape
    refusal = node.refusal
    if _is_unicode(node.dtype):
        node, dtype = _as_strings(node), h5py.string_dtype()
    elif "dtype" in annotation:
        dtype = described_dtype(annotation["dtype"])
    elif node.dtype == "|O":
        dtype = _object_dtype(node)
    else:
        dtype = plain_dtype(node.dtype)
    type_id = stored_type(annotation, dtype)
    if not _is_object(node):
        itemsize = np.dtype(plain_dtype(node.dtype)).itemsize
        if itemsize != type_id.get_size() or _points_elsewhere(dtype):
            raise MalformedError(f"its annotation says {dtype}, but .zarray {node.dtype}")
    elif node.external is None and refusal is None:
        refusal = _object_refusal(node)
    layout = choose_layout(node, annotation, dtype, shape)
    planned = PlannedDataset(path, node, dtype, type_id, shape, layout, refusal=refusal)
    if math.prod(max(1, n) for n in node.shape) * type_id.get_size() > _MOST_BYTES:
        raise MalformedError("it is impossibly large")
    if node.external is not None:
        planned.refusal = (
            f"{path}: its values are not in the document, which names {node.external} of the HDF5 file they lie in; "
            "open the document with lindi_bridge.open"
        )
    elif not _is_object(node) and refusal is None:
        _plan_plain(planned)
    if planned.refusal is not None:
        planned.layout = layout = replace(planned.layout, compact=False)
    if planned.refusal is not None and dtype.hasobject and math.prod(node.shape) > _MOST_FILLED and shape:
        # Not filled by HDF5 at once, as a contiguous dataset would be.
        planned.layout = replace(layout, chunks=layout.chunks or (1,) * len(shape), compact=False)
    if planned.refusal is not None and node.external is None:
        planned.refusal = f"{path}: its values cannot be had: {planned.refusal}"
    return planned


def _plan_plain(planned: PlannedDataset) -> None:
    """How chunks of plain bytes get into the file."""
    node, layout = planned.node, planned.layout
    raw = planned.chunk_nbytes * len(node.inline)
    if raw > _MOST_DECODED:
        raise MalformedError(f"its text stands for {raw} bytes, which are too many")
    table = node.table
    if table is None or not len(table):
        return
    if layout.chunks is None:
        return  # the pieces were checked when the layout was chosen
    pipeline = layout.filters
    mask = skipped_filters([(f[0], f[1]) for f in pipeline], node.filters) if pipeline else None
    if mask is None:
        found = as_filters(node.filters, planned.type_id.get_size())
        if isinstance(found, str):
            _plan_decoding(planned, found)
            return
        planned.layout = layout = layout.with_filters(found)
        mask = 0
    planned.mask = mask
    if not planned.shrinks:
        _check_unfiltered(planned, planned.full_nbytes)
    if int(table.nbytes.max()) >= 1 << 32 or planned.chunk_nbytes >= 1 << 32:
        planned.refusal = "a chunk of 4 GiB or more, which HDF5 does not have"


def _plan_decoding(planned: PlannedDataset, codec: str) -> None:
    """Chunks that no HDF5 filter can decode are fetched and decoded when the dataset is opened, if they are few."""
    node = planned.node
    assert node.table is not None
    stored = int(node.table.nbytes.sum())
    decoded = planned.chunk_nbytes * len(node.table)
    planned.layout = planned.layout.with_filters([])
    if stored <= _FETCHED_WHOLE and decoded <= _MOST_DECODED:
        planned.decode = True
    else:
        planned.refusal = f"its codec {codec!r} is none of HDF5's filters, and {decoded} bytes are too many to copy"


def _check_unfiltered(planned: PlannedDataset, full: int) -> None:
    """Chunks as they are must be whole; a last one that ends where the array ends is made whole with zeros."""
    table = planned.node.table
    assert table is not None
    if (table.nbytes > full).any():
        raise MalformedError(f"a chunk without filters has {int(table.nbytes.max())} bytes, not {full}")
    short = np.flatnonzero(table.nbytes < full)
    if not len(short):
        return
    node = planned.node
    rows_left = node.shape[0] - table.coordinates()[short, 0] * node.chunks[0] if node.shape else np.zeros(1)
    row = math.prod(node.chunks[1:]) * planned.type_id.get_size()
    if planned.layout.filters or not all(
        left < node.chunks[0] and nbytes == left * row
        for left, nbytes in zip(rows_left.tolist(), table.nbytes[short].tolist(), strict=True)
    ):
        raise MalformedError(f"a chunk without filters has {int(table.nbytes[short].min())} bytes, not {full}")


# -- types without annotation -----------------------------------------------------------------------------------------


def _is_object(node: ArrayNode) -> bool:
    return node.dtype in ("|O", "O", "|O8")


def _is_unicode(dtype: Any) -> bool:
    return isinstance(dtype, str) and "U" in dtype


def _points_elsewhere(dtype: np.dtype[Any]) -> bool:
    return bool(dtype.hasobject)


def _object_refusal(node: ArrayNode) -> str | None:
    if node.table is not None and len(node.table):
        return "strings or other objects in another file than the document"
    if 0 in node.shape:
        return None
    if not node.filters or node.filters[0]["id"] not in OBJECT_CODECS:
        codec = str(node.filters[0]["id"])[:50] if node.filters else "none"
        return f"objects with the codec {codec!r}, which this package does not decode"
    if not node.inline and node.fill_value is None:
        return "the program that made the document left them out"
    if len(node.inline) < math.prod(chunk_grid(node.shape, node.chunks)) and not isinstance(node.fill_value, str):
        return f"some of its chunks are missing, and its fill value {str(node.fill_value)[:50]} is no text"
    return None


def _object_dtype(node: ArrayNode) -> np.dtype[Any]:
    """What an array of objects holds: rows of a compound, references, or strings."""
    fields = node.attributes.get("_COMPOUND_DTYPE")
    if fields is not None:
        return _compound_dtype(fields, node)
    codec = node.filters[0]["id"] if node.filters else None
    if codec == "json2" and node.inline:
        kinds = set()
        for data in node.inline.values():
            for item in decode_objects(data, node.filters, math.prod(node.chunks), _MOST_TEXT):
                region = isinstance(item, dict) and "selection" in (item.get("_REFERENCE") or {})
                kinds.add("region" if region else type(item).__name__)
        if kinds == {"dict"}:
            return h5py.ref_dtype  # type: ignore[no-any-return]
        if kinds == {"region"}:
            return h5py.regionref_dtype  # type: ignore[no-any-return]
        if kinds != {"str"}:
            raise MalformedError(f"objects of several or unknown kinds: {', '.join(sorted(kinds))}")
    return h5py.string_dtype()  # type: ignore[no-any-return]


def _compound_dtype(fields: Any, node: ArrayNode) -> np.dtype[Any]:
    if not isinstance(fields, list) or not all(isinstance(f, list) and len(f) == 2 for f in fields) or not fields:
        raise MalformedError("_COMPOUND_DTYPE is not a list of [name, type]")
    out = []
    for number, (name, text) in enumerate(fields):
        if text == "<REFERENCE>":
            # LINDI 0.4.6 says so of strings as well.
            dtype = h5py.string_dtype() if _is_text(node, number) else h5py.ref_dtype
        elif text == "object":
            dtype = h5py.string_dtype()
        else:
            try:
                dtype = plain_dtype(np.dtype(text).str)
            except (TypeError, ValueError):
                raise MalformedError(f"a field of the unknown type {str(text)[:50]!r}") from None
        out.append((str(name), dtype))
    try:
        return np.dtype(out)
    except ValueError as error:
        raise MalformedError(f"_COMPOUND_DTYPE: {error}") from None


def _is_text(node: ArrayNode, number: int) -> bool:
    """Whether a field of the rows in JSON holds strings."""
    count = math.prod(node.chunks)
    rows = (row for data in node.inline.values() for row in decode_objects(data, node.filters, count, _MOST_TEXT))
    values = [row[number] for row in rows if isinstance(row, list) and number < len(row)]
    return bool(values) and all(isinstance(value, str) for value in values)


def _as_strings(node: ArrayNode) -> ArrayNode:
    """An array of numpy's unicode strings, which HDF5 does not have, as one of strings of variable length."""
    itemsize = np.dtype(node.dtype).itemsize
    if node.table is not None and len(node.table):
        return replace(node, dtype="|O", filters=({"id": "none"},), refusal="UTF-32 text, which HDF5 does not have")
    count = math.prod(node.chunks)
    if count * itemsize * max(1, len(node.inline)) > _MOST_DECODED:
        raise MalformedError("its text stands for too many bytes")
    inline = {}
    for key, data in node.inline.items():
        chunk = np.frombuffer(decode_plain(data, node.filters, count * itemsize), np.dtype(node.dtype))
        try:
            texts = [str(text).encode("utf-8") for text in chunk]
        except (UnicodeError, ValueError):
            raise MalformedError("text that is no Unicode") from None
        parts = [len(texts).to_bytes(4, "little")]
        for text in texts:
            parts += [len(text).to_bytes(4, "little"), text]
        inline[key] = b"".join(parts)
    return replace(node, dtype="|O", filters=({"id": "vlen-utf8"},), fill_value=node.fill_value or "", inline=inline)


def _as_h5py_takes_it(fill_value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A fill value for ``set_fill_value``, which takes strings of fixed length for pointers to text."""
    if fill_value.dtype.kind != "S":
        return fill_value
    return np.array(fill_value.item(), h5py.string_dtype("ascii"))
