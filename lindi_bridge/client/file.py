"""File, Group and Dataset: h5py's own classes, with real HDF5 identifiers, plus a few hooks.

The hooks: whatever returns objects returns ours; chunks are fetched ahead of a read in one wave; what leaves the
file is opened as a companion or refused; objects can be pickled. Objects are made by h5py and then given our class,
which is safe because the subclasses define no ``__slots__``.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
from h5py._hl import base as h5py_base
from h5py._hl import dims as h5py_dims

from lindi_bridge.client.companions import (
    MissingCompanionError,
    external_target,
    open_companion,
    read_from_companions,
)
from lindi_bridge.client.mount import AccessOptions, open_file_object
from lindi_bridge.client.plan import ReadPlan, read_plan
from lindi_bridge.client.slabs import read_in_slabs
from lindi_bridge.errors import LeavesFileError, ReadOnlyError
from lindi_bridge.hdf5.departures import has_unknown_extent
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.open import open_file_id
from lindi_bridge.ranges import RangeReader, h5py_lock_is_held, open_reader, strip_secrets

__all__ = ["Dataset", "Datatype", "File", "Group", "plain", "wrap"]


def wrap(obj: Any, file: HDF5File) -> Any:
    """Give an object that h5py made our class; everything else is returned as it is."""
    cls = _CLASSES.get(type(obj))
    if cls is not None:
        obj.__class__ = _UnknownExtent if cls is Dataset and has_unknown_extent(obj.id) else cls
        obj._file_object = file
    return obj


def plain(obj: Any) -> Any:
    """The exact h5py object on the same identifier, at no cost; for code that compares types.

    Raises
    ------
    LeavesFileError
        A dataset whose values lie in other files: plain h5py would find them in this one.
    """
    if isinstance(obj, Dataset) and obj._plan.leaves_file:
        raise LeavesFileError(f"{obj._file_object.address}: {obj.name} has its values in other files; read it as it is")
    for cls in type(obj).__mro__:
        if cls in _CLASSES:
            return cls(obj.id)
    return obj


class _Wrapped:
    """What all our objects have in common."""

    _file_object: HDF5File

    @property
    def file(self) -> File:
        """The file that the object is in."""
        return wrap(super().file, self._file_object)  # type: ignore[no-any-return, misc]

    @property
    def parent(self) -> Group:
        """The group that the object is in."""
        return wrap(super().parent, self._file_object)  # type: ignore[no-any-return, misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _open_object, (*_reopen_arguments(self._file_object), self.name)  # type: ignore[attr-defined]


class ValuesViewHDF5(h5py_base.ValuesViewHDF5):  # type: ignore[misc]
    """Objects of a group. Unlike h5py's, does not hold the global lock between two objects."""

    def __iter__(self) -> Iterator[Any]:
        for name in list(self._mapping):
            yield self._mapping.get(name)

    def __reversed__(self) -> Iterator[Any]:
        for name in list(reversed(self._mapping)):
            yield self._mapping.get(name)

    def __contains__(self, value: object) -> bool:
        return any(value == mine for mine in self)


class ItemsViewHDF5(h5py_base.ItemsViewHDF5):  # type: ignore[misc]
    """Names and objects of a group. Unlike h5py's, does not hold the global lock between two objects."""

    def __iter__(self) -> Iterator[Any]:
        for name in list(self._mapping):
            yield name, self._mapping.get(name)

    def __reversed__(self) -> Iterator[Any]:
        for name in list(reversed(self._mapping)):
            yield name, self._mapping.get(name)

    def __contains__(self, item: object) -> bool:
        return isinstance(item, tuple) and item[0] in self._mapping and item[1] == self._mapping.get(item[0])


class Group(_Wrapped, h5py.Group):  # type: ignore[misc]
    """A group; see :class:`h5py.Group`."""

    def __getitem__(self, name: Any) -> Any:
        outside = self._outside(name)
        if outside is not None:
            return self._open_outside(name, *outside)
        return wrap(super().__getitem__(name), self._file_object)

    def get(self, name: Any, default: Any = None, getclass: bool = False, getlink: bool = False, **options: Any) -> Any:
        """Retrieve an object, its class, or its link; see :meth:`h5py.Group.get`."""
        outside = self._outside(name, follow_last=not getlink)
        if outside is None:
            found = super().get(name, default, getclass=getclass, getlink=getlink, **options)
            if getclass and not getlink:
                return _CLASSES.get(found, found)
            return found if found is default else wrap(found, self._file_object)
        try:
            return self._companion(name, outside[0]).get(outside[1], default, getclass=getclass, getlink=getlink)
        except MissingCompanionError:
            if getclass:
                raise
            return default

    def __contains__(self, name: Any) -> bool:
        # As in h5py, a link itself is there whether or not its target is.
        outside = self._outside(name, follow_last=False)
        if outside is None:
            return bool(super().__contains__(name))
        try:
            return outside[1] in self._companion(name, outside[0])
        except MissingCompanionError:
            return False

    def values(self) -> ValuesViewHDF5:
        """View of the objects in this group."""
        return ValuesViewHDF5(self)

    def items(self) -> ItemsViewHDF5:
        """View of names and objects in this group."""
        return ItemsViewHDF5(self)

    def require_group(self, name: Any) -> Group:
        """Return a group that exists; creating one is refused, as the file is read-only."""
        outside = self._outside(name)
        if outside is not None:
            return self._companion(name, outside[0]).require_group(outside[1])
        return wrap(super().require_group(name), self._file_object)  # type: ignore[no-any-return]

    def require_dataset(self, name: Any, shape: Any, dtype: Any, exact: bool = False, **options: Any) -> Dataset:
        """Return a dataset that exists and fits; creating one is refused, as the file is read-only."""
        outside = self._outside(name)
        if outside is not None:
            return self._companion(name, outside[0]).require_dataset(outside[1], shape, dtype, exact, **options)
        found = super().require_dataset(name, shape, dtype, exact, **options)
        return wrap(found, self._file_object)  # type: ignore[no-any-return]

    def visit(self, func: Callable[[str], Any]) -> Any:
        """Call ``func(name)`` for every object below; see :meth:`h5py.Group.visit`."""
        return _first_answer(func(name) for name in self._visited_names())

    def visititems(self, func: Callable[[str, Any], Any]) -> Any:
        """Call ``func(name, object)`` for every object below; see :meth:`h5py.Group.visititems`."""
        return _first_answer(func(name, self[name]) for name in self._visited_names())

    def visit_links(self, func: Callable[[str], Any]) -> Any:
        """Call ``func(name)`` for every link below; see :meth:`h5py.Group.visit_links`."""
        return _first_answer(func(name) for name in self._visited_links())

    def visititems_links(self, func: Callable[[str, Any], Any]) -> Any:
        """Call ``func(name, link)`` for every link below; see :meth:`h5py.Group.visititems_links`."""
        return _first_answer(func(name, self.get(name, getlink=True)) for name in self._visited_links())

    def copy(self, source: Any, dest: Any, name: Any = None, *, expand_external: bool = False, **options: Any) -> Any:
        """Copy an object to a file that can be written; see :meth:`h5py.Group.copy`."""
        if isinstance(dest, (str, bytes, _Wrapped)):
            # libhdf5 would notice only when the file is closed, and leave it half written.
            raise ReadOnlyError(f"{self._file_object.address}: copying within a file that is read-only")
        if expand_external:
            raise LeavesFileError(
                f"{self._file_object.address}: copying the targets of external links is not supported"
            )
        return super().copy(source, dest, name, **options)

    # The names are gathered first and the function called after, without h5py's lock: it may read, and reading
    # under the lock cannot fetch ahead.
    def _visited_names(self) -> list[str]:
        names: list[str] = []
        super().visit(names.append)
        return names

    def _visited_links(self) -> list[str]:
        names: list[str] = []
        super().visit_links(names.append)
        return names

    def _outside(self, name: Any, follow_last: bool = True) -> tuple[str, str] | None:
        if isinstance(name, str):
            name = name.encode("utf-8", "surrogateescape")
        return external_target(self.id, name, follow_last) if isinstance(name, bytes) and self.id else None

    def _companion(self, name: Any, filename: str) -> File:
        name = name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name
        return _open_companion_file(self._file_object, posixpath.join(self.name or "/", name), filename)

    def _open_outside(self, name: Any, filename: str, target: str) -> Any:
        try:
            return self._companion(name, filename)[target]
        except LeavesFileError:
            raise
        except KeyError as error:
            raise MissingCompanionError(
                f"{self._file_object.address}: {name!r} is an external link to {target!r} in {filename!r}: {error}"
            ) from None


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
        See :class:`~lindi_bridge.client.mount.AccessOptions`; further options of :class:`h5py.File` are accepted where
        they mean nothing for reading.

    Raises
    ------
    ReadOnlyError
        Another mode was asked for.
    SourceError, NotHDF5Error, DocumentError
        It cannot be opened.
    """

    def __init__(self, name: Any, mode: str = "r", driver: Any = None, **options: Any) -> None:
        if mode != "r":
            raise ReadOnlyError(f"mode {mode!r}: lindi_bridge files are read-only; use mode 'r'")
        if driver not in (None, "fileobj"):
            raise ValueError(f"driver {driver!r}: lindi_bridge reads through its own driver")
        cache = {key: options.pop(key) for key in _CHUNK_CACHE_OPTIONS if key in options}
        for key in _IGNORED_OPTIONS:
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
        h5py.File.__init__(self, open_file_id(file, **cache))
        self._libver = (None, "latest")  # h5py sets it for files that it opens by name
        self._file_object = file

    @classmethod
    def in_memory(cls, *args: Any, **options: Any) -> File:
        """Refuse: there is nothing to write."""
        raise ReadOnlyError("lindi_bridge files are read-only; use h5py.File.in_memory")

    @property
    def attrs(self) -> Any:
        """Attributes of the root group."""
        return h5py.AttributeManager(h5py.Group(self.id))

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


class Dataset(_Wrapped, h5py.Dataset):  # type: ignore[misc]
    """A dataset; see :class:`h5py.Dataset`. Reads fetch what they need in one wave."""

    def __getitem__(self, args: Any, new_dtype: Any = None) -> Any:
        if not self:
            return self._read(args, new_dtype)  # closed: h5py says so
        plan = self._plan
        if plan.leaves_file:
            return read_from_companions(self, args, new_dtype, self._companion_file, self._companion_bytes)
        whole = self._fetch(plan, args)
        if whole is not None:
            out = read_in_slabs(
                self,
                plan,
                self._file_object,
                args,
                new_dtype,
                lambda part: self._read(part, new_dtype),
                lambda array, part: super(Dataset, self).read_direct(array, source_sel=part),
                whole,
            )
            if out is not None:
                return out
        return self._read(args, new_dtype)

    def _read(self, args: Any, new_dtype: Any) -> Any:
        if new_dtype is None:
            return super().__getitem__(args)
        return super().__getitem__(args, new_dtype=new_dtype)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("Dataset.__array__ received copy=False but memory allocation cannot be avoided on read")
        if self._is_empty:
            return super().__array__(dtype)  # type: ignore[no-any-return]
        values = np.asarray(self[()])
        return values if dtype is None else values.astype(dtype, copy=False)

    def read_direct(self, dest: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Read into an existing array; see :meth:`h5py.Dataset.read_direct`."""
        if not self:
            super().read_direct(dest, source_sel, dest_sel)
            return
        plan = self._plan
        selection = () if source_sel is None else source_sel
        if plan.leaves_file:
            values = read_from_companions(self, selection, None, self._companion_file, self._companion_bytes)
            dest[() if dest_sel is None else dest_sel] = values
            return
        self._fetch(plan, selection)
        super().read_direct(dest, source_sel, dest_sel)

    def __iter__(self) -> Iterator[Any]:
        shape = self.shape
        if not shape:
            raise TypeError("Can't iterate over a scalar dataset")
        row_nbytes = self.nbytes // max(1, shape[0]) or 1
        step = max(1, _ITERATION_NBYTES // row_nbytes)
        for first in range(0, shape[0], step):
            self._fetch(self._plan, slice(first, first + step))
            for row in range(first, min(first + step, shape[0])):
                yield self[row]

    @property
    def dims(self) -> _DimensionManager:
        """Dimension scales attached to this dataset."""
        return _DimensionManager(self)

    @property
    def _plan(self) -> ReadPlan:
        plan: ReadPlan | None = self.__dict__.get("_read_plan")
        if plan is None:
            plan = self.__dict__["_read_plan"] = read_plan(self.id, self._file_object)
        return plan

    def _fetch(self, plan: ReadPlan, args: Any) -> int | None:
        """Fetch ahead what a selection needs; where that is too much at once, only say how many bytes it is."""
        if h5py_lock_is_held():
            return None
        ranges = plan.ranges(args)
        total = sum(r.length for r in ranges)
        if total > self._file_object.cache_bytes // 2:
            return total
        self._file_object.ensure(ranges)
        return None

    def _companion_file(self, filename: str) -> Any:
        if filename == ".":
            return self.file
        return _open_companion_file(self._file_object, str(self.name), filename)

    def _companion_bytes(self, filename: str) -> RangeReader:
        access: AccessOptions = self._file_object.properties["access"]
        return open_companion(  # type: ignore[no-any-return]
            self._file_object,
            str(self.name),
            filename,
            "bytes",
            lambda address: open_reader(address, access.reader_options(address, None)),
        )


class _UnknownExtent(Dataset):
    """A virtual dataset whose very shape depends on other files, which libhdf5 would look for in this one.

    Everything that can be told without its shape works; the rest is refused.
    """

    _HARMLESS = frozenset(
        [
            "attrs",
            "dtype",
            "external",
            "file",
            "fillvalue",
            "id",
            "is_virtual",
            "name",
            "parent",
            "ref",
            "virtual_sources",
        ]
    )

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in _UnknownExtent._HARMLESS:
            return super().__getattribute__(name)
        raise LeavesFileError(
            f"{self._file_object.address}: {self.name} is a virtual dataset whose shape depends on other files "
            f"({', '.join(sorted({s.file_name for s in self.virtual_sources()}))}); open a local copy of all of them "
            "with h5py"
        )

    def __getitem__(self, args: Any, new_dtype: Any = None) -> Any:
        return self.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.shape

    def __iter__(self) -> Any:
        return iter(self.shape)

    def __len__(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"<HDF5 dataset {self.name!r}: shape depends on other files>"


class Datatype(_Wrapped, h5py.Datatype):  # type: ignore[misc]
    """A committed datatype; see :class:`h5py.Datatype`."""


class _DimensionProxy(h5py_dims.DimensionProxy):  # type: ignore[misc]
    """One dimension of a dataset, whose scales are our datasets."""

    _file_object: HDF5File

    def __getitem__(self, item: Any) -> Dataset:
        return wrap(super().__getitem__(item), self._file_object)  # type: ignore[no-any-return]

    def items(self) -> list[tuple[str, Dataset]]:
        """Names and datasets of the scales."""
        return [(name, wrap(scale, self._file_object)) for name, scale in super().items()]

    def values(self) -> list[Dataset]:
        """Datasets of the scales."""
        return [scale for _, scale in self.items()]


class _DimensionManager(h5py_dims.DimensionManager):  # type: ignore[misc]
    """The dimensions of a dataset."""

    def __init__(self, parent: Dataset) -> None:
        super().__init__(parent)
        self._file_object = parent._file_object

    def __getitem__(self, index: int) -> _DimensionProxy:
        proxy = super().__getitem__(index)
        proxy.__class__ = _DimensionProxy
        proxy._file_object = self._file_object
        return proxy  # type: ignore[no-any-return]


_CLASSES = {h5py.File: File, h5py.Group: Group, h5py.Dataset: Dataset, h5py.Datatype: Datatype}
for _original, _ours in _CLASSES.items():
    # h5netcdf recognises h5py's objects by the module of their class.
    _ours.__module__ = _original.__module__

_CHUNK_CACHE_OPTIONS = ("rdcc_nslots", "rdcc_nbytes", "rdcc_w0")
_IGNORED_OPTIONS = ("libver", "swmr", "locking", "track_order", "page_buf_size")
_ITERATION_NBYTES = 4 * 1024 * 1024


def _first_answer(answers: Any) -> Any:
    return next((answer for answer in answers if answer is not None), None)


def _open_companion_file(file: HDF5File, path: str, filename: str) -> File:
    access: AccessOptions = file.properties["access"]
    return open_companion(  # type: ignore[no-any-return]
        file, path, filename, "hdf5", lambda address: File(address, **vars(replace(access, source=None)))
    )


def _reopen_target(name: Any) -> Any:
    """What travels in a pickle: an address without secrets, or the bytes of a document in memory."""
    name = os.fspath(name) if isinstance(name, os.PathLike) else name
    return strip_secrets(name) if isinstance(name, str) else name if isinstance(name, bytes) else None


def _reopen_arguments(file: HDF5File) -> tuple[Any, dict[str, Any]]:
    target = file.properties.get("reopen")
    if target is None:
        raise TypeError(f"{file.address} was opened from an object in this process and cannot be pickled")
    return target, file.properties["access"].public()


def _open_object(target: Any, options: dict[str, Any], name: str) -> Any:
    """Open an object of a file again, in the process that unpickles it."""
    file = File(target, **options)
    return file if name == "/" else file[name]
