"""``scripts/bench decode``: decoding gzip by libhdf5 on one core, beside zlib in several threads.

The stored chunks are in memory. zlib gives up Python's lock while it works, so threads decode at the same time; each
copies what it has into its place in the result.
"""

from __future__ import annotations

import argparse
import os
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import lindi_bridge as lb
from benchmark import report, warm_bench
from benchmark.session import Session, Settings

HEAD = ["decoded by", "threads", "s", "decoded MB/s", "stored MB/s", "x libhdf5"]


def fastest(tasks: Sequence[Callable[[], Any]], seconds: float) -> list[float]:
    """Seconds of the fastest run of each task, of three or more by turns."""
    times: list[list[float]] = [[] for _ in tasks]
    began = time.monotonic()
    while len(times[-1]) < 3 or time.monotonic() - began < seconds * len(tasks):
        for task, mine in zip(tasks, times, strict=True):
            start = time.perf_counter()
            task()
            mine.append(time.perf_counter() - start)
    return [min(mine) for mine in times]


class Threads:
    """A dataset of whole-row gzip chunks, decoded by zlib in threads."""

    def __init__(self, dataset: h5py.Dataset, threads: int) -> None:
        self._rows = dataset.chunks[0]
        self._shape, self._dtype = dataset.shape, dataset.dtype
        starts = range(0, self._shape[0], self._rows)
        self._chunks = [(start, dataset.id.read_direct_chunk((start, 0))[1]) for start in starts]
        self._pool = ThreadPoolExecutor(threads)
        self.nbytes = sum(len(data) for _, data in self._chunks)

    def __call__(self) -> Any:
        out = np.empty(self._shape, self._dtype)

        def decode(chunk: tuple[int, bytes]) -> None:
            start, data = chunk
            values = np.frombuffer(zlib.decompress(data, bufsize=out[: self._rows].nbytes), self._dtype)
            out[start : start + self._rows] = values.reshape(-1, *self._shape[1:])

        for _ in self._pool.map(decode, self._chunks):
            pass
        return out


def main(arguments: argparse.Namespace, settings: Settings) -> int:
    """Measure and report."""
    path = warm_bench.make(settings.folder)
    session = Session(settings, {})
    lines = []
    with h5py.File(path) as plain, lb.open(lb.index(path), cache_dir="") as ours:
        dataset = plain["gzip"]
        lb.prefetch(ours["gzip"])
        counts = [n for n in (1, 2, 4, 8, 16) if n <= (os.cpu_count() or 1)]
        threads = {n: Threads(dataset, n) for n in counts}
        tasks: list[tuple[str, int, Callable[[], Any]]] = [
            ("libhdf5, the local file", 1, lambda: dataset[()]),
            ("libhdf5 under lindi_bridge, in memory", 1, lambda: ours["gzip"][()]),
            *(("zlib, in memory", n, task) for n, task in threads.items()),
        ]
        expected = dataset[()]
        assert all(np.array_equal(task(), expected) for _, _, task in tasks)
        results = fastest([task for _, _, task in tasks], arguments.seconds)
        for (title, count, _), took in zip(tasks, results, strict=True):
            session.note({"what": "decode", "tool": title, "threads": count, "seconds": took})
            rates = [f"{nbytes / took / 1e6:,.0f}" for nbytes in (dataset.nbytes, threads[1].nbytes)]
            lines.append([title, str(count), report.seconds(took), *rates, report.times(results[0] / took)])
    text = f"* **Machine:** {report.machine()}\n* **Versions:** h5py {h5py.__version__}, HDF5 "
    text += f"{h5py.version.hdf5_version}, zlib {zlib.ZLIB_RUNTIME_VERSION}\n\n{report.table(HEAD, lines)}"
    print(text)
    if arguments.write:
        page = Path(arguments.write)
        page.write_text(report.replaced(page.read_text(), "decode", text))
    return 0
