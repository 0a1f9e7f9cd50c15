"""The lenient comparator: are the *values* that an h5py-like file hands out those of the original?

It forgives what readers of other formats cannot know: bytes for strings, the width of numbers, h5py's dtype metadata,
the kind of link. What it forgives is reported as ``metadata``, apart from differences of values.

Needs numpy and h5py only, so that it runs in the peers' own environments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import h5py
import numpy as np


class Finding(NamedTuple):
    """One difference; `kind` is value, missing, read (reading raised) or metadata."""

    kind: str
    path: str
    message: str


def compare_values(expected: h5py.File, actual: Any) -> list[Finding]:
    """All findings about an h5py-like file, in the order of a walk over the original."""
    walk = _Walk(expected, actual)
    walk.visit("", expected, actual)
    return walk.findings


def canonical(value: Any, root: Any) -> Any:
    """A value as plain Python and numpy, the same for all that count as equal."""
    kind = type(value).__name__
    if isinstance(value, h5py.Empty):
        return ("empty",)
    if kind.endswith("RegionReference"):
        return ("region", str(root[value].name) if value else None)
    if kind.endswith("Reference"):
        is_null = type(value) is h5py.Reference and not value
        return ("object", None if is_null else getattr(root[value], "name", None))
    if isinstance(value, np.void) and value.dtype.names:
        return tuple(canonical(value[name], root) for name in value.dtype.names)
    if isinstance(value, np.void) or (isinstance(value, np.generic) and value.dtype.kind in "mM"):
        return ("bytes", value.tobytes())
    if isinstance(value, np.ndarray):
        return _canonical_array(value, root)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return bytes(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.generic) and value.dtype.kind != "g":
        return value.item()
    if isinstance(value, (list, tuple)):
        return [canonical(item, root) for item in value]
    return value


def _canonical_array(array: np.ndarray, root: Any) -> Any:
    if array.dtype.names or array.dtype.kind in "OSUTVmM":
        return canonical(array[()], root) if array.ndim == 0 else [canonical(item, root) for item in array]
    return array


def equal(one: Any, other: Any) -> bool:
    """Equality of canonical values; NaN equals NaN, numbers compare by value."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        try:
            arrays = np.asarray(one), np.asarray(other)
            numeric = all(array.dtype.kind in "fciub" for array in arrays)
            return arrays[0].shape == arrays[1].shape and bool(np.array_equal(*arrays, equal_nan=numeric))
        except (TypeError, ValueError):
            return False
    if isinstance(one, (list, tuple)):
        return (
            isinstance(other, (list, tuple))
            and len(one) == len(other)
            and all(equal(*pair) for pair in zip(one, other, strict=True))
        )
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    try:
        return bool(one == other)
    except (TypeError, ValueError):
        return False


def _short(value: Any) -> str:
    return " ".join(repr(value).split())[:90]


def _try(question: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return question(), None
    except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
        return None, error


def _describe_dtype(dtype: Any) -> str:
    try:
        dtype = np.dtype(dtype)
    except TypeError:
        return str(dtype)
    if dtype.names:
        return str([(name, _describe_dtype(dtype[name])) for name in dtype.names])
    return f"{dtype} {dict(dtype.metadata or {})}"


def _kind(thing: Any) -> str:
    if isinstance(thing, h5py.Datatype):
        return "datatype"
    if hasattr(thing, "keys") and not hasattr(thing, "dtype"):
        return "group"
    return "dataset" if hasattr(thing, "shape") else type(thing).__name__


class _Walk:
    """The state of one comparison."""

    def __init__(self, expected: h5py.File, actual: Any) -> None:
        self.roots = (expected, actual)
        self.findings: list[Finding] = []
        self._met: set[int] = set()

    def report(self, kind: str, path: str, message: Any) -> None:
        """Note a finding."""
        self.findings.append(Finding(kind, path or "/", str(message)[:200]))

    def visit(self, path: str, expected: Any, actual: Any) -> None:
        """Compare two objects and what lies below them."""
        self._attributes(path, expected, actual)
        if isinstance(expected, h5py.Dataset):
            self._dataset(path, expected, actual)
            return
        address = h5py.h5o.get_info(expected.id).addr
        if address in self._met:
            return
        self._met.add(address)
        names, error = _try(lambda: list(actual.keys()))
        if error:
            self.report("read", path, f"keys() raised {error!r}")
            return
        for name in expected:
            self._member(f"{path}/{name}", name, expected, actual, name in names)

    def _member(self, path: str, name: str, expected: Any, actual: Any, listed: bool) -> None:
        wanted, error = _try(lambda: expected[name])
        if error:
            return  # h5py cannot open it either
        if not listed:
            self.report("missing", path, f"{_kind(wanted)} missing")
            return
        found, error = _try(lambda: actual[name])
        if error:
            self.report("read", path, f"opening raised {type(error).__name__}: {error}")
        elif found is None:
            self.report("missing", path, "opened as None")
        elif _kind(wanted) != _kind(found):
            self.report("value", path, f"{_kind(wanted)} became {_kind(found)}")
        elif not isinstance(wanted, h5py.Datatype):
            links = [type(group.get(name, getlink=True)).__name__ for group in (expected, actual)]
            if links[1] != "NoneType" and links[0] not in links[1]:
                self.report("metadata", path, f"{links[0]} became {links[1]}")
            self.visit(path, wanted, found)

    def _attributes(self, path: str, expected: Any, actual: Any) -> None:
        names, error = _try(lambda: list(actual.attrs.keys()))
        if error:
            self.report("read", f"{path}@", f"attributes raised {error!r}")
            return
        if names != list(expected.attrs):
            self.report("metadata", f"{path}@", "attributes added, missing or in another order")
        for name in expected.attrs:
            where = f"{path}@{name}"
            if name not in names:
                self.report("missing", where, "attribute missing")
                continue
            wanted = expected.attrs[name]
            self._judge(where, wanted, lambda name=name: actual.attrs[name])

    def _judge(self, path: str, wanted: Any, read: Callable[[], Any]) -> None:
        found, error = _try(read)
        if error:
            self.report("read", path, f"reading raised {type(error).__name__}: {error}")
            return
        pair, error = _try(
            lambda: [canonical(value, root) for value, root in zip((wanted, found), self.roots, strict=True)]
        )
        if error:
            self.report("read", path, f"references cannot be followed: {error!r}")
        elif not equal(*pair):
            self.report("value", path, f"{_short(wanted)} became {_short(found)}")
        elif type(wanted) is not type(found) or getattr(wanted, "dtype", None) != getattr(found, "dtype", None):
            self.report("metadata", path, f"{type(wanted).__name__} became {type(found).__name__}, or another dtype")

    def _dataset(self, path: str, expected: h5py.Dataset, actual: Any) -> None:
        for name in ("shape", "dtype", "maxshape", "chunks", "compression", "fillvalue"):
            wanted, error = _try(lambda name=name: getattr(expected, name))
            if error:
                continue
            found, error = _try(lambda name=name: getattr(actual, name))
            if error:
                self.report("read" if name == "shape" else "metadata", path, f".{name} raised {error!r}")
            elif name == "dtype":
                if _describe_dtype(wanted) != _describe_dtype(found):
                    self.report("metadata", path, f"dtype {wanted} became {found}")
            elif not equal(canonical(wanted, self.roots[0]), canonical(found, self.roots[1])):
                self.report("value" if name == "shape" else "metadata", path, f"{name} {wanted} became {found}")
        for selection in [(), Ellipsis, slice(0, 2)] if expected.shape else [()]:
            wanted, error = _try(lambda selection=selection: expected[selection])
            if error is None:
                self._judge(path, wanted, lambda selection=selection: actual[selection])
