"""Fill values of a document's arrays, for the datasets that are made of them."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

import h5py
import numpy as np

from lindi_bridge.client.written_values import SPECIAL, string_bytes
from lindi_bridge.document.problems import MalformedError
from lindi_bridge.model.floats import number_bytes
from lindi_bridge.model.nodes import ArrayNode

__all__ = ["fill_value_of"]


def fill_value_of(node: ArrayNode, dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    """The fill value of ``.zarray`` where it is another than zero (Zarr specification v2, "Fill value encoding").

    Raises
    ------
    MalformedError
        The type has no such value.
    """
    value = node.fill_value
    if h5py.check_string_dtype(dtype) is not None and dtype.kind == "O":
        text = string_bytes(value) if isinstance(value, (str, dict)) else b""
        return np.array(text, dtype) if text else None
    if value is None or dtype.hasobject:
        return None
    try:
        if dtype.names or dtype.subdtype is not None:
            raw = b"" if value == 0 else base64.b64decode(value, validate=True)
            if raw.strip(b"\0") and (len(raw) != dtype.itemsize or dtype.subdtype is not None):
                raise ValueError("it is not as long as an element, or the elements are arrays")
            value = np.frombuffer(raw.ljust(dtype.itemsize, b"\0"), dtype)[0] if dtype.names else 0
        elif dtype.kind == "c":
            value = _complex_fill(value, dtype)
        elif dtype.kind == "f":
            value = _real_fill(value, dtype)
        elif dtype.kind in "SV":
            value = np.frombuffer(_fill_bytes(value, dtype.itemsize), dtype)[0]
        elif dtype.kind in "iub" and (isinstance(value, str) or value != np.array(value, dtype)):
            raise ValueError("it is another number")
        elif dtype.kind in "mM":
            value = np.int64(value).view(np.dtype(dtype.str))
        filled = np.asarray(value).astype(dtype) if dtype.kind in "SV" else np.array(value, dtype)
    except (TypeError, ValueError, KeyError, OverflowError, binascii.Error) as error:
        raise MalformedError(f"the fill value {str(node.fill_value)[:60]} does not fit the type: {error}") from None
    # Long doubles are padded with whatever was in memory.
    raw = number_bytes(filled) if dtype.kind in "fc" else filled.tobytes()
    return filled if raw.strip(b"\0") else None


def _complex_fill(value: Any, dtype: np.dtype[Any]) -> Any:
    if _is_exact(value, 16, dtype):
        return np.frombuffer(base64.b64decode(value, validate=True), dtype)[0]
    real, imaginary = value if isinstance(value, list) else (value, 0)
    return complex(*(float(SPECIAL[v] if isinstance(v, str) else v) for v in (real, imaginary)))


def _is_exact(value: Any, most: int, dtype: np.dtype[Any]) -> bool:
    """Whether it is all bytes of a number in base64, which no text of one that doubles, of ``most`` bytes, hold is."""
    length = 4 * math.ceil(dtype.itemsize / 3)
    return isinstance(value, str) and len(value) == length and (dtype.itemsize > most or value.endswith("="))


def _real_fill(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, str) and value.startswith("0x"):  # the bits (Zarr core specification v3.1, "Fill value")
        bits: float = np.array(int(value, 16), f"u{dtype.itemsize}").view(f"f{dtype.itemsize}").item()
        return bits
    if _is_exact(value, 8, dtype):
        return np.frombuffer(base64.b64decode(value, validate=True), dtype)[0]
    number = float(SPECIAL.get(value, value) if isinstance(value, str) else value)
    with np.errstate(over="ignore"):
        if math.isfinite(number) and not np.isfinite(dtype.type(number)):
            raise ValueError("it is too large")
    return number


def _fill_bytes(value: Any, itemsize: int) -> bytes:
    """The bytes of an element in base64, or one by one as Zarr v3 has them; less are filled up with zeros."""
    if isinstance(value, list):
        raw = bytes(value)
    else:
        raw = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    if len(raw) > itemsize or (not isinstance(value, (str, list)) and value):
        raise ValueError("it is not as long as an element")
    return raw.ljust(itemsize, b"\0")
