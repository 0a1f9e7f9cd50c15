"""Links replaced by copies of what they lead to, for readers that know no links.

A copy is of metadata and references, not of data. What cannot be copied is left out and listed: links that lead
nowhere, into a group that holds them, or to more than a document should repeat.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from lindi_bridge.model.nodes import ArrayNode, Node, Problem, ReferenceTree, SoftLinkNode

__all__ = ["resolve_links"]

_MOST_COPIED = 64 * 1024 * 1024
"""Bytes of JSON that all copies take, about. Two links a group to the next are 2**n copies of the last."""
_MOST_HOPS = 40
"""Links that are followed for one path, as many as Linux follows."""
_NODE_NBYTES = 400
_REFERENCE_NBYTES = 40


class _NotThereError(Exception):
    """Why a link has no copy; the message is a clause about it."""


class _TooLargeError(Exception):
    """A copy is larger than what is left of the room for copies; whether that was known before it was begun."""

    def __init__(self, is_known: bool) -> None:
        super().__init__()
        self.is_known = is_known


def resolve_links(tree: ReferenceTree) -> None:
    """Replace every link by a copy of its target.

    The annotation of the path where a copy begins says so: ``copy_of``, the path that the link led to first; where
    there is no copy, ``link`` says the same, and a problem of kind ``link`` why.

    Parameters
    ----------
    tree : ReferenceTree
        Is changed. Parents come before their members, before and after.
    """
    _Resolver(tree).run()


class _Resolver:
    def __init__(self, tree: ReferenceTree) -> None:
        self._tree = tree
        self._members: dict[str, list[str]] = {}
        for path in tree.nodes:
            if path != "/":
                self._members.setdefault(posixpath.dirname(path), []).append(posixpath.basename(path))
        self._room = _MOST_COPIED
        self._sizes: dict[str, int] = {}

    def run(self) -> None:
        nodes: dict[str, Node] = {}
        for path, node in self._tree.nodes.items():
            if isinstance(node, SoftLinkNode):
                nodes.update(self._replacement(path, node))
            else:
                nodes[path] = node
        self._tree.nodes = nodes

    def _replacement(self, path: str, link: SoftLinkNode) -> dict[str, Node]:
        annotation = self._tree.annotations.setdefault(path, {})
        room, problems, copied = self._room, list[Problem](), dict[str, Node]()
        try:
            copied = self._copy(path, link, problems)
        except _TooLargeError as error:
            # What was tried in vain counts for half, so that many links to a large group do not take for ever.
            self._room = room if error.is_known else room // 2
            problems = [_problem(path, link, "which is too much to write twice")]
        annotation["copy_of" if path in copied else "link"] = link.target
        self._tree.problems += problems
        return copied

    def _copy(self, path: str, link: SoftLinkNode, problems: list[Problem]) -> dict[str, Node]:
        copied: dict[str, Node] = {}
        pending: list[tuple[str, str | SoftLinkNode, frozenset[str]]] = [(path, link, frozenset(_holders(path)))]
        while pending:
            to, real, holders = pending.pop()
            if isinstance(real, SoftLinkNode):
                try:
                    found = self._target(real)
                    if any(_is_in(holder, found) for holder in holders):
                        raise _NotThereError("a group that holds it")
                except _NotThereError as error:
                    problems.append(_problem(to, real, str(error)))
                    self._take(_NODE_NBYTES)
                    continue
                real = found
            if to == path and self._size(real) > self._room:
                raise _TooLargeError(is_known=True)
            node = self._tree.nodes[real]
            self._take(_nbytes(node))
            copied[to] = node
            # Pushed in reverse, so that they are taken in the group's own order.
            within = holders | {real}
            for name in reversed(self._members.get(real, [])):
                member = posixpath.join(real, name)
                child = self._tree.nodes[member]
                place = child if isinstance(child, SoftLinkNode) else member
                pending.append((posixpath.join(to, name), place, within))
        return copied

    def _take(self, nbytes: int) -> None:
        self._room -= nbytes
        if self._room < 0:
            raise _TooLargeError(is_known=False)

    def _size(self, real: str) -> int:
        """Bytes of a node and everything below it with all links made copies, about; less where links go round."""
        pending, begun = [real], set[str]()
        while pending:
            path = pending[-1]
            below = dict.fromkeys(self._below(path))
            unknown = [member for member in below if member not in self._sizes and member not in begun]
            if path not in self._sizes and unknown and path not in begun:
                begun.add(path)
                pending += unknown
                continue
            pending.pop()
            if path not in self._sizes:
                members = sum(self._sizes.get(member, 0) for member in self._below(path))
                self._sizes[path] = _nbytes(self._tree.nodes[path]) + members
        return self._sizes[real]

    def _below(self, path: str) -> Iterator[str]:
        """What a copy of a node has as members: links are followed, those that lead nowhere left out."""
        for name in self._members.get(path, []):
            member = posixpath.join(path, name)
            node = self._tree.nodes[member]
            try:
                yield self._target(node) if isinstance(node, SoftLinkNode) else member
            except _NotThereError:
                continue

    def _target(self, link: SoftLinkNode) -> str:
        """Where a link leads in the end, not through links any more."""
        rest = _parts(link.target)
        path, hops = "/", 0
        while rest:
            path = posixpath.join(path, rest.pop())
            node = self._tree.nodes.get(path)
            if node is None:
                raise _NotThereError("which is not there, or not in the document")
            if isinstance(node, SoftLinkNode):
                hops += 1
                if hops > _MOST_HOPS:
                    raise _NotThereError("which leads to no end of links")
                rest += _parts(node.target)
                path = "/"
        return path


def _problem(path: str, link: SoftLinkNode, clause: str) -> Problem:
    return Problem(path, "link", f"a link to {link.target}, {clause}")


def _parts(path: str) -> list[str]:
    """The names of a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part]


def _holders(path: str) -> Iterator[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path


def _is_in(path: str, group: str) -> bool:
    return group == "/" or path == group or path.startswith(group + "/")


def _nbytes(node: Node) -> int:
    """Bytes of JSON that a node takes, about."""
    if not isinstance(node, ArrayNode):
        return _NODE_NBYTES
    table = len(node.table) if node.table is not None else 0
    return _NODE_NBYTES + table * _REFERENCE_NBYTES + sum(len(data) * 4 // 3 for data in node.inline.values())
