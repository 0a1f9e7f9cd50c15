"""Closing HDF5 files in time.

If an HDF5 file is still open over a Python file object when the interpreter ends, libhdf5 closes it after Python is
gone, calls the dead file object, and the process dies with a segmentation fault.
"""

from __future__ import annotations

import atexit
import functools

import h5py
from h5py import h5f, h5fd
from h5py._objects import phil

__all__ = ["close_at_exit", "close_python_files"]


def close_python_files() -> None:
    """Close every HDF5 file that is open over a Python file object."""
    with phil:
        for file_id in h5f.get_obj_ids(h5f.OBJ_ALL, h5f.OBJ_FILE):
            if file_id.get_access_plist().get_driver() == h5fd.fileobj_driver:
                h5py.File(file_id).close()


@functools.cache
def close_at_exit() -> None:
    """Have :func:`close_python_files` called when the interpreter ends (once, however often this is called)."""
    atexit.register(close_python_files)
