"""Another address for a source: the document opens as before, from the new place, whoever made it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from builders.compare import compare_files
from servers.range_server import RangeServer

import lindi_bridge as lb
from lindi_bridge.document.document import decode_document, parse_document
from lindi_bridge.document.document_file import document_json
from lindi_bridge.document.relocation import relocate_document, source_addresses

FOREIGN = Path(__file__).resolve().parents[1] / "data" / "foreign"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "old" / "a.h5"
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(60_000.0).reshape(600, 100), chunks=(100, 100), compression="gzip")
        file["y"] = np.arange(20_000)
        file["ragged"] = np.array([np.arange(2), np.arange(3)], object).astype(h5py.vlen_dtype("i4"))
        file.attrs["k"] = np.int8(3)
    return path


def assert_opens_as(document, expected, **options):
    with h5py.File(expected) as original, lb.open(document, **options) as file:
        assert compare_files(original, file, storage=not options.get("prefer")) == []


@pytest.mark.parametrize("suffix", [".json", ".json.zst"])
def test_our_document_mounts_at_the_new_place(source, tmp_path, suffix):
    document = tmp_path / f"a{suffix}"
    lb.index(source, url="https://old.example/a.h5").save(document)
    with RangeServer() as server:
        url = server.add("new/a.h5", source)
        assert lb.relocate(document, url) == {"https://old.example/a.h5": url}
        parsed = parse_document(document_json(document.read_bytes()))
        assert not parsed.edited
        assert parsed.snapshot.url == url
        assert source_addresses(decode_document(document_json(document.read_bytes()))) == [url]
        for prefer in (None, "annotations"):
            assert_opens_as(document, source, prefer=prefer)
        assert {request.path for request in server.log} == {"/new/a.h5"}


def test_another_program_finds_the_new_place_everywhere(source, tmp_path):
    document = tmp_path / "a.json"
    lb.index(source, url="https://old.example/a.h5").save(document)
    lb.relocate(document, "s3://bucket/b.h5")
    assert "old.example" not in document.read_text()
    raw = json.loads(document.read_text())
    assert raw["refs"]["ragged/.zattrs"]["_EXTERNAL_ARRAY_LINK"]["url"] == "s3://bucket/b.h5"
    assert raw["refs"]["x/0.0"][0] == "{{u}}"
    # Both digests fit: also after another program wrote it anew.
    assert not parse_document(json.dumps(raw)).edited
    raw["refs"] = {k: [raw["templates"]["u"], *v[1:]] if isinstance(v, list) else v for k, v in raw["refs"].items()}
    assert not parse_document(json.dumps(raw)).edited


def test_nothing_but_addresses_changes_and_the_way_back_is_the_same_text(source, tmp_path):
    document = tmp_path / "a.json"
    lb.index(source, url="https://old.example/a.h5").save(document)
    before = json.loads(document.read_text())
    lb.relocate(document, "https://new.example/b.h5", tmp_path / "b.json")
    assert json.loads(document.read_text()) == before
    text = (tmp_path / "b.json").read_text()
    assert json.loads(text.replace("https://new.example/b.h5", "https://old.example/a.h5"))["refs"] == before["refs"]
    lb.relocate(tmp_path / "b.json", "https://old.example/a.h5")
    after = json.loads((tmp_path / "b.json").read_text())
    before["hdf5"]["sources"][0].update(etag=None, last_modified=None)
    assert after == before
    assert list(after)[-1] == "refs"


def test_the_etag_of_the_old_place_is_left_out(source, tmp_path):
    """At another place the same bytes have another one, and asking for the old one would be refused."""
    document = tmp_path / "a.json"
    with RangeServer() as server:
        lb.index(server.add("a.h5", source)).save(document)
        raw = json.loads(document.read_text())
        raw["hdf5"]["sources"][0]["etag"] = '"of the old place"'
        document.write_text(json.dumps(raw))
        lb.relocate(document, server.add("b.h5", source))
        assert json.loads(document.read_text())["hdf5"]["sources"][0]["etag"] is None
        assert_opens_as(document, source)


def test_another_file_at_the_new_place_is_told_by_verify_and_at_the_first_read(source, tmp_path):
    document, other = tmp_path / "a.json", tmp_path / "b.h5"
    lb.index(source, url="https://old.example/a.h5").save(document)
    before = document.read_bytes()
    data = bytearray(source.read_bytes())
    data[len(data) // 4 :] = bytes(len(data) - len(data) // 4)
    other.write_bytes(data)
    for place in (other, tmp_path / "nowhere.h5"):
        with pytest.raises(lb.SourceError):
            lb.relocate(document, str(place), verify=True)
        assert document.read_bytes() == before
    lb.relocate(document, str(source), tmp_path / "good.json", verify=True)
    lb.relocate(document, str(other))
    with pytest.raises(lb.SourceChangedError), lb.open(document) as file:
        file["x"][()]


def test_headers_verify_the_source_of_a_local_document_only(source, tmp_path):
    document, key = tmp_path / "a.json", {"X-Key": "s3cret"}
    lb.index(source, url="https://old.example/a.h5").save(document)
    with RangeServer() as server, RangeServer() as other:
        url = server.add("a.h5", source, require=key)
        with pytest.raises(lb.SourceError):
            lb.relocate(document, url, verify=True)
        lb.relocate(document, url, tmp_path / "b.json", verify=True, headers=key)
        address = other.add("a.json", document, require=key)
        with pytest.raises(lb.SourceError):
            lb.relocate(address, url, tmp_path / "c.json", verify=True, headers=key)


def test_a_local_source_below_the_document_is_named_relative_to_it(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = tmp_path / "a.json"
    lb.index(source, url="https://old.example/a.h5").save(document)
    lb.relocate("a.json", "old/a.h5")
    assert json.loads(document.read_text())["templates"] == {"u": "old/a.h5"}
    assert_opens_as(document, source)
    lb.relocate("a.json", str(source), "old/b.json")
    assert json.loads(Path("old/b.json").read_text())["templates"] == {"u": "a.h5"}
    Path("elsewhere").mkdir()
    lb.relocate("a.json", "old/a.h5", "elsewhere/c.json")
    assert json.loads(Path("elsewhere/c.json").read_text())["templates"] == {"u": str(source)}
    assert_opens_as("elsewhere/c.json", source)


@pytest.mark.parametrize("name", ["source.lindi", "source.kerchunk", "netcdf.kerchunk", "netcdf.virtualizarr"])
def test_documents_of_other_programs(name, tmp_path):
    document = tmp_path / "a.json"
    shutil.copy(FOREIGN / f"{name}.json", document)
    source = FOREIGN / f"{name.partition('.')[0]}.h5"
    with lb.open(FOREIGN / f"{name}.json") as before, RangeServer() as server:
        url = server.add("b.h5", source)
        (old,) = source_addresses(document.read_text())
        assert lb.relocate(document, url, verify=True) == {old: url}
        assert source_addresses(document.read_text()) == [url]
        server.reset()
        with lb.open(document) as file:
            assert compare_files(before, file, storage=False) == []
        assert {request.path for request in server.log} == {"/b.h5"}


ZARRAY = {"zarr_format": 2, "shape": [2], "chunks": [1], "dtype": "<i4", "fill_value": 0, "order": "C"}
ZARRAY |= {"filters": None, "compressor": None}
SEVERAL = {
    "version": 1,
    "templates": {"h": "https://host/run", "t": "https://host/run/t.h5"},
    "refs": {
        ".zgroup": {"zarr_format": 2},
        "x/.zarray": ZARRAY,
        "x/0": ["https://host/run/a.h5", 0, 4],
        "x/1": ["{{h}}/b.h5", 0, 4],
        "y/.zarray": json.dumps(ZARRAY),
        "y/0": ["{{t}}", 0, 4],
        "z/.zarray": ZARRAY,
        "z/.zattrs": json.dumps(
            {"_EXTERNAL_ARRAY_LINK": {"link_type": "hdf5_dataset", "url": "https://host/run/a.h5", "name": "/z"}}
        ),
    },
}


def test_one_of_several_sources():
    text = json.dumps(SEVERAL)
    a, b, t = (f"https://host/run/{name}.h5" for name in "abt")
    assert source_addresses(text) == [a, b, t]
    with pytest.raises(lb.DocumentError, match="3 sources"):
        relocate_document(text, "https://new/a.h5")
    with pytest.raises(lb.DocumentError, match=r"no source of the document is at https://host/run/c\.h5"):
        relocate_document(text, "https://new/a.h5", "https://host/run/c.h5")
    for old in (a, b, t):
        moved = relocate_document(text, "https://new/n.h5", old)
        assert moved.moved == {old: "https://new/n.h5"}
        assert set(source_addresses(moved.text)) == {a, b, t} - {old} | {"https://new/n.h5"}
        assert set(moved.kept) == {a, b, t} - {old}
    assert json.loads(relocate_document(text, "n.h5", t).text)["refs"]["y/0"] == ["{{t}}", 0, 4]
    link = json.loads(json.loads(relocate_document(text, "n.h5", a).text)["refs"]["z/.zattrs"])
    assert link["_EXTERNAL_ARRAY_LINK"]["url"] == "n.h5"


def test_all_sources_of_a_folder():
    moved = relocate_document(json.dumps(SEVERAL), "s3://bucket/", "https://host/run/")
    assert source_addresses(moved.text) == ["s3://bucket/a.h5", "s3://bucket/b.h5", "s3://bucket/t.h5"]
    with pytest.raises(lb.DocumentError, match="slash"):
        relocate_document(json.dumps(SEVERAL), "s3://bucket", "https://host/run/")


def test_a_template_that_stands_for_a_source_and_for_part_of_another():
    document = {"templates": {"u": "https://h/a"}, "refs": {".zgroup": {}, "x/.zarray": ZARRAY}}
    document["refs"] |= {"x/0": ["{{u}}", 0, 4], "x/1": ["{{u}}b", 0, 4]}
    moved = relocate_document(json.dumps(document), "https://new/c", "https://h/a")
    assert set(source_addresses(moved.text)) == {"https://new/c", "https://h/ab"}


def test_consolidated_metadata_name_the_new_place_too(source):
    raw = json.loads(lb.index(source, url="https://old.example/a.h5").to_json())
    copies = {k: v for k, v in raw["refs"].items() if k.endswith((".zarray", ".zattrs", ".zgroup"))}
    raw["refs"][".zmetadata"] = json.dumps({"zarr_consolidated_format": 1, "metadata": copies})
    assert "old.example" not in relocate_document(json.dumps(raw), "https://new/a.h5").text


@pytest.mark.parametrize(
    "new",
    [
        "https://h/a.h5?X-Amz-Signature=s3cret",
        "https://user:s3cret@h/a.h5",
        "https://h/a.h5#s3cret",
        "s3://k:s3cret@b/a",
    ],
)
def test_what_may_be_secret_is_refused_and_not_repeated(source, tmp_path, new):
    document = tmp_path / "a.json"
    lb.index(source).save(document)
    before = document.read_bytes()
    with pytest.raises(lb.DocumentError, match="source=") as error:
        lb.relocate(document, new)
    assert "s3cret" not in str(error.value)
    assert document.read_bytes() == before


@pytest.mark.parametrize("new", ["https://h/{{u}}", "https://h/\n", ""])
def test_what_cannot_stand_in_a_document_is_refused(source, new):
    with pytest.raises(lb.DocumentError, match="cannot stand"):
        relocate_document(lb.index(source).to_json(), new)


def test_what_cannot_be_written_leaves_the_document_as_it_was(source, tmp_path, monkeypatch):
    document = tmp_path / "a.json"
    lb.index(source).save(document)
    before, names = document.read_bytes(), sorted(os.listdir(tmp_path))

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        lb.relocate(document, "https://new/a.h5")
    assert document.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == names


def test_an_edited_document_stays_edited(source):
    raw = json.loads(lb.index(source).to_json())
    raw["refs"]["new/.zgroup"] = {"zarr_format": 2}
    moved = relocate_document(json.dumps(raw), "https://h/b.h5")
    document = parse_document(moved.text)
    assert document.edited
    assert document.origin.url == "https://h/b.h5"


def test_relative_sources_that_stay_behind_are_refused(tmp_path):
    (tmp_path / "there").mkdir()
    document = {"refs": {".zgroup": {}, "x/.zarray": ZARRAY, "x/0": ["a.h5", 0, 4], "x/1": ["b.h5", 0, 4]}}
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(lb.DocumentError, match="relative to its own folder"):
        lb.relocate(tmp_path / "a.json", "https://h/a.h5", tmp_path / "there" / "a.json", old_url="a.h5")
    lb.relocate(tmp_path / "a.json", "https://h/a.h5", tmp_path / "b.json", old_url="a.h5")


def test_a_document_on_a_server_is_not_written_to(source, tmp_path):
    lb.index(source, url="https://old.example/a.h5").save(tmp_path / "a.json")
    with RangeServer() as server:
        address = server.add("a.json", tmp_path / "a.json")
        with pytest.raises(lb.DocumentError, match="not written to"):
            lb.relocate(address, "https://new/a.h5")
        lb.relocate(address, "https://new/a.h5", tmp_path / "b.json")
    assert source_addresses((tmp_path / "b.json").read_text()) == ["https://new/a.h5"]


@pytest.mark.parametrize(
    "text", ['{"refs": {"x/0": ["{{v}}", 0, 1]}}', '{"refs": {}}', "[]", '{"refs": {"a": NaN}, "templates": 5}', "{"]
)
def test_documents_that_make_no_sense_are_refused(text):
    with pytest.raises(lb.DocumentError):
        relocate_document(text, "https://new/a.h5")


# -- documents that name their source relative to themselves ----------------------------------------------------------


def test_a_document_travels_with_its_file(source, tmp_path):
    """After both were moved, and through http."""
    document = tmp_path / "a.json"
    lb.index(source).save(document)
    for prefer in (None, "annotations"):
        there = tmp_path / f"there {prefer}"
        there.mkdir()
        os.rename(document, there / "b.json")
        (there / "old").mkdir()
        os.rename(source, there / "old" / "a.h5")
        document, source = there / "b.json", there / "old" / "a.h5"
        assert_opens_as(document, source, prefer=prefer)
        with RangeServer() as server:
            server.add("some/where/old/a.h5", source)
            address = server.add("some/where/b.json", document)
            assert_opens_as(address, source, prefer=prefer)
            assert {r.path for r in server.log} == {"/some/where/b.json", "/some/where/old/a.h5"}
