"""Every HDF5 feature, through a saved document, equals what h5py says of the local file."""

from __future__ import annotations

import h5py
import pytest
from builders.compare import compare_files
from builders.features import BAD, COMPANIONS, FEATURES, SkipFeature, make
from builders.workshop import READABLE, Workshop

import lindi_bridge as lb


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("features"))


def test_there_are_143_features():
    assert len(FEATURES) == 143
    assert FEATURES.keys() > COMPANIONS
    assert FEATURES.keys() > BAD


@pytest.mark.parametrize("name", READABLE)
def test_opened_by_lindi_bridge(name, workshop):
    source, document = workshop.source(name), workshop.document(name)
    with h5py.File(source) as expected, lb.open(str(document)) as actual:
        assert compare_files(expected, actual) == []


@pytest.mark.parametrize("name", sorted(set(READABLE) - COMPANIONS))
def test_opened_by_plain_h5py(name, workshop):
    source, document = workshop.source(name), workshop.document(name)
    has_external_link = name == "external_link_dangling"
    file_object = lb.hdf5_file(str(document), allow_external=has_external_link)
    with h5py.File(source) as expected, h5py.File(file_object) as actual:
        assert compare_files(expected, actual) == []


@pytest.mark.parametrize("name", READABLE)
def test_opened_without_a_document(name, workshop):
    source = workshop.source(name)
    with h5py.File(source) as expected, lb.open(str(source)) as actual:
        assert compare_files(expected, actual) == []


@pytest.mark.parametrize("open_it", [lb.index, lb.open], ids=["index", "open"])
@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_file_is_refused_as_h5py_refuses_it(name, open_it, tmp_path):
    try:
        path = make(name, tmp_path)
    except SkipFeature as reason:
        pytest.skip(str(reason))
    with pytest.raises(OSError) as plain:
        h5py.File(path)
    with pytest.raises(type(plain.value)) as ours:
        open_it(str(path))
    assert isinstance(ours.value, lb.LindiBridgeError)
    message = str(ours.value)
    assert path.name in message
    assert "\n" not in message
