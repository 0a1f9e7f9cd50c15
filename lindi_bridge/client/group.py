"""Group: h5py's own class, whose members are ours and whose external links are followed to companion files."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any

import h5py
from h5py import h5g, h5l

from lindi_bridge.client.companions import MissingCompanionError, external_target
from lindi_bridge.client.names import fetch_names_below
from lindi_bridge.client.rebuild import complete
from lindi_bridge.client.views import ItemsViewHDF5, ValuesViewHDF5
from lindi_bridge.client.wrapping import Wrapped, open_companion_file, our_class, register, wrap
from lindi_bridge.errors import LeavesFileError, ReadOnlyError
from lindi_bridge.model.text import stored_name, text_name

__all__ = ["Group"]


class Group(Wrapped, h5py.Group):  # type: ignore[misc]
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
            if getclass and not getlink and "pending" in self._file_object.properties:
                self._open_whole(name)
            found = super().get(name, default, getclass=getclass, getlink=getlink, **options)
            if getclass and not getlink:
                return our_class(found)
            return found if found is default else wrap(found, self._file_object)
        try:
            return self._companion(name, outside[0]).get(outside[1], default, getclass=getclass, getlink=getlink)
        except MissingCompanionError:
            if getclass:
                raise
            return default

    def _open_whole(self, name: Any) -> None:
        """Have the chunks of a dataset put in: for its class alone h5py has libhdf5 read its whole chunk index."""
        try:
            wrap(super().get(name), self._file_object)
        except (KeyError, OSError, RuntimeError, TypeError, ValueError):
            return  # whoever asks for the class is told

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

    def require_group(self, name: Any) -> Any:
        """Return a group that exists; creating one is refused, as the file is read-only."""
        outside = self._outside(name)
        if outside is not None:
            return self._companion(name, outside[0]).require_group(outside[1])
        return wrap(super().require_group(name), self._file_object)

    def require_dataset(self, name: Any, shape: Any, dtype: Any, exact: bool = False, **options: Any) -> Any:
        """Return a dataset that exists and fits; creating one is refused, as the file is read-only."""
        outside = self._outside(name)
        if outside is not None:
            return self._companion(name, outside[0]).require_dataset(outside[1], shape, dtype, exact, **options)
        found = super().require_dataset(name, shape, dtype, exact, **options)
        return wrap(found, self._file_object)

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
        if isinstance(dest, (str, bytes, Wrapped)):
            # libhdf5 would notice only when the file is closed, and leave it half written.
            raise ReadOnlyError(f"{self._file_object.address}: copying within a file that is read-only")
        if expand_external:
            raise LeavesFileError(
                f"{self._file_object.address}: copying the targets of external links is not supported"
            )
        complete(self._file_object)
        return super().copy(source, dest, name, **options)

    # The names are gathered first and the function called after, without h5py's lock: it may read, and reading
    # under the lock cannot fetch ahead.
    def _visited_names(self) -> list[Any]:
        names: list[Any] = []  # bytes where they are not UTF-8
        fetch_names_below(self, self._file_object, all_levels=True)
        properties = self._file_object.properties
        if "pending" not in properties and "names_fetched" not in properties:
            super().visit(names.append)
            return names
        # libhdf5 would read every chunk index, before it is complete or over the network.
        seen = {int(h5g.get_objinfo(self.id).objno[0])}
        for name in self._visited_links():
            stored = stored_name(text_name(name))  # h5py itself takes no names that are not UTF-8
            if self.id.links.get_info(stored).type != h5l.TYPE_HARD:
                continue
            address = int(h5g.get_objinfo(self.id, stored).objno[0])
            if address not in seen:
                seen.add(address)
                names.append(name)
        return names

    def _visited_links(self) -> list[Any]:
        names: list[Any] = []
        fetch_names_below(self, self._file_object, all_levels=True)
        super().visit_links(names.append)
        return names

    def _outside(self, name: Any, follow_last: bool = True) -> tuple[str, str] | None:
        if isinstance(name, str):
            name = stored_name(name)
        return external_target(self.id, name, follow_last) if isinstance(name, bytes) and self.id else None

    def _companion(self, name: Any, filename: str) -> Any:
        path = posixpath.join(text_name(self.name or "/"), text_name(name))
        return open_companion_file(self._file_object, path, filename)

    def _open_outside(self, name: Any, filename: str, target: str) -> Any:
        try:
            return self._companion(name, filename)[target]
        except LeavesFileError:
            raise
        except KeyError as error:
            raise MissingCompanionError(
                f"{self._file_object.address}: {name!r} is an external link to {target!r} in {filename!r}: {error}"
            ) from None


def _first_answer(answers: Any) -> Any:
    return next((answer for answer in answers if answer is not None), None)


register(h5py.Group, Group)
