"""Words and numbers for people."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["clean", "count", "display", "kind_of", "size", "write"]


def write(line: str = "") -> None:
    """Write one line of the result."""
    sys.stdout.write(line + "\n")


def clean(text: str | bytes) -> str:
    r"""Text on one line, without anything that a terminal would take for a command (``\x1b`` and the like).

    h5py gives names that are not UTF-8 as bytes.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def count(number: int, noun: str) -> str:
    """``1 group``, ``2 groups``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(nbytes: float) -> str:
    """Bytes in decimal units: ``45.2 MB``."""
    if nbytes < 1000:
        return f"{int(nbytes)} B"
    for unit in ("kB", "MB", "GB"):
        nbytes /= 1000
        if nbytes < 999.5:
            return f"{nbytes:.3g} {unit}"
    return f"{nbytes / 1000:,.3g} TB"


def kind_of(dtype: Any) -> str:
    """Name of a dtype of h5py, strings and references by what they are."""
    import h5py

    string = h5py.check_string_dtype(dtype)
    if string is not None:
        return "string" if string.length is None else f"string[{string.length}]"
    reference = h5py.check_ref_dtype(dtype)
    if reference is not None:
        return "region reference" if reference is h5py.RegionReference else "object reference"
    if h5py.check_enum_dtype(dtype) is not None:
        return f"enum {dtype.name}"
    vlen = h5py.check_vlen_dtype(dtype)
    if vlen is not None:
        return f"variable-length {kind_of(vlen)}"
    if dtype.names:
        return "compound(" + ", ".join(f"{name}: {kind_of(dtype[name])}" for name in dtype.names) + ")"
    return str(dtype)


def display(value: Any) -> str:
    """A value of an attribute or element on one line."""
    import h5py
    import numpy as np

    if isinstance(value, h5py.Empty):
        return f"empty {kind_of(value.dtype)}"
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, (h5py.Reference, h5py.RegionReference)):
        return "reference" if value else "null reference"
    if isinstance(value, (list, tuple, np.ndarray)) and np.ndim(value) == 1 and len(value) <= 1000:
        return "[" + ", ".join(display(item) for item in value) + "]"
    if isinstance(value, np.void) and value.dtype.names:
        return "(" + ", ".join(f"{name}: {display(value[name])}" for name in value.dtype.names) + ")"
    if isinstance(value, np.ndarray):
        return clean(np.array2string(value, threshold=50).replace("\n", ""))
    return clean(str(value))
