"""Which byte ranges of the file a selection of a dataset will make libhdf5 read.

A plan is a hint: what it leaves out is read on demand. It is made once for each dataset of an open file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
from h5py import h5d, h5s

from lindi_bridge.client.runs import runs_in_block
from lindi_bridge.client.selection import AxisSelection, select_axes
from lindi_bridge.hdf5.chunk_index import ChunkTableError, read_chunk_table
from lindi_bridge.hdf5.chunk_tables import WalkedTable
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.heaps import stored_layout
from lindi_bridge.hdf5.walk import header_address, is_stored_here, structure_tables
from lindi_bridge.model.chunks import ChunkTable
from lindi_bridge.model.snapshot import HeapMap
from lindi_bridge.ranges import ByteRange

__all__ = ["ReadPlan", "keep_plan", "read_plan", "read_plans"]

_MOST_CHUNKS = 2_000_000
_WHOLE = 1024 * 1024
"""Bytes. A raw chunk of this size may as well be fetched as it is."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ReadPlan:
    """How one dataset is stored, as far as fetching ahead needs to know.

    Parameters
    ----------
    shape : tuple of int
        Of the dataset, ``()`` for a scalar.
    itemsize : int
        Stored bytes of an element.
    leaves_file : bool
        The values lie in other files (virtual dataset, external storage, a dataset that a document links to).
    linked : bool
        They are those of a dataset of another HDF5 file, which the document names.
    chunks : tuple of int, optional
        Chunk shape.
    table : ChunkTable, optional
        Of a chunked dataset.
    offset : int, optional
        Address of contiguous data.
    heap : HeapMap, optional
        Where variable-length values lie.
    filters : int
        Number of filters of a chunked dataset.
    chunk_cache : int
        Bytes of libhdf5's chunk cache for the dataset. It reads a raw chunk that is larger only where it is touched,
        and all others whole.
    """

    shape: tuple[int, ...]
    itemsize: int
    leaves_file: bool = False
    linked: bool = False
    chunks: tuple[int, ...] | None = None
    table: ChunkTable | None = None
    offset: int | None = None
    heap: HeapMap | None = None
    filters: int = 0
    chunk_cache: int = 0

    def ranges(self, args: Any, *, past_libhdf5: bool = False) -> list[ByteRange]:
        """Ranges that ``dataset[args]`` will read; empty where nothing can be told.

        Parameters
        ----------
        args : object
            The selection.
        past_libhdf5 : bool
            The values will be taken from the bytes themselves: of a raw chunk no more is needed than is touched.
        """
        if self.table is None and self.offset is None:
            return []
        mask = self._whole_mask(args)
        if mask is not None and self.table is not None:
            return self._rows(self._masked(mask))
        if mask is not None:
            args = np.flatnonzero(mask.any(axis=tuple(range(1, mask.ndim))))
        axes = select_axes(args, self.shape)
        if axes is None:
            return []
        if self.table is not None:
            rows = self._touched(axes)
            if self._is_read_in_part(past_libhdf5):
                return [wanted for row in rows.tolist() for wanted in self._part(row, axes)]
            return self._rows(rows)
        assert self.offset is not None
        return runs_in_block(self.offset, self.shape, self.itemsize, axes) + self._heap_rows(axes)

    def everything(self) -> list[ByteRange]:
        """Ranges of all the data."""
        return self.ranges(())

    @property
    def stored_nbytes(self) -> int:
        """Bytes of all the data, as stored, with the contents of variable-length values where they are known."""
        heaps = 0 if self.heap is None else int(self.heap.collections[:, 1].sum())
        if self.table is not None:
            return int(self.table.nbytes.sum()) + heaps
        return heaps if self.offset is None else self.itemsize * int(np.prod(self.shape, dtype=np.int64)) + heaps

    # -- chunked ------------------------------------------------------------------------------------------------

    def _whole_mask(self, args: Any) -> npt.NDArray[np.bool_] | None:
        """A boolean mask over all axes, if that is what ``args`` is."""
        item = args[0] if isinstance(args, tuple) and len(args) == 1 else args
        if isinstance(item, np.ndarray) and item.dtype == np.bool_ and item.ndim > 1 and item.shape == self.shape:
            return item
        return None

    def _masked(self, mask: npt.NDArray[np.bool_]) -> IntArray:
        """Rows of the table that a mask touches."""
        assert self.table is not None
        assert self.chunks is not None
        coordinates = np.stack(np.nonzero(mask), axis=1) // np.array(self.chunks)
        if not len(coordinates):
            return np.empty(0, np.int64)
        return self.table.rows(np.unique(np.ravel_multi_index(tuple(coordinates.T), self.table.grid)))

    def _touched(self, axes: list[AxisSelection]) -> IntArray:
        assert self.table is not None
        assert self.chunks is not None
        blocks = [axis.blocks(chunk) for axis, chunk in zip(axes, self.chunks, strict=True)]
        if int(np.prod([len(b) for b in blocks], dtype=np.float64)) > min(_MOST_CHUNKS, 2 * len(self.table)):
            coordinates = self.table.coordinates()
            inside = np.ones(len(self.table), np.bool_)
            for axis, wanted in enumerate(blocks):
                inside &= np.isin(coordinates[:, axis], wanted)
            return np.flatnonzero(inside)
        index = np.zeros(1, np.int64)
        for wanted, count in zip(blocks, self.table.grid, strict=True):
            index = (index[:, None] * count + wanted[None, :]).reshape(-1)
        return self.table.rows(index)

    @property
    def is_decoded(self) -> bool:
        """Whether it is all in chunks that go through filters; then libhdf5 reads each of them in one piece."""
        return self.table is not None and self.filters > 0 and self.heap is None

    @cached_property
    def least_nbytes(self) -> int:
        """Stored bytes of the smallest chunk; 0 if there is none."""
        return 0 if self.table is None or not len(self.table) else int(self.table.nbytes.min())

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of a raw chunk."""
        return self.itemsize * math.prod(self.chunks or ())

    def _is_read_in_part(self, past_libhdf5: bool) -> bool:
        whole = min(self.chunk_cache, _WHOLE) if past_libhdf5 else self.chunk_cache
        return self.filters == 0 and self.heap is None and self.chunk_nbytes > whole

    def _part(self, row: int, axes: list[AxisSelection]) -> list[ByteRange]:
        """What is touched of one raw chunk."""
        assert self.table is not None
        assert self.chunks is not None
        place = np.unravel_index(int(self.table.index[row]), self.table.grid)
        inside = [
            axis.within(int(k) * chunk, (int(k) + 1) * chunk)
            for axis, k, chunk in zip(axes, place, self.chunks, strict=True)
        ]
        if not all(len(axis) for axis in inside):
            return []
        return runs_in_block(int(self.table.offset[row]), self.chunks, self.itemsize, inside)

    def _rows(self, rows: IntArray) -> list[ByteRange]:
        assert self.table is not None
        data = zip(self.table.offset[rows].tolist(), self.table.nbytes[rows].tolist(), strict=True)
        ranges = [ByteRange(*r) for r in data]
        if self.heap is not None and len(self.heap.blocks) == len(self.table):
            ranges += self._collections(rows)
        return ranges

    # -- variable length ----------------------------------------------------------------------------------------

    def _heap_rows(self, axes: list[AxisSelection]) -> list[ByteRange]:
        if self.heap is None or not self.heap.step or not axes:
            return []
        return self._collections(axes[0].blocks(self.heap.step))

    def _collections(self, blocks: IntArray) -> list[ByteRange]:
        assert self.heap is not None
        wanted = np.zeros(len(self.heap.collections) + 1, np.int64)
        spans = self.heap.blocks[blocks[blocks < len(self.heap.blocks)]]
        np.add.at(wanted, spans[:, 0], 1)
        np.add.at(wanted, spans[:, 1], -1)
        rows = np.flatnonzero(np.cumsum(wanted)[:-1] > 0)
        return [ByteRange(*r) for r in self.heap.collections[rows].tolist()]


def read_plan(dataset: h5d.DatasetID, file: HDF5File) -> ReadPlan:
    """The plan of a dataset, made at its first use."""
    return read_plans([dataset], file)[0]


def read_plans(datasets: Sequence[h5d.DatasetID], file: HDF5File) -> list[ReadPlan]:
    """The plans of several datasets; what has to be fetched to make them is fetched for all at the same time."""
    plans: dict[int, ReadPlan] = file.properties.setdefault("plans", {})
    addresses = [header_address(dataset) for dataset in datasets]
    new = {a: dataset for a, dataset in zip(addresses, datasets, strict=True) if a not in plans}
    # A document holds all indexes; without one they are fetched, level by level.
    fetch = "heaps" not in file.properties
    tables = structure_tables(file, [a for a, d in new.items() if _is_chunked(d)], fetch=fetch) if new else {}
    for address, dataset in new.items():
        plans[address] = _make_plan(dataset, file, address, tables.get(address))
    return [plans[address] for address in addresses]


def _is_chunked(dataset: h5d.DatasetID) -> bool:
    return bool(dataset.get_create_plist().get_layout() == h5d.CHUNKED)


def keep_plan(file: HDF5File, address: int, plan: ReadPlan) -> None:
    """Put a better plan in place of the one of a dataset, by the address of its object header."""
    file.properties["plans"][address] = plan


def _make_plan(dataset: h5d.DatasetID, file: HDF5File, address: int, walked: WalkedTable | None) -> ReadPlan:
    if address in file.properties.get("linked", ()):
        return ReadPlan((), 1, leaves_file=True, linked=True)
    if not is_stored_here(dataset):
        return ReadPlan((), 1, leaves_file=_leaves_file(dataset))
    if dataset.get_space().get_simple_extent_type() == h5s.NULL:
        return ReadPlan((), 1)
    shape, itemsize = dataset.shape, stored_layout(dataset.get_type())[0]
    heap = file.properties.get("heaps", {}).get(address)
    create = dataset.get_create_plist()
    if create.get_layout() == h5d.CHUNKED:
        try:
            table = read_chunk_table(dataset, file, walked)
        except ChunkTableError:
            return ReadPlan(shape, itemsize)
        return ReadPlan(
            shape,
            itemsize,
            chunks=create.get_chunk(),
            table=table,
            heap=heap,
            filters=create.get_nfilters(),
            chunk_cache=dataset.get_access_plist().get_chunk_cache()[1],
        )
    if create.get_layout() == h5d.CONTIGUOUS and 0 not in shape:
        return ReadPlan(shape, itemsize, offset=dataset.get_offset(), heap=heap)
    return ReadPlan(shape, itemsize)


def _leaves_file(dataset: h5d.DatasetID) -> bool:
    """Whether a dataset that is not stored in the file's own space takes values from another file."""
    obj = h5py.Dataset(dataset)
    return not obj.is_virtual or any(source.file_name != "." for source in obj.virtual_sources())
