"""Describe damaged HDF5 files, each by each route in a process of its own; one JSON line a file on stdout.

``python corrupt_child.py SECONDS FOLDER ROUTE...``: for each .h5 file in the folder, in order of their names, the
outcome of each route: of plain h5py, of ``lindi_bridge.open``, and of an indexed document a list of [question, answer]
(the answer null where an error was raised), or the error that ended it; of the walk alone, the bytes that it read; or
how the process died.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import lindi_bridge as lb
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.walk import structure_table, walk_structures
from lindi_bridge.ranges import BytesReader

MOST_OBJECTS = 60
MOST_BYTES = 1 << 20
MOST_MEMORY = 6 << 30
UNSAFE = "unsafe"


def answer(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except Exception:  # noqa: BLE001 (libhdf5's errors are of many kinds)
        return None


def value(thing: Any) -> str | None:
    """Digest of the values of a dataset or attribute, unless there are too many of them."""
    array = np.asarray(thing)
    data = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
    return hashlib.sha256(data).hexdigest()


def listing(dataset: h5py.Dataset) -> Any:
    """Number and bytes of the chunks; UNSAFE where libhdf5 would write past the end of its memory."""
    if dataset.chunks is None:
        return None
    found: list[Any] = []
    dataset.id.chunk_iter(found.append)
    whole = int(np.prod(dataset.chunks)) * dataset.id.get_type().get_size()
    if dataset.id.get_create_plist().get_nfilters() == 0 and any(chunk.size != whole for chunk in found):
        return UNSAFE
    return [dataset.id.get_num_chunks(), dataset.id.get_storage_size()]


def describe(file: h5py.File) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    pending, seen = ["/"], 0
    while pending and seen < MOST_OBJECTS:
        path = pending.pop()
        seen += 1
        thing = answer(lambda path=path: file[path])
        kind = "group" if isinstance(thing, h5py.Group) else "dataset" if isinstance(thing, h5py.Dataset) else None
        found.append((f"{path} kind", kind))
        if thing is None:
            continue
        names = answer(lambda thing=thing: list(thing.attrs))
        found.append((f"{path} attributes", names))
        for name in (names or [])[:40]:
            found.append((f"{path} @{name}", answer(lambda thing=thing, name=name: value(thing.attrs[name]))))
        if kind == "group":
            names = answer(lambda thing=thing: list(thing))
            found.append((f"{path} names", names))
            pending += [f"{path.rstrip('/')}/{name}" for name in names or []]
        elif kind == "dataset":
            found.append(
                (f"{path} shape", answer(lambda thing=thing: repr((thing.shape, thing.maxshape, thing.chunks))))
            )
            found.append((f"{path} dtype", answer(lambda thing=thing: repr(thing.dtype))))
            chunks = answer(lambda thing=thing: listing(thing))
            found.append((f"{path} chunks", chunks))
            if chunks != UNSAFE and answer(lambda thing=thing: thing.nbytes <= MOST_BYTES):
                found.append((f"{path} values", answer(lambda thing=thing: value(thing[()]))))
    found.append(("visit", answer(lambda: file.visititems(lambda name, thing: None) or "done")))
    return found


def walked(data: bytes) -> int:
    """Bytes read by the walk of a file; it raises nothing, whatever is in it."""
    reader = BytesReader(data)
    file = HDF5File(reader, address="memory")
    structures = walk_structures(file)
    for address in list(structures.tables)[:3]:
        structure_table(file, address)
    return reader.statistics.nbytes


def outcome(route: str, path: str) -> dict[str, Any]:
    if route == "walk":
        return {"nbytes": walked(Path(path).read_bytes())}
    try:
        if route == "index":
            document = f"{path}.lindi.json"
            lb.index(path).save(document)
            path, route = document, "open"
        if route == "stream":
            with open(path, "rb") as stream, h5py.File(stream) as file:
                return {"answers": describe(file)}
        with (h5py.File if route == "plain" else lb.open)(path) as file:
            return {"answers": describe(file)}
    except Exception as error:  # noqa: BLE001
        names = [kind.__name__ for kind in type(error).__mro__]
        return {"error": names, "message": str(error)[:300]}


def in_a_process(seconds: int, route: str, path: str) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(seconds)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        with os.fdopen(writer, "w") as stream:
            stream.write(json.dumps(outcome(route, path)))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if status == 0 else {"died": os.waitstatus_to_exitcode(status)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    seconds = int(sys.argv[1])
    # A busy machine is no fault.
    limits = {"plain": seconds, "stream": seconds, "open": 3 * seconds, "index": 3 * seconds, "walk": 3 * seconds}
    for file_path in sorted(map(str, Path(sys.argv[2]).glob("*.h5"))):
        print(json.dumps({route: in_a_process(limits[route], route, file_path) for route in sys.argv[3:]}), flush=True)
