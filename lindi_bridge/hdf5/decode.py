"""Stored chunks as raw bytes, by libhdf5's own filters.

A chunk is put as it is stored into a dataset in memory that has the same filters and, in place of the real type, opaque
bytes of the same size; reading that dataset decodes it. Some filters adapt themselves to the type (``set_local``),
so the result is used for hints only, and whoever uses it checks what it finds there.
"""

from __future__ import annotations

import itertools

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t, h5z

__all__ = ["ChunkDecoder"]

_numbers = itertools.count()

_MOST_MASKS = 16
"""Masks of one dataset whose chunks are decoded; files have two or three, and each takes the memory of a chunk."""


class ChunkDecoder:
    """Decodes chunks of one dataset.

    Parameters
    ----------
    create : h5py.h5p.PropDCID
        Creation properties of the dataset: chunk shape and filters.
    itemsize : int
        Stored bytes of an element.
    """

    def __init__(self, create: h5p.PropDCID, itemsize: int) -> None:
        self._create = create
        self._shape = create.get_chunk()
        self._type = h5t.create(h5t.OPAQUE, itemsize)
        self._values = np.empty(self._shape, f"V{itemsize}")
        self._file = h5py.File(f"chunk decoder {next(_numbers)}", "w", driver="core", backing_store=False)
        self._datasets: dict[int, h5d.DatasetID | None] = {}

    def decode(self, data: bytes, mask: int) -> bytes | None:
        """Raw bytes of a stored chunk, or None where libhdf5 cannot decode it."""
        # One dataset for each mask, with the filters that were applied: HDF5 2.0 forgets the mask of a chunk that was
        # written as it is, until the file is opened again.
        if mask not in self._datasets:
            self._datasets[mask] = self._made(mask) if len(self._datasets) < _MOST_MASKS else None
        dataset = self._datasets[mask]
        if dataset is None:
            return None
        try:
            dataset.write_direct_chunk((0,) * len(self._shape), data)
            dataset.read(h5s.ALL, h5s.ALL, self._values, self._type)
        except (OSError, RuntimeError, ValueError):
            return None
        return self._values.tobytes()

    def _made(self, mask: int) -> h5d.DatasetID | None:
        properties = h5p.create(h5p.DATASET_CREATE)
        properties.set_chunk(self._shape)
        try:
            for position in range(self._create.get_nfilters()):
                number, flags, values, _ = self._create.get_filter(position)
                # Shuffle is not told the size of a variable-length type, so that it does nothing to one; here it would.
                if mask >> position & 1 or (number == h5z.FILTER_SHUFFLE and not values):
                    continue
                properties.set_filter(number, flags, values)
            space = h5s.create_simple(self._shape)
            return h5d.create(self._file.id, b"chunk %d" % mask, self._type, space, properties)
        except (OSError, RuntimeError, ValueError):
            return None  # a filter that is not installed: nothing can be decoded

    def close(self) -> None:
        """Free the datasets in memory."""
        self._file.close()
