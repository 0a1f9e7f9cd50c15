"""Chunks put into the file in memory: mapped to their sources, or as bytes where the document has them as text."""

from __future__ import annotations

import math

import numpy as np
from h5py import h5d

from lindi_bridge.client.virtual import MemoryWriter, Segments, VirtualMemory
from lindi_bridge.client.written_datasets import PlannedDataset
from lindi_bridge.document.problems import MalformedError
from lindi_bridge.model.chunks import ChunkTable

__all__ = ["ChunkWriter"]

_MOST_CHUNKS_OF_TEXT = 1 << 18
_MOST_CHUNK = 1 << 28
_ALL_FILTERS = 0xFFFFFFFF


class ChunkWriter:
    """Puts chunks into datasets of a virtual file.

    Parameters
    ----------
    memory : VirtualMemory
        The virtual file.
    """

    def __init__(self, memory: VirtualMemory) -> None:
        self.memory = memory
        self.writer = MemoryWriter(memory)
        self.refusals: list[str] = []
        """Why mapped ranges of source ``-2 - k`` cannot be had."""
        self.first: dict[int, str] = {}
        """Path of each dataset of whose chunks only one is in, by the place of that one."""

    def write(self, planned: PlannedDataset, dataset: h5d.DatasetID) -> None:
        """Chunks in text, as they are and with all filters skipped; the first of those that are references."""
        node, chunks = planned.node, planned.layout.chunks
        assert chunks is not None
        if node.table is None or not len(node.table):
            if chunks == node.chunks:
                self.put_text(planned, dataset)
            else:
                self._cut(planned, dataset)
            return
        for data in node.inline.values():
            planned.inline_bytes(data)  # damage is told now; they are put in with the others
        self._put_first(planned, dataset)

    def _cut(self, planned: PlannedDataset, dataset: h5d.DatasetID) -> None:
        """Values that stand in the document in other pieces than the chunks of the dataset."""
        node, chunks, values = planned.node, planned.layout.chunks, planned.plain()
        assert chunks is not None
        if values is None:
            return
        grid = [range(0, n, c) for n, c in zip(node.shape, chunks, strict=True)]
        if math.prod(len(g) for g in grid) > _MOST_CHUNKS_OF_TEXT:
            raise MalformedError("more chunks than its text has use for")
        if math.prod(chunks) * planned.type_id.get_size() > _MOST_CHUNK:
            raise MalformedError("chunks that are much larger than its text")
        for corner in np.ndindex(*(len(g) for g in grid)):
            start = tuple(g[k] for g, k in zip(grid, corner, strict=True))
            piece = values[tuple(slice(s, s + c) for s, c in zip(start, chunks, strict=True))]
            whole = np.zeros(chunks, values.dtype)
            whole[tuple(slice(0, n) for n in piece.shape)] = piece
            dataset.write_direct_chunk(start, whole.tobytes(), _ALL_FILTERS)

    def put_text(self, planned: PlannedDataset, dataset: h5d.DatasetID) -> None:
        """Put in the chunks that stand in the document as text, beside others that are references."""
        chunks = planned.layout.chunks
        assert chunks is not None
        for key, data in planned.node.inline.items():
            start = tuple(int(k) * c for k, c in zip(key.split("."), chunks, strict=True))
            dataset.write_direct_chunk(start, planned.inline_bytes(data), _ALL_FILTERS)

    def _put_first(self, planned: PlannedDataset, dataset: h5d.DatasetID) -> None:
        """Put in the first chunk: from then on the chunk index has an address, at which it stays."""
        table = planned.node.table
        assert table is not None
        place = self.put_chunk(planned, dataset, table, 0)
        if not planned.decode:
            length = int(table.nbytes[0])
            source = 0 if table.source is None else int(table.source[0])
            self.memory.map(_segments([place], [length], [source], [int(table.offset[0])]))
        self.first[place] = planned.path

    def put_chunk(self, planned: PlannedDataset, dataset: h5d.DatasetID, table: ChunkTable, row: int) -> int:
        """Put one chunk in; its place in the virtual file."""
        chunks = planned.layout.chunks
        assert chunks is not None
        corner = np.unravel_index(int(table.index[row]), table.grid)
        start = tuple(int(k) * c for k, c in zip(corner, chunks, strict=True))
        length = int(table.nbytes[row]) if planned.shrinks else planned.full_nbytes
        dataset.write_direct_chunk(start, self.writer.payload(length), planned.mask)
        return self.writer.place()

    def map_pieces(self, planned: PlannedDataset, dataset: h5d.DatasetID) -> None:
        """A contiguous dataset: the bytes of its pieces, one after the other."""
        node, table = planned.node, planned.node.table
        assert table is not None
        place = dataset.get_offset()
        total = math.prod(node.shape) * planned.type_id.get_size()
        step = planned.chunk_nbytes
        start = table.index * step
        length = np.minimum(table.nbytes, total - start)
        source = np.zeros(len(table), np.int64) if table.source is None else table.source
        self.memory.map(Segments(place + start, length, source, table.offset))
        for key, data in node.inline.items():
            first = int(key.split(".")[0]) * step
            piece = planned.inline_bytes(data)[: max(0, total - first)]
            self.memory.write(place + first, piece)
            self.memory.map(_segments([place + first], [len(piece)], [-1], [0]))

    def refuse(self, planned: PlannedDataset, dataset: h5d.DatasetID) -> None:
        """Close a dataset whose values cannot be had to reading."""
        assert planned.refusal is not None
        if planned.shape is None or 0 in planned.node.shape:
            return
        number = planned.refused_source = -2 - len(self.refusals)
        self.refusals.append(planned.refusal)
        if planned.layout.chunks is not None:
            self.first[self.put_refused(planned, dataset, (0,) * len(planned.layout.chunks))] = planned.path
        elif not planned.layout.compact:
            nbytes = dataset.get_storage_size()
            self.memory.map(_segments([dataset.get_offset()], [nbytes], [number], [0]))

    def put_refused(self, planned: PlannedDataset, dataset: h5d.DatasetID, start: tuple[int, ...]) -> int:
        """Put in a chunk that cannot be had; its place in the virtual file."""
        assert planned.layout.chunks is not None
        length = math.prod(planned.layout.chunks) * planned.stored_itemsize
        dataset.write_direct_chunk(start, self.writer.payload(length), _ALL_FILTERS)
        place = self.writer.place()
        self.memory.map(_segments([place], [length], [planned.refused_source], [0]))
        return place


def _segments(*columns: list[int]) -> Segments:
    return Segments(*(np.array(column, np.int64) for column in columns))
