"""Types and values as two files have them: whether they are the same, and in words."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import h5py
import numpy as np
from h5py import h5g, h5l, h5o, h5r, h5s, h5t

from lindi_bridge.hdf5.walk import header_address
from lindi_bridge.model.floats import number_bytes

__all__ = ["ObjectNames", "described_space", "reason", "shown", "type_words", "value_difference"]

_MOST_SHOWN = 80


def type_words(type_id: h5t.TypeID) -> str:
    """A stored type for people."""
    try:
        dtype = type_id.dtype
    except TypeError:
        return f"a type of {type_id.get_size()} bytes that numpy does not have"
    string = h5py.check_string_dtype(dtype)
    if string is not None:
        return f"{string.encoding} string" + ("" if string.length is None else f" of {string.length} bytes")
    reference = h5py.check_ref_dtype(dtype)
    if reference is not None:
        return "region reference" if reference is h5py.RegionReference else "object reference"
    vlen = h5py.check_vlen_dtype(dtype)
    if vlen is not None:
        return f"lists of {vlen}"
    return shown(dtype.descr if dtype.names else dtype.str)


def described_space(space: h5s.SpaceID) -> Any:
    """Class, shape and maximal shape of a dataspace."""
    kind = space.get_simple_extent_type()
    if kind != h5s.SIMPLE:
        return "empty" if kind == h5s.NULL else "scalar"
    return space.get_simple_extent_dims(), space.get_simple_extent_dims(True)


class ObjectNames:
    """The names of each object of a file.

    libhdf5 tells any one of them (``H5Rget_name``), and not the same one for each file.

    Parameters
    ----------
    root : h5py.Group
        The root group of the file.
    """

    def __init__(self, root: h5py.Group) -> None:
        self.root = root

    @cached_property
    def _paths(self) -> dict[int, set[str]]:
        paths = {header_address(self.root.id): {"/"}}
        pending = [("", self.root.id)]
        while pending:
            path, group = pending.pop()
            for name in sorted(group):
                try:
                    if group.links.get_info(name).type != h5l.TYPE_HARD:
                        continue
                    child = h5o.open(group, name)
                except (KeyError, OSError, ValueError, RuntimeError):
                    continue  # it is told where it stands
                address, below = header_address(child), f"{path}/{name.decode('utf-8', 'surrogateescape')}"
                if address not in paths and isinstance(child, h5g.GroupID):
                    pending.append((below, child))
                paths.setdefault(address, set()).add(below)
        return paths

    def of_type(self, type_id: h5t.TypeID) -> set[str]:
        """The names of a committed datatype; none of another, and of one that has lost its name."""
        return self._paths.get(header_address(type_id), set()) if type_id.committed() else set()

    def target(self, reference: Any) -> tuple[set[str], Any]:
        """What a reference leads to: the names of the object, and the points selected there."""
        if not reference:
            return {"null"}, None
        target = h5r.dereference(reference, self.root.id)
        names = self._paths.get(header_address(target), {"an object without a name"})
        if not isinstance(reference, h5py.RegionReference):
            return names, None
        space = h5r.get_region(reference, self.root.id)
        kind = space.get_select_type()
        if kind == h5s.SEL_HYPERSLABS:
            return names, space.get_select_hyper_blocklist().tolist()
        if kind == h5s.SEL_POINTS:
            return names, space.get_select_elem_pointlist().tolist()
        return names, kind


def value_difference(left: Any, right: Any, names: tuple[ObjectNames, ObjectNames]) -> tuple[Any, Any] | None:
    """The first two elements that are not the same; None where all are.

    Parameters
    ----------
    left, right
        As h5py reads them.
    names : tuple of ObjectNames
        Of each file: references are the same where they lead to objects of one name.
    """
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        if left.shape != right.shape or left.dtype != right.dtype:
            return left, right
        if left.dtype.names is not None:
            for name in left.dtype.names:
                found = value_difference(left[name], right[name], names)
                if found is not None:
                    return found
            return None
        if left.dtype.hasobject:
            pairs = zip(left.ravel().tolist(), right.ravel().tolist(), strict=True)
            return next((d for a, b in pairs if (d := value_difference(a, b, names)) is not None), None)
        raw = [number_bytes(v) if v.dtype.kind in "fc" else v.tobytes() for v in (left, right)]
        if raw[0] == raw[1]:
            return None
        rows = [np.frombuffer(v, np.uint8).reshape(left.size, -1) for v in raw]
        first = int(np.flatnonzero((rows[0] != rows[1]).any(axis=1))[0])
        return left.reshape(-1)[first], right.reshape(-1)[first]
    if isinstance(left, (np.void, np.generic)) and isinstance(right, (np.void, np.generic)):
        return value_difference(np.asarray(left), np.asarray(right), names)
    if isinstance(left, (h5py.Reference, h5py.RegionReference)) and type(left) is type(right):
        (here, points), (there, other_points) = names[0].target(left), names[1].target(right)
        if not here & there:
            return min(here), min(there)
        return None if points == other_points else (points, other_points)
    if isinstance(left, h5py.Empty) and isinstance(right, h5py.Empty):
        return None  # their types are compared as types
    return None if type(left) is type(right) and left == right else (left, right)


def shown(value: Any) -> str:
    """Anything on one line of bounded length."""
    if isinstance(value, np.ndarray):
        value = value.ravel()[:10].tolist() if value.ndim else value[()]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (str, bytes)):
        value = value[: 2 * _MOST_SHOWN]
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


def reason(error: Exception) -> str:
    """What an error says, on one line of bounded length."""
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    text = " ".join(text.split())
    return text if len(text) <= 3 * _MOST_SHOWN else text[: 3 * _MOST_SHOWN - 3] + "..."
