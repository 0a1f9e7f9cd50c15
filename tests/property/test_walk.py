"""The walk of random files: its chunk tables are what reading each chunk proves; libhdf5 then needs nothing more."""

from __future__ import annotations

import tempfile
from pathlib import Path

import h5py
import pytest
from builders.random_layouts import LIBVERS, chunks_of_table, random_datasets, stored_chunks, write_datasets
from hypothesis import given, settings
from hypothesis import strategies as st

from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.open import open_file_id
from lindi_bridge.hdf5.walk import structure_table, walk_file, walk_structures
from lindi_bridge.model.chunks import ChunkTable
from lindi_bridge.ranges import open_reader

HEAD = 64 * 1024


def check(path):
    reader = open_reader(str(path))
    file = HDF5File(reader, address=str(path), metadata=[(0, reader.read_head(HEAD))])
    missed = []
    read_on_demand = file._read_on_demand
    file._read_on_demand = lambda start, stop: (missed.append((start, stop)), read_on_demand(start, stop))
    structures = walk_structures(file)
    assert structures.problems == ()
    h5 = h5py.File(open_file_id(file))
    try:
        walk = walk_file(h5.id, file, None, structures)
        assert missed == []
        with h5py.File(path) as local:
            for address, dataset in walk.datasets.items():
                plain = local[h5py.h5i.get_name(dataset)]
                if plain.chunks is None:
                    continue
                table = walk.tables[address]
                assert isinstance(table, ChunkTable)
                assert table is structures.tables[address].table, "libhdf5 does not confirm the walk's table"
                assert chunks_of_table(table, path) == stored_chunks(plain)
                again = structure_table(file, address)
                assert again is not None
                assert again.table.offset.tolist() == table.offset.tolist()
    finally:
        h5.close()
        file.close()


@pytest.mark.parametrize("libver", LIBVERS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_files(libver, data):
    made = data.draw(st.lists(random_datasets(), min_size=1, max_size=4))
    options = {"userblock_size": 1024} if data.draw(st.booleans()) else {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.h5"
        with h5py.File(path, "w", libver=(libver, "latest"), **options) as file:
            write_datasets(file.create_group("a/b"), made)
        check(path)
