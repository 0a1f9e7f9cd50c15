"""Checking documents: all that is wrong is told at once, nothing else, without asking the source."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from builders.compare import compare_files
from builders.documents import write_document
from builders.features import BAD, FEATURES, SkipFeature, make
from builders.lies import changed
from conformance.test_hostile_documents import MALFORMED, document
from servers.range_server import RangeServer

import lindi_bridge as lb
from lindi_bridge.inspection.check import MOST_PROBLEMS

pytest.importorskip("jsonschema")

FOREIGN = sorted((Path(__file__).resolve().parents[1] / "data" / "foreign").glob("*.json"))


@pytest.mark.parametrize("name", sorted(set(FEATURES) - BAD))
def test_the_document_of_every_feature_is_sound(name, tmp_path):
    try:
        source = make(name, tmp_path)
    except SkipFeature as reason:
        pytest.skip(str(reason))
    document = write_document(source)
    source.unlink()  # nothing of it is needed
    assert lb.check(document) == []


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.name)
def test_documents_of_other_programs_are_sound(path):
    assert lb.check(path) == []


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The text of a document with a little of everything."""
    path = tmp_path_factory.mktemp("sound") / "a.h5"
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file["matrix"] = np.arange(12, dtype="i2").reshape(3, 4)
        file.create_dataset("counts", data=rng.integers(0, 9, (60, 100)), chunks=(30, 100), compression="gzip")
        file["long"] = np.arange(3000.0)
        file["number"] = np.int64(42)
        file["words"] = ["one", "two", "three"]
        file["group/level"] = np.arange(5)
        file["group"].attrs["about"] = file["matrix"].ref
        file["group"].attrs["depth"] = np.int8(3)
        file["group"].attrs["text"] = "a text"
        file["alias"] = h5py.SoftLink("/group")
        file["same"] = file["matrix"]
        file["refs"] = np.array([file["group"].ref], h5py.ref_dtype)
        file["table"] = np.array([(1, 2.5), (2, np.nan)], [("id", "i4"), ("x", "f8")])
        file["colours"] = np.array([0, 1], h5py.enum_dtype({"RED": 0, "GREEN": 1}, "i1"))
        file["ragged"] = np.array([np.arange(2), np.arange(3)], object).astype(h5py.vlen_dtype("i4"))
        file["type"] = np.dtype("f4")
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/data")
    return lb.index(path).to_json()


DOUBLE = base64.b64encode(h5py.h5t.IEEE_F64LE.encode()).decode()
REFERENCE = '[{"_REFERENCE":{"object_id":null,"path":"/number","source":".","source_object_id":null}},"|O",[1]]'
LIES = {
    "a value": (lambda d: d["refs"].update({"number/0": "base64:KwAAAAAAAAA="}), "/number", "value: 42 .* 43"),
    "a string": (
        lambda d: d["refs"].update({"words/0": "base64:AwAAAAMAAABvbmUDAAAAdHdvBQAAAHRocmVm"}),
        "/words",
        "value: .*three.*thref",
    ),
    "a field": (lambda d: d["refs"].update({"table/0": '[[1,2.5],[3,"NaN"],"|O",[2]]'}), "/table", "value: 2 .* 3"),
    "a reference": (
        lambda d: d["refs"].update({"refs/0": REFERENCE}),
        "/refs",
        "value: '/alias|value: '/group.*number",
    ),
    "an attribute": (lambda d: d["refs"]["group/.zattrs"].update(depth=4), "/group", "attribute 'depth': 3 .* 4"),
    "an attribute's text": (lambda d: d["refs"]["group/.zattrs"].update(text="b"), "/group", "attribute 'text'"),
    "one attribute less": (lambda d: d["refs"]["group/.zattrs"].pop("text"), "/group", "'text': 'a text' .* not there"),
    "one attribute more": (lambda d: d["refs"].update({"matrix/.zattrs": {"k": 1}}), "/matrix", "'k': not there"),
    "an attribute's reference": (
        lambda d: d["refs"]["group/.zattrs"]["about"]["_REFERENCE"].update(path="/number"),
        "/group",
        "attribute 'about': '/matrix' .* '/number'",
    ),
    "an attribute's type": (
        lambda d: d["hdf5"]["annotations"]["/group"]["attributes"]["depth"].update(dtype="<i2"),
        "/group",
        "type of attribute 'depth': .*i1.*i2",
    ),
    "a soft link": (
        lambda d: d["refs"].update({"alias/.zattrs": {"_SOFT_LINK": {"path": "/long"}}}),
        "/alias",
        "link: soft /group .* soft /long",
    ),
    "a hard link": (
        lambda d: d["refs"].update({"same/.zattrs": {"_SOFT_LINK": {"path": "/number"}}}),
        "/same",
        "kind|shape|hard link",
    ),
    "a hard link made soft": (lambda d: d["hdf5"]["annotations"].pop("/same"), "/same", "link: hard .* soft /matrix"),
    "an external link": (
        lambda d: d["hdf5"]["annotations"]["/elsewhere"].update(external_link=["x.h5", "/data"]),
        "/elsewhere",
        "link: external other.h5 .* external x.h5",
    ),
    "a committed type": (
        lambda d: d["hdf5"]["annotations"]["/type"].update(committed=DOUBLE),
        "/type",
        "type: .*f4.*f8",
    ),
    "a chunk's place": (
        lambda d: d["refs"]["counts/0.0"].__setitem__(1, 77),
        "/counts",
        "places of 1 of 2 chunks: .*77",
    ),
    "a chunk's length": (lambda d: d["refs"]["counts/1.0"].__setitem__(2, 77), "/counts", "1.0 at byte .* 77 long"),
    "a chunk less": (lambda d: d["refs"].pop("counts/1.0"), "/counts", "chunks: 2 chunks, 1.0 .* not there"),
    "a block's place": (
        lambda d: d["refs"].update({k: [v[0], v[1] + 8, v[2]] for k, v in d["refs"].items() if k.startswith("long/0")}),
        "/long",
        "place: from byte",
    ),
    "a source of a chunk": (
        lambda d: d["refs"]["counts/0.0"].__setitem__(0, "b.h5"),
        "/",
        "address of the source: .*a.h5 .* b.h5",
    ),
    "a shape": (
        lambda d: d["refs"]["matrix/.zarray"].update(shape=[4, 3], chunks=[4, 3]),
        "/matrix",
        r"shape: \(3, 4\) .* \(4, 3\)",
    ),
    "a dtype": (lambda d: d["refs"]["matrix/.zarray"].update(dtype="<u2"), "/matrix", "type: .*i2.*u2"),
    "an enum": (
        lambda d: d["hdf5"]["annotations"]["/colours"]["dtype"]["enum"].update(RED=5),
        "/colours",
        r"type: \(b'RED', 0\) .* \(b'RED', 5\)",
    ),
    "filters": (lambda d: d["hdf5"]["annotations"]["/counts"].update(filters=[[1, [9], 1]]), "/counts", "filters"),
    "a maximal shape": (
        lambda d: d["hdf5"]["annotations"]["/counts"].update(maxshape=[None, 100]),
        "/counts",
        "maxshape",
    ),
    "a fill value": (lambda d: d["refs"]["counts/.zarray"].update(fill_value=3), "/counts", "fill value: 0 .* 3"),
    "an object less": (
        lambda d: [d["refs"].pop(key) for key in list(d["refs"]) if key.startswith("words/")],
        "/words",
        "object: dataset .* not there",
    ),
    "an object more": (
        lambda d: d["refs"].update({"new/.zgroup": {"zarr_format": 2}}),
        "/new",
        "object: not there .* group",
    ),
    "a dataset made a group": (
        lambda d: (
            [d["refs"].pop(key) for key in ("number/.zarray", "number/.zattrs", "number/0")]
            and d["refs"].update({"number/.zgroup": {"zarr_format": 2}})
        ),
        "/number",
        "kind: dataset .* group",
    ),
    "a link to an array": (
        lambda d: d["refs"]["ragged/.zattrs"]["_EXTERNAL_ARRAY_LINK"].update(name="/nowhere"),
        "/ragged",
        "link to an array: .*nowhere",
    ),
    "a link to another array": (
        lambda d: d["refs"]["ragged/.zattrs"]["_EXTERNAL_ARRAY_LINK"].update(name="/long"),
        "/ragged",
        "link to an array: .*/long",
    ),
    "the source of a link": (
        lambda d: d["refs"]["ragged/.zattrs"]["_EXTERNAL_ARRAY_LINK"].update(url="b.h5"),
        "/ragged",
        "address of the source",
    ),
    "the source": (lambda d: d["templates"].update(u="b.h5"), "/", "address of the source: .* b.h5"),
}


@pytest.mark.parametrize("name", sorted(LIES))
def test_refs_that_lie_are_told(name, sound):
    change, path, message = LIES[name]
    text = changed(sound, change)
    with lb.open(text) as file:
        assert "matrix" in file  # it opens, by its embedded metadata, as if nothing were
    found = lb.check(text)
    assert any(p.path == path for p in found), found
    told = next(p for p in found if p.path == path)
    assert told.kind == "contradiction"
    assert re.search(message, told.message), told.message
    follows = {"a source of a chunk": "/counts", "the source": "/ragged", "a source": "/ragged"}
    assert {p.path for p in found} <= {path, follows.get(name)}


METADATA_LIES = {
    "a value": lambda file: file["number"].__setitem__((), 43),
    "an attribute": lambda file: file["group"].attrs.modify("depth", np.int8(4)),
    "an attribute more": lambda file: file["group"].attrs.create("new", 1),
    "a shape": lambda file: (file.__delitem__("matrix"), file.create_dataset("matrix", data=np.zeros((4, 3), "i2"))),
    "an object less": lambda file: file.__delitem__("words"),
    "an object more": lambda file: file.create_group("new"),
    "a link": lambda file: (file.__delitem__("alias"), file.__setitem__("alias", h5py.SoftLink("/words"))),
    "a dtype": lambda file: (file.__delitem__("long"), file.create_dataset("long", data=np.arange(3000, dtype="f4"))),
    "chunks": lambda file: file["counts"].__setitem__(slice(0, 30), np.arange(3000).reshape(30, 100)),
}


@pytest.mark.parametrize("name", sorted(METADATA_LIES))
def test_metadata_that_lie_are_told(name, tmp_path):
    """The embedded metadata are those of another file than refs."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["matrix"] = np.arange(12, dtype="i2").reshape(3, 4)
        file.create_dataset("counts", data=np.ones((60, 100), "i8"), chunks=(30, 100), compression="gzip")
        file["long"] = np.arange(3000.0)
        file["number"] = np.int64(42)
        file["words"] = ["one", "two", "three"]
        file.create_group("group").attrs["depth"] = np.int8(3)
        file["alias"] = h5py.SoftLink("/group")
    before = lb.index(path).to_json()
    other = tmp_path / "b.h5"
    shutil.copy(path, other)
    with h5py.File(other, "r+") as file:
        METADATA_LIES[name](file)
    after = json.loads(lb.index(other, url=str(path)).to_json())
    assert lb.check(changed(before, lambda d: None)) == []
    found = lb.check(
        changed(before, lambda d: d.update(hdf5=after["hdf5"] | {"annotations": d["hdf5"]["annotations"]}))
    )
    assert found
    assert {p.kind for p in found} == {"contradiction"}


def test_all_faults_are_told_at_once(sound):
    """Those of the form, of the references, of the annotations, and the contradictions of what is left."""
    raw = json.loads(sound)
    raw["refs"]["matrix/.zarray"]["shape"] = "x"
    raw["refs"]["counts/0.0"][1] = -5
    raw["refs"]["alias/.zattrs"] = {"_SOFT_LINK": 5}
    raw["refs"]["group/.zattrs"]["depth"] = 300
    raw["refs"]["number/0"] = "base64:KwAAAAAAAAA="
    raw["generationMetadata"]["problems"] = 5
    found = lb.check(changed(sound, lambda d: d.update(raw)))
    told = {(p.kind, p.path) for p in found}
    assert told >= {
        ("schema", "/generationMetadata/problems"),
        ("schema", "/refs/matrix~1.zarray/shape"),
        ("schema", "/refs/counts~10.0"),
        ("schema", "/refs/alias~1.zattrs/_SOFT_LINK"),
        ("refs", "/matrix"),
        ("refs", "/counts"),
        ("refs", "/alias"),
        ("refs", "/group"),
        ("contradiction", "/number"),
    }
    assert ("contradiction", "/matrix") not in told  # told already


def test_a_fault_of_the_root_group_does_not_hide_the_rest(sound):
    def lie(raw):
        raw["refs"][".zattrs"] = {"k": 1}
        raw["hdf5"]["annotations"]["/"] = {"attributes": {"k": {"dtype": "|i1", "shape": [2, 2]}}}
        raw["refs"]["number/0"] = "base64:KwAAAAAAAAA="

    found = [(p.kind, p.path) for p in lb.check(changed(sound, lie))]
    assert found == [("refs", "/"), ("contradiction", "/number")]


@pytest.mark.parametrize("kind", ["attribute", "unreadable", "external_link"])
def test_a_list_of_problems_hides_nothing_that_is_there(sound, kind):
    def lie(raw):
        raw["refs"]["number/0"] = "base64:KwAAAAAAAAA="
        raw["refs"]["group/.zattrs"]["depth"] = 4
        listed = [{"path": path, "kind": kind, "message": ""} for path in ("/", "/number", "/group")]
        raw["generationMetadata"]["problems"] += listed

    assert {p.path for p in lb.check(changed(sound, lie))} == {"/number", "/group"}


@pytest.mark.parametrize("name", sorted(MALFORMED))
def test_what_cannot_be_opened_is_told_and_never_raised(name):
    refs, message = MALFORMED[name]
    found = lb.check(document(refs, templates={"u": "x"}))
    assert found or message is None
    assert all(len(p.message) < 3000 for p in found)


def test_a_damaged_section_does_not_hide_faults_of_refs(sound):
    raw = json.loads(sound)
    raw["hdf5"]["metadata"]["zlib"] = "!"
    raw["refs"]["counts/0.0"][1] = -5
    found = {(p.kind, p.path) for p in lb.check(json.dumps(raw).encode())}
    assert found >= {("document", "/"), ("refs", "/counts"), ("schema", "/refs/counts~10.0")}


@pytest.mark.parametrize("track_order", [False, True])
def test_the_first_name_of_an_object_may_lie_deeper_than_the_second(track_order, tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", track_order=track_order) as file:
        for name in ("b/c/d", "b/x"):
            file.create_group(name, track_order=track_order)
        file["z"] = np.arange(5)
        file["y"] = h5py.SoftLink("/z")
        file["b/c/first"] = file["z"]
        file["b/again"] = file["b/c"]
        file["a"] = file["b/c/d"]
        file["pointer"] = np.array([file["z"].ref], h5py.ref_dtype)
    document = write_document(path)
    raw = json.loads(document.read_text())
    assert raw["refs"]["z/.zattrs"] == {"_SOFT_LINK": {"path": "/b/again/first"}} or track_order
    with h5py.File(path) as expected, lb.open(document, prefer="annotations") as actual:
        assert compare_files(expected, actual, storage=False) == []


def test_second_names_may_stand_before_the_object(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["a"] = np.arange(5)
        file["b/c"] = file["a"]
    raw = json.loads(lb.index(path).to_json())
    raw["refs"] = dict(sorted(raw["refs"].items(), reverse=True))
    with h5py.File(path) as expected, lb.open(json.dumps(raw).encode(), prefer="annotations") as actual:
        assert compare_files(expected, actual, storage=False) == []


def test_keys_that_stand_twice_are_told(sound):
    text = sound.replace('"number/0":', '"number/0":"base64:KwAAAAAAAAA=","number/0":', 1)
    assert ("duplicate", "/refs") in {(p.kind, p.path) for p in lb.check(text.encode())}


def test_an_edited_document_is_no_fault(sound):
    raw = json.loads(sound)
    raw["refs"]["group/.zattrs"]["text"] = "edited"
    assert lb.check(json.dumps(raw).encode()) == []


def test_consolidated_metadata_that_lie_are_told(sound):
    raw = json.loads(sound)
    raw.pop("hdf5")
    copies = {k: v for k, v in raw["refs"].items() if k.endswith((".zarray", ".zattrs", ".zgroup"))}
    raw["refs"][".zmetadata"] = json.dumps({"zarr_consolidated_format": 1, "metadata": copies})
    assert lb.check(json.dumps(raw).encode()) == []
    raw["refs"]["matrix/.zarray"]["fill_value"] = 7
    (problem,) = lb.check(json.dumps(raw).encode())
    assert (problem.kind, problem.path) == ("contradiction", "/matrix/.zarray")


def test_nothing_is_asked_of_the_source(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.random.default_rng(0).random((1000, 200)), chunks=(10, 200))
        file["y"] = np.random.default_rng(0).random(100_000)
        file["words"] = [f"word {k}" for k in range(1000)]
    with RangeServer() as server:
        url = server.add("a.h5", path)
        document = tmp_path / "a.json"
        lb.index(url).save(document)
        address = server.add("a.json", document)
        server.reset()
        assert lb.check(address) == []
        assert {request.path for request in server.log} == {"/a.json"}


@pytest.mark.parametrize(
    "text", [b"{}", b'{"refs": 5}', b'{"refs": {"a": [', b"[]", b'{"refs": {"a": ' + b"1" * 5000 + b"}}", b"{[1]: 2}"]
)
def test_what_is_hardly_a_document_is_a_fault(text):
    with pytest.raises((lb.DocumentError, lb.NotHDF5Error)):
        lb.open(text)
    if text.startswith(b"{"):
        assert {p.kind for p in lb.check(text)} == {"document"}
    else:
        with pytest.raises(lb.DocumentError):
            lb.check(text)


_LARGE = """
import resource, sys
import lindi_bridge as lb
found = lb.check(sys.argv[1])
print(len(found), max(len(p.message) for p in found), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.parametrize("kind", ["text", "references", "arrays", "keys"])
def test_large_documents_take_memory_in_proportion(kind, tmp_path):
    """100 MB of text in one value, or hundreds of thousands of faults: the first of them are told."""
    zarray = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<i4", "fill_value": 0, "order": "C"}
    zarray |= {"filters": None, "compressor": None}
    if kind == "text":
        refs = {"x/.zarray": zarray, "x/0": "A" * 100_000_000}
    elif kind == "references":
        refs = {f"y/{k}": ["https://h/a", 0, -1] for k in range(300_000)}
    elif kind == "arrays":
        refs = {f"y{k}/.zarray": {**zarray, "shape": [-k - 1]} for k in range(100_000)}
    text = json.dumps({"refs": refs}) if kind != "keys" else '{"refs": {' + '"a": "b", ' * 500_000 + '"a": "c"}}'
    path = tmp_path / "a.json"
    path.write_text(text)
    done = subprocess.run([sys.executable, "-c", _LARGE, str(path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    count, longest, megabytes = map(int, done.stdout.split())
    assert 0 < count <= 2 * (MOST_PROBLEMS + 1)
    assert longest < 1000
    assert megabytes < 1500


@pytest.mark.parametrize("broken", ["{}8", "{},", "{},}", "{} {}", "{},,", "{} //"])
def test_a_document_with_more_after_its_end_is_broken(sound, broken):
    text = sound.rstrip()[:-1] + "}" + broken[2:]
    with pytest.raises(lb.DocumentError, match="broken JSON"):
        lb.open(text.encode())
    assert {p.kind for p in lb.check(text.encode())} == {"document"}


def test_refs_need_not_be_the_last_member(sound):
    """As another program may write it anew."""
    raw = json.loads(sound)
    moved = {"hdf5": raw.pop("hdf5"), "refs": raw.pop("refs"), **raw}
    text = json.dumps(moved)
    assert list(json.loads(text))[-1] == "templates"
    with lb.open(text.encode()) as file:
        assert "pending" not in file._file_object.properties  # it mounts
    assert lb.check(text.encode()) == []


def test_what_is_no_document_is_an_error(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = 1
    with pytest.raises(lb.DocumentError, match="not a reference document"):
        lb.check(path)
    with pytest.raises(FileNotFoundError):
        lb.check(tmp_path / "b.json")
