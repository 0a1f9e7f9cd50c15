"""One dataset -> one array node: chunk references, else inline values, else a link into the HDF5 file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np
from h5py import h5d

from lindi_bridge.hdf5.chunk_index import ChunkTableError, refuse_source_error
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.heaps import pipeline
from lindi_bridge.hdf5.walk import header_address, is_stored_here
from lindi_bridge.indexer.dtypes import describe_dtype, encoded_type, fill_value, stored_dtype, zarr_dtype
from lindi_bridge.indexer.filters import codec_configs
from lindi_bridge.indexer.layout import contiguous_table, cut_contiguous
from lindi_bridge.indexer.values import ReferenceEncoder, encode_element
from lindi_bridge.model.chunks import ChunkTable
from lindi_bridge.model.nodes import ArrayNode
from lindi_bridge.ranges import ByteRange

__all__ = ["DatasetIndexer", "InlinePolicy", "NotExpressibleError"]

JSONValue = Any

# Level 4 takes a twentieth of the time of level 9, for 2 % more bytes (100,000 barcodes).
_ZLIB = {"id": "zlib", "level": 4}
_JSON = {
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


class NotExpressibleError(Exception):
    """A dataset that no annotation can say; carries the kind and message of a problem."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass
class InlinePolicy:
    """What is copied into the document.

    Parameters
    ----------
    small : int
        Plain values of at most so many bytes are written inline although they could be referred to.
    dataset : int
        Bytes (raw) that are written inline of one dataset at the most.
    document : int
        Bytes (raw) that are written inline in all at the most.
    """

    small: int = 1024
    dataset: int = 4 * 1024 * 1024
    document: int = 64 * 1024 * 1024


class DatasetIndexer:
    """Makes array nodes of the datasets of one file.

    Parameters
    ----------
    file : HDF5File
        The file object below the datasets.
    tables : mapping
        Chunk tables by the address of the dataset's object header, or why there is none.
    reference : ReferenceEncoder
        For values that are references.
    policy : InlinePolicy
        What may be copied.
    """

    def __init__(
        self,
        file: HDF5File,
        tables: Mapping[int, ChunkTable | ChunkTableError],
        reference: ReferenceEncoder,
        policy: InlinePolicy,
    ) -> None:
        self._file = file
        self._tables = tables
        self._reference = reference
        self._policy = policy
        self._inlined = 0

    def node(self, dataset: h5py.Dataset, path: str) -> tuple[ArrayNode, dict[str, JSONValue]]:
        """Make the node of a dataset, and the annotation of what it loses.

        Raises
        ------
        NotExpressibleError
            The values cannot be had, by reference, inline or through HDF5 alone.
        """
        create = dataset.id.get_create_plist()
        if not is_stored_here(dataset.id):
            self._refuse_departures(dataset, create)
        try:
            plain = stored_dtype(dataset.id.get_type())
            dataset.dtype  # noqa: B018
        except TypeError as error:
            raise NotExpressibleError("unreadable", f"numpy has no type for its elements: {error}") from error
        annotation = self._annotation(dataset, create, plain)
        if dataset.shape is None:
            empty = self._object_array((0,), []) if plain is None else ArrayNode((0,), (1,), zarr_dtype(plain))
            return empty, annotation | {"shape": None}
        found = self._plain(dataset, create, plain) if plain is not None else self._object(dataset)
        node = found or self._link(dataset, path, plain)
        if dataset.shape == ():
            node = replace(node, attributes={**node.attributes, "_SCALAR": True})
        return node, annotation

    # -- plain types --------------------------------------------------------------------------------------------

    def _plain(self, dataset: h5py.Dataset, create: Any, dtype: np.dtype[Any]) -> ArrayNode | None:
        shape = dataset.shape or (1,)
        nbytes = int(np.prod(shape)) * dtype.itemsize
        empty = ArrayNode(
            shape=shape,
            chunks=tuple(max(1, n) for n in (dataset.chunks or shape)),
            dtype=zarr_dtype(dtype),
            fill_value=fill_value(dataset, dtype),
        )
        if nbytes == 0:
            return empty
        layout = create.get_layout() if is_stored_here(dataset.id) else h5d.VIRTUAL
        if nbytes <= self._policy.small or layout not in (h5d.CHUNKED, h5d.CONTIGUOUS):
            return self._inline_plain(dataset, empty, dtype, nbytes)
        if layout == h5d.CONTIGUOUS:
            return self._contiguous(dataset, empty, dtype)
        return self._chunked(dataset, create, empty) or self._inline_plain(dataset, empty, dtype, nbytes)

    def _chunked(self, dataset: h5py.Dataset, create: Any, empty: ArrayNode) -> ArrayNode | None:
        table = self._tables.get(header_address(dataset.id))
        if not isinstance(table, ChunkTable):
            return None
        masks = np.unique(table.filter_mask)
        if len(masks) > 1:
            return None
        filters = codec_configs(pipeline(create), int(masks[0]) if len(masks) else 0)
        if filters is None or not self._sizes_fit(table, filters, empty):
            return None
        return replace(empty, filters=filters, table=table)

    def _sizes_fit(self, table: ChunkTable, filters: tuple[Any, ...], empty: ArrayNode) -> bool:
        """Chunks without a size-changing filter must have the size of a chunk, or they are not what we think."""
        if any(f["id"] not in ("shuffle", "fletcher32") for f in filters):
            return True
        full = int(np.prod(empty.chunks)) * np.dtype(empty.dtype).itemsize
        full += 4 * sum(f["id"] == "fletcher32" for f in filters)
        return bool((table.nbytes == full).all())

    def _contiguous(self, dataset: h5py.Dataset, empty: ArrayNode, dtype: np.dtype[Any]) -> ArrayNode | None:
        offset = dataset.id.get_offset()
        if offset is None:  # never written: all fill value
            return empty
        row_nbytes = int(np.prod(empty.shape[1:])) * dtype.itemsize
        if dataset.id.get_storage_size() != empty.shape[0] * row_nbytes:
            return None
        pieces = cut_contiguous(empty.shape[0], row_nbytes, offset, self._file.size)
        inline = {}
        if pieces.inline_last:
            start = (pieces.count - 1) * pieces.rows
            last = self._read_bytes(offset + start * row_nbytes, (empty.shape[0] - start) * row_nbytes)
            key = ".".join([str(pieces.count - 1)] + ["0"] * (len(empty.shape) - 1))
            inline[key] = last.ljust(pieces.rows * row_nbytes, b"\0")
        return replace(
            empty,
            chunks=(pieces.rows, *empty.shape[1:]),
            table=contiguous_table(pieces, len(empty.shape), row_nbytes, offset),
            inline=inline,
        )

    def _read_bytes(self, start: int, length: int) -> bytes:
        self._file.ensure([ByteRange(start, length)])
        self._file.seek(start)
        return self._file.read(length)

    def _inline_plain(
        self, dataset: h5py.Dataset, empty: ArrayNode, dtype: np.dtype[Any], nbytes: int
    ) -> ArrayNode | None:
        if not self._may_inline(nbytes):
            return None
        values = np.ascontiguousarray(self._read(dataset)).astype(dtype, copy=False)
        return self._one_chunk(replace(empty, chunks=empty.shape), values.tobytes())

    # -- values that point elsewhere ------------------------------------------------------------------------------

    def _object(self, dataset: h5py.Dataset) -> ArrayNode | None:
        dtype = dataset.dtype
        shape = dataset.shape or (1,)
        string = h5py.check_string_dtype(dtype)
        if dtype.subdtype is not None or not self._may_inline(int(np.prod(shape)) * max(16, dtype.itemsize)):
            return None
        if string is None and h5py.check_ref_dtype(dtype) is None and not dtype.names:
            return None  # odd integers, variable-length arrays: LINDI has no way to say them
        values = np.asarray(self._read(dataset), dtype).reshape(-1)
        if string is not None:
            try:
                texts = [v.decode("utf-8") if isinstance(v, bytes) else v for v in values]
            except UnicodeDecodeError:
                return None
            if sum(map(len, texts)) > self._policy.dataset:
                return None
            return self._string_array(shape, texts)
        try:
            encoded = [encode_element(v, dtype, self._reference) for v in values]
        except ValueError:
            return None  # a reference to what is no longer there
        node = self._object_array(shape, encoded)
        if dtype.names:
            fields = [[name, _field_type(dtype[name])] for name in dtype.names]
            node = replace(node, attributes={"_COMPOUND_DTYPE": fields})
        return node

    def _string_array(self, shape: tuple[int, ...], texts: list[str]) -> ArrayNode:
        from numcodecs import VLenUTF8

        data = bytes(VLenUTF8().encode(_object_vector(texts))) if texts else b""
        empty = ArrayNode(shape, tuple(max(1, n) for n in shape), "|O", "", ({"id": "vlen-utf8"},))
        return self._one_chunk(empty, data) if 0 not in shape else empty

    def _object_array(self, shape: tuple[int, ...], encoded: list[JSONValue]) -> ArrayNode:
        from numcodecs import JSON

        empty = ArrayNode(shape, tuple(max(1, n) for n in shape), "|O", None, (_JSON,))
        if 0 in shape:
            return empty
        return self._one_chunk(empty, bytes(JSON().encode(_object_vector(encoded).reshape(shape))))

    # -- common ---------------------------------------------------------------------------------------------------

    def _one_chunk(self, empty: ArrayNode, data: bytes) -> ArrayNode:
        key = ".".join(["0"] * len(empty.shape))
        if len(data) <= 1024:
            return replace(empty, inline={key: data})
        from numcodecs import Zlib

        return replace(
            empty, filters=(*empty.filters, _ZLIB), inline={key: bytes(Zlib(level=_ZLIB["level"]).encode(data))}
        )

    def _link(self, dataset: h5py.Dataset, path: str, plain: np.dtype[Any] | None) -> ArrayNode:
        shape = dataset.shape or (1,)
        chunks = tuple(max(1, n) for n in (dataset.chunks or shape))
        if plain is not None:
            return ArrayNode(shape, chunks, zarr_dtype(plain), fill_value(dataset, plain), external=path)
        string = h5py.check_string_dtype(dataset.dtype) is not None
        codec = {"id": "vlen-utf8"} if string else _JSON
        return ArrayNode(shape, chunks, "|O", "" if string else None, (codec,), external=path)

    def _may_inline(self, nbytes: int) -> bool:
        if nbytes > self._policy.dataset or self._inlined + nbytes > self._policy.document:
            return False
        self._inlined += nbytes
        return True

    def _read(self, dataset: h5py.Dataset) -> Any:
        try:
            return dataset[()]
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            refuse_source_error(error)
            raise NotExpressibleError("unreadable", f"h5py cannot read the values: {error}") from error

    @staticmethod
    def _annotation(dataset: h5py.Dataset, create: Any, plain: np.dtype[Any] | None) -> dict[str, JSONValue]:
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
        return annotation

    @staticmethod
    def _refuse_departures(dataset: h5py.Dataset, create: Any) -> None:
        if create.get_layout() != h5d.VIRTUAL:
            names = ", ".join(name for name, _, _ in dataset.external or ())
            raise NotExpressibleError("external_storage", f"its values lie in other files: {names}")
        others = sorted({s.file_name for s in dataset.virtual_sources()} - {"."})
        if others:
            raise NotExpressibleError("virtual_dataset", f"its values lie in other files: {', '.join(others)}")


def _field_type(dtype: np.dtype[Any]) -> str:
    if h5py.check_ref_dtype(dtype) is h5py.Reference:
        return "<REFERENCE>"
    return str(np.dtype(dtype.str)) if dtype.kind != "V" else str(dtype)


def _object_vector(items: list[Any]) -> np.ndarray[Any, Any]:
    """A 1-D object array; numpy itself would take lists of equal length for a second axis."""
    vector = np.empty(len(items), object)
    for position, item in enumerate(items):
        vector[position] = item
    return vector
