"""Elements that Zarr has no type for, as strings; and strings of HDF5 as those of Python."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from lindi_bridge.indexer.values import ReferenceEncoder, encode_element
from lindi_bridge.store.element_types import Text

__all__ = ["reference_path", "texts"]


def texts(values: np.ndarray[Any, Any], text: Text, dtype: np.dtype[Any], reference: ReferenceEncoder) -> list[str]:
    """Elements as strings, in row-major order.

    Parameters
    ----------
    values : ndarray
        As h5py reads them.
    text : Text
        What the strings are to say.
    dtype : numpy.dtype
        Of an element, as h5py shows it.
    reference : ReferenceEncoder
        For elements that hold references.

    Raises
    ------
    ValueError
        A string that is not UTF-8, or a reference to nothing.
    """
    flat = _flat(values)
    if text is Text.STRING:
        return [_decoded(v) for v in flat]
    if text is Text.PATH:
        return [reference_path(v, reference) or "" for v in flat]
    return [json.dumps(encode_element(v, dtype, reference), ensure_ascii=False, allow_nan=False) for v in flat]


def reference_path(value: Any, reference: ReferenceEncoder) -> str | None:
    """Absolute path of the object that a reference leads to; None for a null reference."""
    path: str | None = reference(value)["_REFERENCE"]["path"]
    return path


def _flat(values: Any) -> list[Any]:
    if isinstance(values, np.ndarray):
        return list(values.reshape(-1))
    return [values]


def _decoded(value: Any) -> str:
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise ValueError(f"a string that is not UTF-8: {error}") from None
