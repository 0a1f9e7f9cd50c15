"""What the header of a Zstandard frame tells (RFC 8878, section 3.1.1.1)."""

from __future__ import annotations

__all__ = ["LONGEST_HEADER", "MAGIC", "decoded_size"]

MAGIC = b"\x28\xb5\x2f\xfd"
LONGEST_HEADER = 18
"""Bytes, with the magic number."""


def decoded_size(data: bytes) -> int | None:
    """Bytes of what a frame holds, None if it does not tell.

    Parameters
    ----------
    data : bytes
        The frame, at least 6 bytes of it.
    """
    descriptor = data[4]
    position = 5 + (0 if descriptor & 0x20 else 1) + (0, 1, 2, 4)[descriptor & 3]
    width = (1 if descriptor & 0x20 else 0, 2, 4, 8)[descriptor >> 6]
    if width == 0:
        return None
    return int.from_bytes(data[position : position + width], "little") + (256 if width == 2 else 0)
