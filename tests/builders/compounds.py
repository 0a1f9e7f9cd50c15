"""Compound (structured) datasets."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from builders.registry import feature


def _numbers(shape: int | tuple[int, ...]) -> np.ndarray:
    """Rows of an integer and a float."""
    rows = np.zeros(shape, dtype=[("x", "i4"), ("y", "f8")])
    rows["x"] = np.arange(rows.size).reshape(rows.shape)
    rows["y"] = rows["x"] * 1.5
    return rows


def _write(path: Path, rows: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file["c"] = rows


@feature
def compound_numeric(path: Path) -> None:
    """compound of numbers"""
    _write(path, _numbers(5))


@feature
def compound_chunked_gzip(path: Path) -> None:
    """compound of numbers, chunked and gzipped"""
    with h5py.File(path, "w") as file:
        file.create_dataset("c", data=_numbers(50), chunks=(20,), compression="gzip")


@feature
def compound_nan(path: Path) -> None:
    """compound with NaN and infinity"""
    _write(path, np.array([(1, np.nan), (2, np.inf)], dtype=[("x", "i4"), ("y", "f8")]))


@feature
def compound_fixed_str(path: Path) -> None:
    """compound with a fixed-length string"""
    _write(path, np.array([(1, b"ab"), (2, b"c")], dtype=[("x", "i4"), ("s", "S4")]))


@feature
def compound_vlen_str(path: Path) -> None:
    """compound with a variable-length string"""
    with h5py.File(path, "w") as file:
        rows = file.create_dataset("c", (3,), dtype=np.dtype([("x", "i4"), ("s", h5py.string_dtype())]))
        for i in range(3):
            rows[i] = (i, f"str{i}")


@feature
def compound_ref(path: Path) -> None:
    """compound with an object reference"""
    with h5py.File(path, "w") as file:
        file["t"] = np.arange(3)
        rows = file.create_dataset("c", (2,), dtype=np.dtype([("x", "i4"), ("r", h5py.ref_dtype)]))
        for i in range(2):
            rows[i] = (i, file["t"].ref)


@feature
def compound_nested(path: Path) -> None:
    """compound within a compound"""
    rows = np.zeros(3, dtype=[("x", "i4"), ("n", [("a", "f4"), ("b", "i2")])])
    rows["x"] = range(3)
    rows["n"]["a"] = 1.5
    _write(path, rows)


@feature
def compound_array_field(path: Path) -> None:
    """compound with an array field"""
    rows = np.zeros(4, dtype=[("x", "i4"), ("v", "f4", (3,))])
    rows["v"] = np.arange(12).reshape(4, 3)
    _write(path, rows)


@feature
def compound_bool_enum(path: Path) -> None:
    """compound with a boolean and an enum"""
    enum = h5py.enum_dtype({"A": 0, "B": 1}, basetype="i1")
    _write(path, np.array([(True, 1), (False, 0)], dtype=np.dtype([("b", "?"), ("e", enum)])))


@feature
def compound_complex_field(path: Path) -> None:
    """compound with a complex number"""
    _write(path, np.array([(1, 1 + 2j)], dtype=[("i", "i4"), ("z", "c16")]))


@feature
def compound_2d(path: Path) -> None:
    """compound of rank 2"""
    _write(path, _numbers((2, 3)))


@feature
def compound_scalar(path: Path) -> None:
    """scalar compound"""
    _write(path, np.array((1, 2.5), dtype=[("x", "i4"), ("y", "f8")]))
