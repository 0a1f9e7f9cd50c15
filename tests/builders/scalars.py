"""Datasets of a single value."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from builders.registry import feature


@feature
def scalar_numeric(path: Path) -> None:
    """scalars: 64-bit integer, 32-bit float, unsigned byte"""
    with h5py.File(path, "w") as file:
        file["i"] = np.int64(7)
        file["f"] = np.float32(1.5)
        file["u"] = np.uint8(255)


@feature
def scalar_bool_enum(path: Path) -> None:
    """scalar boolean and scalar enum"""
    with h5py.File(path, "w") as file:
        file["b"] = True
        file.create_dataset("e", data=1, dtype=h5py.enum_dtype({"A": 0, "B": 1}, basetype="i1"))


@feature
def scalar_str_vlen(path: Path) -> None:
    """scalar variable-length strings, UTF-8 and ASCII, one of them empty"""
    with h5py.File(path, "w") as file:
        file["u"] = "héllo"
        file["e"] = ""
        file.create_dataset("a", data=b"abc", dtype=h5py.string_dtype("ascii"))


@feature
def scalar_str_fixed(path: Path) -> None:
    """scalar fixed-length string"""
    with h5py.File(path, "w") as file:
        file["s"] = np.bytes_(b"abc")


@feature
def scalar_big_string(path: Path) -> None:
    """scalar string of 200,000 characters"""
    with h5py.File(path, "w") as file:
        file["s"] = "x" * 200_000
