"""Views of a group's objects that do not hold h5py's global lock between two objects, as h5py's do.

Under that lock nothing can be fetched ahead, so that the body of ``for obj in group.values()`` would read slowly.
The classes have the names of h5py's, which are what their repr shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from h5py._hl import base

__all__ = ["ItemsViewHDF5", "ValuesViewHDF5"]


class ValuesViewHDF5(base.ValuesViewHDF5):  # type: ignore[misc]
    """Objects of a group. Unlike h5py's, does not hold the global lock between two objects."""

    def __iter__(self) -> Iterator[Any]:
        for name in list(self._mapping):
            yield self._mapping.get(name)

    def __reversed__(self) -> Iterator[Any]:
        for name in list(reversed(self._mapping)):
            yield self._mapping.get(name)

    def __contains__(self, value: object) -> bool:
        return any(value == mine for mine in self)


class ItemsViewHDF5(base.ItemsViewHDF5):  # type: ignore[misc]
    """Names and objects of a group. Unlike h5py's, does not hold the global lock between two objects."""

    def __iter__(self) -> Iterator[Any]:
        for name in list(self._mapping):
            yield name, self._mapping.get(name)

    def __reversed__(self) -> Iterator[Any]:
        for name in list(reversed(self._mapping)):
            yield name, self._mapping.get(name)

    def __contains__(self, item: object) -> bool:
        return isinstance(item, tuple) and item[0] in self._mapping and item[1] == self._mapping.get(item[0])
