"""Names that a file may have and a Zarr hierarchy may not."""

from __future__ import annotations

import posixpath

from lindi_bridge.model.nodes import Problem, ReferenceTree

__all__ = ["leave_out_names"]

_RESERVED = frozenset([".", "..", ".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json"])


def leave_out_names(tree: ReferenceTree) -> None:
    """Leave out and list the nodes that Zarr readers cannot name: they take a part of the path for something else.

    Parameters
    ----------
    tree : ReferenceTree
        Is changed. Parents come before their members.
    """
    left_out: set[str] = set()
    for path in list(tree.nodes):
        parent, name = posixpath.split(path)
        if parent in left_out:
            left_out.add(path)
        elif name in _RESERVED or "\\" in name:
            left_out.add(path)
            tree.problems.append(Problem(path, "name", f"Zarr has no members of the name {name!r}"))
    for path in left_out:
        del tree.nodes[path]
