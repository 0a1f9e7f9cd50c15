"""Reading the little-endian fields of HDF5 structures, never past their end.

The shadow walk (see :mod:`lindi_bridge.hdf5.walk`) is a hint, so whatever it does not understand ends one visit with
:class:`NoHintError`, and libhdf5 reads that structure when it needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["UNDEFINED", "ByteRows", "Cursor", "NoHintError", "byte_rows", "int_width", "uint_column"]

UNDEFINED = (1 << 64) - 1
"""The undefined address (HDF5 File Format Specification 3.0, section VIII): all bits set."""

ByteRows = npt.NDArray[np.uint8]
"""Equal structures, one in each row: shape (n, bytes)."""


class NoHintError(Exception):
    """A structure that is damaged, or of a kind that the walk leaves to libhdf5."""


class Cursor:
    """A position in bytes, from which fields are taken one after the other.

    Parameters
    ----------
    data : bytes
        The structure.
    position : int
        Where to begin.
    """

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    @property
    def left(self) -> int:
        """Bytes after the position."""
        return len(self.data) - self.position

    def take(self, length: int) -> bytes:
        """The next ``length`` bytes."""
        stop = self.position + length
        if length < 0 or stop > len(self.data):
            raise NoHintError("a structure is cut off")
        taken = self.data[self.position : stop]
        self.position = stop
        return taken

    def uint(self, width: int) -> int:
        """An unsigned number of ``width`` bytes."""
        return int.from_bytes(self.take(width), "little")

    def address(self) -> int:
        """An address, or :data:`UNDEFINED`. Files whose addresses are not 8 bytes long are left to libhdf5."""
        return self.uint(8)

    def skip(self, length: int) -> None:
        """Pass over ``length`` bytes."""
        self.take(length)

    def expect(self, signature: bytes) -> None:
        """Take a signature, or give up."""
        if self.take(len(signature)) != signature:
            raise NoHintError(f"no {signature.decode('latin-1')} where one should be")


def int_width(largest: int) -> int:
    """Bytes that the format uses for numbers up to ``largest``."""
    return max(1, (largest.bit_length() + 7) // 8)


def byte_rows(pieces: Sequence[bytes], length: int) -> ByteRows:
    """Equal pieces as the rows of one array; gives up if one of them is not ``length`` bytes long."""
    if any(len(piece) != length for piece in pieces):
        raise NoHintError("a structure is cut off")
    return np.frombuffer(b"".join(pieces), np.uint8).reshape(len(pieces), length)


def uint_column(rows: ByteRows, start: int, width: int) -> npt.NDArray[np.int64]:
    """The number of ``width`` bytes at byte ``start`` of each row. The undefined address becomes -1."""
    if width > 8 or start + width > rows.shape[1]:
        raise NoHintError("a field lies outside its structure")
    padded = np.zeros((len(rows), 8), np.uint8)
    padded[:, :width] = rows[:, start : start + width]
    return padded.view("<i8")[:, 0].astype(np.int64)
