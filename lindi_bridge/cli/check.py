"""``lindi-bridge check``."""

from __future__ import annotations

import argparse
import posixpath
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lindi_bridge.cli.source import access_options, link_target, open_source
from lindi_bridge.cli.text import clean, count, write
from lindi_bridge.errors import LindiBridgeError

if TYPE_CHECKING:
    from lindi_bridge.document.document import Document
    from lindi_bridge.model.snapshot import Fingerprint

__all__ = ["run"]

_UNREADABLE = (LindiBridgeError, KeyError, OSError, RuntimeError, TypeError, ValueError)
_MOST_EDGE = 1024
"""Elements along one axis that are read of a dataset without chunks."""


def run(options: argparse.Namespace) -> int:
    """Check SRC; one line for every fault (exit status 1) and every note."""
    faults = notes = objects = 0
    with open_source(options) as file:
        document = _read_document(options)
        problems = _index_problems(options) if document is None else document.problems
        if document is not None and document.snapshot is not None:
            for message in _source_faults(file, document.snapshot.fingerprint):
                faults += 1
                write(f"fault\t/\t{clean(message)}")
        for problem in problems:
            notes += 1
            path, kind, message = (str(problem.get(key, "")) for key in ("path", "kind", "message"))
            write(f"note\t{clean(path)}\t{clean(kind)}: {clean(message)}")
        for path, fault in _walk(file, options.data and not faults):  # else each read would fail for the same reason
            if fault is None:
                objects += 1
            else:
                faults += 1
                write(f"fault\t{clean(path)}\t{clean(fault)}")
    sys.stderr.write(f"{count(objects, 'object')} checked: {count(faults, 'fault')}, {count(notes, 'note')}\n")
    return 1 if faults else 0


def _read_document(options: argparse.Namespace) -> Document | None:
    """The document, where SRC is one that could be opened; None for an HDF5 file."""
    from lindi_bridge.client.mount import AccessOptions
    from lindi_bridge.document.document import parse_document
    from lindi_bridge.ranges import ByteRange, open_reader

    access = AccessOptions(**access_options(options))
    reader = open_reader(options.src, access.reader_options(options.src, None))
    try:
        head = reader.read_head(4096)
        compressed = head.startswith(b"\x28\xb5\x2f\xfd")
        if not compressed and not head.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{"):
            return None
        data = reader.read_ranges([ByteRange(0, reader.identity().size)])[0]
    finally:
        reader.close()
    if compressed:
        from numcodecs import Zstd

        data = bytes(Zstd().decode(data))
    return parse_document(data.decode("utf-8-sig"))


def _index_problems(options: argparse.Namespace) -> Sequence[dict[str, str]]:
    """What a document of this HDF5 file would not express."""
    import lindi_bridge

    made = lindi_bridge.index(options.src, **access_options(options))
    return [{"path": p.path, "kind": p.kind, "message": p.message} for p in made.problems]


def _source_faults(file: Any, expected: Fingerprint) -> Iterator[str]:
    """Whether the source is there and is the file that was indexed.

    Asked of the source itself, since all that is read of a small file may come from the document.
    """
    from lindi_bridge.client.verify import fingerprint

    reader = file._file_object.reader
    try:
        if fingerprint(reader.read_ranges, expected.starts, expected.length) != expected:
            yield f"{reader.url}: not the file that was indexed: its bytes are others; index it again"
    except LindiBridgeError as error:
        yield str(error)


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
