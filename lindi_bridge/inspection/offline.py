"""Opening a document as an HDF5 file without its sources: whatever is not in the document is an error."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import h5py

from lindi_bridge.client.access import AccessOptions
from lindi_bridge.client.mount import mount
from lindi_bridge.client.rebuild import rebuild
from lindi_bridge.document.document import Document
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.open import open_file_id
from lindi_bridge.model.nodes import ArrayNode, ReferenceTree, SoftLinkNode

__all__ = ["OfflineFile", "opened_from_annotations", "opened_from_metadata"]

_UNBOUNDED = 1 << 61
_IN_ANNOTATIONS = frozenset(["external_link", "committed"])
"""What is listed as a problem, since ``refs`` have no word for it, but is said by annotations."""


class NoSource(io.RawIOBase):
    """Stands for a source, and gives none of its bytes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.asked = 0
        """How often bytes were wanted."""
        self._size = size
        self._position = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position."""
        self._position = offset + (self._size if whence == io.SEEK_END else 0)
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Refuse."""
        self.asked += 1
        raise OSError("these bytes are in the source, which is not asked")


@dataclass
class OfflineFile:
    """A document as an HDF5 file, and where it takes its bytes from.

    Parameters
    ----------
    file_object : HDF5File
        Under h5py.
    file : h5py.File
        Opened with plain h5py: nothing is fetched ahead, and no link is followed to another file.
    tree : ReferenceTree, optional
        What the file was built from; None where it is the embedded metadata that is read.
    sources : list of str
        Addresses that chunks lie at, as the document has them.
    unsaid : set of str
        Paths of objects that the document does not express, or not whole, and says so.
    unsaid_attributes : set of str
        Paths of objects of which the document leaves out attributes, and says so.
    """

    file_object: HDF5File
    file: Any
    source: NoSource
    tree: ReferenceTree | None
    sources: list[str]
    unsaid: set[str] = field(default_factory=set)
    unsaid_attributes: set[str] = field(default_factory=set)

    def is_unsaid(self, path: str) -> bool:
        """Whether the document says that it does not express an object, or a group that it lies in."""
        while path not in ("", "/"):
            if path in self.unsaid:
                return True
            path = path.rpartition("/")[0]
        return False

    def node(self, path: str) -> ArrayNode | None:
        """The array at a path in the tree that the file was built from."""
        if self.tree is None:
            return None
        node = self.tree.nodes.get(path)
        if isinstance(node, SoftLinkNode):  # a second name
            node = self.tree.nodes.get(node.target)
        return node if isinstance(node, ArrayNode) else None


@contextmanager
def opened_from_metadata(document: Document, address: str) -> Iterator[OfflineFile]:
    """Open a document by its embedded HDF5 metadata.

    Raises
    ------
    DocumentError, NotHDF5Error
        It cannot be.
    """
    assert document.snapshot is not None
    source = NoSource(document.snapshot.identity.size)
    file_object = mount(document, address, AccessOptions(source=source))
    with _opened(file_object, source, None, [document.snapshot.url]) as opened:
        yield opened


@contextmanager
def opened_from_annotations(document: Document, address: str) -> Iterator[OfflineFile]:
    """Open a document by its ``refs`` and annotations.

    Raises
    ------
    DocumentError
        With everything that is wrong.
    """
    origin = document.origin
    source = NoSource(_UNBOUNDED if origin is None else origin.identity.size)
    file_object = rebuild(document, address, AccessOptions(source=source), quiet=True)
    tree: ReferenceTree = file_object.properties["tree"]
    recorded = [] if origin is None or origin.url in tree.sources else [origin.url]
    with _opened(file_object, source, tree, [*tree.sources, *recorded]) as opened:
        for problem in document.problems:
            path, kind = str(problem.get("path")), str(problem.get("kind"))
            if kind == "attribute":
                opened.unsaid_attributes.add(path)
            elif kind == "virtual_dataset" or not _is_said(document, tree, path):
                opened.unsaid.add(path)
        for left_out in file_object.properties["problems"]:
            (opened.unsaid_attributes if left_out.kind == "attribute" else opened.unsaid).add(left_out.path)
        yield opened


def _is_said(document: Document, tree: ReferenceTree, path: str) -> bool:
    """Whether an object is in a document although the document lists it among its problems."""
    return path in tree.nodes or not _IN_ANNOTATIONS.isdisjoint(document.annotations.get(path, ()))


@contextmanager
def _opened(
    file_object: HDF5File, source: NoSource, tree: ReferenceTree | None, sources: list[str]
) -> Iterator[OfflineFile]:
    try:
        with h5py.File(open_file_id(file_object)) as file:
            yield OfflineFile(file_object, file, source, tree, sources)
    finally:
        file_object.close()
