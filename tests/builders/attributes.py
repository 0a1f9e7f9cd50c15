"""Attributes: many, large, of every type, and with names that formats reserve."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from builders.registry import feature


@feature
def attrs_dense(path: Path) -> None:
    """thirty attributes, in dense storage"""
    with h5py.File(path, "w", libver="latest") as file:
        for i in range(30):
            file.attrs[f"a{i:02}"] = i


@feature
def attr_large(path: Path) -> None:
    """attributes above 64 KB"""
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs["big"] = np.arange(30_000)
        file.attrs["bigs"] = "x" * 100_000


@feature
def attrs_nan_inf(path: Path) -> None:
    """NaN and infinities"""
    with h5py.File(path, "w") as file:
        file.attrs["n"] = np.nan
        file.attrs["i"] = np.inf
        file.attrs["m"] = -np.inf
        file.attrs["arr"] = np.array([1.0, np.nan, np.inf])
        file.attrs["n32"] = np.float32("nan")


@feature
def attr_string_NaN(path: Path) -> None:
    """the strings 'NaN' and 'Infinity'"""
    with h5py.File(path, "w") as file:
        file.attrs["s"] = "NaN"
        file.attrs["t"] = "Infinity"


@feature
def attr_string_NaN_in_array(path: Path) -> None:
    """the string 'NaN' in an array of strings"""
    with h5py.File(path, "w") as file:
        file.attrs["s"] = ["NaN", "x"]


@feature
def attrs_strings(path: Path) -> None:
    """strings of all kinds: empty, fixed, ASCII, arrays, arrays of one"""
    with h5py.File(path, "w") as file:
        file.attrs["e"] = ""
        file.attrs["u"] = "é"
        file.attrs["b"] = np.bytes_(b"abc")
        file.attrs["eb"] = np.bytes_(b"")
        file.attrs["vs"] = ["a", "bé"]
        file.attrs["fs"] = np.array([b"a", b"bc"])
        file.attrs.create("va", b"asc", dtype=h5py.string_dtype("ascii"))
        file.attrs["one"] = np.array(["x"], dtype=h5py.string_dtype())


@feature
def attr_non_utf8(path: Path) -> None:
    """bytes that are no UTF-8"""
    with h5py.File(path, "w") as file:
        file.attrs["b"] = np.bytes_(b"\xff\xfe")
        file["d"] = 1


@feature
def attrs_numeric_types(path: Path) -> None:
    """numbers of every width, the largest unsigned one, arrays of rank 1 and 2"""
    with h5py.File(path, "w") as file:
        for code in ("i1", "u1", "i2", "i4", "u8", "f2", "f4", "f8", ">i4"):
            file.attrs[code] = np.array(3, dtype=code)[()]
        file.attrs["umax"] = np.uint64(2**64 - 1)
        file.attrs["b"] = True
        file.attrs["f4arr"] = np.arange(3, dtype="f4")
        file.attrs["i2arr"] = np.arange(3, dtype="i2")
        file.attrs["2d"] = np.arange(6).reshape(2, 3)
        file.attrs["len1"] = np.array([5])
        file.attrs["f1/3"] = np.float32(1 / 3)


@feature
def attrs_bool_array(path: Path) -> None:
    """an array of booleans"""
    with h5py.File(path, "w") as file:
        file.attrs["ba"] = np.array([True, False])


@feature
def attrs_zero_size(path: Path) -> None:
    """arrays of length zero"""
    with h5py.File(path, "w") as file:
        file.attrs["z"] = np.zeros((0,), "f4")
        file.attrs["zs"] = np.array([], dtype=h5py.string_dtype())


@feature
def attr_complex(path: Path) -> None:
    """a complex number"""
    with h5py.File(path, "w") as file:
        file.attrs["c"] = 1 + 2j
        file["d"] = 1


@feature
def attr_compound(path: Path) -> None:
    """a compound"""
    with h5py.File(path, "w") as file:
        file.attrs["c"] = np.array((1, 2.0), dtype=[("x", "i4"), ("y", "f8")])
        file["d"] = 1


@feature
def attr_enum(path: Path) -> None:
    """an enum"""
    with h5py.File(path, "w") as file:
        file.attrs.create("e", 1, dtype=h5py.enum_dtype({"A": 0, "B": 1}, basetype="i1"))
        file["d"] = 1


@feature
def attr_vlen_array(path: Path) -> None:
    """variable-length arrays"""
    with h5py.File(path, "w") as file:
        arrays = np.empty(2, object)
        arrays[0] = np.array([1, 2], "i4")
        arrays[1] = np.array([3], "i4")
        file.attrs.create("v", arrays, dtype=h5py.vlen_dtype("i4"))
        file["d"] = 1


@feature
def attr_reserved_names(path: Path) -> None:
    """names that LINDI, xarray, netCDF and dimension scales reserve"""
    with h5py.File(path, "w") as file:
        file.attrs["_SCALAR"] = 1
        file.attrs["_ARRAY_DIMENSIONS"] = "x"
        file["d"] = np.arange(3)
        file["d"].attrs["CLASS"] = "mine"
        file["d"].attrs["NAME"] = "n"
        file["d"].attrs["_FillValue"] = 3
