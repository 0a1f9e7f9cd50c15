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
        self._shape = create.get_chunk()
        self._type = h5t.create(h5t.OPAQUE, itemsize)
        self._values = np.empty(self._shape, f"V{itemsize}")
        self._file = h5py.File(f"chunk decoder {next(_numbers)}", "w", driver="core", backing_store=False)
        properties = h5p.create(h5p.DATASET_CREATE)
        properties.set_chunk(self._shape)
        # Shuffle is not told the size of a variable-length type, so that it does nothing to one; here it would.
        filters = [create.get_filter(position) for position in range(create.get_nfilters())]
        self._positions = [k for k, f in enumerate(filters) if f[0] != h5z.FILTER_SHUFFLE or len(f[2])]
        self._dataset: h5d.DatasetID | None = None
        try:
            for position in self._positions:
                number, flags, values, _ = create.get_filter(position)
                properties.set_filter(number, flags, values)
            space = h5s.create_simple(self._shape)
            self._dataset = h5d.create(self._file.id, b"chunk", self._type, space, properties)
        except (OSError, RuntimeError, ValueError):
            pass  # a filter that is not installed: nothing can be decoded

    def decode(self, data: bytes, mask: int) -> bytes | None:
        """Raw bytes of a stored chunk, or None where libhdf5 cannot decode it."""
        if self._dataset is None:
            return None
        try:
            skipped = sum((mask >> position & 1) << k for k, position in enumerate(self._positions))
            self._dataset.write_direct_chunk((0,) * len(self._shape), data, skipped)
            self._dataset.read(h5s.ALL, h5s.ALL, self._values, self._type)
        except (OSError, RuntimeError, ValueError):
            return None
        return self._values.tobytes()

    def close(self) -> None:
        """Free the dataset in memory."""
        self._file.close()
