"""Closing HDF5 files in time, and forking at a good moment.

If an HDF5 file is still open over a Python file object when the interpreter ends, libhdf5 closes it after Python is
gone, calls the dead file object, and the process dies with a segmentation fault.
"""

from __future__ import annotations

import _thread
import atexit
import functools
import os
import threading

import h5py
import numpy.ma  # noqa: F401 - imported by np.unique at its first use, when another thread's import could be forked
from h5py import h5f, h5fd
from h5py._objects import phil

__all__ = ["close_at_exit", "close_python_files"]


def close_python_files() -> None:
    """Close every HDF5 file that is open over a Python file object."""
    with phil:
        for file_id in h5f.get_obj_ids(h5f.OBJ_ALL, h5f.OBJ_FILE):
            if file_id.get_access_plist().get_driver() == h5fd.fileobj_driver:
                h5py.File(file_id).close()


def _end() -> None:
    close_python_files()
    # threading does not know of threads that were started below it. sys._current_frames() misses one that only frees
    # its last objects, which may be h5py's, and in Python 3.11 a garbage collection in it may wait for ever.
    if threading.active_count() > 1 or _thread._count():
        # A daemon thread that is stopped inside h5py takes its lock along, and freeing any h5py object would wait for
        # ever. So the lock is taken here, for good: such a thread waits for it instead.
        phil.acquire()


@functools.cache
def close_at_exit() -> None:
    """Have all files closed when the interpreter ends (registered once, however often this is called)."""
    atexit.register(_end)
    # A child that is forked while another thread is inside h5py would inherit a lock that nobody releases.
    os.register_at_fork(before=phil.acquire, after_in_parent=phil.release, after_in_child=phil.release)
