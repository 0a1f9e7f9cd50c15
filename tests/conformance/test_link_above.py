"""Datasets of many chunks as links into the HDF5 file: a smaller document, the same values."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from builders.compare import compare_files

import lindi_bridge as lb
from lindi_bridge.cli import main


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("many", data=np.arange(6000.0), chunks=(100,), compression="gzip")
        file.create_dataset("few", data=np.arange(6000.0), chunks=(3000,))
        text = file.create_dataset("text", (600,), h5py.string_dtype(), chunks=(10,))
        text[:] = [f"text {k}" for k in range(600)]
        file["block"] = np.arange(6000.0)
    return path


def linked(document):
    refs = json.loads(document.read_text())["refs"]
    return {key.partition("/")[0] for key, value in refs.items() if "_EXTERNAL_ARRAY_LINK" in str(value)}


@pytest.mark.parametrize("options", [{}, {"prefer": "annotations"}], ids=["mounted", "by annotations"])
def test_values_are_the_same(source, tmp_path, options):
    document = tmp_path / "a.lindi.json"
    lb.index(source, link_above=50).save(document)
    assert linked(document) == {"many", "text"}
    assert not [key for key in json.loads(document.read_text())["refs"] if key.startswith("many/0")]
    with h5py.File(source) as expected, lb.open(document, **options) as actual:
        assert compare_files(expected, actual, storage=not options) == []


def test_no_dataset_is_linked_that_has_no_more(source, tmp_path):
    document = tmp_path / "a.lindi.json"
    lb.index(source, link_above=60).save(document)
    assert linked(document) == set()


def test_on_the_command_line(source, tmp_path, capsys):
    document = tmp_path / "b.lindi.json"
    assert main(["index", str(source), "-o", str(document), "--link-above", "1"]) == 0
    assert linked(document) == {"many", "few", "text"}


def test_plain_zarr_has_no_links(source):
    with pytest.raises(ValueError, match="external array links"):
        lb.index(source, profile="zarr", link_above=5)
