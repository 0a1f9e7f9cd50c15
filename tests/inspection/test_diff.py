"""What two documents, or a document and a file, say differently."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from builders.features import BAD, FEATURES, SkipFeature, make
from servers.range_server import RangeServer

import lindi_bridge as lb

FOREIGN = Path(__file__).resolve().parents[1] / "data" / "foreign"


def write(path):
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.create_dataset("counts", data=rng.integers(0, 9, (60, 100)), chunks=(10, 100), compression="gzip")
        file["long"] = np.arange(30_000.0)
        file["words"] = ["one", "two", "three"]
        file.create_group("group").attrs["depth"] = np.int8(3)
        file["group"].attrs["about"] = file["words"].ref
        file["alias"] = h5py.SoftLink("/group")
        file["same"] = file["words"]
    return path


def differences(left, right, **options):
    return [(d.path, d.what) for d in lb.diff(left, right, **options)]


@pytest.mark.parametrize("name", sorted(set(FEATURES) - BAD))
def test_a_file_and_its_document_are_the_same(name, tmp_path):
    try:
        source = make(name, tmp_path)
    except SkipFeature as reason:
        pytest.skip(str(reason))
    document = tmp_path / "a.json"
    lb.index(source).save(document)
    assert differences(document, source) == []
    assert differences(source, document) == []


CHANGES = {
    "a value": (lambda f: f["words"].__setitem__(0, "eins"), {("/same", "value")}),
    "an attribute": (lambda f: f["group"].attrs.modify("depth", np.int8(4)), {("/group", "attribute 'depth'")}),
    "its type": (
        lambda f: f["group"].attrs.create("depth", np.int16(3)),
        {("/group", "type of attribute 'depth'")},
    ),
    "one more": (lambda f: f["group"].attrs.create("new", 1), {("/group", "attribute 'new'")}),
    "one less": (lambda f: f["group"].attrs.pop("depth"), {("/group", "attribute 'depth'")}),
    "a reference": (
        lambda f: f["group"].attrs.modify("about", f["long"].ref),
        {("/group", "attribute 'about'")},
    ),
    "an object more": (lambda f: f.create_group("new"), {("/new", "object")}),
    "an object less": (lambda f: f.pop("alias"), {("/alias", "object")}),
    "a kind": (
        lambda f: (f.pop("alias"), f.create_group("alias")),
        {("/alias", "link")},
    ),
    "a link": (lambda f: (f.pop("alias"), f.__setitem__("alias", h5py.SoftLink("/x"))), {("/alias", "link")}),
    "a copy instead of a second name": (
        lambda f: (f.pop("same"), f.create_dataset("same", data=["one", "two", "three"])),
        {("/words", "hard link")},
    ),
}


@pytest.mark.parametrize("name", sorted(CHANGES))
@pytest.mark.parametrize("prefer", ["metadata", "annotations"])
def test_every_kind_of_change_is_told(name, prefer, tmp_path):
    change, expected = CHANGES[name]
    left = write(tmp_path / "a.h5")
    right = tmp_path / "b.h5"
    shutil.copy(left, right)
    with h5py.File(right, "r+") as file:
        change(file)
    for path in (left, right):
        lb.index(path, url="https://host/a.h5").save(path.with_suffix(".json"))
    documents = [left.with_suffix(".json"), right.with_suffix(".json")]
    if prefer == "annotations":
        for document in documents:
            raw = json.loads(document.read_text())
            raw["refs"]["edited/.zgroup"] = {"zarr_format": 2}
            document.write_text(json.dumps(raw))
    for pair in (documents, documents[::-1]):
        found = {d for d in differences(*pair) if not d[1].startswith(("size of", "samples of", "place"))}
        assert found == expected


def test_another_file_of_the_same_layout_is_told_by_its_samples(tmp_path):
    left, right = write(tmp_path / "a.h5"), tmp_path / "b.h5"
    data = bytearray(left.read_bytes())
    offset = h5py.File(left)["long"].id.get_offset()
    data[offset : offset + 240_000] = bytes(240_000)
    right.write_bytes(data)
    assert ("/", "samples of the source") in differences(left, right)


def test_places_of_chunks_are_counted_and_the_first_shown(tmp_path):
    left = write(tmp_path / "a.h5")
    lb.index(left).save(tmp_path / "a.json")
    raw = json.loads((tmp_path / "a.json").read_text())
    for k in range(6):
        raw["refs"][f"counts/{k}.0"][1] += 8
    (tmp_path / "b.json").write_text(json.dumps(raw))
    (difference,) = lb.diff(tmp_path / "a.json", tmp_path / "b.json")
    assert difference.what == "places of 6 of 6 chunks"
    assert difference.left.count(" at byte ") == 3
    assert difference.left.endswith("; ...")


def test_a_document_that_moved_differs_in_its_source_alone(tmp_path):
    source = write(tmp_path / "a.h5")
    lb.index(source).save(tmp_path / "a.json")
    lb.relocate(tmp_path / "a.json", "https://host/b.h5", tmp_path / "b.json")
    (difference,) = lb.diff(tmp_path / "a.json", tmp_path / "b.json")
    assert (difference.path, difference.what) == ("/", "source")
    assert (difference.left, difference.right) == (str(source), "https://host/b.h5")


def test_a_file_on_a_server_is_indexed_and_no_secret_is_shown(tmp_path):
    source = write(tmp_path / "a.h5")
    lb.index(source).save(tmp_path / "a.json")
    with RangeServer() as server:
        url = server.add("a.h5", source)
        found = list(lb.diff(tmp_path / "a.json", f"{url}?sig=s3cret"))
        assert [(d.path, d.what) for d in found] == [("/", "source")]
        assert found[0].right == url
        assert "s3cret" not in str(found)


def test_headers_go_to_one_host(tmp_path):
    source, key = write(tmp_path / "a.h5"), {"X-Key": "s3cret"}
    with RangeServer() as server, RangeServer() as other:
        url, elsewhere = server.add("a.h5", source, require=key), other.add("a.h5", source)
        assert differences(url, elsewhere, headers=key) == [("/", "source")]
        assert not any("x-key" in {name.lower() for name in request.headers} for request in other.log)
        assert differences(source, url, headers=key) == [("/", "source")]
        with pytest.raises(lb.SourceError):
            list(lb.diff(elsewhere, url, headers=key))


def test_what_another_program_leaves_out_is_told():
    found = set(differences(FOREIGN / "source.kerchunk.json", FOREIGN / "source.h5"))
    assert found >= {("/soft", "object"), ("/links", "object"), ("/refs", "type"), ("/many", "chunk shape")}
    assert not any(what.startswith(("places of", "source")) for _, what in found)
    for name in ("source.lindi", "source.kerchunk", "netcdf.kerchunk", "netcdf.virtualizarr"):
        assert differences(FOREIGN / f"{name}.json", FOREIGN / f"{name}.json") == []


def test_what_an_edited_document_cannot_express_is_told(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = 1
        file.create_dataset("raw", shape=(4,), dtype="i4", external=[("raw.bin", 0, 16)])
    lb.index(tmp_path / "a.h5").save(tmp_path / "a.json")
    assert differences(tmp_path / "a.json", tmp_path / "a.h5") == []
    raw = json.loads((tmp_path / "a.json").read_text())
    raw["refs"]["new/.zgroup"] = {"zarr_format": 2}
    (tmp_path / "a.json").write_text(json.dumps(raw))
    found = differences(tmp_path / "a.json", tmp_path / "a.h5")
    assert sorted(found) == [("/new", "object"), ("/raw", "object")]


def test_one_that_cannot_be_opened_is_an_error(tmp_path):
    source = write(tmp_path / "a.h5")
    (tmp_path / "b.json").write_text('{"refs": {"x/0": 5, "x/.zarray": {}}}')
    with pytest.raises(lb.DocumentError):
        list(lb.diff(source, tmp_path / "b.json"))
    with pytest.raises(FileNotFoundError):
        list(lb.diff(source, tmp_path / "c.json"))
