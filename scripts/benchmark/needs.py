"""Which bytes of a file a task needs, as libhdf5 reads them from a local copy; run in a process of its own.

``python -m benchmark.needs index PATH`` and ``python -m benchmark.needs read PATH DOCUMENT TASK`` print the spans.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmark.floor import Span, merge, subtract
from benchmark.runner import ROOT


def spans(*arguments: str) -> list[Span]:
    """Run this module, and return what it prints."""
    path = f"{ROOT / 'scripts'}:{ROOT}"
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmark.needs", *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
    )
    return [(start, stop) for start, stop in json.loads(process.stdout)]


def needed_to_index(path: str) -> list[Span]:
    """What libhdf5 and the indexer read, and the metadata that the document carries; nothing that was only guessed."""
    import lindi_bridge
    from lindi_bridge.hdf5.file import HDF5File

    read: list[Span] = []
    original = HDF5File.readinto

    def readinto(self: HDF5File, buffer: Any, /) -> int | None:
        start = self.tell()
        count = original(self, buffer)
        if start not in self._probed:  # answered with zeros, never fetched
            read.append((start, self.tell()))
        return count

    HDF5File.readinto = readinto
    try:
        text = lindi_bridge.index(path).to_json()
    finally:
        HDF5File.readinto = original
    return merge([*read, *embedded(json.loads(text))])


def embedded(document: dict[str, Any]) -> list[Span]:
    """The spans of the source that a document carries."""
    return [(start, start + length) for start, length in document["hdf5"]["metadata"]["ranges"]]


class Logged(io.FileIO):
    """A file that notes what is read."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "r")
        self.read_spans: list[Span] = []

    def readinto(self, buffer: Any, /) -> int | None:
        """Read, and note it."""
        start = self.tell()
        count = super().readinto(buffer)
        self.read_spans.append((start, start + (count or 0)))
        return count


def needed_to_read(path: str, document: str, task: str) -> list[Span]:
    """What h5py reads for a task, without what the document carries already."""
    import h5py

    from benchmark.tasks import TASKS, Access

    file = Logged(path)
    with h5py.File(file, "r") as opened:
        TASKS[task].work(Access(), opened)
    return subtract(file.read_spans, embedded(json.loads(Path(document).read_text())))


def main() -> None:
    """Command line; see the module's docstring."""
    kind, *arguments = sys.argv[1:]
    print(json.dumps({"index": needed_to_index, "read": needed_to_read}[kind](*arguments)))


if __name__ == "__main__":
    main()
