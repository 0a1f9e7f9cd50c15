"""Reference documents of test files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import h5py

import lindi_bridge as lb
from builders.compare import Difference


def write_document(source: Path) -> Path:
    """Index a local HDF5 file and save the document beside it; it has to be as the schema says, and sound."""
    document = source.with_name(source.name + ".lindi.json")
    lb.index(str(source)).save(str(document))
    problems = lb.check(document)
    assert not problems, problems
    return document


def unlisted(differences: Iterable[Difference], document: Path, source: h5py.File | None = None) -> list[Difference]:
    """Differences at objects that the document does not list, but for those that follow from a listed one's absence.

    With `source`, the file that the document is of, an object is listed under any path that leads to it.
    """
    differences = list(differences)
    problems = {p["path"] for p in json.loads(document.read_text())["generationMetadata"]["problems"]}
    missing = any(d.kind == "missing" for d in differences)
    out = []
    for difference in differences:
        path = difference.path.partition(" ")[0].partition("@")[0].partition("[")[0]
        of_parent = missing and path == "/" and difference.kind in ("value", "order")
        paths = {path, path.partition(".")[0]}
        if source is not None and any(source.get(p) == source.get(q) for p in paths for q in problems if p in source):
            continue
        if not paths & problems and not of_parent:
            out.append(difference)
    return out
