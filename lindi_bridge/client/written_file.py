"""The file in memory: every object of a reference tree, written with h5py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5f, h5fd, h5g, h5o, h5p, h5s, h5t

from lindi_bridge.client.virtual import VirtualMemory
from lindi_bridge.client.written_attributes import (
    Attribute,
    RefusedError,
    attribute_nbytes,
    attribute_order,
    attributes_of,
    inferred_attribute,
    write_attribute,
)
from lindi_bridge.client.written_chunks import ChunkWriter
from lindi_bridge.client.written_committed import CommittedTypes
from lindi_bridge.client.written_datasets import PlannedDataset
from lindi_bridge.client.written_objects import is_object
from lindi_bridge.client.written_order import creation_order
from lindi_bridge.client.written_plan import plan_dataset
from lindi_bridge.client.written_types import memory_type
from lindi_bridge.client.written_values import MissingTargetError, ReferenceMaker
from lindi_bridge.document.problems import Faults, MalformedError
from lindi_bridge.hdf5.exit import close_at_exit
from lindi_bridge.hdf5.walk import header_address
from lindi_bridge.model.nodes import ArrayNode, GroupNode, Problem, ReferenceTree, SoftLinkNode
from lindi_bridge.model.text import stored_name

__all__ = ["WrittenFile"]

_EOF_IN_SUPERBLOCK = 40
"""Where superblock version 0 has the end of the file (HDF5 File Format Specification 3.0, section II.A)."""
_METADATA_BLOCK = 256 * 1024
_MOST_ATTRIBUTES = 1 << 30
_FAILURES = (OSError, ValueError, TypeError, RuntimeError, KeyError, OverflowError)
"""What h5py raises where libhdf5 refuses."""


class WrittenFile:
    """Writes a tree into a virtual file. It stays open for writing, so that chunks can be put in later.

    Parameters
    ----------
    memory : VirtualMemory
        Where it goes.
    tree : ReferenceTree
        What is written.
    annotations : mapping
        What the document says besides, by path.
    edited : bool
        The tree may be newer than the annotations: those that do not fit are left out of account.
    """

    def __init__(
        self, memory: VirtualMemory, tree: ReferenceTree, annotations: Mapping[str, Any], edited: bool
    ) -> None:
        self.memory = memory
        self.problems: list[Problem] = []
        self.addresses: dict[str, int] = {}
        """Address of the object header of every dataset, by path."""
        self.waiting: dict[int, tuple[PlannedDataset, int]] = {}
        """Datasets whose chunks are not in yet, by address of their header, with the address of their chunk index."""
        self._tree = tree
        self._annotations = annotations
        self._edited = edited
        self._faults = Faults()
        self._ascii_links, self._unicode_links = h5p.create(h5p.LINK_CREATE), h5p.create(h5p.LINK_CREATE)
        self._unicode_links.set_char_encoding(h5t.CSET_UTF8)
        self._attributes: dict[str, list[Attribute]] = {}
        self._attributes_nbytes = 0
        self._planned: dict[str, PlannedDataset] = {}
        self._datasets: dict[str, h5d.DatasetID] = {}
        self.chunks = ChunkWriter(memory)
        self.base = 0
        self.file_id: Any = None
        self.root: Any = None

    def write(self) -> None:
        """Write everything but the chunks.

        Raises
        ------
        DocumentError
            With everything that cannot be written.
        """
        for path, node in self._tree.nodes.items():
            with self._faults.at(path):
                self._plan(path, node)
        self._faults.raise_if_any()
        self._create_file()
        self._create_objects()
        self._faults.raise_if_any()
        reference = ReferenceMaker(self.root)
        for path, dataset in self._datasets.items():
            with self._faults.at(path):
                self._write_values(path, dataset, reference)
        self._write_attributes(reference)
        self._faults.raise_if_any()
        self.flush()
        self._close_indexes()
        self._datasets.clear()

    def close(self) -> None:
        """Close the file for writing."""
        self._datasets.clear()
        if self.file_id is not None and self.file_id:
            h5py.File(self.file_id).close()

    def set_end(self, end: int) -> None:
        """Have the superblock tell another end of the file than libhdf5 wrote."""
        size = self.memory.size
        self.memory.write(self.base + _EOF_IN_SUPERBLOCK, end.to_bytes(8, "little"))
        self.memory.size = size

    def flush(self) -> None:
        """Have libhdf5 write what it still holds."""
        h5f.flush(self.file_id)

    # -- planning -------------------------------------------------------------------------------------------------

    def _plan(self, path: str, node: Any) -> None:
        annotation = self._annotations.get(path, {})
        if isinstance(node, SoftLinkNode):
            return
        plain = node.attributes
        self._attributes[path] = self._counted(attributes_of(plain, annotation, self._edited))
        if isinstance(node, ArrayNode):
            try:
                planned = plan_dataset(path, node, annotation)
            except MalformedError:
                if not self._edited or not annotation:
                    raise
                planned = plan_dataset(path, node, {})
            if planned.refusal is not None and node.external is None and node.refusal is None:
                self.problems.append(Problem(path, "unreadable", planned.refusal))
            order = planned.layout.attribute_order | attribute_order(self._attributes[path])
            planned.layout = replace(planned.layout, attribute_order=order)
            self._planned[path] = planned

    def _counted(self, attributes: Iterable[Attribute]) -> list[Attribute]:
        """Attributes, as long as those of all objects together are not many more bytes than any file has of them."""
        out = []
        for attribute in attributes:
            self._attributes_nbytes += attribute_nbytes(attribute)
            if self._attributes_nbytes > _MOST_ATTRIBUTES:
                raise MalformedError(f"the attributes of all objects are more than {_MOST_ATTRIBUTES} bytes")
            out.append(attribute)
        return out

    def _group_order(self, path: str) -> tuple[int, int]:
        """Flags of the order of links and attributes of a group."""
        order = self._annotations.get(path, {}).get("order", [0, 0])
        if not isinstance(order, list) or len(order) != 2 or not all(type(o) is int and 0 <= o <= 3 for o in order):
            order = [0, 0]
        return order[0], order[1] | attribute_order(self._attributes.get(path, []))

    # -- objects --------------------------------------------------------------------------------------------------

    def _create_file(self) -> None:
        close_at_exit()
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_libver_bounds(h5f.LIBVER_EARLIEST, h5f.LIBVER_LATEST)
        access.set_fileobj_driver(h5fd.fileobj_driver, self.chunks.writer)
        access.set_meta_block_size(_METADATA_BLOCK)
        create = h5p.create(h5p.FILE_CREATE)
        links, attributes = self._group_order("/")
        if links:
            create.set_link_creation_order(links)
        if attributes:
            create.set_attr_creation_order(attributes)
        block = self._annotations.get("/", {}).get("userblock", 0)
        if type(block) is int and block >= 512 and block & (block - 1) == 0 and block < 1 << 30:
            create.set_userblock(block)
            self.base = self.chunks.writer.base = block
        self.file_id = h5f.create(b"rebuilt", h5f.ACC_TRUNC, create, access)
        self.root = h5g.open(self.file_id, b"/")

    def _create_objects(self) -> None:
        order = creation_order(self._tree, self._annotations)
        committed = {path: self._annotations[path] for path in order if path not in self._tree.nodes}
        committed = {path: annotation for path, annotation in committed.items() if "committed" in annotation}
        self._types = CommittedTypes(self.root)
        self._types.commit({path: a["committed"] for path, a in committed.items()}, set(order), self._faults)
        for path, annotation in committed.items():
            with self._faults.at(path):
                self._attributes[path] = self._counted(attributes_of({}, annotation, self._edited))
        self._faults.raise_if_any()
        # A second name may stand before the object itself, in a document that was put together another way.
        place = {path: k for k, path in enumerate(order)}
        early = {path: None for path in order if self._is_before(path, place)}
        for path in [*(path for path in order if path not in early), *early]:
            with self._faults.at(path):
                try:
                    self._create(path)
                except _FAILURES as error:
                    if isinstance(error, MalformedError):
                        raise
                    raise MalformedError(f"libhdf5 cannot create it: {error}") from None
        self._types.finish()

    def _is_before(self, path: str, place: Mapping[str, int]) -> bool:
        """Whether a node is a second name of an object that comes after it."""
        node = self._tree.nodes.get(path)
        if not isinstance(node, SoftLinkNode) or self._annotations.get(path, {}).get("hard") is not True:
            return False
        return place.get(node.target, -1) > place[path]

    def _create(self, path: str) -> None:
        name, node = stored_name(path), self._tree.nodes.get(path)
        if node is None:
            annotation = self._annotations[path]
            if "committed" in annotation:
                self._types.link(path, self._links_for(path))
            else:
                self._create_external_link(path, annotation["external_link"])
        elif isinstance(node, GroupNode):
            create = h5p.create(h5p.GROUP_CREATE)
            links, attributes = self._group_order(path)
            if links:
                create.set_link_creation_order(links)
            if attributes:
                create.set_attr_creation_order(attributes)
            h5g.create(self.file_id, name, self._links_for(path), create)
        elif isinstance(node, SoftLinkNode):
            self._create_link(path, node)
        else:
            planned = self._planned[path]
            name_of_type = self._annotations.get(path, {}).get("committed_type")
            planned.type_id = self._types.of(name_of_type, planned.type_id)
            dataset = planned.create(self.file_id, name, self._links_for(path))
            self._datasets[path] = dataset
            self.addresses[path] = header_address(dataset)

    def _links_for(self, path: str) -> h5p.PropLCID:
        """Link creation properties as h5py has them: a name in Unicode makes HDF5 store the whole group otherwise."""
        return self._ascii_links if path.isascii() else self._unicode_links

    def _create_link(self, path: str, node: SoftLinkNode) -> None:
        annotation = self._annotations.get(path, {})
        if annotation.get("hard") is True:
            try:
                self.root.links.create_hard(
                    stored_name(path), self.root, stored_name(node.target), self._links_for(path)
                )
                return
            except _FAILURES:
                if not self._edited:
                    raise MalformedError(f"a second name of {node.target}, which is not there") from None
        text = annotation.get("soft")
        target = text if isinstance(text, str) and text and "\0" not in text and not self._edited else node.target
        self.root.links.create_soft(stored_name(path), stored_name(target), self._links_for(path))

    def _create_external_link(self, path: str, link: list[Any]) -> None:
        if len(link) != 2 or not all(isinstance(part, str) and part and "\0" not in part for part in link):
            raise MalformedError("its annotation is no external link")
        try:
            self.root.links.create_external(
                stored_name(path), stored_name(link[0]), stored_name(link[1]), self._links_for(path)
            )
        except _FAILURES as error:
            raise MalformedError(f"libhdf5 cannot create it: {error}") from None

    # -- values ---------------------------------------------------------------------------------------------------

    def _write_attributes(self, reference: ReferenceMaker) -> None:
        for path, attributes in self._attributes.items():
            obj = h5o.open(self.file_id, stored_name(path))
            for attribute in attributes:
                with self._faults.at(path):
                    self._write_attribute(path, obj, attribute, reference)

    def _write_attribute(self, path: str, obj: Any, attribute: Attribute, reference: ReferenceMaker) -> None:
        type_id = self._types.of(attribute.committed_type, attribute.type_id)
        attribute = attribute._replace(type_id=type_id)
        try:
            write_attribute(obj, attribute, reference)
        except MissingTargetError as error:
            # What a reference leads to may be among the problems of the document.
            self.problems.append(Problem(path, "attribute", f"{error}; it is left out"))
        except MalformedError as error:
            if isinstance(error, RefusedError) and not self._edited:
                self.problems.append(Problem(path, "attribute", f"{error}; it is left out"))
                return
            node = self._tree.nodes.get(path)
            if (
                not self._edited
                or not isinstance(node, (GroupNode, ArrayNode))
                or attribute.name not in node.attributes
            ):
                raise
            write_attribute(obj, inferred_attribute(attribute.name, node.attributes[attribute.name]), reference)

    def _write_values(self, path: str, dataset: h5d.DatasetID, reference: ReferenceMaker) -> None:
        planned = self._planned[path]
        try:
            if planned.refusal is not None:
                self.chunks.refuse(planned, dataset)
            elif is_object(planned.node):
                self._write_objects(planned, dataset, reference)
            elif planned.layout.chunks is not None:
                self.chunks.write(planned, dataset)
            elif planned.is_mapped:
                self.chunks.map_pieces(planned, dataset)
            else:
                values = planned.plain()
                if values is not None:  # as bytes: memory and file have the same type
                    dataset.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(values), planned.type_id)
        except _FAILURES as error:
            if isinstance(error, MalformedError):
                raise
            raise MalformedError(f"libhdf5 cannot write its values: {error}") from None

    def _write_objects(self, planned: PlannedDataset, dataset: h5d.DatasetID, reference: ReferenceMaker) -> None:
        try:
            values = self._objects(planned, reference)
            memory = None if values is None else memory_type(planned.dtype, planned.type_id)
        except (MissingTargetError, TypeError) as error:
            # What a reference leads to may be among the problems of the document; and h5py writes not all lists.
            if planned.layout.compact:
                raise
            planned.refusal = f"{planned.path}: its values cannot be had: {error}"
            self.problems.append(Problem(planned.path, "unreadable", str(error)))
            self.chunks.refuse(planned, dataset)
            return
        if values is not None:
            dataset.write(h5s.ALL, h5s.ALL, values, memory)

    def _objects(self, planned: PlannedDataset, reference: ReferenceMaker) -> Any:
        try:
            return planned.objects(reference)
        except MalformedError as error:
            if isinstance(error, MissingTargetError) or not self._edited or planned.nan is None:
                raise
            planned.nan = None  # of values that are there no more
            return planned.objects(reference)

    def _close_indexes(self) -> None:
        """Close the chunk indexes of which libhdf5 has only the first chunk."""
        for place, path in self.chunks.first.items():
            planned, root = self._planned[path], self.chunks.writer.index_roots[place]
            self.memory.closed_addresses[root] = planned.refusal or (
                f"{path}: its chunks are not in the file yet; open it by its name in a file from lindi_bridge.open, or "
                "give h5py the file object from lindi_bridge.hdf5_file"
            )
            self.waiting[self.addresses[path]] = (planned, root)
