"""How raw data lie in the file: layouts, chunk indexes, fill values, missing and partial chunks, other files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from builders.registry import companion_feature, feature, random_numbers, slowly_rising


def _create(file: h5py.File, name: str, shape: tuple[int, ...], properties: h5py.h5p.PropDCID) -> h5py.h5d.DatasetID:
    """A dataset of 32-bit integers with creation properties that h5py's high level does not offer."""
    return h5py.h5d.create(file.id, name.encode(), h5py.h5t.NATIVE_INT32, h5py.h5s.create_simple(shape), properties)


def _fill(dataset: h5py.h5d.DatasetID, values: np.ndarray) -> None:
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values)


@feature
def fillvalue_missing_chunks(path: Path) -> None:
    """missing chunks and a fill value"""
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("d", (4000,), chunks=(1000,), dtype="i4", fillvalue=-9)
        dataset[1000:2000] = np.arange(1000)


@feature
def missing_first_chunk_2d(path: Path) -> None:
    """one single chunk written, in the middle"""
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("d", (100, 100), chunks=(25, 25), dtype="f8", compression="gzip")
        dataset[50:75, 25:50] = random_numbers().random((25, 25))


@feature
def fillvalue_nan(path: Path) -> None:
    """missing chunks and NaN as fill value"""
    with h5py.File(path, "w") as file:
        file.create_dataset("d", (4000,), chunks=(1000,), dtype="f4", fillvalue=np.nan)[1000:2000] = 1


@feature
def contiguous_unwritten_small(path: Path) -> None:
    """a small contiguous dataset never written"""
    with h5py.File(path, "w") as file:
        file.create_dataset("d", (10,), dtype="i4", fillvalue=5)


@feature
def contiguous_unwritten_big(path: Path) -> None:
    """a larger contiguous dataset never written"""
    with h5py.File(path, "w") as file:
        file.create_dataset("d", (5000,), dtype="i4", fillvalue=5)


@feature
def contiguous_plain(path: Path) -> None:
    """a contiguous dataset of rank 2"""
    with h5py.File(path, "w") as file:
        file["d"] = random_numbers().random((100, 50))


@feature
def contiguous_large_split(path: Path) -> None:
    """a contiguous dataset of 24 MB with an odd length"""
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(3_000_001, dtype="i8")


@feature
def contiguous_large_flat2d(path: Path) -> None:
    """a contiguous dataset of two rows, 12 MB each"""
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(6_000_002, dtype="i4").reshape(2, -1)


@feature
def contiguous_early_alloc_unwritten(path: Path) -> None:
    """space allocated early, never written"""
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        _create(file, "d", (5000,), properties)


@feature
def compact_layout(path: Path) -> None:
    """compact datasets, inside their object headers"""
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_layout(h5py.h5d.COMPACT)
        for name, length in (("small", 10), ("big", 5000)):
            _fill(_create(file, name, (length,), properties), np.arange(length, dtype="i4"))


@feature
def chunk_larger_than_shape(path: Path) -> None:
    """chunks larger than the dataset"""
    with h5py.File(path, "w") as file:
        file.create_dataset("small", data=np.arange(3), chunks=(10,), maxshape=(None,))
        file.create_dataset("big", data=np.arange(1500), chunks=(2000,), maxshape=(None,))
        file.create_dataset("gz", data=np.arange(1500), chunks=(2000,), maxshape=(None,), compression="gzip")


@feature
def partial_edge_chunks(path: Path) -> None:
    """partial chunks at both edges"""
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=random_numbers().random((1500, 7)), chunks=(400, 3), compression="gzip")


@feature
def zero_length(path: Path) -> None:
    """dimensions of length zero"""
    with h5py.File(path, "w") as file:
        file["a"] = np.zeros((0,))
        file["b"] = np.zeros((0, 5), "i4")
        file["c"] = np.zeros((5, 0), "f4")
        file["s"] = np.array([], dtype=h5py.string_dtype())
        file.create_dataset("d", (0,), maxshape=(None,), chunks=(10,), dtype="i4")


@feature
def unlimited_resized(path: Path) -> None:
    """datasets made smaller and larger after they were written"""
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=np.arange(5000), maxshape=(None,), chunks=(1000,)).resize((2500,))
        file.create_dataset("e", data=np.arange(2000), maxshape=(10_000,), chunks=(1000,)).resize((4500,))


@feature
def many_chunks_1200(path: Path) -> None:
    """1200 chunks of one element"""
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=np.arange(1200), chunks=(1,))


@companion_feature
def external_raw_storage(path: Path) -> None:
    """raw data in an external file"""
    raw = path.with_name(path.name + ".raw")
    np.arange(2000, dtype="i4").tofile(raw)
    with h5py.File(path, "w") as file:
        file.create_dataset("d", (2000,), dtype="i4", external=[(str(raw), 0, h5py.h5f.UNLIMITED)])


@companion_feature
def virtual_dataset(path: Path) -> None:
    """a virtual dataset over two other files"""
    layout = h5py.VirtualLayout((2, 1000), dtype="i8")
    for i in range(2):
        companion = path.with_name(f"{path.name}.v{i}.h5")
        with h5py.File(companion, "w") as file:
            file["x"] = np.arange(1000) + 1000 * i
        layout[i] = h5py.VirtualSource(companion.name, "x", (1000,))
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout, fillvalue=-1)


@feature
def virtual_dataset_same_file(path: Path) -> None:
    """a virtual dataset over the same file"""
    with h5py.File(path, "w", libver="latest") as file:
        file["x"] = np.arange(2000)
        layout = h5py.VirtualLayout((2000,), dtype="i8")
        layout[:] = h5py.VirtualSource(".", "x", (2000,))
        file.create_virtual_dataset("v", layout)


@feature
def userblock_contiguous(path: Path) -> None:
    """a user block before contiguous data"""
    with h5py.File(path, "w", userblock_size=512) as file:
        file["d"] = np.arange(5000)
    with path.open("r+b") as stream:
        stream.write(b"USERBLOCK" * 50)


@feature
def userblock_chunked(path: Path) -> None:
    """a user block before chunked data"""
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("d", data=np.arange(5000), chunks=(1000,), compression="gzip")


@feature
def libver_latest_indexes(path: Path) -> None:
    """the chunk indexes of newer files: fixed array, single chunk, extensible array, B-tree 2"""
    data = slowly_rising()
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("fixed_array", data=data, chunks=(20, 50))
        file.create_dataset("single", data=data, chunks=(60, 100), compression="gzip")
        file.create_dataset("ext_array", data=data, chunks=(20, 50), maxshape=(None, 100))
        file.create_dataset("btree2", data=data, chunks=(20, 50), maxshape=(None, None), compression="gzip")


@feature
def implicit_index(path: Path) -> None:
    """chunks without an index, allocated early"""
    with h5py.File(path, "w", libver="latest") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((20, 50))
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        _fill(_create(file, "d", (60, 100), properties), slowly_rising())


@feature
def v1_btree_chunks(path: Path) -> None:
    """chunks in a B-tree of version 1"""
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("d", data=slowly_rising(), chunks=(20, 50), maxshape=(None, None))


@feature
def libver_latest_partial_edge_nofilter(path: Path) -> None:
    """partial edge chunks in the newest layout (h5py cannot leave them unfiltered)"""
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("d", data=random_numbers().random((55, 70)), chunks=(20, 50), compression="gzip")
