"""After the walk libhdf5 asks for nothing more, and the chunk tables are the walk's own."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from builders.features import BAD, FEATURES, SkipFeature, make
from builders.random_layouts import chunks_of_table, stored_chunks
from h5py._objects import phil

import lindi_bridge as lb
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.messages import ChunkIndexKind
from lindi_bridge.hdf5.open import open_file_id
from lindi_bridge.hdf5.walk import structure_table, walk_file, walk_structures
from lindi_bridge.indexer.embed import plan_embedding
from lindi_bridge.ranges import open_reader

HEAD = 64 * 1024
VERSIONS = ("earliest", "v110", "latest")


def pad(file):
    """Put data between the metadata, so that no structure is in memory by chance."""
    file.flush()
    number = sum(name.startswith("pad") for name in file)
    file.create_dataset(f"pad{number}", data=np.full(40_000, number, "i4"))
    file.flush()


class Walked:
    """A file after both walks; `kinds` are the chunk indexes by path."""

    def __init__(self, path, **options):
        reader = open_reader(str(path))
        self.file = HDF5File(reader, address=str(path), metadata=[(0, reader.read_head(HEAD))], **options)
        before = reader.statistics
        self.structures = walk_structures(self.file)
        self.fetched = reader.statistics.nbytes - before.nbytes
        self.h5 = h5py.File(open_file_id(self.file))
        self.walk = walk_file(self.h5.id, self.file, None, self.structures)
        self.names = {h5py.h5i.get_name(d).decode(): a for a, d in self.walk.datasets.items()}
        tables = self.structures.tables
        self.kinds = {name: tables[address].kind for name, address in self.names.items() if address in tables}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.walk.datasets.clear()
        self.h5.close()
        self.file.close()


def check(path, *, problems=()):
    """Nothing is missed, all tables are the walk's, and right; returns the kinds of indexes met."""
    with Walked(path) as walked:
        assert walked.file.misses == 0
        assert walked.structures.problems == problems
        waves = walked.file.reader.statistics.waves
        plan_embedding(walked.walk.datasets.values(), walked.file, walked.walk.tables)
        assert walked.file.reader.statistics.waves - waves <= 1
        assert walked.file.misses == 0
        with h5py.File(path) as local:
            for name, address in walked.names.items():
                if address in walked.walk.tables:
                    table = walked.walk.tables[address]
                    assert table is walked.structures.tables[address].table, name
                    if len(table) < 3000:
                        assert chunks_of_table(table, path) == stored_chunks(local[name]), name
        return walked.kinds


@pytest.mark.parametrize("name", sorted(set(FEATURES) - BAD))
def test_features(name, tmp_path):
    try:
        path = make(name, tmp_path)
    except SkipFeature as reason:
        pytest.skip(str(reason))
    check(path)


# -- groups and attributes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("userblock", [0, 512, 65536])
@pytest.mark.parametrize("libver", VERSIONS)
def test_deep_groups(tmp_path, libver, userblock):
    path = tmp_path / "deep.h5"
    with h5py.File(path, "w", libver=libver, userblock_size=userblock) as file:
        group = file
        for level in range(40):
            group = group.create_group(f"level {level}")
            group.attrs["texts"] = [f"value {level}", "b"]
            if level % 4 == 0:
                pad(file)
                group.create_dataset("d", data=np.arange(100), chunks=(7,), compression="gzip")
    check(path)


@pytest.mark.parametrize("order", [False, True], ids=["by name", "by creation order"])
@pytest.mark.parametrize("libver", VERSIONS)
def test_groups_of_many_links(tmp_path, libver, order):
    """Dense storage with indirect blocks below indirect blocks, B-trees of several levels."""
    path = tmp_path / "dense.h5"
    with h5py.File(path, "w", libver=libver) as file:
        group = file.create_group("g", track_order=order)
        for number in range(12_000):
            group[f"a link with a rather long name {number}"] = h5py.SoftLink("/nowhere/at/all")
        pad(file)
        for number in range(300):
            group.create_group(f"group {number}").attrs["text"] = f"{number}"
        pad(file)
        group.create_dataset("last", data=np.arange(10), chunks=(3,))
        del group["a link with a rather long name 77"]
    assert check(path)["/g/last"] in (ChunkIndexKind.BTREE_1, ChunkIndexKind.FIXED_ARRAY)


@pytest.mark.parametrize("count", [20, 3000])
@pytest.mark.parametrize("libver", ["v110", "latest"])
def test_dense_attributes(tmp_path, libver, count):
    path = tmp_path / "attributes.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for name in ("g", "h"):
            group = file.create_group(name, track_order=name == "h")
            for number in range(count):
                group.attrs[f"attribute {number}"] = f"text {number}" if number % 2 else np.arange(number % 30)
                if number % 1000 == 0:
                    pad(file)
            group.attrs["larger than 64 KiB"] = np.arange(40_000)
    check(path)


def test_many_attributes_in_a_header(tmp_path):
    path = tmp_path / "attributes.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        for number in range(2000):
            file.attrs[f"attribute {number}"] = f"text {number}" if number % 2 else np.arange(number % 300)
            if number % 500 == 0:
                pad(file)
    check(path)


# -- variable-length values ------------------------------------------------------------------------------------------

COMPOUND = np.dtype([("n", "i4"), ("text", h5py.string_dtype()), ("list", h5py.vlen_dtype("i8")), ("x", "f8", (2,))])


@pytest.mark.parametrize("userblock", [0, 512])
@pytest.mark.parametrize("libver", VERSIONS)
def test_variable_length_values(tmp_path, libver, userblock):
    path = tmp_path / "strings.h5"
    rows = np.array([(k, f"text {k}", np.arange(k % 5), (k, k)) for k in range(300)], COMPOUND)
    with h5py.File(path, "w", libver=libver, userblock_size=userblock) as file:
        texts = [f"a text of some length {k}" for k in range(20_000)]
        file.create_dataset("chunked", data=texts, dtype=h5py.string_dtype(), chunks=(1000,), compression="gzip")
        pad(file)
        file.create_dataset("shuffled", data=texts, chunks=(777,), shuffle=True, compression="gzip")
        pad(file)
        file.create_dataset("contiguous", data=texts[:5000], dtype=h5py.string_dtype())
        pad(file)
        file.create_dataset("scalar", data="one text")
        file.create_dataset("rows", data=rows, chunks=(100,))
        pad(file)
        file["committed"] = np.dtype(h5py.string_dtype())
        file.create_dataset("of a committed type", data=texts[:100], dtype=file["committed"])
        pad(file)
        file["scalar"].attrs.create("committed", texts[:3], dtype=file["committed"])
        file["scalar"].attrs["rows"] = rows[:20]
        pad(file)
        file["scalar"].attrs["long"] = "x" * 9000 if libver == "earliest" else "x" * 200_000
        file["scalar"].attrs["texts"] = texts[:50]
    check(path)
    with Walked(path) as walked, h5py.File(path) as local:
        for name in ("chunked", "shuffled", "contiguous", "scalar", "rows", "of a committed type"):
            walked.h5[name][()]
        assert list(walked.h5["scalar"].attrs["texts"]) == list(local["scalar"].attrs["texts"])
        assert walked.file.misses == 0


# -- chunk indexes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("libver", VERSIONS)
def test_indexes_of_several_levels(tmp_path, libver, compression):
    path = tmp_path / "large.h5"
    kinds = {
        "fixed": ((2_500, 2), (2_500, 2), ChunkIndexKind.FIXED_ARRAY),
        "growing": ((90_000,), (None,), ChunkIndexKind.EXTENSIBLE_ARRAY),
        "second axis grows": ((3, 700), (5, None), ChunkIndexKind.EXTENSIBLE_ARRAY),
        "both grow": ((120, 90), (None, None), ChunkIndexKind.BTREE_2),
    }
    with h5py.File(path, "w", libver=libver) as file:
        for name, (shape, maxshape, _) in kinds.items():
            pad(file)
            values = np.arange(np.prod(shape), dtype="i4").reshape(shape)
            file.create_dataset(name, data=values, maxshape=maxshape, chunks=(1,) * len(shape), compression=compression)
    found = check(path)
    for name, (_, _, kind) in kinds.items():
        assert found[f"/{name}"] == (ChunkIndexKind.BTREE_1 if libver == "earliest" else kind)


@pytest.mark.parametrize("libver", VERSIONS)
def test_sparse_grown_and_shrunk(tmp_path, libver):
    path = tmp_path / "sparse.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for name, maxshape in (
            ("fixed", (300, 400)),
            ("growing", (None, 400)),
            ("right", (300, None)),
            ("both", (None, None)),
        ):
            pad(file)
            dataset = file.create_dataset(name, (200, 300), "i4", maxshape=maxshape, chunks=(3, 2))
            for row, column in ((0, 0), (199, 299), (77, 120), (3, 250)):
                dataset[row, column] = 7
            dataset.resize((250 if maxshape[0] is None else 300, 350))
            pad(file)
            dataset[240:244, 310:330] = 8
            dataset.resize((243, 325))
    check(path)


# -- what is left to libhdf5, and limits -----------------------------------------------------------------------------


def test_short_offsets_are_left_to_libhdf5(tmp_path):
    path = tmp_path / "short.h5"
    create = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    create.set_sizes(4, 4)
    with h5py.File(h5py.h5f.create(bytes(path), h5py.h5f.ACC_TRUNC, create)) as file:
        pad(file)
        file.create_dataset("d", data=np.arange(500), chunks=(7,))
    with Walked(path) as walked, h5py.File(path) as local:
        assert len(walked.structures.problems) == 1
        assert walked.structures.tables == {}
        table = walked.walk.tables[walked.names["/d"]]
        assert chunks_of_table(table, path) == stored_chunks(local["d"])
    assert lb.index(str(path)).problems == []


def test_a_table_that_libhdf5_does_not_confirm_is_not_taken(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("d", data=np.arange(600).reshape(20, 30), chunks=(3, 4))
    with Walked(path) as walked, h5py.File(path) as local:
        address = walked.names["/d"]
        right = walked.structures.tables[address]
        moved = np.roll(right.table.offset, 1)
        wrong = right._replace(
            table=type(right.table)(
                right.table.grid, right.table.index, moved, right.table.nbytes, right.table.filter_mask
            )
        )
        for table in (wrong, right._replace(listed_count=1), right._replace(listed_nbytes=1)):
            structures = type(walked.structures)({address: table})
            taken = walk_file(walked.h5.id, walked.file, None, structures).tables[address]
            assert taken is not table.table
            assert chunks_of_table(taken, path) == stored_chunks(local["d"])


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    path = tmp_path_factory.mktemp("wide") / "wide.h5"
    with h5py.File(path, "w") as file:
        for number in range(150):
            file.create_dataset(f"d{number}", data=np.arange(6000), chunks=(100,))
    return path


def test_nothing_is_fetched_while_the_lock_is_held(wide):
    reader = open_reader(str(wide))
    file = HDF5File(reader, address=str(wide))
    with phil:
        structures = walk_structures(file)
    assert structures.tables == {}
    assert reader.statistics.requests == 0
    file.close()


@pytest.mark.parametrize("cache_bytes", [0, 4096, 100_000, 500_000])
def test_a_walk_stays_within_its_budget(wide, cache_bytes):
    reader = open_reader(str(wide))
    file = HDF5File(reader, address=str(wide), cache_bytes=cache_bytes)
    walk_structures(file)
    assert reader.statistics.nbytes <= cache_bytes
    file.close()


@pytest.mark.parametrize("libver", VERSIONS)
def test_a_mount_makes_its_tables_from_memory(tmp_path, libver):
    path, document = tmp_path / "a.h5", tmp_path / "a.lindi.json"
    with h5py.File(path, "w", libver=libver) as file:
        for name, maxshape in (
            ("fixed", (80, 60)),
            ("growing", (None, 60)),
            ("right", (80, None)),
            ("both", (None, None)),
        ):
            values = np.random.default_rng(0).integers(0, 1 << 30, (80, 60))
            file.create_dataset(name, data=values, maxshape=maxshape, chunks=(2, 1), compression="gzip")
    lb.index(str(path)).save(str(document))
    path.rename(tmp_path / "away.h5")
    with h5py.File(tmp_path / "away.h5") as local, lb.open(str(document)) as mounted:
        for name in local:
            address = h5py.h5o.get_info(mounted[name].id).addr
            walked = structure_table(mounted._file_object, address)
            assert walked is not None
            assert chunks_of_table(walked.table, tmp_path / "away.h5") == stored_chunks(local[name])


def test_no_file_at_all():
    from lindi_bridge.ranges import BytesReader

    for data in (b"", b"\x89HDF\r\n\x1a\n", b"x" * 100_000, b"\x89HDF\r\n\x1a\n" + bytes(5000)):
        file = HDF5File(BytesReader(data), address="memory")
        assert len(walk_structures(file).problems) == 1
        assert structure_table(file, 96) is None
        file.close()
