"""A stream of bytes that can be read anywhere and not written to, as h5py and others want file objects to be."""

from __future__ import annotations

import io
import operator
from typing import Any

from lindi_bridge.errors import ReadOnlyError

__all__ = ["ReadOnlyStream"]


class ReadOnlyStream(io.RawIOBase):
    """All of a file object but :meth:`readinto`, which moves ``_position``.

    Parameters
    ----------
    address : str
        Where the bytes are, without secrets, for messages.
    size : int
        Bytes of the file.
    """

    def __init__(self, address: str, size: int) -> None:
        super().__init__()
        self.address = address
        self.size = size
        self._position = 0

    def readable(self) -> bool:
        """Always true."""
        self._refuse_closed()
        return True

    def seekable(self) -> bool:
        """Always true."""
        self._refuse_closed()
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position (bytes)."""
        self._refuse_closed()
        if whence == io.SEEK_SET and type(offset) is int and offset >= 0:
            self._position = offset
            return offset
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}
        if whence not in bases:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        position = bases[whence] + operator.index(offset)
        if position < 0:
            raise ValueError(f"negative seek position {position}")
        self._position = position
        return position

    def tell(self) -> int:
        """The position (bytes)."""
        self._refuse_closed()
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes, less only at the end of the file."""
        available = max(0, self.size - self._position)
        wanted = available if size is None or size < 0 else min(size, available)
        buffer = bytearray(wanted)
        self.readinto(buffer)
        return bytes(buffer)

    def readall(self) -> bytes:
        """Read to the end of the file."""
        return self.read()

    def write(self, data: Any, /) -> int:
        """Refuse: the file is read-only."""
        raise ReadOnlyError(f"{self.address}: opened by lindi_bridge, which is read-only")

    def truncate(self, size: int | None = None, /) -> int:
        """Refuse: the file is read-only."""
        raise ReadOnlyError(f"{self.address}: opened by lindi_bridge, which is read-only")

    def _refuse_closed(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
