"""Doing one thing in several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

__all__ = ["in_threads"]


def in_threads(work: Callable[[int], None], numbers: Iterable[int]) -> None:
    """Do something with each number in a thread of its own, and wait for all of them."""
    threads = [threading.Thread(target=work, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
