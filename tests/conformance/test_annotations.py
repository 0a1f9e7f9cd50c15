"""Every HDF5 feature, rebuilt from a document's annotations, equals what h5py says of the local file, or is listed."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from builders.compare import compare_files
from builders.documents import unlisted, write_document
from builders.features import BAD, COMPANIONS, FEATURES, SkipFeature, make

import lindi_bridge as lb

READABLE = sorted(set(FEATURES) - BAD)
MISSING = {"external_raw_storage", "virtual_dataset", "int_odd_bitfield"}
"""Features of which an object is not in the document."""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    made = {}

    def source_and_document(name):
        if name not in made:
            try:
                source = make(name, folder)
            except SkipFeature as reason:
                pytest.skip(str(reason))
            made[name] = source, write_document(source)
        return made[name]

    return source_and_document


@pytest.mark.parametrize("name", READABLE)
def test_rebuilt_from_annotations(name, workshop):
    source, document = workshop(name)
    with h5py.File(source) as expected, lb.open(document, prefer="annotations") as actual:
        differences = compare_files(expected, actual, storage=False)
    assert unlisted(differences, document) == []
    assert not any(d.kind == "missing" for d in differences) or name in MISSING


@pytest.mark.parametrize("name", sorted(set(READABLE) - COMPANIONS - MISSING))
def test_rebuilt_under_plain_h5py(name, workshop):
    """Everything but what the document only links to; that is an error, never a fill value."""
    source, document = workshop(name)
    file_object = lb.hdf5_file(document, prefer="annotations", allow_external=True)
    with h5py.File(source) as expected, h5py.File(file_object) as actual:
        differences = compare_files(expected, actual, storage=False)
    linked = {k.rpartition("/")[0] for k, v in _refs(document).items() if "_EXTERNAL_ARRAY_LINK" in str(v)}
    rest = [d for d in unlisted(differences, document) if d.path.lstrip("/").split("[")[0].split(".")[0] not in linked]
    assert [d for d in rest if "DocumentError" not in d.message or "not in the document" not in d.message] == []


def _refs(document):
    return json.loads(document.read_text())["refs"]


def test_chunks_are_put_in_when_a_dataset_is_opened(tmp_path):
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        for name in ("a", "b"):
            file.create_dataset(name, data=np.arange(5000), chunks=(100,), compression="gzip")
    document = write_document(source)
    with lb.open(document, prefer="annotations") as file:
        waiting = file._file_object.properties["pending"]._written.waiting
        assert len(waiting) == 2
        with pytest.raises(lb.DocumentError, match="/a: its chunks are not in the file yet"):
            h5py.Dataset(h5py.h5d.open(file.id, b"a"))[()]
        assert file["a"].id.get_num_chunks() == 50
        assert len(waiting) == 1
        assert np.array_equal(h5py.Dataset(h5py.h5d.open(file.id, b"a"))[()], np.arange(5000))
        assert np.array_equal(lb.plain(file)["b"][()], np.arange(5000))
        assert not waiting
        assert file.mode == "r"
        with pytest.raises(KeyError):
            file.visititems(lambda name, thing: file["no such name"])


def test_an_edited_document_opens_by_its_annotations(tmp_path):
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file["x"] = np.arange(5000)
        file["x"].attrs["k"] = np.int8(3)
        file["x"].attrs["other"] = np.int8(3)
        file["y"] = ["a", "b"]
    document = write_document(source)
    raw = json.loads(document.read_text())
    raw["refs"]["x/.zattrs"]["k"] = "text now"
    raw["refs"]["new/.zgroup"] = {"zarr_format": 2}
    del raw["refs"]["y/.zarray"], raw["refs"]["y/0"]
    document.write_text(json.dumps(raw))
    with lb.open(document) as file:
        assert sorted(file) == ["new", "x"]
        assert dict(file["x"].attrs) == {"k": "text now", "other": 3}
        assert file["x"].attrs["other"].dtype == np.int8
        assert np.array_equal(file["x"][:], np.arange(5000))


def test_a_reader_that_prefers_nothing_known(tmp_path):
    with pytest.raises(ValueError, match="prefer"):
        lb.open(tmp_path / "x", prefer="speed")
