"""An open HDF5 file -> the reference tree."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import h5py
from h5py import h5g, h5i, h5l, h5o

from lindi_bridge.hdf5.departures import dataset_departure
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.walk import Walk
from lindi_bridge.indexer.datasets import DatasetIndexer, InlinePolicy, NotExpressibleError
from lindi_bridge.indexer.values import ABSENT, ReferenceEncoder, encode_attribute
from lindi_bridge.model.nodes import GroupNode, Node, Problem, ReferenceTree, SoftLinkNode
from lindi_bridge.model.snapshot import Departure

__all__ = ["index_tree"]

JSONValue = Any


def index_tree(
    root: h5py.Group,
    file: HDF5File,
    walk: Walk,
    policy: InlinePolicy | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[ReferenceTree, list[Departure]]:
    """Express every object of a file as a node, or say why not.

    Parameters
    ----------
    root : h5py.Group
        Root group, open over ``file``.
    file : HDF5File
        The file object.
    walk : Walk
        What the walk of this file learnt.
    policy : InlinePolicy, optional
        What may be copied into the document.
    progress : callable, optional
        Called with 1 for each object.

    Returns
    -------
    tree : ReferenceTree
        One odd object never costs the file: it is listed in ``tree.problems``.
    departures : list of Departure
        Objects whose content lies in other files.
    """
    indexer = _TreeIndexer(root, file, walk, policy or InlinePolicy(), progress)
    indexer.run()
    return indexer.tree, indexer.departures


class _TreeIndexer:
    def __init__(
        self,
        root: h5py.Group,
        file: HDF5File,
        walk: Walk,
        policy: InlinePolicy,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.tree = ReferenceTree()
        self.departures: list[Departure] = []
        self._root = root
        self._progress = progress
        self._paths: dict[int, str] = {}
        self._links: dict[str, Node] = {}
        self._objects: list[tuple[str, Any]] = []
        self._find_objects()
        self._reference = ReferenceEncoder(root, self._paths.get)
        self._datasets = DatasetIndexer(file, walk.tables, self._reference, policy)

    def run(self) -> None:
        for path, obj in self._objects:
            node = self._links.get(path) or self._node(path, obj)
            if node is not None:
                self.tree.nodes[path] = node
            if self._progress is not None:
                self._progress(1)

    # -- structure ------------------------------------------------------------------------------------------------

    def _find_objects(self) -> None:
        """Give every object its canonical path, the first that depth-first order meets."""
        self._paths[h5o.get_info(self._root.id).addr] = "/"
        pending: list[tuple[str, Any]] = [("/", self._root.id)]
        while pending:
            path, obj = pending.pop()
            self._objects.append((path, obj))
            if isinstance(obj, h5g.GroupID):
                # Pushed in reverse, so that they are taken in the group's own order.
                pending.extend(reversed([self._child(path, obj, name) for name in obj]))

    def _child(self, parent: str, group: h5g.GroupID, raw: bytes) -> tuple[str, Any]:
        name = raw.decode("utf-8", "surrogateescape")
        path = posixpath.join(parent, name)
        kind = group.links.get_info(raw).type
        if kind == h5l.TYPE_SOFT:
            target = group.links.get_val(raw).decode("utf-8", "surrogateescape")
            self._links[path] = SoftLinkNode(posixpath.normpath(posixpath.join(parent, target)))
            return path, None
        if kind == h5l.TYPE_EXTERNAL:
            filename, target = (part.decode("utf-8", "surrogateescape") for part in group.links.get_val(raw))
            self.departures.append(Departure(path, "external_link", (filename,)))
            self._problem(path, "external_link", f"a link to {target} in another file: {filename}")
            return path, None
        try:
            child = h5o.open(group, raw)
        except (KeyError, OSError, ValueError, RuntimeError) as error:
            self._problem(path, "unreadable", f"libhdf5 cannot open it: {error}")
            return path, None
        address = h5o.get_info(child).addr
        if address in self._paths:
            self._links[path] = SoftLinkNode(self._paths[address])
            return path, None
        self._paths[address] = path
        return path, child

    # -- nodes ----------------------------------------------------------------------------------------------------

    def _node(self, path: str, obj: Any) -> Node | None:
        if obj is None:
            return None
        kind = h5i.get_type(obj)
        if kind == h5i.DATATYPE:
            self._problem(path, "committed_datatype", "a committed datatype; Zarr has no place for it")
            return None
        attributes = self._attributes(path, obj)
        if kind == h5i.GROUP:
            return GroupNode(attributes)
        dataset = h5py.Dataset(obj)
        departure = dataset_departure(obj, path)
        if departure is not None:
            self.departures.append(departure)
        try:
            node, annotation = self._datasets.node(dataset, path)
        except NotExpressibleError as error:
            self._problem(path, error.kind, str(error))
            return None
        if annotation:
            self.tree.annotations.setdefault(path, {}).update(annotation)
        return replace(node, attributes={**attributes, **node.attributes})

    def _attributes(self, path: str, obj: Any) -> dict[str, JSONValue]:
        manager = h5py.AttributeManager(h5py.HLObject(obj))
        plain: dict[str, JSONValue] = {}
        typed: dict[str, JSONValue] = {}
        for name in manager:
            try:
                value, annotation = encode_attribute(manager, name, self._reference)
            except (OSError, TypeError, ValueError, RuntimeError, KeyError) as error:
                self._problem(path, "attribute", f"attribute {name!r} cannot be expressed: {error}")
                continue
            if value is not ABSENT:
                plain[name] = value
            if annotation is not None:
                typed[name] = annotation
        if typed:
            self.tree.annotations.setdefault(path, {})["attributes"] = typed
        return plain

    def _problem(self, path: str, kind: str, message: str) -> None:
        self.tree.problems.append(Problem(path, kind, message))
