"""Documents: what is written is read back, edits are noticed, damage is an error of ours."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lindi_bridge as lb
from lindi_bridge.document.document import dump_document, parse_document
from lindi_bridge.document.metadata import read_refs
from lindi_bridge.document.refs import inline_text
from lindi_bridge.document.snapshot import snapshot_from_json, snapshot_to_json
from lindi_bridge.model.chunks import ChunkTable
from lindi_bridge.model.nodes import ArrayNode, GroupNode, Problem, ReferenceTree, SoftLinkNode
from lindi_bridge.model.snapshot import Departure, Fingerprint, HeapMap, Snapshot
from lindi_bridge.ranges import SourceIdentity

names = st.text(min_size=1, max_size=8).filter(lambda s: "/" not in s and s != "." and "\0" not in s)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | names,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(names, children, max_size=3),
    max_leaves=6,
)
attributes = st.dictionaries(names, json_values, max_size=3)


@st.composite
def tables(draw):
    grid = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    count = int(np.prod(grid))
    chosen = draw(st.lists(st.integers(0, count - 1), unique=True, max_size=count))
    index = np.array(sorted(chosen), np.int64)
    numbers = st.integers(0, 2**40)
    offset = np.array([draw(numbers) for _ in index], np.int64)
    nbytes = np.array([draw(st.integers(1, 2**31)) for _ in index], np.int64)
    return ChunkTable(grid, index, offset, nbytes, np.zeros(len(index), np.int64))


@st.composite
def arrays(draw):
    table = draw(st.none() | tables())
    grid = table.grid if table is not None else (1,)
    inline = draw(st.dictionaries(st.just(".".join("0" * len(grid))), st.binary(max_size=20), max_size=1))
    return ArrayNode(
        shape=tuple(2 * n for n in grid),
        chunks=(2,) * len(grid),
        dtype="<i4",
        fill_value=draw(st.integers(-5, 5)),
        filters=tuple(draw(st.lists(st.sampled_from([{"id": "zlib", "level": 4}, {"id": "fletcher32"}]), max_size=2))),
        attributes=draw(attributes),
        table=table,
        inline=inline if table is None else {},
        external=draw(st.none() | st.just("/somewhere")) if table is None else None,
    )


@st.composite
def trees(draw):
    tree = ReferenceTree({"/": GroupNode(draw(attributes))})
    for name in draw(st.lists(names, unique=True, max_size=5)):
        tree.nodes["/" + name] = draw(st.builds(GroupNode, attributes) | arrays() | st.builds(SoftLinkNode, names))
    tree.problems = draw(st.lists(st.builds(Problem, names, names, names), max_size=2))
    return tree


@st.composite
def snapshots(draw):
    size = 1 << 20
    position, pieces = 0, []
    for gap, data in draw(st.lists(st.tuples(st.integers(0, 5000), st.binary(min_size=1, max_size=300)), max_size=6)):
        pieces.append((position + gap, data))
        position += gap + len(data)
    heap = HeapMap(0, np.array([[8, 16], [4096, 4096]], np.int64), np.array([[0, 1], [1, 2]], np.int64))
    return Snapshot(
        url=draw(st.sampled_from(["https://host/a%20b.h5", "data/x.h5ad", 's3://b/quo"te.h5'])),
        identity=SourceIdentity(size, draw(st.none() | st.just('"tag"')), None),
        pieces=tuple(pieces),
        fingerprint=Fingerprint((0, 100), 64, ("00" * 8, "11" * 8)),
        heaps=draw(st.sampled_from([{}, {800: heap}])),
        departures=tuple(draw(st.lists(st.just(Departure("/l", "external_link", ("o.h5",))), max_size=1))),
        pairs=tuple(draw(st.lists(st.tuples(st.integers(0, size), st.integers(0, size)), max_size=3))),
    )


@given(trees(), snapshots())
def test_a_document_is_read_back(tree, snapshot):
    text = dump_document(tree, snapshot, {"generator": "test"})
    json.loads(text)
    document = parse_document(text)
    assert not document.edited
    assert [p["path"] for p in document.problems] == [p.path for p in tree.problems]
    found = document.snapshot
    assert (found.url, found.identity, found.fingerprint, found.departures, found.pairs) == (
        snapshot.url,
        snapshot.identity,
        snapshot.fingerprint,
        snapshot.departures,
        snapshot.pairs,
    )
    assert [(start, bytes(data)) for start, data in found.pieces] == list(snapshot.pieces)
    assert snapshot_to_json(found) == snapshot_to_json(snapshot)
    assert document.templates == {"u": snapshot.url}


@given(trees(), snapshots())
def test_refs_say_what_the_tree_says(tree, snapshot):
    refs = parse_document(dump_document(tree, snapshot, {})).refs()
    for path, node in tree.nodes.items():
        prefix = "" if path == "/" else path[1:] + "/"
        if isinstance(node, SoftLinkNode):
            assert refs[prefix + ".zattrs"] == {"_SOFT_LINK": {"path": node.target}}
        elif isinstance(node, GroupNode):
            assert refs.get(prefix + ".zattrs", {}) == node.attributes
        else:
            assert refs[prefix + ".zarray"]["shape"] == list(node.shape)
            keys = (
                {".".join(map(str, c)) for c in node.table.coordinates().tolist()} if node.table else set(node.inline)
            )
            assert {k for k in refs if k.startswith(prefix) and not k.rpartition("/")[2].startswith(".z")} >= {
                prefix + key for key in keys
            }


@given(trees(), snapshots(), st.randoms())
def test_another_writer_may_rearrange_but_not_edit(tree, snapshot, random):
    """LINDI expands and renames templates when it saves; that is no edit. Another value is."""
    raw = json.loads(dump_document(tree, snapshot, {}))
    items = list(raw["refs"].items())
    random.shuffle(items)
    expanded = {}
    for key, value in items:
        if isinstance(value, list):
            value = [value[0].replace("{{u}}", snapshot.url), *value[1:]]
        elif isinstance(value, dict):
            value = json.dumps(dict(sorted(value.items(), reverse=True)), indent=1)
        expanded[key] = value
    rearranged = {"refs": expanded, "hdf5": raw["hdf5"], "version": 1}
    assert not parse_document(json.dumps(rearranged)).edited
    edited = dict(expanded, added="x")
    document = parse_document(json.dumps({**rearranged, "refs": edited}))
    assert document.edited
    assert document.snapshot is None


def fitting(tree):
    """The tree without what no file has: members of what is no group, a name that is a link's path elsewhere."""
    return not any(isinstance(n, SoftLinkNode) and "\0" in n.target for n in tree.nodes.values())


@given(trees().filter(fitting), snapshots())
def test_refs_are_read_back(tree, snapshot):
    document = parse_document(dump_document(tree, snapshot, {}))
    found = read_refs(document.refs(), document.templates, snapshot.url)
    assert found.nodes.keys() == tree.nodes.keys()
    for path, node in tree.nodes.items():
        other = found.nodes[path]
        if isinstance(node, ArrayNode) and isinstance(other, ArrayNode):
            empty = node.table is None or not len(node.table)
            assert empty == (other.table is None)
            if not empty:
                columns = ("index", "offset", "nbytes", "filter_mask")
                assert all(np.array_equal(getattr(node.table, c), getattr(other.table, c)) for c in columns)
                assert (other.table.grid, other.table.source) == (node.table.grid, None)
            node, other = replace(node, table=None), replace(other, table=None)
        assert other == node
    assert found.sources in ([], [snapshot.url])
    assert not found.problems


@given(st.binary(max_size=60))
def test_inline_text_is_never_mistaken(data):
    text = inline_text(data)
    back = base64.b64decode(text[7:]) if text.startswith("base64:") else text.encode("ascii")
    assert back == data
    assert "{{" not in text


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("documents") / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(5000)
        file["s"] = ["a", "b"]
        file["s"].attrs["k"] = 3
    return lb.index(path).to_json()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_document_is_an_error_of_ours(text, data):
    """Or is read as it stands, where the damage is in what is not needed."""
    raw = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
        at = data.draw(st.integers(0, len(raw) - 1))
        if kind == "flip":
            raw[at] = data.draw(st.integers(32, 126))
        elif kind == "cut":
            del raw[at : at + data.draw(st.integers(1, 200))]
        else:
            raw[at:at] = data.draw(st.sampled_from([b"}", b'"', b"[[[[", b"1e999", b"null", b"\xff"]))
        if not raw:
            raw += b" "
    try:
        document = parse_document(raw.decode("utf-8", "replace"))
    except lb.DocumentError:
        return
    assert document.snapshot is None or document.snapshot.identity.size > 0


def _section(text):
    return json.loads(text)["hdf5"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(version=99), "newer lindi_bridge"),
        (lambda s: s["sources"].append(dict(s["sources"][0])), "damaged"),
        (lambda s: s["sources"][0].update(size=-1), "size or address"),
        (lambda s: s["sources"][0].update(size=10), "outside the file"),
        (lambda s: s["sources"][0].update(size=True), "size or address"),
        (lambda s: s["metadata"].update(nbytes=1 << 40), "impossible size"),
        (lambda s: s["metadata"]["ranges"].insert(0, [0, 1]), "overlap|impossible"),
        (lambda s: s["metadata"].update(zlib="***"), "damaged"),
        (lambda s: s["metadata"].update(zlib=base64.b64encode(zlib.compress(bytes(1 << 24))).decode()), "not as long"),
        (lambda s: s["metadata"].update(zlib=None), "damaged"),
        (lambda s: s.update(heaps={"8": {"step": 0, "collections": [[0, 1 << 50]], "blocks": []}}), "outside"),
        (lambda s: s.update(heaps={"8": {"step": 0, "collections": [], "blocks": [[0, 5]]}}), "not listed"),
        (lambda s: s.update(heaps=[]), "damaged"),
        (lambda s: s.update(sparse={"8": 16}), "not a list"),
        (lambda s: s.update(sparse=None), "not a list"),
        (lambda s: s.update(sparse=[[8, 16, 24]]), "damaged"),
        (lambda s: s.update(sparse=["ab"]), "size or address"),
        (lambda s: s.update(sparse=[8]), "damaged"),
        (lambda s: s.update(sparse=[[8, -1]]), "size or address"),
        (lambda s: s.update(sparse=[[8, 1 << 70]]), "size or address"),
        (lambda s: s.pop("fingerprint"), "damaged"),
    ],
)
def test_a_lying_section_is_refused(text, change, message):
    section = _section(text)
    snapshot_from_json(section)
    change(section)
    with pytest.raises(lb.DocumentError, match=message):
        snapshot_from_json(section)


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version":1}',
        '{"refs":[]}',
        '{"refs":{}',
        '{"refs" {}}',
        "{'refs':{}}",
        '{"refs":' + "[" * 100_000,
    ],
)
def test_what_is_no_document(broken):
    with pytest.raises(lb.DocumentError, match=r"not a reference document|broken JSON"):
        parse_document(broken)


def test_generated_references_are_refused():
    with pytest.raises(lb.DocumentError, match="gen"):
        parse_document('{"gen":[{"key":"{{i}}"}],"refs":{}}')


def test_a_document_of_another_program_is_rebuilt(tmp_path):
    path = tmp_path / "other.json"
    path.write_text(
        '{"version":1,"refs":{".zgroup":"{\\"zarr_format\\":2}",".zattrs":"{\\"k\\":[1,2]}","g/.zgroup":{}}}'
    )
    with lb.open(path) as file:
        assert list(file) == ["g"]
        assert file.attrs["k"].tolist() == [1, 2]


def test_an_edited_document_is_rebuilt(text, tmp_path):
    document = json.loads(text)
    document["refs"]["s/.zattrs"] = {"k": 4}
    path = tmp_path / "edited.lindi.json"
    path.write_text(json.dumps(document))
    with lb.open(path) as file:
        assert file["s"].attrs["k"] == 4
        assert file["s"].asstr()[:].tolist() == ["a", "b"]


def test_refs_of_an_unchanged_document_are_not_copied(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("refs", data=range(100), chunks=(10,))
    data = lb.index(tmp_path / "a.h5").to_json().encode()
    whole = json.loads(data)
    document = parse_document(data)
    assert isinstance(document.refs_json, memoryview)
    assert document.refs_json.obj is data
    assert not document.edited
    assert document.refs() == whole["refs"]
    twice = data.replace(b',\n"refs":', b',"refs":{},\n"refs":', 1)
    for other in (data + b"\n ", b"\xef\xbb\xbf" + data, json.dumps(whole, indent=1).encode(), twice):
        document = parse_document(other)
        assert isinstance(document.refs_json, str)
        assert not document.edited
        assert document.refs() == whole["refs"]
    changed = parse_document(data.replace(b'"zarr_format":2', b'"zarr_format": 2', 1))
    assert not changed.edited, "it means the same"
    assert parse_document(data.replace(b'"refs/0":', b'"refs/1":', 1)).edited
    with pytest.raises(lb.DocumentError, match="UTF-8"):
        parse_document(data.replace(b'"refs/0":', b'"refs/\xff":', 1))
