"""Two files, object by object: names, kinds, links, types, shapes, storage, attributes, and values that are at hand."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterator
from functools import partial
from typing import Any

import h5py

from lindi_bridge.hdf5.departures import has_unknown_extent
from lindi_bridge.hdf5.walk import header_address, is_stored_here
from lindi_bridge.indexer.datasets import loses_fill
from lindi_bridge.inspection.answers import FAILURES, Difference, Failure, Questioner, Unavailable, same
from lindi_bridge.inspection.offline import OfflineFile
from lindi_bridge.inspection.places import is_linked, places_differ, places_of
from lindi_bridge.inspection.values import described_space, shown
from lindi_bridge.model.text import text_name

__all__ = ["compare_files", "sources_alike"]

_MOST_VALUES = 4 * 1024 * 1024
_MOST_CHUNK = 64 * 1024 * 1024
_NOTHING = "not there"


def sources_alike(left: list[str], right: list[str]) -> dict[int, int]:
    """Which source of one file is which of the other: the one of the same address, the rest in order."""
    same = {k: right.index(address) for k, address in enumerate(left) if address in right}
    rest = [k for k in range(len(right)) if k not in same.values()]
    return same | dict(zip((k for k in range(len(left)) if k not in same), rest, strict=False))


def compare_files(left: OfflineFile, right: OfflineFile) -> Iterator[Difference]:
    """All differences between two files, depth first; what either document says that it does not express is left out.

    Nothing is fetched: values are compared where both sides have them at hand, of datasets of up to 4 MiB.
    """
    return _Comparison(left, right).run()


class _Comparison(Questioner):
    def __init__(self, left: OfflineFile, right: OfflineFile) -> None:
        super().__init__(left, right)
        self._same_source = sources_alike(left.sources, right.sources)
        self._partners: dict[int, int] = {}
        self._partners_back: dict[int, int] = {}

    def run(self) -> Iterator[Difference]:
        pending: list[tuple[str, Any, Any]] = [("/", *self.roots)]
        self._meet(*self.roots)
        while pending:
            path, left, right = pending.pop()
            if self._is_unsaid(path):
                continue
            yield from self._attributes(path, left, right)
            if isinstance(left, h5py.Dataset):
                yield from self._datasets(path, left, right)
            elif isinstance(left, h5py.Datatype):
                yield from self.types(path, "type", left.id, right.id)
            else:
                below: list[tuple[str, Any, Any]] = []
                yield from self._members(path, left, right, below)
                pending += reversed(below)

    def _is_unsaid(self, path: str) -> bool:
        return any(side.is_unsaid(path) for side in self.sides)

    # -- groups ---------------------------------------------------------------------------------------------------

    def _members(self, path: str, left: Any, right: Any, below: list[tuple[str, Any, Any]]) -> Iterator[Difference]:
        answers = self.ask(list, left, right)
        if answers is None:
            return
        if any(isinstance(a, Failure) for a in answers):
            yield from self.unequal(path, "members", list, left, right)
            return
        names, others = answers
        known, known_there = set(names), set(others)
        for name in [*names, *(n for n in others if n not in known)]:
            child = posixpath.join(path, text_name(name))
            if self._is_unsaid(child):
                continue
            if name not in known_there:
                yield Difference(child, "object", _kind(left, name), _NOTHING)
            elif name not in known:
                yield Difference(child, "object", _NOTHING, _kind(right, name))
            else:
                yield from self._member(child, name, left, right, below)
        shared = [n for n in names if n in known_there], [n for n in others if n in known]
        if shared[0] != shared[1]:
            yield Difference(path, "order of members", shown(shared[0]), shown(shared[1]))

    def _member(
        self, path: str, name: str, left: Any, right: Any, below: list[tuple[str, Any, Any]]
    ) -> Iterator[Difference]:
        links = self.ask(lambda group: _link(group, name), left, right)
        if links is None:
            return
        if not same(*links):
            said = [a.text if isinstance(a, Failure) else " ".join(a) for a in links]
            yield Difference(path, "link", *said)
            kinds = {a[0] for a in links if isinstance(a, tuple)}
            if kinds != {"hard", "soft"}:
                return
        elif links[0][0] != "hard":
            return
        children = self.ask(lambda group: group[name], left, right)
        if children is None:
            return
        if any(isinstance(c, Failure) for c in children):
            yield Difference(path, "object", *(c.text if isinstance(c, Failure) else _class(c) for c in children))
        elif _class(children[0]) != _class(children[1]):
            yield Difference(path, "kind", _class(children[0]), _class(children[1]))
        elif same(*links):
            met = self._meet(*children)
            if met is None:
                yield Difference(path, "hard link", "another name of one object", "another name of another object")
            elif met:
                below.append((path, *children))

    def _meet(self, left: Any, right: Any) -> bool | None:
        """Whether two objects are met for the first time; None where one of them is the partner of another."""
        here, there = header_address(left.id), header_address(right.id)
        first = here not in self._partners
        if (self._partners.setdefault(here, there), self._partners_back.setdefault(there, here)) != (there, here):
            return None
        return first

    # -- attributes -----------------------------------------------------------------------------------------------

    def _attributes(self, path: str, left: Any, right: Any) -> Iterator[Difference]:
        answers = self.ask(lambda thing: list(thing.attrs), left, right)
        if answers is None:
            return
        if any(isinstance(a, Failure) for a in answers):
            yield from self.unequal(path, "attributes", lambda thing: list(thing.attrs), left, right)
            return
        names, others = answers
        unsaid = any(path in side.unsaid_attributes for side in self.sides)
        for name in [*names, *(n for n in others if n not in names)]:
            what = f"attribute {name!r}"
            if unsaid and not (name in names and name in others):
                continue
            if name not in others:
                yield Difference(path, what, self._attribute_words(0, left, name), _NOTHING)
            elif name not in names:
                yield Difference(path, what, _NOTHING, self._attribute_words(1, right, name))
            else:
                yield from self._attribute(path, what, name, left, right)
        shared = [n for n in names if n in others], [n for n in others if n in names]
        if shared[0] != shared[1]:
            yield Difference(path, "order of attributes", shown(shared[0]), shown(shared[1]))

    def _attribute_words(self, number: int, thing: Any, name: str) -> str:
        answer = self.answer(number, lambda thing: shown(thing.attrs[name]), thing)
        return answer if isinstance(answer, str) else "there"

    def _attribute(self, path: str, what: str, name: str, left: Any, right: Any) -> Iterator[Difference]:
        ids = self.ask(lambda thing: thing.attrs.get_id(name), left, right)
        if ids is None or any(isinstance(i, Failure) for i in ids):
            if ids is not None:
                yield Difference(path, what, *(i.text if isinstance(i, Failure) else "there" for i in ids))
            return
        found = list(self.types(path, f"type of {what}", ids[0].get_type(), ids[1].get_type()))
        found += self.unequal(path, f"shape of {what}", lambda i: described_space(i.get_space()), *ids)
        yield from found
        if not found:
            yield from self.values(path, what, lambda thing: thing.attrs[name], left, right)

    # -- datasets -------------------------------------------------------------------------------------------------

    def _datasets(self, path: str, left: Any, right: Any) -> Iterator[Difference]:
        types = list(self.types(path, "type", left.id.get_type(), right.id.get_type()))
        yield from types
        if any(has_unknown_extent(dataset.id) for dataset in (left, right)):
            return  # its shape depends on other files, and must not be asked
        shapes = list(self.unequal(path, "shape", lambda d: d.shape, left, right))
        yield from shapes or self.unequal(path, "maxshape", lambda d: d.maxshape, left, right)
        chunks = list(self.unequal(path, "chunk shape", lambda d: d.chunks, left, right))
        yield from chunks
        if all(is_stored_here(dataset.id) for dataset in (left, right)):
            yield from self._filters(path, left, right)
        if not types and _has_fill_value(left):
            yield from self.values(path, "fill value", lambda d: d.fillvalue, left, right)
        if shapes or chunks or types:
            return
        yield from self._places(path, left, right)
        yield from self._stored_values(path, left, right)

    def _filters(self, path: str, left: Any, right: Any) -> Iterator[Difference]:
        answers = self.ask(_filters, left, right)
        if answers is None or any(isinstance(a, Failure) for a in answers):
            return
        # Some filters complete their values when a dataset is written; without any they are not set yet.
        alike = len(answers[0]) == len(answers[1]) and all(
            a[:2] == b[:2] and (a[2] == b[2] or not a[2] or not b[2]) for a, b in zip(*answers, strict=True)
        )
        if not alike:
            yield Difference(path, "filters", *map(shown, answers))

    def _places(self, path: str, left: Any, right: Any) -> Iterator[Difference]:
        found = [
            self.answer(k, partial(places_of, side, path), dataset)
            for k, (side, dataset) in enumerate(zip(self.sides, (left, right), strict=True))
        ]
        if any(isinstance(places, (Unavailable, Failure)) for places in found):
            return  # libhdf5 cannot say either; reading it is an error
        for what, *said in places_differ(found[0], found[1], self._same_source):
            yield Difference(path, what, *said)
        for k, (side, other) in enumerate((self.sides, self.sides[::-1])):
            node = side.node(path)
            if node is None or node.external is None or other.tree is not None:
                continue
            if not is_linked(node.external, other, (right, left)[k]):
                said = [node.external, "another object, or none"]
                yield Difference(path, "link to an array", *(said[::-1] if k else said))

    def _stored_values(self, path: str, left: Any, right: Any) -> Iterator[Difference]:
        pairs = zip((left, right), self.sides, strict=True)
        if all(_is_at_hand(dataset, side, path) for dataset, side in pairs):
            yield from self.values(path, "value", lambda dataset: dataset[()], left, right)


def _is_at_hand(dataset: Any, side: OfflineFile, path: str) -> bool:
    """Whether the values of a dataset may be in the document, and are few enough to be compared."""
    node = side.node(path)
    if side.tree is not None and (
        node is None or node.table is not None or node.external is not None or node.refusal is not None
    ):
        return False
    if not is_stored_here(dataset.id) or dataset.shape is None:
        return False
    itemsize: int = dataset.id.get_type().get_size()
    return (
        math.prod(dataset.shape) * itemsize <= _MOST_VALUES
        and math.prod(dataset.chunks or ()) * itemsize <= _MOST_CHUNK
    )


def _link(group: Any, name: str) -> tuple[str, ...]:
    link = group.get(name, getlink=True)
    if isinstance(link, h5py.SoftLink):
        return "soft", str(link.path)
    if isinstance(link, h5py.ExternalLink):
        return "external", str(link.filename), str(link.path)
    return ("hard",)


def _class(thing: Any) -> str:
    for kind, name in ((h5py.Dataset, "dataset"), (h5py.Group, "group"), (h5py.Datatype, "committed datatype")):
        if isinstance(thing, kind):
            return name
    return type(thing).__name__


def _kind(group: Any, name: str) -> str:
    """What a member is, in a word or two."""
    try:
        link = _link(group, name)
        return _class(group[name]) if link[0] == "hard" else f"{link[0]} link"
    except FAILURES:
        return "an object that cannot be opened"


def _has_fill_value(dataset: Any) -> bool:
    """Whether annotations can say a fill value: of arrays, lists, references, and compounds with such, they cannot.

    Nor can they say that there is none.
    """
    try:
        dtype = dataset.dtype
        if loses_fill(dataset):
            return False
    except FAILURES:
        return False  # h5py has no type for it
    return h5py.check_string_dtype(dtype) is not None or not (dtype.hasobject or dtype.subdtype is not None)


def _filters(dataset: Any) -> Any:
    create = dataset.id.get_create_plist()
    return [tuple(create.get_filter(k)[:3]) for k in range(create.get_nfilters())]
