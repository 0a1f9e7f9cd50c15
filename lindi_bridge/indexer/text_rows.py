"""Compounds with strings of variable length, as records whose strings have room for the longest."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from lindi_bridge.indexer.nans import with_nan_bits
from lindi_bridge.indexer.storage import object_vector
from lindi_bridge.indexer.values import encode_element
from lindi_bridge.indexer.zarr_types import converted_dtype

__all__ = ["RoomError", "is_text_row", "json_rows", "with_room"]


class RoomError(Exception):
    """Rows would take more bytes than they may."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes)
        self.nbytes = nbytes


def is_text_row(dtype: np.dtype[Any]) -> bool:
    """Whether a compound, as h5py shows it, has strings of variable length, and otherwise only plain members."""
    if dtype.names is None:
        return False
    others = [dtype[name] for name in dtype.names if not _is_text(dtype[name])]
    plain = [converted_dtype(member) for member in others]
    return len(others) < len(dtype.names) and all(p is not None and p.names is None and p.shape == () for p in plain)


def _is_text(dtype: np.dtype[Any]) -> bool:
    string = h5py.check_string_dtype(dtype)
    return string is not None and string.length is None


def with_room(values: np.ndarray[Any, Any], most: int) -> np.ndarray[Any, Any]:
    """Rows with numpy's strings in place of those of variable length.

    Parameters
    ----------
    values : numpy array
        As h5py reads them.
    most : int
        Bytes that the rows may take.

    Raises
    ------
    RoomError
        They would take more; one long string makes all rows long.
    ValueError
        A string is not UTF-8.
    """
    texts: dict[str, list[str]] = {}
    fields: list[tuple[str, Any]] = []
    for name in values.dtype.names or ():
        if _is_text(values.dtype[name]):
            items = values[name].reshape(-1)
            texts[name] = [item.decode("utf-8") if isinstance(item, bytes) else str(item) for item in items]
            fields.append((name, f"<U{max([1, *map(len, texts[name])])}"))
        else:
            fields.append((name, converted_dtype(values.dtype[name])))
    dtype = np.dtype(fields)
    if values.size * dtype.itemsize > most:
        raise RoomError(values.size * dtype.itemsize)
    rows = np.empty(values.size, dtype)
    for name in dtype.names or ():
        rows[name] = texts.get(name, values[name].reshape(-1))
    return rows.reshape(values.shape)


def json_rows(rows: np.ndarray[Any, Any]) -> bytes:
    """Plain rows as the codec ``json2`` of LINDI's format has them; the inverse of :func:`with_room`, for one axis."""
    from numcodecs import JSON

    encoded = [with_nan_bits(encode_element(row, rows.dtype, _no_reference)) for row in rows]
    return bytes(JSON().encode(object_vector(encoded)))


def _no_reference(value: Any) -> Any:
    raise ValueError("plain rows have no references")
