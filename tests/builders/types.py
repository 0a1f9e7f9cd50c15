"""Element types other than compounds: enums, strings, variable-length arrays, odd numbers, empty, committed."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from builders.registry import feature, random_numbers


@feature
def enum_dataset(path: Path) -> None:
    """enum"""
    with h5py.File(path, "w") as file:
        file.create_dataset("e", data=[0, 1, 1], dtype=h5py.enum_dtype({"A": 0, "B": 1}, basetype="i4"))


@feature
def bool_small(path: Path) -> None:
    """booleans"""
    with h5py.File(path, "w") as file:
        file["b"] = np.array([True, False, True])


@feature
def bool_chunked_gzip(path: Path) -> None:
    """booleans, chunked and gzipped"""
    with h5py.File(path, "w") as file:
        file.create_dataset("b", data=random_numbers().random(5000) > 0.5, chunks=(1000,), compression="gzip")


@feature
def vlen_str_utf8(path: Path) -> None:
    """variable-length UTF-8 strings"""
    with h5py.File(path, "w") as file:
        file["s"] = np.array(["a", "bé", "", "日本"], dtype=h5py.string_dtype())


@feature
def vlen_str_ascii(path: Path) -> None:
    """variable-length ASCII strings"""
    with h5py.File(path, "w") as file:
        file["s"] = np.array([b"a", b"bc", b""], dtype=h5py.string_dtype("ascii"))


@feature
def vlen_str_chunked_gzip(path: Path) -> None:
    """variable-length strings, chunked and gzipped"""
    genes = [f"gene{i}" for i in range(5000)]
    with h5py.File(path, "w") as file:
        file.create_dataset("s", data=genes, dtype=h5py.string_dtype(), chunks=(1000,), compression="gzip")


@feature
def vlen_str_2d(path: Path) -> None:
    """variable-length strings of rank 2"""
    with h5py.File(path, "w") as file:
        file["s"] = np.array([["a", "b"], ["c", "d"]], dtype=h5py.string_dtype())


@feature
def vlen_str_non_utf8(path: Path) -> None:
    """a string declared UTF-8 that is not"""
    with h5py.File(path, "w") as file:
        strings = file.create_dataset("s", (2,), dtype=h5py.string_dtype())
        strings[0] = b"\xff\xfe"
        strings[1] = "ok"


@feature
def vlen_str_unwritten(path: Path) -> None:
    """variable-length strings never written"""
    with h5py.File(path, "w") as file:
        file.create_dataset("s", (3,), dtype=h5py.string_dtype())


@feature
def fixed_str_ascii(path: Path) -> None:
    """fixed-length ASCII strings"""
    with h5py.File(path, "w") as file:
        file["s"] = np.array([b"a", b"bcd"])


@feature
def fixed_str_utf8(path: Path) -> None:
    """fixed-length UTF-8 strings"""
    with h5py.File(path, "w") as file:
        strings = file.create_dataset("s", (2,), dtype=h5py.string_dtype("utf-8", 6))
        strings[0] = "é".encode()
        strings[1] = b"b"


@feature
def fixed_str_chunked_gzip(path: Path) -> None:
    """fixed-length strings, chunked and gzipped"""
    cells = np.array([b"c%04d" % i for i in range(5000)])
    with h5py.File(path, "w") as file:
        file.create_dataset("s", data=cells, chunks=(1000,), compression="gzip")


@feature
def vlen_array_int(path: Path) -> None:
    """variable-length arrays of integers, one of them empty"""
    with h5py.File(path, "w") as file:
        arrays = file.create_dataset("v", (3,), dtype=h5py.vlen_dtype("i4"))
        arrays[0] = [1, 2]
        arrays[1] = [3]
        arrays[2] = []


@feature
def vlen_array_float_gzip(path: Path) -> None:
    """variable-length arrays of floats, chunked and gzipped"""
    with h5py.File(path, "w") as file:
        arrays = file.create_dataset("v", (30,), dtype=h5py.vlen_dtype("f8"), chunks=(10,), compression="gzip")
        for i in range(30):
            arrays[i] = np.arange(i)


@feature
def opaque(path: Path) -> None:
    """opaque bytes"""
    with h5py.File(path, "w") as file:
        file["o"] = np.array([b"abcdefgh", b"12345678"], dtype="V8")


@feature
def opaque_datetime64(path: Path) -> None:
    """numpy datetimes as tagged opaque bytes"""
    days = np.array(["2020-01-01", "2021-01-01"], dtype="M8[ns]")
    with h5py.File(path, "w") as file:
        file["t"] = days.astype(h5py.opaque_dtype(days.dtype))


@feature
def empty_dataset(path: Path) -> None:
    """datasets without a dataspace (h5py.Empty)"""
    with h5py.File(path, "w") as file:
        file["e"] = h5py.Empty("f4")
        file["es"] = h5py.Empty(h5py.string_dtype())


@feature
def empty_attr(path: Path) -> None:
    """an attribute without a dataspace (h5py.Empty)"""
    with h5py.File(path, "w") as file:
        file.attrs["e"] = h5py.Empty("f4")
        file["d"] = 1


@feature
def array_dtype(path: Path) -> None:
    """elements that are arrays"""
    with h5py.File(path, "w") as file:
        arrays = file.create_dataset("a", (4,), dtype="(2,3)f4")
        arrays[...] = np.arange(24).reshape(4, 2, 3)


@feature
def complex_dataset(path: Path) -> None:
    """complex numbers, contiguous and chunked"""
    with h5py.File(path, "w") as file:
        file["c8"] = np.arange(3).astype("c8") * 1j
        file.create_dataset("c16", data=np.arange(2000) * (1 + 1j), chunks=(500,), compression="gzip")


@feature
def float16_dataset(path: Path) -> None:
    """16-bit floats"""
    with h5py.File(path, "w") as file:
        file["h"] = np.arange(2000).astype("f2")


@feature
def big_endian(path: Path) -> None:
    """big-endian numbers, contiguous and filtered"""
    with h5py.File(path, "w") as file:
        file["i"] = np.arange(2000, dtype=">i4")
        file["s"] = np.arange(5, dtype=">f8")
        data = np.arange(2000, dtype=">u2")
        file.create_dataset("g", data=data, chunks=(500,), compression="gzip", shuffle=True)


@feature
def longdouble(path: Path) -> None:
    """long doubles"""
    with h5py.File(path, "w") as file:
        file["l"] = np.arange(5, dtype=np.longdouble) / 3


@feature
def int_odd_bitfield(path: Path) -> None:
    """24-bit integers in three bytes"""
    three_bytes = h5py.h5t.NATIVE_INT32.copy()
    three_bytes.set_precision(24)
    three_bytes.set_size(3)
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create_simple((2000,))
        dataset = h5py.h5d.create(file.id, b"i24", three_bytes, space)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(2000, dtype="i4"))


@feature
def committed_datatype(path: Path) -> None:
    """named datatypes, with an attribute and a dataset of one"""
    with h5py.File(path, "w") as file:
        file["t"] = np.dtype([("x", "i4"), ("y", "f8")])
        file["t"].attrs["doc"] = "hello"
        file["u"] = np.dtype("f8")
        file.create_dataset("d", data=np.arange(3.0), dtype=file["u"])
