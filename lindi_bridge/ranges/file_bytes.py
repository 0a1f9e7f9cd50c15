"""Bytes of open files of this machine."""

from __future__ import annotations

import os

__all__ = ["read_into"]


def read_into(descriptor: int, view: memoryview, position: int) -> int:
    """Read bytes of a file into a buffer.

    Parameters
    ----------
    descriptor : int
        Of the file.
    view : memoryview
        Of bytes; filled from its beginning.
    position : int
        In the file.

    Returns
    -------
    int
        How many bytes have come: less than asked for only at the end of the file.

    Raises
    ------
    OSError
        They cannot be read.
    """
    done = 0
    # One call gives at most 2 GiB on Linux, and may be interrupted.
    while done < len(view) and (count := _read_some(descriptor, view[done:], position + done)):
        done += count
    return done


def _read_some(descriptor: int, view: memoryview, position: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [view], position)
    data = os.pread(descriptor, len(view), position)  # not every system can do without the copy
    view[: len(data)] = data
    return len(data)
