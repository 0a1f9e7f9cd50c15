"""The objects of one file by the addresses of their headers, found over its links."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import h5py
from h5py import h5g, h5i, h5l, h5o

from lindi_bridge.client.companions import external_target
from lindi_bridge.client.file import File
from lindi_bridge.client.names import fetch_names_below
from lindi_bridge.errors import NotHDF5Error
from lindi_bridge.hdf5.damage import DAMAGE, refuse_source_error
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.walk import header_address
from lindi_bridge.indexer.dimensions import is_scale
from lindi_bridge.indexer.values import ReferenceEncoder
from lindi_bridge.model.text import stored_name, text_name

__all__ = ["FileObjects", "Member"]


class Member(NamedTuple):
    """A link of a group.

    ``address`` is the header of the object that a hard link names, None for all other links; ``fault`` says why the
    link or its object cannot be used.
    """

    name: str
    raw: bytes
    address: int | None
    fault: str | None = None


@dataclass(eq=False)
class FileObjects:
    """What one file holds.

    Parameters
    ----------
    file : File
        The file, open.
    """

    file: File
    paths: dict[int, str] = field(default_factory=dict)
    """Canonical path of each object: the first that depth-first order meets."""
    members: dict[int, list[Member]] = field(default_factory=dict)
    """Links of each group."""
    scales: set[int] = field(default_factory=set)
    """Datasets that are dimension scales."""
    faults: dict[int, str] = field(default_factory=dict)
    """Groups whose links cannot be listed, and why."""

    def __post_init__(self) -> None:
        fetch_names_below(self.file, self.file_object, all_levels=True)
        try:
            root = h5g.open(self.file.id, b"/")
        except DAMAGE as error:
            refuse_source_error(error)
            raise NotHDF5Error(f"{self.file_object.address}: libhdf5 cannot open its root group: {error}") from error
        self.root_address = header_address(root)
        self.paths[self.root_address] = "/"
        pending: list[tuple[str, Any]] = [("/", root)]
        while pending:
            path, group = pending.pop()
            found = []
            for raw in self._names(group):
                member, child = self._member(group, raw)
                self.members[header_address(group)].append(member)
                if member.address is not None and member.address not in self.paths:
                    self.paths[member.address] = child_path = posixpath.join(path, member.name)
                    kind = h5i.get_type(child)
                    if kind == h5i.GROUP:
                        found.append((child_path, child))
                    elif kind == h5i.DATASET and is_scale(child):
                        self.scales.add(member.address)
            pending.extend(reversed(found))

    @property
    def file_object(self) -> HDF5File:
        """The file object below the file."""
        return self.file._file_object

    @cached_property
    def reference(self) -> ReferenceEncoder:
        """What turns references into paths."""
        return ReferenceEncoder(h5py.Group(h5g.open(self.file.id, b"/")), self.paths.get)

    def open(self, address: int) -> Any:
        """Open an object with h5py's low level."""
        return h5o.open(self.file.id, stored_name(self.paths[address]))

    def follow(self, address: int, member: Member) -> tuple[File, Any]:
        """The file and the object (low level) that a soft or external link of a group leads to.

        Raises
        ------
        LeavesFileError
            It leads to a file that may not, or cannot, be opened.
        KeyError, OSError, ValueError, RuntimeError
            It leads nowhere.
        """
        group = self.open(address)
        if external_target(group, member.raw) is None:
            return self.file, h5o.open(group, member.raw)
        found = self.file[stored_name(self.paths[address])][member.raw]
        return found.file, found.id

    def _names(self, group: h5g.GroupID) -> list[bytes]:
        address = header_address(group)
        self.members[address] = []
        try:
            # h5py lists the root by the file, which up to 3.12 knows no order of creation.
            return list(self.file.id if address == self.root_address else group)
        except DAMAGE as error:
            refuse_source_error(error)
            self.faults[address] = f"libhdf5 cannot list its members: {error}"
            return []

    @staticmethod
    def _member(group: h5g.GroupID, raw: bytes) -> tuple[Member, Any]:
        name = text_name(raw)
        try:
            kind = group.links.get_info(raw).type
            if kind != h5l.TYPE_HARD:
                known = kind in (h5l.TYPE_SOFT, h5l.TYPE_EXTERNAL)
                return Member(name, raw, None, None if known else "a link of a kind that h5py does not know"), None
            child = h5o.open(group, raw)
        except DAMAGE as error:
            refuse_source_error(error)
            return Member(name, raw, None, f"libhdf5 cannot open it: {error}"), None
        return Member(name, raw, header_address(child)), child
