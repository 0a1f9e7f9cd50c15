"""docs/format.md, clause by clause: its examples are what is written, and what it says besides holds.

A check is named by the clause that it checks: ``test_clause[4.3]``. Where another test looks closer it is named.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import lindi_bridge as lb
from lindi_bridge.document import document as documents
from lindi_bridge.document.zstd import decoded_size

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
NUMBERS = re.findall(r"^\*\*(\d+\.\d+)", PAGE, re.MULTILINE)
TEXTS = dict(zip(NUMBERS, re.split(r"^\*\*\d+\.\d+", PAGE, flags=re.MULTILINE)[1:], strict=True))
_BLOCK = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)

Check = Callable[["Written"], None]
CHECKS: dict[str, Check] = {}


class Written:
    """The file of the page, and its documents in both profiles."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "small.h5"
        self.path = folder / "small.json"
        self.document = self.index("lindi")
        self.refs = self.document["refs"]
        self.section = self.document["hdf5"]
        self.annotations = self.section["annotations"]
        self.zarr = self.index("zarr")

    def index(self, profile: str) -> Any:
        path = self.path if profile == "lindi" else self.folder / "small.zarr.json"
        lb.index(self.source, profile=profile).save(path)
        return json.loads(path.read_text())

    def changed(self, change: Callable[[Any], None]) -> Path:
        raw = json.loads(self.path.read_text())
        change(raw)
        path = self.folder / "changed.json"
        path.write_text(json.dumps(raw))
        return path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("format")
    (maker,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(maker.replace('"small.h5"', repr(str(folder / "small.h5"))), {})
    return Written(folder)


def of(number: str) -> Callable[[Check], Check]:
    def note(check: Check) -> Check:
        CHECKS[number] = check
        return check

    return note


def test_every_clause_is_checked() -> None:
    assert sorted(CHECKS) == sorted(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_clause(number: str, written: Written) -> None:
    document = written.zarr if number.startswith("7.") else written.document
    for text in _BLOCK.findall(TEXTS[number]):
        example = json.loads(text)
        whole = set(example) & {"version", "hdf5", "problems"}
        assert_is_part_of(example, document if whole else document["refs"])
    CHECKS[number](written)


def assert_is_part_of(example: Any, document: Any) -> None:
    """Every key of the example is in the document, with the same value as far as it depends on us alone."""
    if "problems" in example:
        document = document["generationMetadata"]
    if example.get("hdf5"):
        section, found = example["hdf5"], document["hdf5"]
        for path, annotation in section["annotations"].items():
            assert found["annotations"][path] == annotation
        if not section["annotations"]:
            assert section.keys() == found.keys()
            assert section["metadata"].keys() == found["metadata"].keys()
            assert section["sources"][0].keys() == found["sources"][0].keys()
            assert section["external"] == found["external"]
        return
    for key, value in example.items():
        if isinstance(value, list) and value and value[0] == "{{u}}":
            assert document[key][0] == "{{u}}"
            assert len(document[key]) == 3
        elif key not in ("generationMetadata", "hdf5", "refs", "templates"):
            assert document[key] == value, key
        else:
            assert value.keys() <= document[key].keys()


# -- 1. The document --------------------------------------------------------------------------------------------------


@of("1.1")
def _(written: Written) -> None:
    path = written.folder / "small.json.zst"
    lb.index(written.source).save(path)
    assert decoded_size(path.read_bytes())
    with lb.open(path) as file:
        assert file["number"][()] == 42


@of("1.2")
def _(written: Written) -> None:
    assert [*written.document] == ["version", "generationMetadata", "templates", "hdf5", "refs"]
    assert written.document["version"] == 1


@of("1.3")
def _(written: Written) -> None:
    """A mount never parses ``refs``: what does is out of order here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "load_refs", None)
        with lb.open(written.path) as file:
            assert np.array_equal(file["group/level"][:], np.arange(3000.0))
            assert file["group"].attrs["depth"] == 3


@of("1.4")
def _(written: Written) -> None:
    assert written.document["templates"] == {"u": "small.h5"}
    assert not any("{{" in key for key in written.refs)
    moved = written.folder / "elsewhere"
    moved.mkdir()
    for path in (written.source, written.path):
        (moved / path.name).write_bytes(path.read_bytes())
    with lb.open(moved / "small.json") as file:
        assert file["group/level"][2999] == 2999


@of("1.5")
def _(written: Written) -> None:
    said = lb.index(written.source, url="https://host/small.h5?key=said").to_json()
    assert json.loads(said)["templates"]["u"] == "https://host/small.h5?key=said"
    # What is left out of an address that was not said: tests/network/test_credentials.py.


@of("1.6")
def _(written: Written) -> None:
    assert lb.check(written.path) == []
    found = lb.check(written.changed(lambda raw: raw["refs"]["matrix/.zarray"].update(order="X")))
    assert {"schema"} <= {problem.kind for problem in found}


# -- 2. Groups, arrays and chunks -------------------------------------------------------------------------------------


@of("2.1")
def _(written: Written) -> None:
    assert not any(key.startswith("/") for key in written.refs)
    assert all(isinstance(v, dict) for k, v in written.refs.items() if k.rpartition("/")[2].startswith(".z"))
    assert {} not in written.refs.values()
    path = written.folder / "names.h5"
    with h5py.File(path, "w") as file:
        h5py.h5g.create(file.id, b"a\xff")
        h5py.h5a.create(file["/"].id, b"b\xfe", h5py.h5t.STD_I32LE, h5py.h5s.create(h5py.h5s.SCALAR))
    text = lb.index(path).to_json()
    assert r'"a\udcff/.zgroup"' in text
    assert r'"b\udcfe":0' in text


@of("2.2")
def _(written: Written) -> None:
    address, offset, length = written.refs["counts/1.0"]
    assert address == "{{u}}"
    data = zlib.decompress(written.source.read_bytes()[offset : offset + length])
    assert len(data) == 30 * 100 * 4
    with pytest.raises(lb.DocumentError, match="key is not 2 numbers"):
        lb.open(written.changed(lambda raw: raw["refs"].update({"counts/00.0": raw["refs"]["counts/0.0"]})))


@of("2.3")
def _(written: Written) -> None:
    assert written.refs["counts/.zarray"]["chunks"] == [30, 100]
    path = written.folder / "missing.json"
    kept = {key: value for key, value in written.refs.items() if key != "counts/1.0"}
    path.write_text(json.dumps({"templates": written.document["templates"], "refs": kept}))
    with lb.open(path) as file:
        assert not file["counts"][40:].any()


@of("2.4")
def _(written: Written) -> None:
    source = written.folder / "block.h5"
    values = np.arange(3_000_000, dtype="i4")
    with h5py.File(source, "w") as file:
        file["x"] = values
    refs = json.loads(lb.index(source).to_json())["refs"]
    (rows,) = refs["x/.zarray"]["chunks"]
    assert {ref[2] for key, ref in refs.items() if isinstance(ref, list)} == {rows * 4}
    assert rows * 4 <= 5 * 1024 * 1024


@of("2.5")
def _(written: Written) -> None:
    assert written.refs["matrix/0.0"].startswith("base64:")
    source = written.folder / "inline.h5"
    with h5py.File(source, "w") as file:
        file["small"], file["large"] = np.zeros(128), np.zeros(129)
        file["words"] = ["a word"] * 1000
    refs = json.loads(lb.index(source).to_json())["refs"]
    assert isinstance(refs["small/0"], str)
    assert isinstance(refs["large/0"], list)
    assert refs["words/.zarray"]["compressor"]["id"] == "zlib"


@of("2.6")
def _(written: Written) -> None:
    assert written.refs["words/.zarray"]["filters"] == [{"id": "vlen-utf8"}]


@of("2.7")
def _(written: Written) -> None:
    assert written.refs["colours/.zarray"]["dtype"] == "|i1"
    source = written.folder / "types.h5"
    with h5py.File(source, "w") as file:
        file["b"], file["v"] = [True, False], np.zeros(2, "V5")
    refs = json.loads(lb.index(source).to_json())["refs"]
    assert (refs["b/.zarray"]["dtype"], refs["v/.zarray"]["dtype"]) == ("|b1", "|V5")


# -- 3. Attributes ----------------------------------------------------------------------------------------------------


@of("3.1")
def _(written: Written) -> None:
    assert written.refs["group/.zattrs"]["depth"] == 3


@of("3.2")
def _(written: Written) -> None:
    assert "nothing" not in written.refs[".zattrs"]
    typed = written.annotations["/group"]["attributes"]["depth"]
    assert typed == {"dtype": "|i1", "shape": []}


# -- 4. Annotations ---------------------------------------------------------------------------------------------------


@of("4.1")
def _(written: Written) -> None:
    with lb.open(written.path, prefer="annotations") as file:
        assert file["number"].shape == ()
        assert file["number"][()] == 42


@of("4.2")
def _(written: Written) -> None:
    with lb.open(written.path, prefer="annotations") as file:
        assert file.get("alias", getlink=True).path == "/group"
        assert file["same"] == file["matrix"]
        assert "same/0.0" not in written.refs


@of("4.3")
def _(written: Written) -> None:
    with lb.open(written.path, prefer="annotations") as file:
        assert file[file["group"].attrs["about"]] == file["matrix"]
        assert file[file["refs"][0]].name == "/group"
        assert file["counts"][file["regions"][0]].size == 20


@of("4.4")
def _(written: Written) -> None:
    with lb.open(written.path, prefer="annotations") as file:
        assert file["table"].dtype == np.dtype([("id", "i4"), ("x", "f8")])
        assert np.isnan(file["table"]["x"][1])
        assert file[file["links"]["what"][0]] == file["matrix"]


@of("4.5")
def _(written: Written) -> None:
    assert not any(re.fullmatch(r"ragged/[\d.]+", key) for key in written.refs)
    with lb.open(written.path, prefer="annotations") as file:
        assert [list(item) for item in file["ragged"]] == [[0, 1], [0, 1, 2], [0]]
    plain = h5py.File(lb.hdf5_file(written.path, prefer="annotations", allow_external=True))
    with plain, pytest.raises(lb.DocumentError, match="not in the document"):
        plain["ragged"][()]


# -- 5. The hdf5 section ----------------------------------------------------------------------------------------------


@of("5.1")
def _(written: Written) -> None:
    with h5py.File(written.source) as expected, lb.open(written.path) as actual:
        assert [*expected] == [*actual]


@of("5.2")
def _(written: Written) -> None:
    with pytest.raises(lb.DocumentError, match="newer"):
        lb.open(written.changed(lambda raw: raw["hdf5"].update(version=2)))


@of("5.3")
def _(written: Written) -> None:
    (source,) = written.section["sources"]
    assert (source["url"], source["size"]) == ("small.h5", written.source.stat().st_size)


@of("5.4")
def _(written: Written) -> None:
    samples, data = written.section["fingerprint"], written.source.read_bytes()
    pieces = [data[start : start + samples["length"]] for start in samples["starts"]]
    assert samples["blake2b"] == [hashlib.blake2b(piece, digest_size=8).hexdigest() for piece in pieces]


@of("5.5")
def _(written: Written) -> None:
    metadata, data = written.section["metadata"], written.source.read_bytes()
    held = zlib.decompress(base64.b64decode(metadata["zlib"]))
    assert held == b"".join(data[start : start + length] for start, length in metadata["ranges"])
    assert len(held) == metadata["nbytes"]
    # What `values` hold is looked at in test_embedded_values.py.


@of("5.6")
def _(written: Written) -> None:
    assert written.section["external"] == [{"path": "/elsewhere", "kind": "external_link", "files": ["other.h5"]}]
    # What `heaps` say is looked at in tests/network/test_open_remote.py: strings in one wave.


@of("5.7")
def _(written: Written) -> None:
    """That these are enough for every feature, and that contradictions are refused: test_annotations.py."""
    keys = set(re.findall(r"^\|[^|]*\| ((?:`[a-z_0-9]+`(?:, )?)+) \|", TEXTS["5.7"] + TEXTS["7.11"], re.MULTILINE))
    known = {name for text in keys for name in re.findall(r"`([a-z_0-9]+)`", text)}
    used = {
        key
        for document in (written.document, written.zarr)
        for a in document["hdf5"]["annotations"].values()
        for key in a
    }
    assert used <= known
    path = written.folder / "fill.h5"
    with h5py.File(path, "w") as file:
        fill = np.longdouble(1) / 3
        file.create_dataset("x", (2,), "g", fillvalue=fill)
        file["t"] = np.dtype("i4")
        file.attrs.create("a", 1, dtype=file["t"])
    lb.index(path).save(path.with_suffix(".json"))
    annotations = json.loads(path.with_suffix(".json").read_text())["hdf5"]["annotations"]
    assert np.frombuffer(base64.b64decode(annotations["/x"]["fill_value"]), "g")[0] == fill
    assert annotations["/"]["attributes"]["a"]["committed_type"] == "/t"


@of("5.8")
def _(written: Written) -> None:
    text = written.path.read_text()
    refs = text[text.index('"refs":{".z') + len('"refs":') : text.rindex("}")]
    assert hashlib.blake2b(refs.encode(), digest_size=16).hexdigest() == written.section["refs"]["blake2b"]
    with lb.open(written.changed(lambda raw: raw.update(refs=dict(reversed(raw["refs"].items()))))) as file:
        assert "heaps" in file._file_object.properties
        assert "tree" not in file._file_object.properties, "rearranged only"
    with lb.open(written.changed(lambda raw: raw["refs"]["group/.zattrs"].update(depth=4))) as file:
        assert file["group"].attrs["depth"] == 4


@of("5.9")
def _(written: Written) -> None:
    """Everywhere, and that damage is refused: test_exact_annotations.py."""
    path = written.folder / "nan.h5"
    (value,) = re.findall(r"the value\s`(.*?)`\sin\s`.zattrs`", TEXTS["5.9"])
    (annotation,) = re.findall(r'`({"dtype".*?}})`', TEXTS["5.9"], re.DOTALL)
    with h5py.File(path, "w") as file:
        file.attrs["x"] = np.array([1, -np.nan])
    lb.index(path).save(path.with_suffix(".json"))
    document = json.loads(path.with_suffix(".json").read_text())
    assert document["refs"][".zattrs"]["x"] == json.loads(value)
    assert document["hdf5"]["annotations"]["/"]["attributes"]["x"] == json.loads(annotation)
    with lb.open(path.with_suffix(".json"), prefer="annotations") as rebuilt:
        assert np.signbit(rebuilt.attrs["x"]).tolist() == [False, True]


@of("5.10")
def _(written: Written) -> None:
    """When they are listed, and that lies do no harm: tests/network/test_pairing.py."""
    assert written.section["sparse"] == []
    path = written.folder / "sparse.h5"
    with h5py.File(path, "w") as file:
        for name in ("data", "indices"):
            file.create_dataset(f"X/{name}", data=np.arange(100), chunks=(10,))
        file["X/indptr"] = np.arange(5)
        headers = [h5py.h5o.get_info(file["X"][name].id).addr for name in ("data", "indices")]
    lb.index(path).save(path.with_suffix(".json"))
    document = json.loads(path.with_suffix(".json").read_text())
    assert document["hdf5"]["sparse"] == [headers]
    del document["hdf5"]["sparse"]
    path.with_suffix(".json").write_text(json.dumps(document))
    with h5py.File(lb.hdf5_file(path.with_suffix(".json"))) as file:
        assert (file["X/data"][:] == np.arange(100)).all()


# -- 6. What could not be expressed -----------------------------------------------------------------------------------


@of("6.1")
def _(written: Written) -> None:
    """Odd types and fill values: test_odd_objects.py."""
    problems = {problem["path"]: problem["kind"] for problem in written.document["generationMetadata"]["problems"]}
    assert problems == {"/elsewhere": "external_link", "/type": "committed_datatype"}
    assert not any(key.startswith(("elsewhere", "type")) for key in written.refs)


# -- 7. The profile zarr: read by other libraries in tests/interop/test_zarr_profile.py -------------------------------


@of("7.1")
def _(written: Written) -> None:
    assert written.zarr["generationMetadata"]["profile"] == "zarr"
    text = json.dumps(written.zarr["refs"])
    assert not re.search("_SCALAR|_SOFT_LINK|_COMPOUND_DTYPE|_EXTERNAL_ARRAY_LINK", text)


@of("7.2")
def _(written: Written) -> None:
    refs = written.zarr["refs"]
    assert next(iter(refs)) == ".zmetadata"
    consolidated = json.loads(refs[".zmetadata"])["metadata"]
    assert consolidated == {k: json.loads(v) for k, v in refs.items() if re.search(r"(^|/)\.z(group|array|attrs)$", k)}
    assert written.zarr["templates"]["u"] == str(written.source)


@of("7.3")
def _(written: Written) -> None:
    assert json.loads(written.zarr["refs"]["number/.zarray"])["shape"] == []


@of("7.4")
def _(written: Written) -> None:
    rows = np.frombuffer(base64.b64decode(written.zarr["refs"]["table/0"][7:]), [("id", "<i4"), ("x", "<f8")])
    assert rows["id"].tolist() == [1, 2]


@of("7.5")
def _(written: Written) -> None:
    listed = {p["path"]: p["kind"] for p in written.zarr["generationMetadata"]["problems"]}
    assert {listed[path] for path in ("/refs", "/regions", "/links", "/ragged")} == {"datatype"}


@of("7.6")
def _(written: Written) -> None:
    arrays = [json.loads(v) for k, v in written.zarr["refs"].items() if k.endswith(".zarray")]
    assert {array["fill_value"] for array in arrays} == {None}


@of("7.7")
def _(written: Written) -> None:
    refs = written.zarr["refs"]
    assert refs["same/0.0"] == refs["matrix/0.0"]
    assert refs["alias/level/0"] == refs["group/level/0"]


@of("7.8")
def _(written: Written) -> None:
    assert "ratio" not in json.loads(written.zarr["refs"][".zattrs"])
    assert "Infinity" not in written.zarr["refs"][".zattrs"]


@of("7.9")
def _(written: Written) -> None:
    assert not any("_ARRAY_DIMENSIONS" in str(value) for value in written.zarr["refs"].values())


@of("7.10")
def _(written: Written) -> None:
    kinds = set(
        re.findall(r"`([a-z_]+)`", TEXTS["6.1"].partition("They have")[0] + TEXTS["7.10"].partition(", for")[0])
    )
    assert {problem["kind"] for problem in written.zarr["generationMetadata"]["problems"]} <= kinds


@of("7.11")
def _(written: Written) -> None:
    path = written.folder / "small.zarr.json"
    with lb.open(path, prefer="annotations") as file:
        assert file["same"] == file["matrix"]
        assert file.get("alias", getlink=True).path == "/group"


@of("7.12")
def _(written: Written) -> None:
    """Read by xarray: tests/interop/test_zarr_profile.py."""
    assert not any("_ARRAY_DIMENSIONS" in str(value) for value in written.refs.values())
