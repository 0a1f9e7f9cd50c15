"""What h5py's global lock allows while it is held.

While it is, no other Python thread may be waited for without a limit (that thread may need the lock to free an h5py
object), and no Python lock may be taken that another thread may hold without h5py's lock. See :class:`SourceLockError`.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock, get_ident
from types import FrameType

from lindi_bridge.errors import SourceLockError

__all__ = ["collection_paused", "exclusive", "h5py_lock_is_held", "refuse_under_lock", "stacks_of_threads"]


def h5py_lock_is_held() -> bool:
    """Tell whether the calling thread holds h5py's global lock; never imports h5py."""
    objects = sys.modules.get("h5py._objects")
    phil = getattr(objects, "phil", None)  # None also while h5py is still being imported
    return phil is not None and bool(phil._is_owned())


def refuse_under_lock(url: str, asked: str = "concurrent reads were asked for") -> None:
    """Raise if something that waits for other threads is asked for while the lock is held.

    Parameters
    ----------
    url : str
        Address without secrets, for the message.
    asked : str
        What was asked for, for the message.

    Raises
    ------
    SourceLockError
        The calling thread holds h5py's lock.
    """
    if h5py_lock_is_held():
        raise SourceLockError(
            f"{url}: {asked} while h5py's global lock is held (for instance inside a visititems callback); waiting "
            "for other threads there can hang for ever. Do it outside the callback"
        )


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause garbage collection in the whole process, and make sure that none is still running in another thread.

    Inside, waiting for another thread while h5py's lock is held is safe as far as cyclic garbage goes: that thread
    cannot come to free an h5py object. Disabling alone would not do, because a collection that has begun goes on.
    Must be entered without h5py's lock.
    """
    global _pauses, _was_enabled
    refuse_under_lock("fsspec", "a pause of garbage collection was asked for")
    with _pause_lock:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        _wait_for_running_collection()
        yield
    finally:
        with _pause_lock:
            _pauses -= 1
            if _pauses == 0 and _was_enabled:
                gc.enable()


def stacks_of_threads() -> Iterable[FrameType]:
    """The innermost frame of each thread.

    Without a collection meanwhile, which in Python 3.11 would wait for a lock that its own thread holds (gh-106883).
    """
    with _pause_lock:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames().values()
        finally:
            if was_enabled:
                gc.enable()


_pauses = 0
_was_enabled = True
_pause_lock = Lock()


def _wait_for_running_collection() -> None:
    # gc.collect() comes back at once, and calls no callback, while another thread is collecting.
    began: list[str] = []
    me = get_ident()

    def note(phase: str, info: dict[str, int]) -> None:
        if get_ident() == me:
            began.append(phase)

    gc.callbacks.append(note)
    try:
        while not began:
            gc.collect(0)
            if not began:
                time.sleep(0.001)
    finally:
        gc.callbacks.remove(note)


@contextmanager
def exclusive() -> Iterator[None]:
    """Be alone with a file object that is also read under h5py's lock.

    Takes h5py's own lock if h5py is there: any other lock could be held by a thread whose garbage collection waits
    for h5py's, while the thread in h5py waits for that one.
    """
    phil = getattr(sys.modules.get("h5py._objects"), "phil", None)
    with _without_h5py if phil is None else phil:
        yield


_without_h5py = RLock()
