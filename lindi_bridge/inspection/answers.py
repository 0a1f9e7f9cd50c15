"""Asking two files the same question: the differences of their answers, values that are not at hand left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lindi_bridge.errors import LindiBridgeError
from lindi_bridge.hdf5.stored_types import described_type
from lindi_bridge.inspection.offline import OfflineFile
from lindi_bridge.inspection.values import ObjectNames, reason, shown, type_words, value_difference

__all__ = ["FAILURES", "Difference", "Failure", "Questioner", "Unavailable", "same"]

FAILURES = (KeyError, OSError, ValueError, TypeError, RuntimeError, OverflowError, MemoryError)
"""What h5py raises for something that it cannot make sense of; errors of this package among them."""


@dataclass(frozen=True)
class Difference:
    """One way in which two files differ.

    Parameters
    ----------
    path : str
        The object.
    what : str
        In what: ``kind``, ``link``, ``shape``, ``type``, ``attribute 'x'``, ``places of 3 of 50 chunks``, ...
    left, right : str
        What each side has.
    """

    path: str
    what: str
    left: str
    right: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}: {self.left} -> {self.right}"


class Unavailable:
    """Stands for a value that lies in a source, which is not asked."""


class Failure:
    """Stands for an answer that is an error."""

    def __init__(self, error: Exception) -> None:
        self.text = f"an error: {reason(error)}"


class Questioner:
    """Asks two files.

    Parameters
    ----------
    left, right : OfflineFile
        The files.
    """

    def __init__(self, left: OfflineFile, right: OfflineFile) -> None:
        self.sides = (left, right)
        self.roots = (left.file["/"], right.file["/"])
        self._names = (ObjectNames(self.roots[0]), ObjectNames(self.roots[1]))

    def ask(self, question: Callable[[Any], Any], left: Any, right: Any) -> tuple[Any, Any] | None:
        """Both answers, if they have to be compared: not where both fail, or one is not at hand."""
        answers = self.answer(0, question, left), self.answer(1, question, right)
        unavailable = any(isinstance(a, Unavailable) for a in answers)
        return None if unavailable or all(isinstance(a, Failure) for a in answers) else answers

    def answer(self, number: int, question: Callable[[Any], Any], thing: Any) -> Any:
        """The answer of one side, or what stands for one that is an error or not at hand."""
        source = self.sides[number].source
        asked = source.asked
        try:
            return question(thing)
        except FAILURES as error:
            if source.asked > asked or isinstance(error, LindiBridgeError):
                return Unavailable()
            return Failure(error)

    def unequal(
        self, path: str, what: str, question: Callable[[Any], Any], left: Any, right: Any, words: Any = shown
    ) -> Iterator[Difference]:
        """The difference of two plain answers."""
        answers = self.ask(question, left, right)
        if answers is None or same(*answers):
            return
        said = [a.text if isinstance(a, Failure) else words(a) for a in answers]
        yield Difference(path, what, *said)

    def types(self, path: str, what: str, left: Any, right: Any) -> Iterator[Difference]:
        """The difference of two stored types."""
        answers = self.ask(described_type, left, right)
        if answers is None:
            return
        if same(*answers):
            committed = [names.of_type(thing) for names, thing in zip(self._names, (left, right), strict=True)]
            if any(committed) and not committed[0] & committed[1]:
                yield Difference(path, f"committed {what}", *(min(names, default="none") for names in committed))
            return
        words = [self.answer(k, type_words, thing) for k, thing in enumerate((left, right))]
        if words[0] == words[1]:  # they differ in what numpy does not show
            words = [shown(a) for a in _inequality(*answers)]
        yield Difference(path, what, *(w if isinstance(w, str) else "an error" for w in words))

    def values(
        self, path: str, what: str, question: Callable[[Any], Any], left: Any, right: Any
    ) -> Iterator[Difference]:
        """The first difference of values, as h5py reads them."""
        answers = self.ask(question, left, right)
        if answers is None:
            return
        if any(isinstance(a, Failure) for a in answers):
            said = [a.text if isinstance(a, Failure) else shown(a) for a in answers]
            yield Difference(path, what, *said)
            return
        asked = [side.source.asked for side in self.sides]
        try:
            found = value_difference(*answers, self._names)
        except FAILURES as error:
            if asked != [side.source.asked for side in self.sides]:
                return  # what a reference to a region selects is not at hand
            yield Difference(path, what, shown(answers[0]), f"cannot be compared: {reason(error)}")
            return
        if found is not None:
            yield Difference(path, what, *map(shown, found))


def _inequality(left: Any, right: Any) -> tuple[Any, Any]:
    """The innermost tuples in two nested ones that are not equal."""
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        for a, b in zip(left, right, strict=True):
            if a != b:
                return _inequality(a, b) if isinstance(a, tuple) and isinstance(b, tuple) else (left, right)
    return left, right


def same(left: Any, right: Any) -> bool:
    """Whether two answers are values, and equal."""
    return not isinstance(left, Failure) and not isinstance(right, Failure) and bool(left == right)
