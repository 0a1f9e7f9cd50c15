"""In which order the objects of a document are created in the file in memory: HDF5 may record the order of links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lindi_bridge.model.nodes import GroupNode, ReferenceTree

__all__ = ["creation_order"]


def creation_order(tree: ReferenceTree, annotations: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Paths of all objects and links but the root group, parents before their members.

    Members of a group are in the order that it records. Where it records none, committed datatypes, which datasets may
    have need of, come first, and links to other files last.

    Parameters
    ----------
    tree : ReferenceTree
        What ``refs`` say.
    annotations : mapping
        What only annotations say: committed datatypes and links to other files.
    """
    members: dict[str, list[str]] = {}
    only_there = {path: a for path, a in annotations.items() if path not in tree.nodes}
    committed = [path for path, a in only_there.items() if "committed" in a]
    external = [p for p, a in only_there.items() if "committed" not in a and isinstance(a.get("external_link"), list)]
    for path in (*committed, *tree.nodes, *external):
        if path != "/":
            members.setdefault(path.rpartition("/")[0] or "/", []).append(path)
    out: list[str] = []
    pending = ["/"]
    while pending:
        path = pending.pop()
        out.append(path)
        if isinstance(tree.nodes.get(path), GroupNode):
            pending += reversed(_ordered(members.get(path, []), annotations.get(path, {})))
    return out[1:]


def _ordered(members: list[str], annotation: Mapping[str, Any]) -> list[str]:
    names = annotation.get("links_in_order")
    if not isinstance(names, list):
        return members
    position = {name: k for k, name in enumerate(names) if isinstance(name, str)}
    return sorted(members, key=lambda member: position.get(member.rpartition("/")[2], len(position)))
