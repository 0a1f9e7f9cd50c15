"""NaNs among a document's values in JSON, with their bits; the inverse of ``indexer.nans``."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

from lindi_bridge.document.problems import MalformedError

__all__ = ["NaNBits", "with_nan_bits"]


class NaNBits(NamedTuple):
    """Stands for a NaN of which the bits are known."""

    data: bytes


def with_nan_bits(items: list[Any], bits: Any) -> list[Any]:
    """JSON values with the bits of some NaNs in place of their text.

    Parameters
    ----------
    items : list
        The values.
    bits : JSON value
        By the bits in base64: where the NaNs stand, values being counted through all lists.

    Raises
    ------
    MalformedError
        It is something else, or says so of what is no NaN.
    """
    places: dict[int, NaNBits] = {}
    try:
        for text, positions in bits.items():
            nan = NaNBits(base64.b64decode(text, validate=True))
            if not all(type(position) is int for position in positions):
                raise ValueError("places that are no numbers")
            places |= dict.fromkeys(positions, nan)
    except (AttributeError, TypeError, ValueError) as error:
        raise MalformedError(f"its annotation has damaged bits of NaN: {error}") from None
    if not places:
        return items
    count = 0

    def walked(value: Any) -> Any:
        nonlocal count
        if isinstance(value, list):
            return [walked(item) for item in value]
        count += 1
        nan = places.pop(count - 1, None)
        if nan is not None and value != "NaN":
            raise MalformedError(f"its annotation says the bits of a NaN where {str(value)[:60]} is")
        return value if nan is None else nan

    try:
        out: list[Any] = walked(items)
    except RecursionError:
        raise MalformedError("its values are nested too deep") from None
    if places:
        raise MalformedError("its annotation says the bits of a NaN after the last of its values")
    return out
