"""The bytes of the chunks of one array: as they are stored, or read by libhdf5 and encoded as zarr will decode them."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lindi_bridge.client.file import File
from lindi_bridge.client.plan import ReadPlan, read_plan
from lindi_bridge.errors import SourceError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.indexer.text_rows import with_room
from lindi_bridge.indexer.values import ReferenceEncoder
from lindi_bridge.model.text import stored_name
from lindi_bridge.ranges import ByteRange
from lindi_bridge.store.presentation import Presentation, Storage
from lindi_bridge.store.text import texts

__all__ = ["ABSENT", "ChunkSource", "Coordinates"]

ABSENT = object()
"""A chunk that HDF5 never allocated: its values are the fill value."""

_KEEPS_SIZE = frozenset(["shuffle", "fletcher32"])
_CHECKSUM_NBYTES = 4

Coordinates = tuple[int, ...]


class ChunkSource:
    """Where the chunks of an array come from.

    Parameters
    ----------
    file : File
        The file that the dataset is in.
    path : str
        Of the dataset.
    presentation : Presentation
        How the dataset is presented.
    reference : callable
        Makes what turns references into paths, for arrays that have some.
    """

    def __init__(
        self, file: File, path: str, presentation: Presentation, reference: Callable[[], ReferenceEncoder]
    ) -> None:
        self.presentation = presentation
        self._file = file
        self._path = path
        self._reference = reference
        self._opened: tuple[Any, ReadPlan] | None = None

    @property
    def file_object(self) -> HDF5File:
        """The file object below the file."""
        return self._file._file_object

    def __contains__(self, coordinates: Coordinates) -> bool:
        """Whether there is a chunk at these coordinates, asking the source only for the index of the chunks."""
        if not self._is_inside(coordinates):
            return False
        row = self._row(coordinates)
        return row is not ABSENT or not self.presentation.fill_is_exact

    def __iter__(self) -> Iterator[Coordinates]:
        """Coordinates of all chunks there are, in row-major order."""
        _, plan = self._open()
        storage, exact = self.presentation.storage, self.presentation.fill_is_exact
        if storage is Storage.CHUNKS and plan.table is not None and exact:
            yield from map(tuple, plan.table.coordinates().tolist())
        elif storage is not Storage.BLOCK or plan.offset is not None or not exact:
            yield from itertools.product(*map(range, self.presentation.grid))

    def nbytes(self, coordinates: Coordinates) -> int | None:
        """Bytes of a chunk as zarr gets it, where that is known without reading it."""
        span = self._span(coordinates)
        if span is None or self.presentation.storage is not Storage.BLOCK:
            return None if span is None else span.length
        return math.prod(self.presentation.chunks) * self._itemsize

    # -- what to fetch ---------------------------------------------------------------------------------------------

    def ranges(self, coordinates: Coordinates) -> list[ByteRange]:
        """Ranges of the file that a chunk takes its values from; a hint where libhdf5 reads it."""
        if not self._is_inside(coordinates):
            return []
        span = self._span(coordinates)
        if span is not None:
            return [span]
        _, plan = self._open()
        if plan.leaves_file or self._row(coordinates) is ABSENT:
            return []
        return plan.ranges(self._region(coordinates))

    def held(self, coordinates: Coordinates) -> bytes | object | None:
        """A chunk if nothing has to be asked or computed for it; None otherwise. Takes no lock."""
        if not self._is_inside(coordinates):
            return ABSENT
        if self._opened is None:
            return None
        span = self._span(coordinates)
        if span is None:
            return ABSENT if self._is_plainly_absent(coordinates) else None
        data = self.file_object.held(*span)
        return self._whole(data) if len(data) == span.length else None

    # -- chunks ----------------------------------------------------------------------------------------------------

    def chunk(self, coordinates: Coordinates) -> bytes | object:
        """A chunk as zarr decodes it, or ABSENT.

        Raises
        ------
        SourceError
            It cannot be had. Never an error that zarr takes for a missing chunk.
        """
        if not self._is_inside(coordinates):
            return ABSENT
        try:
            return self._chunk(coordinates)
        except (KeyError, OSError, ValueError, RuntimeError, TypeError) as error:
            if isinstance(error, SourceError) and not isinstance(error, FileNotFoundError):
                raise
            where = f"{self.file_object.address}: {self._path}, chunk {coordinates}"
            raise SourceError(f"{where}: {error}") from error

    def _chunk(self, coordinates: Coordinates) -> bytes | object:
        if self._is_plainly_absent(coordinates):
            return ABSENT
        span = self._span(coordinates)
        if span is not None:
            file = self.file_object
            data = file.held(*span)
            if len(data) < span.length:
                file.ensure([span])
                data = file.held(*span)
            if len(data) < span.length:  # it does not fit into the cache
                (data,) = file.reader.read_ranges([span])
            return self._whole(data)
        return self._encoded(self._read(coordinates))

    def _read(self, coordinates: Coordinates) -> np.ndarray[Any, Any]:
        """Values of a chunk by libhdf5, as the array has them, filled up to the size of a chunk."""
        dataset, _ = self._open()
        presentation, element = self.presentation, self.presentation.element
        values = np.asarray(dataset[self._region(coordinates)])
        shape = values.shape
        if element.text is not None:
            found = texts(values, element.text, dataset.dtype, self._reference())
            values = np.empty(len(found), object)
            values[:] = found
            values = values.reshape(shape)
        elif element.measured:
            values = with_room(values, sys.maxsize).astype(element.dtype)
        else:
            values = values.astype(element.dtype, copy=False)
        if shape == presentation.chunks:
            return values
        fill = "" if element.dtype is None else np.zeros((), element.dtype)[()]
        whole = np.full(presentation.chunks, fill, object if element.dtype is None else element.dtype)
        whole[tuple(slice(0, n) for n in shape)] = values
        return whole

    def _encoded(self, values: np.ndarray[Any, Any]) -> bytes:
        import numcodecs

        if self.presentation.element.dtype is None:
            return bytes(numcodecs.VLenUTF8().encode(values.reshape(-1)))
        data: Any = np.ascontiguousarray(values).tobytes()
        for config in self.presentation.codecs:
            data = numcodecs.get_codec(dict(config)).encode(data)
        return bytes(data)

    # -- where it lies ---------------------------------------------------------------------------------------------

    def _open(self) -> tuple[Any, ReadPlan]:
        if self._opened is None:
            dataset = self._file[stored_name(self._path)]
            self._opened = dataset, read_plan(dataset.id, dataset._file_object)
        return self._opened

    @property
    def _itemsize(self) -> int:
        assert self.presentation.element.dtype is not None
        return self.presentation.element.dtype.itemsize

    def _is_inside(self, coordinates: Coordinates) -> bool:
        grid = self.presentation.grid
        return len(coordinates) == len(grid) and all(0 <= c < n for c, n in zip(coordinates, grid, strict=True))

    def _region(self, coordinates: Coordinates) -> tuple[slice, ...]:
        rank = len(self.presentation.shape) - len(self.presentation.element.inner)
        axes = zip(coordinates[:rank], self.presentation.chunks, self.presentation.shape, strict=False)
        return tuple(slice(c * chunk, min((c + 1) * chunk, length)) for c, chunk, length in axes)

    def _row(self, coordinates: Coordinates) -> Any:
        """Row of the chunk table; ABSENT if HDF5 has no such chunk; None where there is no table to tell."""
        _, plan = self._open()
        if self.presentation.storage is Storage.BLOCK:
            return ABSENT if plan.offset is None else None
        if self.presentation.storage is Storage.HDF5 or plan.table is None:
            return None
        index = np.ravel_multi_index(coordinates, plan.table.grid) if coordinates else 0
        rows = plan.table.rows(np.array([index], np.int64))
        return int(rows[0]) if len(rows) else ABSENT

    def _is_plainly_absent(self, coordinates: Coordinates) -> bool:
        return self._row(coordinates) is ABSENT and self.presentation.fill_is_exact

    def _span(self, coordinates: Coordinates) -> ByteRange | None:
        """The one range of the file whose bytes zarr can take as they are, or None."""
        presentation = self.presentation
        row = self._row(coordinates)
        if row is ABSENT or presentation.storage is Storage.HDF5:
            return None
        _, plan = self._open()
        if presentation.storage is Storage.BLOCK:
            return self._piece(coordinates, plan)
        if row is None or plan.table is None or plan.table.filter_mask[row]:
            return None
        nbytes = int(plan.table.nbytes[row])
        if all(config["id"] in _KEEPS_SIZE for config in presentation.codecs):
            checksums = sum(config["id"] == "fletcher32" for config in presentation.codecs)
            if nbytes != math.prod(presentation.chunks) * self._itemsize + checksums * _CHECKSUM_NBYTES:
                return None
        return ByteRange(int(plan.table.offset[row]), nbytes)

    def _piece(self, coordinates: Coordinates, plan: ReadPlan) -> ByteRange:
        """A piece of a block: chunks are cut so that each is one run of bytes."""
        shape, chunks = self.presentation.shape, self.presentation.chunks
        assert plan.offset is not None
        corner = [c * chunk for c, chunk in zip(coordinates, chunks, strict=True)]
        first = int(np.ravel_multi_index(corner, shape)) if shape else 0
        sizes = [min(chunk, length - start) for start, chunk, length in zip(corner, chunks, shape, strict=True)]
        return ByteRange(plan.offset + first * self._itemsize, math.prod(sizes) * self._itemsize)

    def _whole(self, data: bytes) -> bytes:
        """Fill a short piece of a block up: Zarr has whole chunks only."""
        if self.presentation.storage is not Storage.BLOCK:
            return data
        return data.ljust(math.prod(self.presentation.chunks) * self._itemsize, b"\0")
