"""Every HDF5 feature, as a Zarr group: its tree, attributes and values are those that h5py tells of the local file."""

from __future__ import annotations

import warnings

import h5py
import pytest
import zarr
from builders.features import COMPANIONS, FEATURES
from builders.workshop import READABLE, Workshop
from zarr_oracle import differences

import lindi_bridge as lb


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("features"))


# What Zarr has no place for: path and kind of problem, feature by feature. Everything else has to be there.
LEFT_OUT = {
    "committed_datatype": {"/t": "committed_datatype", "/u": "committed_datatype"},
    "external_link_dangling": {"/el": "link"},
    "hardlink_cycle": {"/g/root": "link", "/g/self": "link"},
    "int_odd_bitfield": {"/i24": "datatype"},  # h5py has no type for it either
    "names_backslash_case": {"/A\\B": "name"},
    "names_zarr_reserved": {"/zarr.json": "name"},
    "softlink_cycle": {"/g/up": "link"},
    "softlink_dangling": {"/bad": "link"},
}

# Zarr has strings only, and says so when these are read.
NO_STRINGS = {"vlen_str_non_utf8": "s"}


def open_quietly(name, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", lb.IncompleteWarning)
        group = lb.open_zarr(str(name), **options)
    unexpected = [p for p in group.store.problems if p.kind != "dimension"]
    assert [w.category for w in caught] == [lb.IncompleteWarning] * bool(unexpected)
    for warning in caught:
        assert warning.filename == __file__
    return group


def check(name, source, group):
    assert type(group) is zarr.Group
    problems = {p.path: p.kind for p in group.store.problems}
    assert problems == LEFT_OUT.get(name, {})
    with h5py.File(source) as expected, group.store:
        if name in NO_STRINGS:
            with pytest.raises(lb.SourceError, match="not UTF-8"):
                group[NO_STRINGS[name]][...]
        else:
            assert differences(expected, group, set(problems)) == []


@pytest.mark.parametrize("name", READABLE)
def test_of_a_document(name, workshop):
    check(name, workshop.source(name), open_quietly(workshop.document(name)))


@pytest.mark.parametrize("name", READABLE)
def test_of_the_file_itself(name, workshop):
    check(name, workshop.source(name), open_quietly(workshop.source(name)))


@pytest.mark.parametrize("name", sorted(set(READABLE) - COMPANIONS))
def test_of_a_document_without_embedded_metadata(name, workshop):
    """What the annotations say; where that is all, lb.open is what a Zarr group can be compared with."""
    group = open_quietly(workshop.document(name), prefer="annotations")
    assert type(group) is zarr.Group
    if name in NO_STRINGS:
        return
    with lb.open(str(workshop.document(name)), prefer="annotations") as expected, group.store:
        assert differences(expected, group, {p.path for p in group.store.problems}) == []


def test_what_is_left_out_is_of_features():
    assert LEFT_OUT.keys() | NO_STRINGS.keys() <= FEATURES.keys()
