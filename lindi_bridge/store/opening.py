"""A file that is opened when it is first needed, and what is found in it then."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from lindi_bridge.client.file import File
from lindi_bridge.errors import SourceChangedError
from lindi_bridge.indexer.values import ReferenceEncoder
from lindi_bridge.model.nodes import Problem
from lindi_bridge.ranges import SourceIdentity, strip_secrets
from lindi_bridge.ranges.lock import refuse_under_lock
from lindi_bridge.store.hierarchy import Hierarchy
from lindi_bridge.store.objects import FileObjects

__all__ = ["Opening", "Recipe", "reopen"]

Recipe = tuple[Any, dict[str, Any], SourceIdentity]
"""What travels to another process: an address, or the bytes of a document; options; which state of it was opened.
No secrets."""

_MOST_SHARED = 2


class Opening:
    """A document or an HDF5 file that is opened at the first use.

    Parameters
    ----------
    name : str, os.PathLike, bytes, file object, or File
        What is opened. A File is used as it is, and stays open.
    options : dict
        As for :func:`lindi_bridge.open`.
    recipe : tuple, optional
        How the file was opened by the process that this was unpickled from.
    """

    def __init__(self, name: Any, options: dict[str, Any], recipe: Recipe | None = None) -> None:
        self._name = name
        self._options = options
        self._recipe = recipe
        self._is_shared = recipe is not None
        self._file: File | None = None
        self._hierarchy: Hierarchy | None = None
        self._references: dict[int, ReferenceEncoder] = {}
        self._closed = False
        # Held while h5py works, and never asked for by a thread that is inside h5py.
        self.lock = threading.RLock()
        _openings.add(self)

    @property
    def address(self) -> str:
        """What the file is called, without secrets. Opens nothing: it is for messages."""
        if self._file is not None:
            return self._file._file_object.address
        name = os.fspath(self._name) if isinstance(self._name, os.PathLike) else self._name
        return strip_secrets(name) if isinstance(name, str) else f"an open {type(name).__name__}"

    @property
    def file(self) -> File:
        """The file, open.

        Raises
        ------
        SourceChangedError
            It is not the one that was pickled.
        """
        if self._file is None:
            refuse_under_lock(self.address, "a Zarr store was opened")
            with self.lock:
                if self._closed:
                    raise ValueError(f"{self.address}: the store is closed")
                if self._file is None:
                    self._file = self._open()
        return self._file

    def _open(self) -> File:
        if isinstance(self._name, File):
            return self._name
        file = File(self._name, **self._options)
        if self._recipe is not None:
            difference = self._recipe[2].differs(file._file_object.properties["identity"])
            if difference is not None:
                file.close()
                raise SourceChangedError(
                    f"{self.address}: it was replaced since it was opened and pickled: {difference}"
                )
        return file

    @property
    def hierarchy(self) -> Hierarchy:
        """All nodes of the file."""
        if self._hierarchy is None:
            file = self.file
            refuse_under_lock(self.address, "a Zarr store was listed")
            with self.lock:
                if self._hierarchy is None:
                    self._hierarchy = Hierarchy(file)
        return self._hierarchy

    @property
    def is_listed(self) -> bool:
        """Whether the nodes are known already."""
        return self._hierarchy is not None

    @property
    def problems(self) -> list[Problem]:
        """What the document has not got of the file, and Zarr not of that."""
        return [*self.file._file_object.properties.get("problems", ()), *self.hierarchy.problems]

    @property
    def recipe(self) -> Recipe:
        """How another process opens the same.

        Raises
        ------
        TypeError
            It cannot, because this was opened from an object.
        """
        if self._recipe is None:
            _, (target, options, _) = self.file.__reduce_ex__(2)
            self._recipe = target, options, self.file._file_object.properties["identity"]
        return self._recipe

    def reference(self, file: File) -> ReferenceEncoder:
        """What turns references in a file into paths: this file, or one that a link leads to."""
        if self._hierarchy is not None:
            return self._hierarchy.objects_of(file).reference
        key = id(file._file_object)
        if key not in self._references:
            self._references[key] = FileObjects(file).reference
        return self._references[key]

    def close(self) -> None:
        """Close the file, unless it was given open, or others may have unpickled the same."""
        if self._is_shared:
            return
        with self.lock:
            self._closed = True
            file, self._file, self._hierarchy = self._file, None, None
        if file is not None and file is not self._name:
            file.close()


def reopen(recipe: Recipe) -> Opening:
    """What a pickle stands for: the same for all pickles of one state of a file, so that not every task opens it.

    The last ones are kept. Without a lock: whoever comes between opens the file once more.
    """
    target, options, identity = recipe
    key = target, repr(sorted(options.items())), identity
    found = _shared.pop(key, None) or Opening(target, options, recipe)
    _shared[key] = found
    for oldest in list(_shared)[:-_MOST_SHARED]:
        _shared.pop(oldest, None)
    return found


_shared: dict[Any, Opening] = {}
_openings: weakref.WeakSet[Opening] = weakref.WeakSet()


def _renew_locks() -> None:
    """Give a forked child locks that no thread of its parent holds."""
    for opening in list(_openings):
        opening.lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)
