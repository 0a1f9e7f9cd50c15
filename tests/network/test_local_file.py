"""Long chunks of a file on this machine go from the disk to where libhdf5 wants them."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

import lindi_bridge as lb

KIB = 1024


@pytest.mark.parametrize("way", ["ours", "h5py's"])
def test_long_chunks_of_a_local_file_are_not_held_in_memory(tmp_path: Path, way: str) -> None:
    values = np.random.default_rng(0).integers(0, 1 << 30, (6, 100_000))
    path, document = tmp_path / "a.h5", tmp_path / "a.lindi.json"
    with h5py.File(path, "w") as file:
        file.create_dataset("long", data=values, chunks=(1, 100_000), compression="gzip")
        file.create_dataset("short", data=values, chunks=(1, 1000), compression="gzip")
        nbytes = file["long"].id.get_storage_size()
        assert file["long"].id.get_chunk_info(0).size > 64 * KIB > file["short"].id.get_chunk_info(0).size
    lb.index(path).save(document)
    below = lb.hdf5_file(document)
    with lb.open(document) if way == "ours" else h5py.File(below) as file:
        held = file._file_object if way == "ours" else below
        assert file["short"][0, 0] == values[0, 0]  # the first read compares the file with the document
        before, in_memory = held.reader.statistics, held._ahead.nbytes + held._demand.nbytes
        dataset = file["long"]
        assert np.array_equal(dataset[:], values)
        assert dataset[5, 77] == values[5, 77], "out of libhdf5's cache"
        after = held.reader.statistics
        assert (after.requests - before.requests, after.nbytes - before.nbytes) == (6, nbytes)
        assert 0 < in_memory == held._ahead.nbytes + held._demand.nbytes


def test_a_local_file_that_was_replaced_or_cut_is_an_error(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 1 << 30, 100_000)
    path, document = tmp_path / "a.h5", tmp_path / "a.lindi.json"
    with h5py.File(path, "w") as file:
        file.create_dataset("long", data=values, chunks=(100_000,), compression="gzip")
        end = file["long"].id.get_chunk_info(0).byte_offset + 1000
    lb.index(path).save(document)
    with lb.open(document) as file:
        assert file["long"].shape == (100_000,)  # the file itself is not opened yet
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        with pytest.raises(lb.SourceChangedError):
            file["long"][:]
    path.write_bytes(whole)
    lb.index(path).save(document)
    with lb.open(document) as file:
        assert np.array_equal(file["long"][:10], values[:10])
        os.truncate(path, end)
        with h5py.File(file._file_object) as again, pytest.raises(OSError):
            again["long"][:]


def test_long_collections_of_strings_come_ahead(tmp_path: Path) -> None:
    """libhdf5 reads them in two pieces."""
    path, document = tmp_path / "a.h5", tmp_path / "a.lindi.json"
    texts = [f"{number} {'x' * 3000}" for number in range(1000)]
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=texts, chunks=(10,), compression="gzip", dtype=h5py.string_dtype())
    lb.index(path).save(document)
    with lb.open(document) as file:
        assert file["d"].asstr()[:].tolist() == texts
        assert file._file_object.misses == 0
