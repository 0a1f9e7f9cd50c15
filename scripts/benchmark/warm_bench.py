"""``scripts/bench warm``: reads of what is on the disk or in memory already, beside plain h5py on the local file.

Everything happens in this process, a read of ours and one of h5py's, each first every other time: whoever is second
finds the bytes in the processor's caches. What is measured is CPU time, of all threads and of the system on their
behalf: nothing is waited for, and other programs disturb little.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import h5py
import numpy as np

import lindi_bridge as lb
from benchmark import report
from benchmark.server import Server
from benchmark.session import Session, Settings

ROWS, COLUMNS, CHUNK = 4096, 1024, 128
"""Of each dataset, and rows of a chunk."""
LAYOUTS = {
    "gzip": "gzip, chunks of 1 MiB",
    "chunks": "uncompressed, chunks of 1 MiB",
    "contiguous": "contiguous",
}
RATIO, MICROSECONDS = 1.3, 20
"""What a slice of a chunk or more may take in terms of h5py's time, and what a single element may take longer."""
HEAD = ["stored", "read", "h5py us", "lindi_bridge us", "ratio", "ratio of medians", "target", ""]


@dataclass(frozen=True)
class Slice:
    """What is read; ``at`` gives the selection for each repetition, so that libhdf5's cache does not hold it."""

    title: str
    at: Callable[[int], Any]
    target: str = ""


def _row(number: int) -> int:
    """First row of one of fifteen chunks, more than libhdf5's cache has room for; none is that of row 2000."""
    return number % 15 * CHUNK


SLICES = (
    Slice("one element", lambda k: (700, 7), f"+ {MICROSECONDS} us"),
    Slice("a row", lambda k: _row(k)),
    Slice("100 x 100", lambda k: np.s_[_row(k) : _row(k) + 100, 300:400]),
    Slice("a chunk", lambda k: np.s_[_row(k) : _row(k) + CHUNK], f"{RATIO} x"),
    Slice("everything", lambda k: (), f"{RATIO} x"),
)


@dataclass
class Timing:
    """Seconds (CPU) of repeated reads, ours and h5py's."""

    ours: list[float]
    theirs: list[float]

    @property
    def quick(self) -> tuple[float, float]:
        """Of each the first quartile: the clock of a virtual machine now and then misses a read altogether."""
        ours, theirs = (sorted(times)[len(times) // 4] for times in (self.ours, self.theirs))
        return ours, theirs

    def meets(self, target: str) -> bool:
        """Whether the quick ones meet a target."""
        ours, theirs = self.quick
        if target.startswith("+"):
            return ours - theirs <= MICROSECONDS / 1e6
        return ours <= RATIO * theirs


@dataclass(frozen=True)
class Way:
    """A way to have the bytes near; with ``fresh``, files are opened anew before every read, which is the first."""

    title: str
    document: Path
    options: dict[str, Any]
    fresh: bool


def make(folder: Path, columns: int = COLUMNS) -> Path:
    """The file: the same counts in each layout, 70 MB in all."""
    path = folder / "W.h5"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        values = np.random.default_rng(0).poisson(3.0, (ROWS, columns)).astype("f8")
        chunks = (CHUNK, columns)
        unfinished = path.with_suffix(".part")
        with h5py.File(unfinished, "w") as file:
            file.create_dataset("gzip", data=values, chunks=chunks, compression="gzip")
            file.create_dataset("chunks", data=values, chunks=chunks)
            file.create_dataset("contiguous", data=values)
        unfinished.rename(path)
    return path


@contextmanager
def ways(path: Path) -> Iterator[list[Way]]:
    """All ways; the bytes are where they belong."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="lindi-bridge-warm-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        server = stack.enter_context(Server(path.parent, 0.0, 0.0))
        local, remote = folder / "local.lindi.json", folder / "remote.lindi.json"
        lb.index(path).save(local)
        lb.index(server.url(path.name)).save(remote)
        cached = {"cache_dir": str(folder / "cache")}
        with lb.open(remote, **cached) as file:
            lb.prefetch(file)
        yield [
            Way("A local file, opened anew for every read", local, {"cache_dir": ""}, fresh=True),
            Way("A local file, read on", local, {"cache_dir": ""}, fresh=False),
            Way("In memory, fetched from a server before", remote, {"cache_dir": ""}, fresh=False),
            Way("In the disk cache, read for the first time", remote, cached, fresh=True),
            Way("In the disk cache, read again", remote, cached, fresh=False),
        ]


def measure(path: Path, way: Way, name: str, what: Slice, seconds: float) -> Timing:
    """Read until the time is over, six times at least."""
    timing = Timing([], [])
    with ExitStack() as stack:
        datasets = _open(stack, path, way, name)
        if not way.fresh:
            datasets[0][()]
        began, number = time.monotonic(), 0
        while number < 6 or time.monotonic() - began < seconds:
            number += 1
            if way.fresh:
                stack.close()
                datasets = _open(stack, path, way, name)
            selection = what.at(number)
            values = []
            both = list(zip(datasets, (timing.ours, timing.theirs), strict=True))
            for dataset, times in both if number % 2 else reversed(both):
                start = time.process_time()
                found = dataset[selection]
                times.append(time.process_time() - start)
                values.append(found)
            assert np.array_equal(*values), f"{name}, {what.title}: other values than h5py's"
    return timing


def _open(stack: ExitStack, path: Path, way: Way, name: str) -> list[h5py.Dataset]:
    """The dataset by us and by h5py; both have found out how it is stored."""
    files = [stack.enter_context(lb.open(way.document, **way.options)), stack.enter_context(h5py.File(path))]
    datasets = [file[name] for file in files]
    for dataset in datasets:
        dataset[2000, 5]
    return datasets


def line(name: str, what: Slice, timing: Timing) -> list[str]:
    """One line of a table."""
    ours, theirs = timing.quick
    quick = [f"{seconds * 1e6:,.0f}" for seconds in (theirs, ours)]
    middle = median(timing.ours) / median(timing.theirs)
    verdict = ("met" if timing.meets(what.target) else "**not met**") if what.target else ""
    return [
        LAYOUTS[name],
        what.title,
        *quick,
        report.times(ours / theirs),
        report.times(middle),
        what.target,
        verdict,
    ]


def main(arguments: argparse.Namespace, settings: Settings) -> int:
    """Measure and report."""
    path = make(settings.folder)
    session = Session(settings, {})
    parts = [
        f"* **Machine:** {report.machine()}\n"
        f"* **Versions:** lindi_bridge {lb.__version__}, h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}\n"
        f"* **Repetitions:** as many as fit into {arguments.seconds:g} s for each line, six at least; first quartile"
    ]
    with ways(path) as all_ways:
        for way in all_ways:
            lines = []
            for name in LAYOUTS:
                for what in SLICES:
                    timing = measure(path, way, name, what, arguments.seconds)
                    session.note({"what": "warm", "way": way.title, "file": name, "read": what.title, **vars(timing)})
                    lines.append(line(name, what, timing))
            parts += [f"### {way.title}", report.table(HEAD, lines)]
    text = "\n\n".join(parts)
    print(text)
    if arguments.write:
        page = Path(arguments.write)
        page.write_text(report.replaced(page.read_text(), "warm", text))
    return 0
