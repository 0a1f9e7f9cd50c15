"""Chunks that are put into the file in memory when their dataset is first opened."""

from __future__ import annotations

import itertools

import numpy as np
from h5py import h5d
from h5py._objects import phil

from lindi_bridge.client.codecs import decode_plain
from lindi_bridge.client.virtual import Segments
from lindi_bridge.client.virtual_file import VirtualReader
from lindi_bridge.client.written_datasets import PlannedDataset
from lindi_bridge.client.written_file import WrittenFile
from lindi_bridge.document.problems import MalformedError
from lindi_bridge.errors import DocumentError
from lindi_bridge.model.text import stored_name

__all__ = ["PendingChunks"]


class PendingChunks:
    """The datasets whose chunks are not in the file yet.

    Parameters
    ----------
    written : WrittenFile
        The file, open for writing.
    reader : VirtualReader
        For chunks that have to be fetched and decoded.
    """

    def __init__(self, written: WrittenFile, reader: VirtualReader) -> None:
        self._written = written
        self._reader = reader

    def __bool__(self) -> bool:
        return bool(self._written.waiting)

    def put_in(self, address: int, most_refused: int = 10_000) -> None:
        """Put in the chunks of the dataset whose object header is at ``address``, if they are not.

        Parameters
        ----------
        address : int
            A dataset.
        most_refused : int
            Of a dataset whose values cannot be had, so many chunks are put in at the most, for those who look at its
            index; reading them says why they cannot be had.
        """
        if address not in self._written.waiting:
            return
        planned, _ = self._written.waiting[address]
        if planned.refusal is not None and planned.chunk_count > most_refused:
            return  # its index stays closed
        chunks = self._fetch(planned) if planned.decode and planned.refusal is None else []
        # All of it is libhdf5's work, which takes this lock anyway. No other Python thread is waited for.
        with phil:
            waiting = self._written.waiting.get(address)
            if waiting is None:
                return
            planned, root = waiting
            dataset = h5d.open(self._written.file_id, stored_name(planned.path))
            if planned.refusal is None:
                self._written.chunks.put_text(planned, dataset)
            if planned.refusal is not None:
                self._refuse(planned, dataset)
            elif planned.decode:
                self._write(planned, dataset, chunks)
            else:
                self._map(planned, dataset)
            self._written.flush()
            self._written.memory.closed_addresses.pop(root, None)
            del self._written.waiting[address]

    def put_in_all(self) -> None:
        """Put in everything."""
        for address in list(self._written.waiting):
            self.put_in(address, 1_000_000)

    def finish(self) -> int:
        """Close the file for writing; its size, which the file tells from then on."""
        self._written.close()
        size = self._written.memory.size
        self._written.set_end(size)
        return size

    def close(self) -> None:
        """Close the file for writing."""
        self._written.waiting.clear()
        self._written.close()

    def _map(self, planned: PlannedDataset, dataset: h5d.DatasetID) -> None:
        table, chunks = planned.node.table, planned.layout.chunks
        assert table is not None
        assert chunks is not None
        writer = self._written.chunks.writer
        corners = (table.coordinates() * np.array(chunks)).tolist()
        full = planned.full_nbytes
        fixed = not planned.shrinks
        sizes = [full] * len(table) if fixed else table.nbytes.tolist()
        places = np.empty(len(table), np.int64)
        put, payload, place, mask = dataset.write_direct_chunk, writer.payload, writer.place, planned.mask
        for row in range(1, len(table)):
            put(tuple(corners[row]), payload(sizes[row]), mask)
            places[row] = place()
        source = np.zeros(len(table), np.int64) if table.source is None else table.source
        segments = Segments(places, table.nbytes, source, table.offset)
        # The first chunk was mapped when it was put in. The tail of a short one is zeros: it is in memory.
        self._written.memory.map(Segments(*(column[1:] for column in segments)))

    def _fetch(self, planned: PlannedDataset) -> list[bytes]:
        """Fetch and decode all chunks of a dataset."""
        assert planned.node.table is not None
        out = []
        for row, data in enumerate(self._reader.read_source(planned.node.table)):
            try:
                out.append(decode_plain(data, planned.node.filters, planned.chunk_nbytes))
            except MalformedError as error:
                raise DocumentError(f"{planned.path}: chunk {row}: {error}") from None
        return out

    def _write(self, planned: PlannedDataset, dataset: h5d.DatasetID, chunks: list[bytes]) -> None:
        table, shape = planned.node.table, planned.layout.chunks
        assert table is not None
        assert shape is not None
        for corner, data in zip((table.coordinates() * np.array(shape)).tolist(), chunks, strict=True):
            dataset.write_direct_chunk(tuple(corner), data, 0)

    def _refuse(self, planned: PlannedDataset, dataset: h5d.DatasetID) -> None:
        assert planned.layout.chunks is not None
        axes = zip(planned.node.shape, planned.layout.chunks, strict=True)
        corners = itertools.product(*(range(0, length, chunk) for length, chunk in axes))
        for start in itertools.islice(corners, 1, None):
            self._written.chunks.put_refused(planned, dataset, start)
