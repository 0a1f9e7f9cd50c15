"""Committed datatypes in the file in memory: made before all else, as datasets may have need of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import h5py
from h5py import h5g, h5p, h5t

from lindi_bridge.client.written_types import type_from_text
from lindi_bridge.document.problems import Faults, MalformedError
from lindi_bridge.hdf5.damage import DAMAGE
from lindi_bridge.hdf5.stored_types import is_type
from lindi_bridge.model.text import stored_name

__all__ = ["CommittedTypes"]


class CommittedTypes:
    """The committed datatypes of one file.

    A dataset may stand before its type, and even before the group that its type lies in; and a group may record the
    order of its links. So types are committed in a group of their own, and get their names when it is their turn.

    Parameters
    ----------
    root : h5py.h5g.GroupID
        Root group of the file.
    """

    def __init__(self, root: h5py.h5g.GroupID) -> None:
        self._root = root
        self._group: bytes | None = None
        self._places: dict[str, bytes] = {}

    def commit(self, encoded: Mapping[str, Any], taken: set[str], faults: Faults) -> None:
        """Commit types.

        Parameters
        ----------
        encoded : mapping
            By path, the types as annotations have them.
        taken : set of str
            Paths that the file will have.
        faults : Faults
            Takes what cannot be committed.
        """
        if not encoded:
            return
        self._group = next(f"/{k}" for k in itertools.count() if f"/{k}" not in taken).encode()
        h5g.create(self._root, self._group)
        for number, (path, text) in enumerate(encoded.items()):
            place = b"%s/%d" % (self._group, number)
            with faults.at(path):
                try:
                    type_from_text(text).commit(self._root, place)
                except DAMAGE as error:
                    if isinstance(error, MalformedError):
                        raise
                    raise MalformedError(f"libhdf5 cannot commit its type: {error}") from None
                self._places[path] = place

    def link(self, path: str, properties: h5p.PropLCID) -> None:
        """Give a type its name."""
        self._root.links.create_hard(stored_name(path), self._root, self._places[path], properties)

    def of(self, path: Any, type_id: h5t.TypeID) -> h5t.TypeID:
        """The committed datatype of a path, if it is this type; else the type itself."""
        if not isinstance(path, str):
            return type_id
        try:
            committed = h5t.open(self._root, self._places.get(path, stored_name(path)))
        except DAMAGE:
            return type_id
        return committed if is_type(committed, type_id) else type_id

    def finish(self) -> None:
        """Leave the types with their names alone."""
        if self._group is not None:
            self._root.unlink(self._group)
        self._places.clear()
