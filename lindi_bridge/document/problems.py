"""Gathering everything that is wrong with a document before saying so, once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lindi_bridge.errors import DocumentError

__all__ = ["Faults", "MalformedError"]

_MOST_LISTED = 50


class MalformedError(ValueError):
    """One thing in a document is not what it has to be."""


class Faults:
    """Collects what is wrong, object by object.

    One error in a document rarely comes alone, and whoever repairs it wants to see all of them.
    """

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []

    def add(self, path: str, message: str) -> None:
        """Note something."""
        self._found.append((path, message))

    @contextmanager
    def at(self, path: str) -> Iterator[None]:
        """Note a :class:`MalformedError` raised inside as a fault of the object at ``path``."""
        try:
            yield
        except MalformedError as error:
            self.add(path, str(error))

    def raise_if_any(self) -> None:
        """Raise one error that names everything (a few dozen at the most).

        Raises
        ------
        DocumentError
            Something was noted.
        """
        if not self._found:
            return
        lines = [f"{_shortened(path)}: {_shortened(message)}" for path, message in self._found[:_MOST_LISTED]]
        if len(self._found) > _MOST_LISTED:
            lines.append(f"and {len(self._found) - _MOST_LISTED} more")
        error = DocumentError(f"{len(self._found)} faults in the document's refs: " + "; ".join(lines))
        error.faults = tuple(self._found)
        raise error


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else text[:297] + "..."
