"""Calls in threads of their own that may be made, and waited for a while, under h5py's lock."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import Generic, TypeVar

from lindi_bridge.ranges.lock import h5py_lock_is_held

__all__ = ["Aside", "ask"]

T = TypeVar("T")


class Aside(Generic[T]):
    """A call that another thread makes.

    That thread may come to free an h5py object, and then waits for whoever holds h5py's lock, or for a lock that such a
    thread holds. Therefore it is waited for with a time limit only, and started without :mod:`threading`, whose locks
    others may hold. It does not keep the process alive.

    Parameters
    ----------
    call : callable
        What to do.

    Raises
    ------
    RuntimeError
        The interpreter is ending, or the system has no thread left.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._outcome: list[T | BaseException] = []
        self._failed = False
        self._under_way = _thread.allocate_lock()
        self._under_way.acquire()
        _thread.start_new_thread(self._do, (call,))

    def _do(self, call: Callable[[], T]) -> None:
        try:
            self._outcome.append(call())
        except BaseException as problem:
            self._failed = True
            self._outcome.append(problem)  # it is raised by result()
        finally:
            self._under_way.release()

    def result(self, seconds: float) -> T:
        """What the call has returned; once.

        Parameters
        ----------
        seconds : float
            How long to wait for it at the most; not negative.

        Raises
        ------
        TimeoutError
            It has not come to an end.
        Exception
            What the call has raised.
        """
        if not self._under_way.acquire(timeout=min(seconds, _thread.TIMEOUT_MAX)):
            raise TimeoutError(f"nothing within {seconds:g} seconds")
        outcome = self._outcome.pop()  # not held any longer: a problem holds the frame that holds this
        try:
            if self._failed:
                assert isinstance(outcome, BaseException)
                raise outcome
            return outcome  # type: ignore[return-value]
        finally:
            del outcome  # nor by this frame, which the problem holds as well


def ask(call: Callable[[], T], seconds: float) -> T:
    """Call a function of the user's.

    It may take a lock, which another thread may hold while it waits for h5py's. So while that is held here, it is
    called aside, and waited for with a limit.

    Parameters
    ----------
    call : callable
        The function.
    seconds : float
        The limit.

    Raises
    ------
    TimeoutError
        The time is over.
    Exception
        What the function has raised.
    """
    return Aside(call).result(seconds) if h5py_lock_is_held() else call()
