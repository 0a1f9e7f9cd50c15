"""Damaged files: the walk always ends, within its budget; and what libhdf5 answers is what lindi_bridge answers."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import lindi_bridge
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.walk import walk_structures
from lindi_bridge.ranges import BytesReader

SECONDS = 10
CHILD = Path(__file__).with_name("corrupt_child.py")


def _write(path, libver, userblock=0):
    """A small file with much structure and little raw data."""
    texts = [f"text {k}" for k in range(300)]
    row = np.dtype([("n", "i4"), ("text", h5py.string_dtype())])
    with h5py.File(path, "w", libver=(libver, "latest"), userblock_size=userblock) as file:
        for number in range(12):
            group = file.create_group(f"groups/group {number}", track_order=number % 2 == 0)
            group.attrs["encoding-type"] = "a text"
            for k in range(number):
                group.attrs[f"attribute {k}"] = np.arange(k)
        for name, maxshape in (
            ("fixed", (40, 30)),
            ("growing", (None, 30)),
            ("right", (40, None)),
            ("both", (None, None)),
        ):
            for compression in (None, "gzip"):
                data = np.arange(1200, dtype="i2").reshape(40, 30)
                file.create_dataset(
                    f"data/{name} {compression}", data=data, maxshape=maxshape, chunks=(4, 3), compression=compression
                )
        many = file.create_group("many")
        for number in range(200):
            many[f"link {number}"] = h5py.SoftLink("/data")
        file.create_dataset("long", data=np.arange(2000, dtype="u1"), maxshape=(None,), chunks=(1,))
        file.create_dataset("texts", data=texts, dtype=h5py.string_dtype(), chunks=(50,), compression="gzip")
        file.create_dataset("rows", data=np.array([(k, f"row {k}") for k in range(50)], row))
        file["texts"].attrs["texts"] = texts[:30]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Whole files by name, as bytes."""
    folder = tmp_path_factory.mktemp("originals")
    found = {}
    for libver in ("earliest", "v108", "v110", "latest"):
        for userblock in (0, 512):
            _write(folder / "a.h5", libver, userblock)
            found[f"{libver}-{userblock}"] = (folder / "a.h5").read_bytes()
    return found


def _places(data):
    """Bytes that the walk reads, those of raw data left out: where damage matters to it."""
    file = HDF5File(BytesReader(data), address="memory")
    read = set()
    held = file.held

    def recording(start, length):
        if length < 4096:
            read.update(range(start, min(start + length, len(data))))
        return held(start, length)

    file.held = recording
    walk_structures(file)
    return sorted(read)


def _damage(data, places, rng):
    """Flip, zero or fill 1 to 40 bytes, or put another address in."""
    damaged = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5, 40])):
        at = rng.choice(places)
        kind = rng.randrange(5)
        if kind == 0:
            damaged[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            damaged[at] = rng.randrange(256)
        elif kind == 2:
            damaged[at : at + 8] = rng.choice([bytes(8), b"\xff" * 8])[: len(damaged) - at]
        elif kind == 3:
            damaged[at : at + 8] = rng.randrange(len(data)).to_bytes(8, "little")[: len(damaged) - at]
        else:
            other = rng.choice(places)
            damaged[at : at + 8] = data[other : other + 8][: len(damaged) - at]
    if rng.random() < 0.1:
        del damaged[rng.randrange(1, len(damaged)) :]
    return bytes(damaged)


def _outcomes(folder, cases, *routes):
    """Of each file, by each route, each in a process of its own with a time limit; see corrupt_child.py."""
    for number, data in enumerate(cases):
        (folder / f"{number:04d}.h5").write_bytes(data)
    command = [sys.executable, str(CHILD), str(SECONDS), str(folder), *routes]
    environment = {"PYTHONPATH": str(Path(lindi_bridge.__file__).parents[1])}
    limit = 10 * SECONDS * len(cases)
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)
    assert done.returncode == 0, done.stderr
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(outcomes) == len(cases)
    return outcomes


def _assert_walks_end(folder, cases):
    limits = [2 * len(data) + 16 * 1024 for data in cases]
    outcomes = [outcome["walk"] for outcome in _outcomes(folder, cases, "walk")]
    faults = [
        (number, outcome, limit)
        for number, (outcome, limit) in enumerate(zip(outcomes, limits, strict=True))
        if not 0 <= outcome.get("nbytes", -1) <= limit
    ]
    assert faults == []


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.full)])
@pytest.mark.parametrize("seed", range(8))
def test_the_walk_of_a_damaged_file_ends(originals, tmp_path, seed, count):
    data = list(originals.values())[seed]
    places, rng = _places(data), random.Random(seed)
    _assert_walks_end(tmp_path, [_damage(data, places, rng) for _ in range(count)])


@pytest.mark.parametrize("seed", range(8))
def test_the_walk_of_noise_ends(originals, tmp_path, seed):
    rng = random.Random(seed)
    data = list(originals.values())[seed]
    cases = []
    for length in (0, 7, 8, 100, 600, 5000, 60_000):
        noise = rng.randbytes(length)
        cases += [noise, data[:length], data[:length] + noise]
    _assert_walks_end(tmp_path, cases)


@pytest.mark.parametrize("count", [6, pytest.param(150, marks=pytest.mark.full)])
@pytest.mark.parametrize("seed", range(8))
def test_what_libhdf5_answers_is_the_answer(originals, tmp_path, seed, count):
    data = list(originals.values())[seed]
    places, rng = _places(data), random.Random(1000 + seed)
    cases = [_damage(data, places, rng) for _ in range(count)]
    outcomes = _outcomes(tmp_path, cases, "plain", "stream", "open", "index")
    faults = [f"{number}: {fault}" for number, outcome in enumerate(outcomes) for fault in _faults(outcome)]
    assert faults == []


def _faults(outcome):
    """What lindi_bridge says otherwise than libhdf5, which it may not."""
    plain, again = outcome["plain"], outcome["stream"]
    if "died" in plain or "died" in again:
        return  # libhdf5 itself does not end, or crashes
    # Of a damaged chunk libhdf5 may give memory that nobody wrote: another answer each time.
    second = dict(map(tuple, again.get("answers", ())))
    certain = [(q, a) for q, a in plain.get("answers", ()) if second.get(q) == a]
    for route in ("open", "index"):
        ours = outcome[route]
        if "died" in ours and not (route == "index" and ours["died"] == -signal.SIGSEGV):
            # Indexing asks libhdf5 more than is asked above, so it may crash where that did not.
            yield f"{route}: died with {ours['died']}"
        elif "died" in ours:
            continue
        elif "error" in ours:
            # A document is made of the whole file, which may be damaged where no question above goes.
            if route == "open" and "error" not in plain:
                yield f"{route}: {ours}"
        elif "error" in plain:
            yield f"{route}: opened, but h5py says {plain}"
        else:
            answers = dict(map(tuple, ours["answers"]))
            for question, expected in certain:
                if question in answers and answers[question] not in (expected, None):
                    yield f"{route}: {question}: {answers[question]!r}, not {expected!r}"
