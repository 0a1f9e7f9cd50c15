"""Random chunked datasets: every index, grown, shrunk, sparse, filtered; and what reading each chunk proves of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from hypothesis import strategies as st

__all__ = ["LIBVERS", "RandomDataset", "random_datasets", "stored_chunks", "write_datasets"]

LIBVERS = ("earliest", "v108", "v110", "v112", "latest")


@dataclass(frozen=True)
class RandomDataset:
    """How one dataset is made: created in ``shape``, resized to ``written``, written, resized to ``final``."""

    shape: tuple[int, ...]
    maxshape: tuple[int | None, ...]
    chunks: tuple[int, ...]
    written: tuple[int, ...]
    final: tuple[int, ...]
    sparse: bool
    early: bool
    compression: str | None
    shuffle: bool
    fletcher32: bool
    seed: int

    @property
    def has_filters(self) -> bool:
        """Whether chunks vary in size."""
        return bool(self.compression or self.shuffle or self.fletcher32)


@st.composite
def random_datasets(draw: st.DrawFn) -> RandomDataset:
    rank = draw(st.integers(1, 4))
    longest = {1: 400, 2: 40, 3: 9, 4: 6}[rank]
    shape = tuple(draw(st.integers(1, longest)) for _ in range(rank))
    maxshape = tuple(draw(st.sampled_from([None, n, n + 5, n + draw(st.integers(0, 60))])) for n in shape)
    chunks = tuple(
        min(draw(st.integers(1, max(1, longest // 4))), n if m is None else m)
        for n, m in zip(shape, maxshape, strict=True)
    )
    written, final = (
        tuple(
            n if m == n else draw(st.integers(0, n + 9 if m is None else m))
            for n, m in zip(shape, maxshape, strict=True)
        )
        for _ in range(2)
    )
    return RandomDataset(
        shape,
        maxshape,
        chunks,
        draw(st.sampled_from([shape, written])),
        draw(st.sampled_from([shape, written, final])),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from([None, None, "gzip"])),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(0, 2**16)),
    )


def write_datasets(group: h5py.Group, datasets: list[RandomDataset]) -> None:
    """Write datasets ``d0``, ``d1``, ..., with other data between their metadata."""
    for number, made in enumerate(datasets):
        _write(group, f"d{number}", made)
        group.create_dataset(f"between{number}", data=np.arange(9000) + number)
        group.file.flush()


def _write(group: h5py.Group, name: str, made: RandomDataset) -> None:
    rng = np.random.default_rng(made.seed)
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(made.chunks)
    properties.set_alloc_time(
        h5py.h5d.ALLOC_TIME_EARLY if made.early and not made.has_filters else h5py.h5d.ALLOC_TIME_INCR
    )
    if made.shuffle:
        properties.set_shuffle()
    if made.compression:
        properties.set_deflate(4)
    if made.fletcher32:
        properties.set_fletcher32()
    limits = tuple(h5py.h5s.UNLIMITED if m is None else m for m in made.maxshape)
    space = h5py.h5s.create_simple(made.shape, limits)
    dataset = h5py.Dataset(h5py.h5d.create(group.id, name.encode(), h5py.h5t.STD_I32LE, space, properties))
    dataset.resize(made.written)
    if made.sparse and dataset.size:
        for _ in range(4):
            dataset[tuple(int(rng.integers(0, n)) for n in dataset.shape)] = int(rng.integers(1, 1 << 30))
    elif dataset.size:
        dataset[...] = rng.integers(1, 1 << 30, dataset.shape, "i4")
    dataset.resize(made.final)


def stored_chunks(dataset: h5py.Dataset) -> dict[tuple[int, ...], bytes]:
    """The bytes of each chunk as libhdf5 finds it by its coordinates in the grid."""
    return dict(_stored_chunks(dataset))


def _stored_chunks(dataset: h5py.Dataset) -> Iterator[tuple[tuple[int, ...], bytes]]:
    corners = [range(0, n, c) for n, c in zip(dataset.shape, dataset.chunks, strict=True)]
    for corner in itertools.product(*corners):
        try:
            _, data = dataset.id.read_direct_chunk(corner)
        except (OSError, ValueError, RuntimeError, MemoryError, SystemError):
            continue  # not allocated
        if data:
            yield tuple(k // c for k, c in zip(corner, dataset.chunks, strict=True)), data


def chunks_of_table(table, path: Path) -> dict[tuple[int, ...], bytes]:
    """The same of a ChunkTable over a file."""
    raw = path.read_bytes()
    places = zip(table.coordinates().tolist(), table.offset.tolist(), table.nbytes.tolist(), strict=True)
    return {tuple(coordinates): raw[offset : offset + nbytes] for coordinates, offset, nbytes in places}
