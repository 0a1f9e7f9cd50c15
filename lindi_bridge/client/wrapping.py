"""Giving h5py's objects our classes, and what all of those have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import h5py

from lindi_bridge.client.companions import open_companion
from lindi_bridge.client.mount import AccessOptions
from lindi_bridge.client.names import fetch_names_below
from lindi_bridge.client.rebuild import complete
from lindi_bridge.hdf5.departures import has_unknown_extent
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.ranges import h5py_lock_is_held

__all__ = ["Wrapped", "is_ours", "open_companion_file", "our_class", "register", "when_imported", "wrap"]

_CLASSES: dict[type, type] = {}
_UNKNOWN_EXTENT: list[type] = []
_REOPEN: list[Callable[..., Any]] = []
_WHEN_IMPORTED: dict[str, Callable[[], None]] = {}


def register(original: type, ours: type) -> None:
    """Have objects of a class of h5py become ours.

    Our class says that it is h5py's: h5netcdf recognises h5py's objects by the module of their class.
    """
    _CLASSES[original] = ours
    ours.__module__ = original.__module__


def register_unknown_extent(ours: type) -> None:
    """Have datasets whose very shape depends on other files become objects of a class of their own."""
    _UNKNOWN_EXTENT.append(ours)


def register_reopen(function: Callable[..., Any]) -> None:
    """Say which function of the topmost module opens an object again, in the process that unpickles it."""
    _REOPEN.append(function)


def when_imported(library: str, function: Callable[[], None]) -> None:
    """Have a function called once, when one of our objects is asked for attributes and a library is imported.

    For libraries that must be told of our classes: they look at an object's attributes before anything else. So it does
    not matter whether the library or the file came first, and the library is never imported for its own sake.
    """
    _WHEN_IMPORTED[library] = function


def _call_when_imported() -> None:
    for library in list(_WHEN_IMPORTED):
        module = sys.modules.get(library)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            function = _WHEN_IMPORTED.pop(library, None)
            if function is not None:
                function()


def our_class(original: Any) -> Any:
    """Our class for one of h5py's, or what is given if there is none."""
    return _CLASSES.get(original, original)


def is_ours(obj: Any) -> bool:
    """Whether a group, file or dataset is of a file that this package opened."""
    return isinstance(obj, (h5py.Group, h5py.Dataset)) and hasattr(obj, "_file_object")


def wrap(obj: Any, file: HDF5File) -> Any:
    """Give an object that h5py made our class; everything else is returned as it is."""
    cls = _CLASSES.get(type(obj))
    if cls is not None:
        unknown = False
        if isinstance(obj, h5py.Dataset):
            unknown = has_unknown_extent(obj.id)
            complete(file, obj.id)
        elif isinstance(obj, h5py.Group):
            fetch_names_below(obj, file)
        obj.__class__ = _UNKNOWN_EXTENT[0] if unknown else cls
        obj._file_object = file
    return obj


class Wrapped:
    """What all our objects have in common."""

    _file_object: HDF5File

    @property
    def attrs(self) -> Any:
        """Attributes of the object; see :class:`h5py.AttributeManager`."""
        if _WHEN_IMPORTED and not h5py_lock_is_held():
            _call_when_imported()
        return super().attrs  # type: ignore[misc]

    @property
    def file(self) -> Any:
        """The file that the object is in."""
        return wrap(super().file, self._file_object)  # type: ignore[misc]

    @property
    def parent(self) -> Any:
        """The group that the object is in."""
        return wrap(super().parent, self._file_object)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _REOPEN[0], (*_reopen_arguments(self._file_object), self.name)  # type: ignore[attr-defined]


def open_companion_file(file: HDF5File, path: str, filename: str) -> Any:
    access: AccessOptions = file.properties["access"]
    return open_companion(
        file,
        path,
        filename,
        "hdf5",
        lambda address: our_class(h5py.File)(address, **vars(access.for_companion())),
    )


def _reopen_arguments(file: HDF5File) -> tuple[Any, dict[str, Any]]:
    target = file.properties.get("reopen")
    if target is None:
        raise TypeError(f"{file.address} was opened from an object in this process and cannot be pickled")
    return target, file.properties["access"].public()
