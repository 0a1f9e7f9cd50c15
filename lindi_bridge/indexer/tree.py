"""An open HDF5 file -> the reference tree."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import h5py
from h5py import h5g, h5i, h5l, h5o

from lindi_bridge.hdf5.damage import DAMAGE, refuse_source_error
from lindi_bridge.hdf5.departures import dataset_departure
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.walk import Walk, header_address, is_stored_here
from lindi_bridge.indexer.datasets import loses_fill
from lindi_bridge.indexer.dtypes import contains_references
from lindi_bridge.indexer.profile import PROFILES, Profile
from lindi_bridge.indexer.storage import DatasetStorage, InlinePolicy, NotExpressibleError
from lindi_bridge.indexer.values import ABSENT, NAMELESS_TYPE, ReferenceEncoder, typed_attribute
from lindi_bridge.model.nodes import GroupNode, Node, Problem, ReferenceTree, SoftLinkNode
from lindi_bridge.model.snapshot import Departure
from lindi_bridge.model.text import text_name

__all__ = ["index_tree"]

JSONValue = Any


def index_tree(
    root: h5py.Group,
    file: HDF5File,
    walk: Walk,
    policy: InlinePolicy | None = None,
    progress: Callable[[int], None] | None = None,
    profile: Profile = PROFILES["lindi"],
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
        What may be copied into the document, if not what the profile says.
    progress : callable, optional
        Called with 1 for each object.
    profile : Profile
        Whom the tree is written for.

    Returns
    -------
    tree : ReferenceTree
        One odd object never costs the file: it is listed in ``tree.problems``.
    departures : list of Departure
        Objects whose content lies in other files.
    """
    indexer = _TreeIndexer(root, file, walk, policy or profile.inline, progress, profile)
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
        profile: Profile,
    ) -> None:
        self.tree = ReferenceTree(profile=profile.name)
        self.departures: list[Departure] = []
        self._root = root
        self._profile = profile
        self._progress = progress
        self._paths: dict[int, str] = {}
        self._links: dict[str, Node] = {}
        self._objects: list[tuple[str, Any]] = []
        self._find_objects()
        self._reference = ReferenceEncoder(root, self._paths.get)
        self._datasets = profile.datasets(DatasetStorage(file, walk.tables, policy), self._reference)

    def run(self) -> None:
        block = self._root.file.userblock_size
        if block:
            self._annotate("/", userblock=block)
        for path, obj in self._objects:
            node = self._links.get(path) or self._node(path, obj)
            if node is not None:
                self.tree.nodes[path] = node
            if self._progress is not None:
                self._progress(1)
        self._profile.finish(self.tree, dict(self._objects), self._paths.get)

    # -- structure ------------------------------------------------------------------------------------------------

    def _find_objects(self) -> None:
        """Give every object its canonical path, the first that depth-first order meets."""
        self._paths[header_address(self._root.id)] = "/"
        self._objects.append(("/", self._root.id))
        # Pushed in reverse, so that they are taken in the group's own order; and opened when they are taken, so that
        # of the names of an object the first in this order is the one that it is written by.
        pending = [("/", self._root.id, name) for name in reversed(self._names("/", self._root.id))]
        while pending:
            path, obj = self._child(*pending.pop())
            self._objects.append((path, obj))
            if isinstance(obj, h5g.GroupID):
                pending.extend((path, obj, name) for name in reversed(self._names(path, obj)))

    def _names(self, path: str, group: h5g.GroupID) -> list[bytes]:
        try:
            return list(group)
        except DAMAGE as error:
            refuse_source_error(error)
            self._problem(path, "unreadable", f"libhdf5 cannot list its members: {error}")
            return []

    def _child(self, parent: str, group: h5g.GroupID, raw: bytes) -> tuple[str, Any]:
        name = text_name(raw)
        path = posixpath.join(parent, name)
        try:
            kind = group.links.get_info(raw).type
            value: Any = group.links.get_val(raw) if kind in (h5l.TYPE_SOFT, h5l.TYPE_EXTERNAL) else None
            child = h5o.open(group, raw) if kind == h5l.TYPE_HARD else None
        except DAMAGE as error:
            refuse_source_error(error)
            self._problem(path, "unreadable", f"libhdf5 cannot open it: {error}")
            return path, None
        if kind == h5l.TYPE_SOFT:
            target = text_name(value)
            absolute = posixpath.normpath(posixpath.join(parent, target))
            self._links[path] = SoftLinkNode(absolute)
            if absolute != target:
                self._annotate(path, soft=target)
            return path, None
        if kind == h5l.TYPE_EXTERNAL:
            filename, target = map(text_name, value)
            self.departures.append(Departure(path, "external_link", (filename,)))
            self._annotate(path, external_link=[filename, target])
            self._problem(path, "external_link", f"a link to {target} in another file: {filename}")
            return path, None
        if child is None:
            self._problem(path, "unreadable", "a link of a kind that h5py does not know")
            return path, None
        address = header_address(child)
        if address in self._paths:
            self._links[path] = SoftLinkNode(self._paths[address])
            self._annotate(path, hard=True)
            return path, None
        self._paths[address] = path
        return path, child

    # -- nodes ----------------------------------------------------------------------------------------------------

    def _node(self, path: str, obj: Any) -> Node | None:
        try:
            return None if obj is None else self._made(path, obj)
        except DAMAGE as error:
            refuse_source_error(error)
            self._problem(path, "unreadable", f"h5py cannot make sense of it: {error}")
            return GroupNode() if isinstance(obj, h5g.GroupID) else None  # its members need it

    def _made(self, path: str, obj: Any) -> Node | None:
        kind = h5i.get_type(obj)
        if kind == h5i.DATATYPE:
            self._problem(path, "committed_datatype", "a committed datatype; Zarr has no place for it")
            self._annotate(path, committed=base64.standard_b64encode(obj.encode()).decode("ascii"))
            self._attributes(path, obj, in_annotation=True)
            return None
        attributes = self._attributes(path, obj)
        if kind == h5i.GROUP:
            self._annotate_group(path, obj)
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
        if node.external is not None and contains_references(dataset.dtype):
            self._problem(
                path,
                "datatype",
                "references in lists or arrays, or too many to copy, which count in the HDF5 file only",
            )
        if departure is None and not is_stored_here(obj):
            self._problem(
                path, "virtual_dataset", "a virtual dataset over this same file: its values are kept, not its mappings"
            )
        if loses_fill(dataset):
            self._problem(
                path,
                "datatype",
                "a fill value of arrays, references or lists, or none at all, which counts in the HDF5 file only",
            )
        stored = obj.get_type()
        if stored.committed():
            annotation["committed_type"] = self._reference.path_of_type(stored)
            if annotation["committed_type"] is None:
                self._problem(path, "datatype", f"its type {NAMELESS_TYPE}")
        order = obj.get_create_plist().get_attr_creation_order()
        if order:
            annotation["attribute_order"] = order
        self._annotate(path, **annotation)
        return replace(node, attributes={**attributes, **node.attributes})

    def _annotate(self, path: str, **annotation: JSONValue) -> None:
        if annotation:
            self.tree.annotations.setdefault(path, {}).update(annotation)

    def _annotate_group(self, path: str, group: h5g.GroupID) -> None:
        """The order of links and attributes, where the group records it."""
        create = group.get_create_plist()
        order = [create.get_link_creation_order(), create.get_attr_creation_order()]
        if any(order):
            self._annotate(path, order=order)
        if order[0]:  # not all members have keys, and other programs write keys in another order
            names = [*map(text_name, self._names(path, group))]
            self._annotate(path, links_in_order=names)

    def _attributes(self, path: str, obj: Any, in_annotation: bool = False) -> dict[str, JSONValue]:
        manager = h5py.AttributeManager(h5py.HLObject(obj))
        plain: dict[str, JSONValue] = {}
        typed: dict[str, JSONValue] = {}
        try:
            names = [text_name(name) for name in manager]
        except DAMAGE as error:
            refuse_source_error(error)
            self._problem(path, "attribute", f"libhdf5 cannot list its attributes: {error}")
            return plain
        for name in names:
            try:
                value, annotation, loss = self._profile.attribute(manager, name, self._reference)
            except DAMAGE as error:
                refuse_source_error(error)
                self._problem(path, "attribute", f"attribute {name!r} cannot be expressed: {error}")
                continue
            if in_annotation and value is not ABSENT:
                annotation = (annotation or typed_attribute(manager, name)) | {"value": value}
            elif value is not ABSENT:
                plain[name] = value
            if annotation is not None:
                typed[name] = annotation
            if loss is not None:
                self._problem(path, "attribute", f"attribute {name!r} {loss}")
        if typed:
            self._annotate(path, attributes=typed)
        if obj.get_create_plist().get_attr_creation_order():
            self._annotate(path, attributes_in_order=names)
        return plain

    def _problem(self, path: str, kind: str, message: str) -> None:
        self.tree.problems.append(Problem(path, kind, message))
