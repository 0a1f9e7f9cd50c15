"""``open(index(file)) == file`` for random trees: by the embedded metadata, and by the annotations alone."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import h5py
from builders.compare import compare_files
from builders.documents import unlisted, write_document
from builders.random_trees import random_trees, write_tree
from hypothesis import HealthCheck, given, settings

import lindi_bridge as lb


def compare(tree, way):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.h5"
        write_tree(tree, path)
        document = write_document(path)
        with h5py.File(path) as expected, lb.open(document, prefer=way) as actual:
            differences = compare_files(expected, actual, storage=way is None)
            if way is not None:  # by which of its names an object is called whom a reference leads to, is up to libhdf5
                differences = [d for d in differences if d.kind != "metadata" or not d.path.endswith(".ref")]
            if way is None:
                assert differences == []
            assert unlisted(differences, document, expected) == []
        return json.loads(document.read_text())["generationMetadata"]["problems"]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_trees())
def test_random_trees_by_metadata(tree):
    compare(tree, None)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_trees())
def test_random_trees_by_annotations(tree):
    """What other readers miss is listed: committed datatypes, and references that are in lists or arrays."""
    assert {p["kind"] for p in compare(tree, "annotations")} <= {"committed_datatype", "datatype"}
