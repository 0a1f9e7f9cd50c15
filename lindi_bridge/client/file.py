"""File: a reference document, or an HDF5 file anywhere, as an ``h5py.File``.

Our classes are h5py's own with real HDF5 identifiers, plus a few hooks: whatever returns objects returns ours;
chunks are fetched ahead of a read in one wave; what leaves the file is opened as a companion or refused; objects can
be pickled. Objects are made by h5py and then given our class, which is safe because the subclasses define no
``__slots__``.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

import h5py

from lindi_bridge.client.dataset import Dataset
from lindi_bridge.client.group import Group
from lindi_bridge.client.mount import AccessOptions, open_file_object
from lindi_bridge.client.rebuild import complete
from lindi_bridge.client.wrapping import Wrapped, register, register_reopen
from lindi_bridge.errors import LeavesFileError, ReadOnlyError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.open import open_file_id
from lindi_bridge.ranges import strip_secrets

__all__ = ["Dataset", "Datatype", "File", "Group", "plain"]

_CHUNK_CACHE_OPTIONS = ("rdcc_nslots", "rdcc_nbytes", "rdcc_w0")
# The other options of h5py.File say how to create a file, or how to open a local one.
_H5PY_OPTIONS = [n for n in inspect.signature(h5py.File.__init__).parameters if n not in ("self", "kwds")][3:]


class File(Group, h5py.File):  # type: ignore[misc]
    """A remote HDF5 file, opened from a reference document or from its own address.

    Parameters
    ----------
    name : str, os.PathLike, bytes, file object, or HDF5File
        Path or URL of a document or of an HDF5 file, or an open binary file.
    mode : str
        Only ``"r"``.
    rdcc_nslots, rdcc_nbytes, rdcc_w0
        Chunk cache of libhdf5, as for :class:`h5py.File`.
    **options
        See :class:`~lindi_bridge.client.mount.AccessOptions`; the other options of :class:`h5py.File` are accepted and
        mean nothing here.

    Raises
    ------
    ReadOnlyError
        Another mode was asked for.
    SourceError, NotHDF5Error, DocumentError
        It cannot be opened.
    """

    def __init__(self, name: Any, mode: str = "r", driver: Any = None, *arguments: Any, **options: Any) -> None:
        options.update(zip(_H5PY_OPTIONS, arguments, strict=False))
        if mode != "r":
            raise ReadOnlyError(f"mode {mode!r}: lindi_bridge files are read-only; use mode 'r'")
        if driver not in (None, "fileobj"):
            raise ValueError(f"driver {driver!r}: lindi_bridge reads through its own driver")
        cache = {key: options.pop(key) for key in _CHUNK_CACHE_OPTIONS if key in options}
        for key in _H5PY_OPTIONS:
            options.pop(key, None)
        access = AccessOptions(**options)
        if isinstance(name, HDF5File):
            file = name
        else:
            file = open_file_object(name, access)
            file.properties["owned"] = True
        file.properties.setdefault("access", access)
        file.properties["allow_external"] = access.allow_external
        file.properties.setdefault("reopen", _reopen_target(name))
        try:
            h5py.File.__init__(self, open_file_id(file, **cache))
        except BaseException:
            if file.properties.get("owned"):
                file.close()
            raise
        self._libver = (None, "latest")  # h5py sets it for files that it opens by name
        self._file_object = file

    @classmethod
    def in_memory(cls, *args: Any, **options: Any) -> File:
        """Refuse: there is nothing to write."""
        raise ReadOnlyError("lindi_bridge files are read-only; use h5py.File.in_memory")

    def close(self) -> None:
        """Close the file, its companions, its cache and its connections."""
        super().close()
        for companion in self._file_object.properties.pop("companions", {}).values():
            companion.close()
        if self._file_object.properties.get("owned"):
            self._file_object.close()

    def _repr_html_(self) -> str:
        from lindi_bridge.client.notebook import file_html

        return file_html(self)


class Datatype(Wrapped, h5py.Datatype):  # type: ignore[misc]
    """A committed datatype; see :class:`h5py.Datatype`."""


def open_object(target: Any, options: dict[str, Any], name: str) -> Any:
    """Open an object of a file again, in the process that unpickles it."""
    file = File(target, **options)
    return file if name == "/" else file[name]


register(h5py.File, File)
register_reopen(open_object)
register(h5py.Datatype, Datatype)


def plain(obj: Any) -> Any:
    """The exact h5py object on the same identifier, at no cost; for code that compares types.

    Raises
    ------
    LeavesFileError
        A dataset whose values lie in other files: plain h5py would find them in this one.
    """
    if isinstance(obj, Dataset) and obj._reading.plan.leaves_file:
        raise LeavesFileError(f"{obj._file_object.address}: {obj.name} has its values in other files; read it as it is")
    if isinstance(obj, Wrapped) and not isinstance(obj, Dataset):
        complete(obj._file_object)  # what plain h5py opens below is not seen here any more
    for cls in type(obj).__mro__:
        if cls in (h5py.File, h5py.Group, h5py.Dataset, h5py.Datatype):
            return cls(obj.id)
    return obj


def _reopen_target(name: Any) -> Any:
    """What travels in a pickle: an address without secrets, or the bytes of a document in memory."""
    name = os.fspath(name) if isinstance(name, os.PathLike) else name
    return strip_secrets(name) if isinstance(name, str) else name if isinstance(name, bytes) else None
