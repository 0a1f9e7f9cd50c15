"""Selections much larger than the cache: read in slabs, in bounded memory, and as few times as chunks allow.

Each case runs in a process of its own, which measures itself: what Python allocated beyond the result (tracemalloc sees
numpy as well), and coarsely the whole process, since libhdf5's own memory is not traced.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb

MIB = 1024 * 1024
CACHE = 8 * MIB
MARGIN = 12 * MIB
"""What may be held beyond result and cache: the slab that is decoded while the next one is on its way (a quarter of the
cache each, in twice: pieces from the socket are joined), one request of at most 8 MiB, and the tables of chunks."""
ROUGH = 64 * MIB
"""The same for the whole process: libhdf5's chunk cache and buffers, fragments of the heap, thread stacks."""
IN_FLIGHT = 64
ROWS, COLUMNS = 26_000, 500
WIDE = 6_500_000

PROGRAM = """
import json, sys, threading, tracemalloc
import h5py, numpy as np, psutil
import lindi_bridge as lb

document, local, cache, expression, warm_up = sys.argv[1:]
process = psutil.Process()
done = threading.Event()
resident = [0]

def watch():
    while not done.wait(0.01):
        resident.append(process.memory_info().rss)

def read(f, expression):
    if not expression.startswith("into "):
        return eval(expression, {"f": f, "np": np})
    d = eval(expression[5:], {"f": f})
    out = np.empty(d.shape, d.dtype)
    d.read_direct(out)
    return out

with lb.open(document, cache_bytes=int(cache)) as f, h5py.File(local) as other:
    read(f, warm_up)                              # imports, connections, threads
    before = process.memory_info().rss
    watcher = threading.Thread(target=watch)
    watcher.start()
    counted = f._file_object.reader.statistics
    misses = f._file_object.misses
    tracemalloc.start()
    values = read(f, expression)
    _, peak = tracemalloc.get_traced_memory()
    watching = tracemalloc.get_tracemalloc_memory()
    tracemalloc.stop()
    done.set()
    watcher.join()
    size = values.nbytes
    if values.dtype.kind == "O":
        size += sum(map(sys.getsizeof, values.ravel().tolist()))
    expected = read(other, expression)
    after = f._file_object.reader.statistics
    print(json.dumps({
        "result": size, "peak": peak, "resident": max(resident) - before - watching,
        "equal": bool(values.shape == expected.shape and values.dtype == expected.dtype and (values == expected).all()),
        "nbytes": after.nbytes - counted.nbytes, "waves": after.waves - counted.waves,
        "requests": after.requests - counted.requests,
        "misses": f._file_object.misses - misses,
    }))
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("memory")
    path = folder / "a.h5"
    random = np.random.default_rng(4)
    with h5py.File(path, "w") as file:
        numbers = random.integers(0, 3000, (ROWS, COLUMNS))
        file.create_dataset("gzip", data=numbers, chunks=(500, COLUMNS), compression="gzip", compression_opts=1)
        file.create_dataset("plain", data=random.random((ROWS, COLUMNS)), chunks=(500, COLUMNS))
        file.create_dataset("rows", data=random.random((ROWS, COLUMNS)))
        file.create_dataset("wide", data=random.random((2, WIDE)), chunks=(1, 125_000))
        file.create_dataset("long rows", data=random.random((2, WIDE)))
        text = h5py.string_dtype()
        names = [f"name {i:06d} {'x' * (i % 230)}" for i in range(300_000)]
        file.create_dataset("strings", data=names, dtype=text, chunks=(5000,))
        file.create_dataset("strings contiguous", data=names, dtype=text)
        file["small"] = random.random((300, 100))
    document = folder / "a.lindi.json"
    with RangeServer() as server:
        url = server.add("a.h5", path)
        lb.index(url).save(document)
        yield {"path": path, "document": str(document), "size": path.stat().st_size}


def _measure(served: dict[str, Any], expression: str) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    arguments = [served["document"], str(served["path"]), str(CACHE), expression, "f['small'][()]"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


CASES = {
    "gzip, everything": "f['gzip'][()]",
    "gzip, a list of rows": "f['gzip'][np.arange(1, 26_000, 2)]",
    "gzip, a mask": "f['gzip'][np.arange(26_000) % 3 == 1]",
    "gzip, a step": "f['gzip'][::2]",
    "gzip, as another type": "f['gzip'].astype('f4')[()]",
    "gzip, np.asarray": "np.asarray(f['gzip'])",
    "gzip, read_direct": "into f['gzip']",
    "plain, everything": "f['plain'][()]",
    "plain, a list of rows": "f['plain'][np.arange(1, 26_000, 2)]",
    "plain, some columns": "f['plain'][:, 3:400]",
    "plain, a list of columns": "f['plain'][:, [3, 7, 400]]",
    "plain, a column": "f['plain'][:, 3]",
    "plain, read_direct": "into f['plain']",
    "contiguous, everything": "f['rows'][()]",
    "contiguous, a step": "f['rows'][::2]",
    "contiguous, a list of rows": "f['rows'][np.arange(1, 26_000, 2)]",
    "contiguous, read_direct": "into f['rows']",
    "few rows of many chunks": "f['wide'][()]",
    "one row of many chunks": "f['wide'][1]",
    "few long rows": "f['long rows'][()]",
    "one long row": "f['long rows'][1]",
    "strings": "f['strings'][()]",
    "strings, a step": "f['strings'][::3]",
    "strings, a list": "f['strings'][np.arange(0, 300_000, 3)]",
    "strings, contiguous": "f['strings contiguous'][()]",
}


FAR_APART = ("contiguous, a step", "contiguous, a list of rows")


@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.full) if c in FAR_APART else c for c in CASES])
def test_memory_is_bounded_and_values_equal(case: str, served: dict[str, Any]) -> None:
    measured = _measure(served, CASES[case])
    assert measured["equal"]
    assert measured["peak"] <= measured["result"] + CACHE + MARGIN, {k: v // MIB for k, v in measured.items()}
    assert measured["resident"] <= measured["result"] + CACHE + ROUGH, {k: v // MIB for k, v in measured.items()}
    with h5py.File(served["path"]) as local:
        stored = local[CASES[case].split("'")[1]].id.get_storage_size()
    if "strings" in case:
        stored = served["size"]  # their heaps are elsewhere
    assert measured["nbytes"] <= 1.15 * stored + MIB, (
        "nothing is fetched twice, but for what lies at the border of slabs"
    )
    assert measured["misses"] <= 4, "slabs are fetched ahead"
    slabs = 4 * max(stored, measured["result"]) // CACHE + 2
    assert measured["waves"] <= 2 * slabs, "about one wave for each slab of a quarter of the cache"
    if case not in FAR_APART:  # each row is a request, or what lies between would be read for nothing
        assert measured["requests"] <= IN_FLIGHT * measured["waves"], "no wave is more than can be in flight"
