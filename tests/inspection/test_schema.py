"""The JSON Schema: every document that is made, and every foreign one, is as it says; and it says no to others."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

import lindi_bridge as lb
from lindi_bridge.document.schema import is_plain_pairs, is_plain_reference, load_schema, schema_problems

jsonschema = pytest.importorskip("jsonschema")

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = sorted((ROOT / "tests" / "data" / "foreign").glob("*.json"))
FORMAT = ROOT / "docs" / "format.md"


def problems(document):
    refs = document["refs"]
    return list(schema_problems({k: v for k, v in document.items() if k != "refs"}, refs))


def whole(document):
    """Errors of the validator alone, for a document whose metadata are objects."""
    return list(jsonschema.Draft202012Validator(load_schema()).iter_errors(document))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The document of the file that the format's page is about."""
    folder = tmp_path_factory.mktemp("small")
    (maker,) = re.findall(r"^```python\n(.*?)^```$", FORMAT.read_text(), re.MULTILINE | re.DOTALL)
    exec(maker.replace('"small.h5"', repr(str(folder / "small.h5"))), {})
    return json.loads(lb.index(folder / "small.h5").to_json())


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(load_schema())


def test_the_document_of_the_format_is_as_the_schema_says(small):
    assert whole(small) == []
    assert problems(small) == []


def test_every_json_example_of_the_format_is_as_the_schema_says():
    examples = [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```$", FORMAT.read_text(), re.M | re.S)]
    assert len(examples) > 10
    definitions = load_schema()["$defs"]
    for example in examples:
        if "version" in example:
            assert [e.message for e in whole(example) if list(e.absolute_path)[:1] != ["hdf5"]] == []
            continue
        name = next((n for n in ("hdf5", "problems") if n in example), "refs")
        value = example["hdf5"] if name == "hdf5" else example
        definition = {"problems": "generationMetadata"}.get(name, name)
        schema = {**definitions[definition], "$defs": definitions}
        if name == "hdf5":
            schema.pop("required")  # examples leave most of it out
        assert [e.message for e in jsonschema.Draft202012Validator(schema).iter_errors(value)] == []


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.name)
def test_documents_of_other_programs_are_as_the_schema_says(path):
    assert problems(json.loads(path.read_text())) == []


def at(document, *path):
    for part in path:
        document = document[part]
    return document


FAULTS = {
    "another version": (lambda d: d.update(version=2), "/version"),
    "generated references": (lambda d: d.update(gen=[]), "/gen"),
    "a template of a number": (lambda d: d["templates"].update(u=5), "/templates/u"),
    "no size of the source": (lambda d: d["hdf5"]["sources"][0].pop("size"), "/hdf5/sources/0"),
    "two sources": (lambda d: d["hdf5"]["sources"].append(d["hdf5"]["sources"][0]), "/hdf5/sources"),
    "a range of three": (lambda d: d["hdf5"]["metadata"]["ranges"].append([1, 2, 3]), "/hdf5/metadata/ranges/1"),
    "a negative range": (lambda d: d["hdf5"]["metadata"]["ranges"].append([-1, 2]), "/hdf5/metadata/ranges/1/0"),
    "a heap without blocks": (
        lambda d: d["hdf5"]["heaps"].update({"80": {"step": 0, "collections": []}}),
        "/hdf5/heaps/80",
    ),
    "no digest": (lambda d: d["hdf5"]["refs"].update(blake2b="xyz"), "/hdf5/refs/blake2b"),
    "an unknown dtype": (
        lambda d: d["hdf5"]["annotations"]["/colours"].update(dtype={"colour": 1}),
        "/hdf5/annotations/~1colours/dtype",
    ),
    "a hard link that is none": (
        lambda d: d["hdf5"]["annotations"]["/same"].update(hard=False),
        "/hdf5/annotations/~1same/hard",
    ),
    "a reference of two": (lambda d: d["refs"].update({"counts/0.0": ["a", 1]}), "/refs/counts~10.0"),
    "a reference without address": (lambda d: d["refs"].update({"counts/0.0": ["", 1, 2]}), "/refs/counts~10.0"),
    "a reference of nothing": (lambda d: d["refs"].update({"counts/0.0": ["a", 1, 0]}), "/refs/counts~10.0"),
    "a number for a chunk": (lambda d: d["refs"].update({"counts/0.0": 7}), "/refs/counts~10.0"),
    "an array without a dtype": (lambda d: d["refs"]["matrix/.zarray"].pop("dtype"), "/refs/matrix~1.zarray"),
    "a negative shape": (lambda d: d["refs"]["matrix/.zarray"].update(shape=[-1, 4]), "/refs/matrix~1.zarray/shape/0"),
    "a codec without id": (
        lambda d: d["refs"]["counts/.zarray"].update(compressor={"level": 4}),
        "/refs/counts~1.zarray/compressor",
    ),
    "a scalar that is none": (
        lambda d: d["refs"]["number/.zattrs"].update(_SCALAR=False),
        "/refs/number~1.zattrs/_SCALAR",
    ),
    "a link to a number": (
        lambda d: d["refs"]["alias/.zattrs"].update(_SOFT_LINK={"path": 5}),
        "/refs/alias~1.zattrs/_SOFT_LINK/path",
    ),
    "an external link without a name": (
        lambda d: d["refs"]["ragged/.zattrs"]["_EXTERNAL_ARRAY_LINK"].pop("name"),
        "/refs/ragged~1.zattrs/_EXTERNAL_ARRAY_LINK",
    ),
    "a compound without types": (
        lambda d: d["refs"]["table/.zattrs"].update(_COMPOUND_DTYPE=[["id"]]),
        "/refs/table~1.zattrs/_COMPOUND_DTYPE/0",
    ),
    "a reference to a number": (
        lambda d: d["refs"]["group/.zattrs"]["about"]["_REFERENCE"].update(path=5),
        "/refs/group~1.zattrs/about/_REFERENCE/path",
    ),
    "a problem without a kind": (
        lambda d: d["generationMetadata"]["problems"][0].pop("kind"),
        "/generationMetadata/problems/0",
    ),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_what_is_otherwise_is_told_with_its_place(name, small):
    change, pointer = FAULTS[name]
    document = copy.deepcopy(small)
    change(document)
    (problem,) = problems(document)
    assert problem.kind == "schema"
    assert problem.path == pointer
    assert 5 < len(problem.message) < 300
    assert whole(document), "the schema alone says so too"


def test_metadata_in_text_are_looked_into(small):
    document = copy.deepcopy(small)
    for key, value in document["refs"].items():
        if isinstance(value, dict):
            document["refs"][key] = json.dumps(value)
    assert problems(document) == []
    document["refs"]["matrix/.zarray"] = document["refs"]["matrix/.zarray"].replace("[3, 4]", "[3, -4]", 1)
    document["refs"]["counts/.zattrs"] = "{"
    assert {p.path for p in problems(document)} == {"/refs/matrix~1.zarray/shape/1", "/refs/counts~1.zattrs"}


REFERENCES = ["", "text", "base64:AA==", 5, None, True, {}, [], ["a"], [""], [5], ["a", 1], ["a", 0, 1], ["a", 1, 0]]
REFERENCES += [
    ["a", -1, 1],
    ["a", 1.5, 1],
    ["a", True, 1],
    ["a", 1, True],
    ["a", 1, 2, 3],
    ["", 1, 2],
    ["a" * 65537, 1, 2],
]
REFERENCES += [["a", "1", 2], ["a", 2**80, 2], [None, 1, 2], [["a"], 1, 2]]
PAIRS = [
    [],
    [[0, 1]],
    [[0, 1], [2, 3]],
    [[0]],
    [[0, 1, 2]],
    [[0, -1]],
    [[True, 1]],
    [[0, 1.5]],
    [["0", 1]],
    {},
    None,
    [5],
    [None],
]


def test_the_fast_loops_say_what_the_schema_says():
    definitions = load_schema()["$defs"]
    for loop, name, values in ((is_plain_reference, "reference", REFERENCES), (is_plain_pairs, "pairs", PAIRS)):
        validator = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions})
        for value in values:
            # [address] alone, for a whole file, is left to the validator.
            assert loop(value) == (validator.is_valid(value) and value != ["a"]), value


def test_large_documents_go_round_the_validator(monkeypatch):
    """Of many sound chunk references, ranges and equal metadata, the validator sees next to nothing."""
    seen = []
    original = jsonschema.Draft202012Validator.iter_errors

    def counting(self, instance, *args, **options):
        seen.append(instance)
        return original(self, instance, *args, **options)

    monkeypatch.setattr(jsonschema.Draft202012Validator, "iter_errors", counting)
    refs = {f"x/{k}": ["{{u}}", k, 1] for k in range(20_000)}
    refs |= {f"g{k}/.zgroup": {"zarr_format": 2} for k in range(5_000)}
    head = {"hdf5": {"metadata": {"nbytes": 0, "ranges": [[2 * k, 1] for k in range(20_000)], "zlib": ""}}}
    found = list(schema_problems(head, refs))
    assert len(found) == 1  # members of hdf5 that are missing
    assert len(seen) < 60


@pytest.mark.parametrize("depth", [100, 100_000])
def test_what_is_nested_deeply_is_told(depth):
    refs = {"x/.zattrs": '{"a":' + "[" * depth + "]" * depth + "}"}
    found = list(schema_problems({}, refs))
    assert [p.path for p in found] == ([] if depth == 100 else ["/refs/x~1.zattrs"])


def test_values_are_told_in_few_words():
    refs = {
        "x/0": {"a": "b" * 10_000_000},
        "x/1": 10**4000,
        "y/.zattrs": {"_SOFT_LINK": "c" * 10_000_000},
        "x/2": 1e308,
    }
    for problem in schema_problems({}, refs):
        assert len(problem.message) < 300


def test_without_jsonschema_the_extra_is_named(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(3)
    lb.index(tmp_path / "a.h5").save(tmp_path / "a.json")
    code = (
        "import sys; sys.modules['jsonschema'] = None; import lindi_bridge as lb\n"
        f"try: lb.check({str(tmp_path / 'a.json')!r})\nexcept lb.MissingDependencyError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "lindi_bridge[check]" in done.stdout


@pytest.mark.full
def test_the_schema_is_in_the_wheel(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", tmp_path, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert "lindi_bridge/document/schema.json" in zipfile.ZipFile(wheel).namelist()
