"""Finding a thread that waits for zarr while it holds h5py's lock, for which nobody here can do anything.

zarr works in a thread of its own, and this package in others, which need the lock. Whoever asks zarr for a chunk in a
callback of ``h5py.Group.visititems`` holds the lock until the callback ends, and would wait for ever. Nothing can be
intercepted in the thread that asks, so it is found by its stack: in a function of h5py, and further in, in zarr's
``sync``.
"""

from __future__ import annotations

from types import FrameType

from h5py._objects import phil

from lindi_bridge.errors import SourceLockError
from lindi_bridge.ranges.lock import stacks_of_threads

__all__ = ["refuse_waiting_under_lock"]


def refuse_waiting_under_lock(address: str) -> None:
    """Raise if h5py's lock is held by a thread that waits for zarr.

    Parameters
    ----------
    address : str
        Without secrets, for the message.

    Raises
    ------
    SourceLockError
        There is such a thread. It gets this error as the answer that it waits for.
    """
    if phil.acquire(blocking=False):
        phil.release()
        return
    if any(_waits_inside_h5py(frame) for frame in stacks_of_threads()):
        raise SourceLockError(
            f"{address}: a Zarr array was read while h5py's global lock is held (for instance inside a visititems "
            "callback), which would wait for ever. Do it outside the callback"
        )


def _waits_inside_h5py(frame: FrameType | None) -> bool:
    """Whether a stack is in a function of h5py and, further in, in zarr's way to wait."""
    waits = False
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module == "zarr.core.sync" and frame.f_code.co_name == "sync":
            waits = True
        elif waits and module.startswith("h5py."):
            return True
        frame = frame.f_back
    return False
