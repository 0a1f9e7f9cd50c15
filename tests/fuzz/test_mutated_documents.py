"""Damaged documents: a clear error, or the same file as before, or another one only where the damage is."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from fuzz.mutations import is_touched, mutated, reached, touched

import lindi_bridge as lb

pytest.importorskip("jsonschema")

SECONDS = 20
HERE = Path(__file__).parent
FOREIGN = HERE.parent / "data" / "foreign"
KINDS = ("ours", "annotations", "source.lindi", "source.kerchunk", "netcdf.kerchunk", "netcdf.virtualizarr")
ANYWHERE = {"hdf5/metadata"}
"""Sections that are the file itself: what they say otherwise is another file."""
VALUES_ONLY = {"templates", "hdf5/sources", "hdf5/fingerprint"}
"""Sections that tell where values are: these may be gone."""


def _write(path):
    with h5py.File(path, "w") as file:
        file["matrix"] = np.arange(12, dtype="i2").reshape(3, 4)
        file.create_dataset("counts", data=np.arange(6000).reshape(60, 100) % 7, chunks=(30, 50), compression="gzip")
        file["long"] = np.arange(3000.0)
        file["number"] = np.int64(42)
        file["words"] = ["one", "two", "three é"]
        file["group/level"] = np.arange(5)
        file["group"].attrs["about"] = file["matrix"].ref
        file["group"].attrs["depth"] = np.int8(3)
        file["group"].attrs["nothing"] = h5py.Empty("f4")
        file["alias"] = h5py.SoftLink("/group")
        file["same"] = file["matrix"]
        file["refs"] = np.array([file["group"].ref], h5py.ref_dtype)
        file["table"] = np.array([(1, 2.5), (2, np.nan)], [("id", "i4"), ("x", "f8")])
        file["colours"] = np.array([0, 1], h5py.enum_dtype({"RED": 0, "GREEN": 1}, "i1"))
        file["ragged"] = np.array([np.arange(2), np.arange(3)], object).astype(h5py.vlen_dtype("i4"))
        file["type"] = np.dtype("f4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the sources lie, and the documents that are to be damaged."""
    folder = tmp_path_factory.mktemp("documents")
    _write(folder / "a.h5")
    lb.index(folder / "a.h5").save(folder / "ours.json")
    shutil.copy(folder / "ours.json", folder / "annotations.json")
    for path in FOREIGN.iterdir():
        shutil.copy(path, folder / path.name)
    return folder


def outcomes(folder, names):
    command = [sys.executable, str(HERE / "mutate_child.py"), str(SECONDS), str(folder), *names]
    environment = {"PYTHONPATH": str(Path(lb.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + SECONDS * len(names), env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("count", [25, pytest.param(1700, marks=pytest.mark.full)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_document(folder, kind, count):
    original = (folder / f"{kind}.json").read_text()
    rng = random.Random(f"{kind} {count}")
    names = [f"{kind}.{number}.json" for number in range(count)]
    for name in names:
        (folder / name).write_bytes(mutated(original, rng))
    baselines = outcomes(folder, [f"{kind}.json", "annotations.json" if kind == "ours" else f"{kind}.json"])
    assert all(b["check"] == {"answers": []} for b in baselines)
    known = [dict(map(tuple, b["open"]["answers"])) for b in baselines]
    found = outcomes(folder, names)
    assert len(found) == count
    faults = []
    for name, outcome in zip(names, found, strict=True):
        text = (folder / name).read_bytes()
        faults += [f"{name}: {fault}" for fault in _faults(json.loads(original), text, outcome, known)]
    opened = sum("answers" in outcome.get("open", ()) for outcome in found)
    assert 0 < opened < count  # both ends are seen
    assert faults == []


def _faults(original, data, outcome, known):
    if "died" in outcome:
        yield f"died with {outcome['died']}"
        return
    for route in ("open", "check", "diff", "relocate"):
        error = outcome[route].get("error")
        if error is not None and "LindiBridgeError" not in error:
            yield f"{route}: {error[0]}: {outcome[route]['message']}"
    if outcome["diff"].get("answers"):
        yield f"it differs from itself: {outcome['diff']['answers']}"
    if len(set(outcome["relocate"].get("answers", ()))) > 1:
        yield "relocated, it goes together otherwise than before"
    if "answers" not in outcome["open"]:
        return
    answers = dict(map(tuple, outcome["open"]["answers"]))
    try:
        after = json.loads(data.decode("utf-8-sig"))
    except ValueError:
        yield "it opens, but is no JSON"
        return
    sections, paths = touched(original, after)
    if sections & ANYWHERE:
        return
    paths = reached(paths, original.get("refs", {}))
    for question in {**known[0], **known[1], **answers}:
        expected = [answers_before.get(question) for answers_before in known]
        answer = answers.get(question)
        if answer in expected or is_touched(question, paths):
            continue
        if answer is None and (sections & VALUES_ONLY or question.endswith(" values")):
            continue
        yield f"{question}: {answer!r}, not {expected[0]!r}; touched: {sorted(sections)}, {sorted(paths)}"
