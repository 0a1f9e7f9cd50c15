"""``lindi-bridge ls``."""

from __future__ import annotations

import argparse
import posixpath
from collections.abc import Iterator
from typing import Any, NamedTuple

from lindi_bridge.cli.source import encoding_of, find, link_target, open_source
from lindi_bridge.cli.text import clean, kind_of, write
from lindi_bridge.errors import LindiBridgeError

__all__ = ["run"]


class _Entry(NamedTuple):
    """One name: ``kind`` is group, dataset, datatype, link or unreadable; ``detail`` the target or error."""

    name: str
    kind: str
    detail: str = ""
    shape: str = ""
    dtype: str = ""
    encoding: str = ""
    children: Any = None


def run(options: argparse.Namespace) -> int:
    """List the names below PATH."""
    import h5py

    from lindi_bridge.ranges import strip_secrets

    with open_source(options) as file:
        start = find(file, options)
        if not isinstance(start, h5py.Group):
            entry = _describe(posixpath.basename(options.path), start, options.long)
            write(_columns(start.name, entry) if options.plain else _line(entry, options.long))
            return 0
        if not options.plain:
            write(clean(strip_secrets(options.src)) + ("" if start.name == "/" else f":{clean(start.name)}"))
        for ends, path, entry in _below(start, options.long, options.depth):
            if not options.plain:
                stem = "".join("    " if last else "│   " for last in ends[:-1])
                write(f"{stem}{'└── ' if ends[-1] else '├── '}{_line(entry, options.long)}")
            else:
                write(_columns(path, entry) if options.long else clean(path))
    return 0


def _below(start: Any, long: bool, depth: int | None) -> Iterator[tuple[list[bool], str, _Entry]]:
    """Everything below a group, depth first: for each level whether it is the last there; path; entry."""
    # A stack and not recursion: files may be nested deeper than Python.
    seen = {_address(start): start.name}
    pending = [(start, iter(list(start)))] if depth != 0 else []
    left = [len(start)]
    while pending:
        group, names = pending[-1]
        name = next(names, None)
        if name is None:
            pending.pop()
            left.pop()
            continue
        left[-1] -= 1
        entry = _entry(group, name, long, seen)
        yield [n == 0 for n in left], posixpath.join(group.name, name), entry
        if entry.children is not None and (depth is None or len(pending) < depth):
            pending.append((entry.children, iter(list(entry.children))))
            left.append(len(entry.children))


def _entry(group: Any, name: str, long: bool, seen: dict[Any, str]) -> _Entry:
    try:
        target = link_target(group.get(name, getlink=True))
        if target is not None:
            return _Entry(name, "link", target)
        obj = group[name]
    except (LindiBridgeError, KeyError, OSError, RuntimeError, ValueError) as error:
        return _Entry(name, "unreadable", str(error))
    first = seen.setdefault(_address(obj), posixpath.join(group.name, name))
    if first != posixpath.join(group.name, name):
        return _Entry(name, "link", first)
    return _describe(name, obj, long)


def _describe(name: str, obj: Any, long: bool) -> _Entry:
    import h5py

    if isinstance(obj, h5py.Group):
        return _Entry(name, "group", encoding=encoding_of(obj) if long else "", children=obj)
    if isinstance(obj, h5py.Datatype):
        return _Entry(name, "datatype", dtype=kind_of(obj.dtype) if long else "")
    if not long:
        return _Entry(name, "dataset")
    try:
        shape = "empty" if obj.shape is None else str(obj.shape)
        return _Entry(name, "dataset", "", shape, kind_of(obj.dtype), encoding_of(obj))
    except (LindiBridgeError, TypeError, OSError, RuntimeError, KeyError, ValueError) as error:
        return _Entry(name, "dataset", str(error))


def _address(obj: Any) -> Any:
    import h5py

    info = h5py.h5g.get_objinfo(obj.id)  # h5o.get_info would read the whole index of a dataset
    return info.fileno, info.objno


def _line(entry: _Entry, long: bool) -> str:
    label = clean(entry.name) + ("/" if entry.kind == "group" else "")
    if entry.kind == "link":
        return f"{label} -> {clean(entry.detail)}"
    if entry.detail:
        return f"{label} (cannot be read: {clean(entry.detail)})"
    if not long:
        return label
    kind = "datatype" if entry.kind == "datatype" else ""
    parts = [label, f"<{clean(entry.encoding)}>" if entry.encoding else "", kind, entry.shape, clean(entry.dtype)]
    return " ".join(part for part in parts if part)


def _columns(path: str, entry: _Entry) -> str:
    return "\t".join(clean(c) for c in (path, entry.kind, entry.shape, entry.dtype, entry.encoding, entry.detail))
