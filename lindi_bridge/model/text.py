"""Names as text and as they are stored: HDF5 names are bytes, nearly always UTF-8."""

from __future__ import annotations

__all__ = ["stored_name", "text_name"]


def text_name(name: str | bytes) -> str:
    """A name or path as text; h5py gives bytes where it is not UTF-8, which lone surrogates then stand for."""
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name


def stored_name(name: str) -> bytes:
    """A name or path as it is stored; h5py itself takes no text that stands for bytes which are none."""
    return name.encode("utf-8", "surrogateescape")
