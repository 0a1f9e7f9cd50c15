"""``lindi-bridge check``."""

from __future__ import annotations

import argparse
import posixpath
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lindi_bridge.cli.source import access_options, link_target, open_source
from lindi_bridge.cli.text import clean, count, write
from lindi_bridge.errors import LindiBridgeError, MissingDependencyError

if TYPE_CHECKING:
    from lindi_bridge.client.access import AccessOptions
    from lindi_bridge.model.nodes import Problem

__all__ = ["run"]

_UNREADABLE = (LindiBridgeError, KeyError, OSError, RuntimeError, TypeError, ValueError)
_MOST_EDGE = 1024
"""Elements along one axis that are read of a dataset without chunks."""


def run(options: argparse.Namespace) -> int:
    """Check SRC; one line for every fault (exit status 1) and every note."""
    from lindi_bridge.client.access import AccessOptions
    from lindi_bridge.inspection.check import read_document_at

    access = AccessOptions(**access_options(options))
    text = read_document_at(options.src, access)
    report = _Report()
    if text is None:
        _check_file(options, report)
    else:
        _check_document(options, text, access, report)
    sys.stderr.write(
        f"{count(report.objects, 'object')} checked: {count(report.faults, 'fault')}, {count(report.notes, 'note')}\n"
    )
    return 1 if report.faults else 0


class _Report:
    """Writes lines and counts them."""

    def __init__(self) -> None:
        self.faults = self.notes = self.objects = 0

    def fault(self, path: str, message: str) -> None:
        self.faults += 1
        write(f"fault\t{clean(path)}\t{clean(message)}")

    def note(self, path: str, message: str) -> None:
        self.notes += 1
        write(f"note\t{clean(path)}\t{clean(message)}")

    def walk(self, file: Any, data: bool) -> None:
        """Note what every object below the root says of itself."""
        for path, fault in _walk(file, data):
            if fault is None:
                self.objects += 1
            else:
                self.fault(path, fault)


def _check_file(options: argparse.Namespace, report: _Report) -> None:
    with open_source(options) as file:
        for problem in _index_problems(options):
            report.note(problem.path, f"{problem.kind}: {problem.message}")
        report.walk(file, options.data)


def _check_document(options: argparse.Namespace, text: str, access: AccessOptions, report: _Report) -> None:
    from lindi_bridge.document.document import parse_document
    from lindi_bridge.inspection.check import check_text
    from lindi_bridge.inspection.sources import source_errors

    try:
        problems = check_text(text, options.src)
    except MissingDependencyError as error:
        report.note("/", f"schema: not looked at: {error}")
        problems = check_text(text, options.src, schema=False)
    for problem in problems:
        report.fault(problem.path, f"{problem.kind}: {problem.message}")
    try:
        document = parse_document(text)
    except LindiBridgeError:
        return  # told above
    for listed in document.problems:
        path, kind, message = (str(listed.get(key, "")) for key in ("path", "kind", "message"))
        report.note(path, f"{kind}: {message}")
    if document.edited:
        report.note("/", "edited: refs were changed since the document was made; it opens by its annotations alone")
    try:
        for unavailable in source_errors(document, options.src, access):
            report.fault("/", f"source: {unavailable}")
    except ValueError:
        return  # its refs or an address cannot be understood, which is told above
    if document.snapshot is None and not options.data:
        return  # it was opened above, and opening every object may fetch chunks that HDF5 cannot decode itself
    try:
        with open_source(options) as file:
            report.walk(file, options.data and not report.faults)  # else each read would fail for the same reason
    except LindiBridgeError as error:
        if not report.faults:
            report.fault("/", str(error))


def _index_problems(options: argparse.Namespace) -> Sequence[Problem]:
    """What a document of this HDF5 file would not express."""
    import lindi_bridge

    return lindi_bridge.index(options.src, **access_options(options)).problems


def _walk(file: Any, data: bool) -> Iterator[tuple[str, str | None]]:
    """Every object below the root: (path, None), and (path, message) for each fault."""
    import h5py

    pending: list[tuple[str, Any]] = [("/", file["/"])]
    seen = {_address(file)}
    while pending:
        path, obj = pending.pop()
        yield path, None
        yield from ((path, message) for message in _object_faults(obj, data))
        if not isinstance(obj, h5py.Group):
            continue
        children: list[tuple[str, Any]] = []
        for name in obj:
            below = posixpath.join(path, name)
            try:
                link = obj.get(name, getlink=True)
                if link_target(link) is not None and not isinstance(link, h5py.ExternalLink):
                    continue  # its target is checked where it lies; a soft link may lead nowhere
                child = obj[name]
            except _UNREADABLE as error:
                yield below, _reason(error)
                continue
            if not isinstance(link, h5py.ExternalLink) and _address(child) not in seen:
                seen.add(_address(child))
                children.append((below, child))
        pending += reversed(children)


def _object_faults(obj: Any, data: bool) -> Iterator[str]:
    import h5py

    for name in obj.attrs:
        try:
            obj.attrs[name]
        except _UNREADABLE as error:
            yield f"attribute {name!r}: {_reason(error)}"
    if not isinstance(obj, h5py.Dataset):
        return
    try:
        shape, _ = obj.shape, obj.dtype
        if data and shape is not None and 0 not in shape:
            steps = obj.chunks or tuple(_MOST_EDGE if axis == len(shape) - 1 else 1 for axis in range(len(shape)))
            obj[tuple(slice(0, min(n, step)) for n, step in zip(shape, steps, strict=True))]
            if shape:
                obj[tuple(slice((n - 1) // step * step, n) for n, step in zip(shape, steps, strict=True))]
    except _UNREADABLE as error:
        yield _reason(error)


def _reason(error: Exception) -> str:
    return str(error.args[0] if isinstance(error, KeyError) and error.args else error)


def _address(obj: Any) -> Any:
    import h5py

    info = h5py.h5g.get_objinfo(obj.id)  # h5o.get_info would read the whole index of a dataset
    return info.fileno, info.objno
