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
    done = _read_some(descriptor, view, position)
    # One call gives at most 2 GiB on Linux, and may be interrupted.
    while 0 < done < len(view) and (count := _read_some(descriptor, view[done:], position + done)):
        done += count
    return done


def _read_by_copy(descriptor: int, view: memoryview, position: int) -> int:
    data = os.pread(descriptor, len(view), position)
    view[: len(data)] = data
    return len(data)


def _read_directly(descriptor: int, view: memoryview, position: int) -> int:
    return os.preadv(descriptor, (view,), position)


_read_some = _read_directly if hasattr(os, "preadv") else _read_by_copy  # not every system can do without the copy
