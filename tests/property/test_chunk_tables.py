"""Chunk tables of random files say what reading each chunk proves."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lindi_bridge.hdf5.chunk_index import read_chunk_table
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.open import open_file_id
from lindi_bridge.ranges import open_reader

LIBVERS = ("earliest", "v108", "v110", "v112", "latest")


def _table(path, name="d"):
    reader = open_reader(str(path))
    file = HDF5File(reader, address=str(path))
    h5 = h5py.File(open_file_id(file))
    try:
        return read_chunk_table(h5[name].id, file)
    finally:
        h5.close()
        file.close()


def _check(path, name="d"):
    """Every chunk of the table holds the bytes that libhdf5 reads at its coordinates; none is left out."""
    table = _table(path, name)
    raw = Path(path).read_bytes()
    with h5py.File(path) as file:
        dataset = file[name]
        assert len(table) == dataset.id.get_num_chunks() or any(
            now < largest for now, largest in zip(dataset.shape, dataset.chunks, strict=True)
        )
        expected = {}
        for corner in itertools.product(*[range(0, n, c) for n, c in zip(dataset.shape, dataset.chunks, strict=True)]):
            data = _stored(dataset, corner)
            if data:
                expected[tuple(k // c for k, c in zip(corner, dataset.chunks, strict=True))] = data
    found = {}
    for coordinates, offset, nbytes in zip(table.coordinates().tolist(), table.offset, table.nbytes, strict=True):
        found[tuple(coordinates)] = raw[offset : offset + nbytes]
    assert found == expected


def _stored(dataset, corner):
    """A chunk as libhdf5 looks it up by its coordinates, or None."""
    try:
        return dataset.id.read_direct_chunk(corner)[1]
    except (OSError, ValueError, RuntimeError, MemoryError):
        return None


@st.composite
def layouts(draw):
    rank = draw(st.integers(1, 4))
    chunks = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(rank))
    grown = tuple(draw(st.one_of(st.just(0), st.integers(0, 5))) for _ in range(rank))
    maxshape = tuple(
        draw(st.sampled_from([None, n + g, n + g + draw(st.integers(0, 6))])) for n, g in zip(shape, grown, strict=True)
    )
    return {
        "shape": shape,
        "chunks": tuple(min(c, m) if m is not None else c for c, m in zip(chunks, maxshape, strict=True)),
        "maxshape": maxshape,
        "grown": tuple(n + g for n, g in zip(shape, grown, strict=True)),
        "libver": draw(st.sampled_from(LIBVERS)),
        "userblock": draw(st.sampled_from([0, 512])),
        "compression": draw(st.sampled_from([None, "gzip"])),
        "shuffle": draw(st.booleans()),
        "sparse": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**16)),
    }


@settings(max_examples=150, deadline=None)
@given(layouts())
def test_tables_of_random_files(layout):
    rng = np.random.default_rng(layout["seed"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.h5"
        options = {"userblock_size": layout["userblock"]} if layout["userblock"] else {}
        with h5py.File(path, "w", libver=(layout["libver"], "latest"), **options) as file:
            dataset = file.create_dataset(
                "d",
                layout["shape"],
                "i4",
                chunks=layout["chunks"],
                maxshape=layout["maxshape"],
                compression=layout["compression"],
                shuffle=layout["shuffle"],
            )
            dataset.resize(layout["grown"])
            values = rng.integers(0, 1 << 30, dataset.shape, "i4")
            if layout["sparse"]:
                for _ in range(3):
                    corner = tuple(int(rng.integers(0, n)) for n in dataset.shape)
                    dataset[corner] = values[corner]
            else:
                dataset[...] = values
        _check(path)


@pytest.mark.parametrize("libver", ["earliest", "v110", "latest"])
@pytest.mark.parametrize(
    ("shape", "maxshape", "chunks"),
    [
        ((6, 10), (6, None), (2, 2)),
        ((6, 10), (12, None), (2, 2)),
        ((6, 10), (None, 12), (2, 2)),
        ((5, 7), (5, None), (2, 3)),
        ((4, 6, 8), (4, None, 8), (2, 2, 2)),
        ((4, 6, 8), (4, 6, None), (2, 2, 2)),
        ((4, 6, 8), (9, 6, None), (2, 4, 3)),
        ((3, 4, 5, 6), (3, None, 5, 6), (1, 2, 2, 3)),
        ((3, 4, 5, 6), (4, 4, 7, None), (1, 2, 2, 3)),
    ],
)
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_extensible_arrays_that_libhdf5_misplaces(tmp_path, libver, shape, maxshape, chunks, compression):
    """H5Dchunk_iter gives wrong coordinates where the unlimited dimension is not the first (libhdf5 1.14 and 2.0)."""
    path = tmp_path / "ea.h5"
    with h5py.File(path, "w", libver=(libver, "latest")) as file:
        dataset = file.create_dataset("d", shape, "i4", maxshape=maxshape, chunks=chunks, compression=compression)
        dataset[...] = np.arange(dataset.size).reshape(shape)
    _check(path)


def test_the_fault_in_libhdf5_is_still_there(tmp_path):
    """If this fails, libhdf5 was mended, and the look-up by probing can go."""
    path = tmp_path / "ea.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("d", (6, 10), "i4", maxshape=(6, None), chunks=(2, 2))[...] = np.arange(60).reshape(6, 10)
    raw = path.read_bytes()
    listed = []
    with h5py.File(path) as file:
        file["d"].id.chunk_iter(listed.append)
        right = [raw[c.byte_offset : c.byte_offset + c.size] == _stored(file["d"], c.chunk_offset) for c in listed]
    assert not all(right)


def test_a_dataset_that_shrank(tmp_path):
    path = tmp_path / "shrunk.h5"
    for libver in LIBVERS:
        with h5py.File(path, "w", libver=(libver, "latest")) as file:
            dataset = file.create_dataset("d", (40, 6), "i4", maxshape=(None, 6), chunks=(4, 3))
            dataset[...] = np.arange(240).reshape(40, 6)
            dataset.resize((10, 6))
        _check(path)
