"""How the values of a dataset get into a document: by reference to its chunks, or copied within bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np
from h5py import h5d

from lindi_bridge.hdf5.chunk_index import ChunkTableError
from lindi_bridge.hdf5.damage import refuse_source_error
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.heaps import pipeline
from lindi_bridge.hdf5.walk import header_address, is_stored_here
from lindi_bridge.indexer.dtypes import is_never_filled
from lindi_bridge.indexer.filters import codec_configs
from lindi_bridge.indexer.layout import contiguous_table, cut_contiguous
from lindi_bridge.model.chunks import ChunkTable
from lindi_bridge.model.nodes import ArrayNode
from lindi_bridge.ranges import ByteRange

__all__ = ["DatasetStorage", "InlinePolicy", "NotExpressibleError", "chunk_shape", "object_vector", "refuse_departures"]

# Level 4 takes a twentieth of the time of level 9, for 2 % more bytes (100,000 barcodes).
_ZLIB = {"id": "zlib", "level": 4}


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
    most_chunks : int, optional
        Chunks that are referred to of one dataset at the most.
    """

    small: int = 1024
    dataset: int = 4 * 1024 * 1024
    document: int = 64 * 1024 * 1024
    most_chunks: int | None = None


class DatasetStorage:
    """Where the values of the datasets of one file lie, and how much of them has been copied.

    Parameters
    ----------
    file : HDF5File
        The file object below the datasets.
    tables : mapping
        Chunk tables by the address of the dataset's object header, or why there is none.
    policy : InlinePolicy
        What may be copied.
    """

    def __init__(
        self, file: HDF5File, tables: Mapping[int, ChunkTable | ChunkTableError], policy: InlinePolicy
    ) -> None:
        self._file = file
        self._tables = tables
        self.policy = policy
        self._inlined = 0

    def plain(self, dataset: h5py.Dataset, empty: ArrayNode, dtype: np.dtype[Any]) -> ArrayNode | None:
        """Express values whose stored bytes are those of a numpy dtype.

        Parameters
        ----------
        dataset : h5py.Dataset
            The dataset.
        empty : ArrayNode
            The array without chunks, of one axis or more. Its shape may have further axes of one chunk each at the end:
            those of an element that is an array.
        dtype : numpy.dtype
            Of ``empty``.

        Returns
        -------
        ArrayNode or None
            None if the chunks cannot be referred to and may not be copied.
        """
        nbytes = math.prod(empty.shape) * dtype.itemsize
        if nbytes == 0:
            return empty
        create = dataset.id.get_create_plist()
        layout = create.get_layout() if is_stored_here(dataset.id) else h5d.VIRTUAL
        if layout not in (h5d.CHUNKED, h5d.CONTIGUOUS):
            return self.inline(dataset, empty, dtype)
        # What was never written nor filled must not become zeros that are: h5py's read_direct leaves it out.
        if nbytes <= self.policy.small and not is_never_filled(dataset):
            copied = self.inline(dataset, empty, dtype)
            if copied is not None:
                return copied
        if layout == h5d.CONTIGUOUS:
            return self._contiguous(dataset, empty, dtype)
        return self._chunked(dataset, create, empty, dtype) or self.inline(dataset, empty, dtype)

    def has_too_many_chunks(self, dataset: h5py.Dataset) -> bool:
        """Whether a dataset has more chunks than may be referred to."""
        table, most = self._tables.get(header_address(dataset.id)), self.policy.most_chunks
        return most is not None and isinstance(table, ChunkTable) and len(table) > most

    def inline(self, dataset: h5py.Dataset, empty: ArrayNode, dtype: np.dtype[Any]) -> ArrayNode | None:
        """The values as one chunk in the document, read and converted by h5py; None if they are too large."""
        if 0 in empty.shape:
            return empty
        if not self.may_inline(math.prod(empty.shape) * dtype.itemsize):
            return None
        values = np.ascontiguousarray(self.read(dataset)).astype(dtype, copy=False)
        return self.one_chunk(replace(empty, chunks=empty.shape), values.tobytes())

    def one_chunk(self, empty: ArrayNode, data: bytes) -> ArrayNode:
        """An array whose only chunk are these bytes, compressed if they are many."""
        key = ".".join(["0"] * len(empty.shape)) or "0"
        if len(data) <= 1024:
            return replace(empty, inline={key: data})
        from numcodecs import Zlib

        return replace(
            empty, filters=(*empty.filters, _ZLIB), inline={key: bytes(Zlib(level=_ZLIB["level"]).encode(data))}
        )

    def may_inline(self, nbytes: int) -> bool:
        """Whether so many bytes (raw) may be copied; if so, they count as copied."""
        if nbytes > self.policy.dataset or self._inlined + nbytes > self.policy.document:
            return False
        self._inlined += nbytes
        return True

    def read(self, dataset: h5py.Dataset) -> Any:
        """All values, as h5py has them.

        Raises
        ------
        NotExpressibleError
            h5py cannot read them.
        """
        try:
            return dataset[()]
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            refuse_source_error(error)
            raise NotExpressibleError("unreadable", f"h5py cannot read the values: {error}") from error

    # -- references ---------------------------------------------------------------------------------------------------

    def _chunked(self, dataset: h5py.Dataset, create: Any, empty: ArrayNode, dtype: np.dtype[Any]) -> ArrayNode | None:
        table = self._tables.get(header_address(dataset.id))
        if not isinstance(table, ChunkTable):
            return None
        masks = np.unique(table.filter_mask)
        if len(masks) > 1:
            return None
        filters = codec_configs(pipeline(create), int(masks[0]) if len(masks) else 0)
        if filters is None or not _sizes_fit(table, filters, math.prod(empty.chunks) * dtype.itemsize):
            return None
        further = len(empty.shape) - len(table.grid)
        if further:
            table = replace(table, grid=table.grid + (1,) * further)
        return replace(empty, filters=filters, table=table)

    def _contiguous(self, dataset: h5py.Dataset, empty: ArrayNode, dtype: np.dtype[Any]) -> ArrayNode | None:
        offset = dataset.id.get_offset()
        if offset is None:  # never written: all fill value
            return empty
        row_nbytes = math.prod(empty.shape[1:]) * dtype.itemsize
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


def _sizes_fit(table: ChunkTable, filters: tuple[Any, ...], chunk_nbytes: int) -> bool:
    """Chunks without a size-changing filter must have the size of a chunk, or they are not what we think."""
    if any(f["id"] not in ("shuffle", "fletcher32") for f in filters):
        return True
    full = chunk_nbytes + 4 * sum(f["id"] == "fletcher32" for f in filters)
    return bool((table.nbytes == full).all())


def chunk_shape(dataset: h5py.Dataset, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The chunks of a dataset, or one chunk of ``shape``; no axis without a size."""
    return tuple(max(1, n) for n in (dataset.chunks or shape))


def refuse_departures(dataset: h5py.Dataset) -> None:
    """Refuse a dataset whose values lie in other files.

    Raises
    ------
    NotExpressibleError
        With the names of the files.
    """
    if is_stored_here(dataset.id):
        return
    if dataset.id.get_create_plist().get_layout() != h5d.VIRTUAL:
        names = ", ".join(name for name, _, _ in dataset.external or ())
        raise NotExpressibleError("external_storage", f"its values lie in other files: {names}")
    others = sorted({s.file_name for s in dataset.virtual_sources()} - {"."})
    if others:
        raise NotExpressibleError("virtual_dataset", f"its values lie in other files: {', '.join(others)}")


def object_vector(items: list[Any]) -> np.ndarray[Any, Any]:
    """A 1-D object array; numpy itself would take lists of equal length for a second axis."""
    vector = np.empty(len(items), object)
    for position, item in enumerate(items):
        vector[position] = item
    return vector
