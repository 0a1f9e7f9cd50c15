"""Floats bit by bit: which NaN is the usual one, and which bytes of a number count.

A NaN has a sign and a payload (IEEE 754-2019, section 6.2), of which JSON's ``"NaN"`` says nothing: it stands for the
usual one, which is positive and quiet, with nothing else in its payload.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

__all__ = ["UnusualNaN", "is_usual_nan", "number_bytes", "real_parts"]

_EXTENDED_MANTISSA = 63
"""Bits of the mantissa of the 80-bit floats of x87, which lie in 12 or 16 bytes."""
_EXTENDED_NBYTES = 10


class UnusualNaN(str):
    """The text ``"NaN"``, which knows the bits of the NaN that it stands for.

    Parameters
    ----------
    bits : bytes
        Of one real number, in the byte order of its type.
    """

    __slots__ = ("bits",)
    bits: bytes

    def __new__(cls, bits: bytes) -> UnusualNaN:
        """Make the text."""
        made = super().__new__(cls, "NaN")
        made.bits = bits
        return made


def real_parts(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Floats one after the other, or the real and imaginary parts of complex numbers, in the order of their type."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return flat if flat.dtype.kind == "f" else flat.view(f"{flat.dtype.byteorder}f{flat.dtype.itemsize // 2}")


def number_bytes(values: np.ndarray[Any, Any]) -> bytes:
    """The bytes of floats or complex numbers, in the order of their type, with zeros where they are padded.

    Long doubles are padded with whatever was in memory.
    """
    parts = real_parts(values)
    raw = parts.view(np.uint8).reshape(-1, parts.itemsize)
    if parts.itemsize > 8 and np.finfo(np.longdouble).nmant == _EXTENDED_MANTISSA:
        raw = raw.copy()
        ends_in_padding = parts.dtype.isnative == (sys.byteorder == "little")
        raw[:, slice(_EXTENDED_NBYTES, None) if ends_in_padding else slice(-_EXTENDED_NBYTES)] = 0
    return raw.tobytes()


def is_usual_nan(value: np.ndarray[Any, Any]) -> bool:
    """Whether one real number is the NaN that a reader makes of ``"NaN"``."""
    return number_bytes(value) == number_bytes(np.array(np.nan, value.dtype))
