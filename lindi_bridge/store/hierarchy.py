"""A file as a Zarr hierarchy: groups and arrays by path, links followed, and what had to be left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lindi_bridge.client.file import File
from lindi_bridge.errors import LindiBridgeError
from lindi_bridge.hdf5.damage import DAMAGE, refuse_source_error
from lindi_bridge.hdf5.walk import header_address
from lindi_bridge.model.nodes import Problem
from lindi_bridge.store.nodes import ArrayNode, GroupNode, Node, NodeMaker
from lindi_bridge.store.objects import FileObjects, Member

__all__ = ["Hierarchy"]

_MOST_ALIASES = 200_000
"""Nodes more than there are objects: links to groups with links can multiply without end."""
_RESERVED = frozenset(["", ".", "..", "zarr.json"])


class Hierarchy:
    """All nodes of a file.

    Links are followed: an object appears under each of its names. A link that leads back to a group it lies in is left
    out, as a Zarr hierarchy cannot hold it.

    Parameters
    ----------
    file : File
        The file, open. Companions that links lead to are opened through it.
    """

    def __init__(self, file: File) -> None:
        self.nodes: dict[str, Node] = {}
        """By path without the leading slash, parents before their members; the root group is ``""``."""
        self.problems: list[Problem] = []
        self._files: dict[int, FileObjects] = {}
        self._makers: dict[int, NodeMaker] = {}
        self._build(self._objects(file))

    def objects_of(self, file: File) -> FileObjects:
        """What a file holds that nodes are in."""
        return self._objects(file)

    # -- structure ------------------------------------------------------------------------------------------------

    def _objects(self, file: File) -> FileObjects:
        key = id(file._file_object)
        if key not in self._files:
            self._files[key] = objects = FileObjects(file)
            self._makers[key] = NodeMaker(objects, self.problems)
        return self._files[key]

    def _build(self, root: FileObjects) -> None:
        pending: list[tuple[str, FileObjects, int, _Trail | None]] = [("", root, root.root_address, None)]
        while pending:
            path, objects, address, above = pending.pop()
            trail = _Trail((id(objects), address), above)
            node = self._makers[id(objects.file_object)].node(path, address)
            if isinstance(node, Problem):
                self._problem(path, node.kind, node.message)
                continue
            if isinstance(node, ArrayNode):
                self.nodes[path] = node
                continue
            self.nodes[path] = GroupNode(node.attributes)
            if address in objects.faults:
                self._problem(path, "unreadable", objects.faults[address])
            following: list[tuple[str, FileObjects, int, _Trail | None]] = []
            for member in objects.members[address]:
                below = f"{path}/{member.name}" if path else member.name
                target = self._target(below, objects, address, member)
                if target is None:
                    continue
                if (id(target[0]), target[1]) in trail:
                    self._problem(below, "link", f"a link back to {target[0].paths[target[1]]}, which it lies in")
                elif len(self.nodes) + len(pending) + len(following) >= self._most_nodes():
                    self._problem(below, "link", "too many names lead to the same objects; not all of them are listed")
                else:
                    following.append((below, *target, trail))
            pending.extend(reversed(following))
        for path in self.nodes:  # now that it is known which members have become nodes
            if path:
                parent, _, name = path.rpartition("/")
                owner = self.nodes[parent]
                assert isinstance(owner, GroupNode)
                owner.members.append(name)

    def _most_nodes(self) -> int:
        return _MOST_ALIASES + sum(len(objects.paths) for objects in self._files.values())

    def _target(self, path: str, objects: FileObjects, address: int, member: Member) -> tuple[FileObjects, int] | None:
        """The object that a link leads to, or None where it cannot be had."""
        if member.name in _RESERVED or "\\" in member.name:
            self._problem(path, "name", f"Zarr has no members of the name {member.name!r}")
            return None
        if member.fault is not None:
            self._problem(path, "unreadable", member.fault)
            return None
        if member.address is not None:
            return objects, member.address
        try:
            file, obj = objects.follow(address, member)
            found = self._objects(file) if file is not objects.file else objects
            target = header_address(obj)
        except LindiBridgeError as error:
            if not isinstance(error, KeyError):
                refuse_source_error(error)
            self._problem(path, "link", str(error))
            return None
        except DAMAGE as error:
            refuse_source_error(error)
            self._problem(path, "link", "a link that leads nowhere")
            return None
        if target not in found.paths:
            self._problem(path, "link", "a link to an object that has no name of its own")
            return None
        return found, target

    def _problem(self, path: str, kind: str, message: str) -> None:
        self.problems.append(Problem(f"/{path}", kind, message))


@dataclass(frozen=True, eq=False)
class _Trail:
    """The groups on the way to a node."""

    key: tuple[int, int]
    above: _Trail | None

    def __contains__(self, key: tuple[int, int]) -> bool:
        return any(step.key == key for step in self._steps())

    def _steps(self) -> Iterator[_Trail]:
        step: _Trail | None = self
        while step is not None:
            yield step
            step = step.above
