"""NaNs among values in JSON: those of which ``"NaN"`` does not tell the bits (docs/format.md, 5.9)."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from lindi_bridge.model.floats import UnusualNaN

__all__ = ["nan_bits", "with_nan_bits"]

JSONValue = Any


def nan_bits(encoded: JSONValue) -> dict[str, list[int]]:
    """The NaNs among encoded values of which ``"NaN"`` does not tell the bits.

    Parameters
    ----------
    encoded : JSON value
        From :func:`encode_element`, or lists of such.

    Returns
    -------
    dict
        By the bits in base64: where the NaNs stand, values being counted through all lists.
    """
    found: dict[str, list[int]] = {}
    for position, value in enumerate(_leaves(encoded)):
        if isinstance(value, UnusualNaN):
            found.setdefault(_text(value.bits), []).append(position)
    return found


def _leaves(encoded: JSONValue) -> Iterator[JSONValue]:
    if not isinstance(encoded, list):
        yield encoded
        return
    for item in encoded:
        yield from _leaves(item)


def with_nan_bits(encoded: JSONValue) -> JSONValue:
    """Encoded values with the bits of such NaNs in their place, which this package alone reads."""
    if isinstance(encoded, list):
        return [with_nan_bits(item) for item in encoded]
    return {"base64": _text(encoded.bits)} if isinstance(encoded, UnusualNaN) else encoded


def _text(bits: bytes) -> str:
    return base64.standard_b64encode(bits).decode("ascii")
