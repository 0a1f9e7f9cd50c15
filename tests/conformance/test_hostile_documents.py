"""Documents that a stranger made: a clear error of ours, in bounded time and memory, and nothing opened by the way."""

from __future__ import annotations

import base64
import json
import resource
import subprocess
import sys
import time
import zlib

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb
from lindi_bridge.client.access import AccessOptions
from lindi_bridge.client.sources import locate

ZARRAY = {
    "zarr_format": 2,
    "shape": [4],
    "chunks": [4],
    "dtype": "<i4",
    "fill_value": 0,
    "order": "C",
    "filters": None,
    "compressor": None,
}
GROUP = {".zgroup": {"zarr_format": 2}}


def array(name="x", refs=None, attributes=None, **changes):
    out = {**GROUP, f"{name}/.zarray": {**ZARRAY, **changes}, **{f"{name}/{k}": v for k, v in (refs or {}).items()}}
    if attributes is not None:
        out[f"{name}/.zattrs"] = attributes
    return out


def document(refs, **members):
    return json.dumps({"version": 1, **members, "refs": refs}).encode()


BOMB = "base64:" + base64.b64encode(zlib.compress(bytes(1 << 26))).decode()
ZEROS = "base64:" + base64.b64encode(bytes(512)).decode()
PICKLE = "base64:" + base64.b64encode(b"cos\nsystem\n(S'true'\ntR.").decode()
DEEP = "[" * 100_000
JSON2 = {"id": "json2"}

MALFORMED = {
    "shape of text": (array(shape="4"), "shape and chunks"),
    "negative shape": (array(shape=[-1]), "shape and chunks"),
    "a boolean shape": (array(shape=[True]), "shape and chunks"),
    "shape beyond all files": (array(shape=[2**62, 2**62], chunks=[1, 1]), "impossibly large"),
    "a shape that no address space holds": (array(shape=[2**61], chunks=[2**61]), "impossibly large"),
    "too many axes": (array(shape=[1] * 33, chunks=[1] * 33), "shape and chunks"),
    "chunks of zero": (array(chunks=[0]), "no size along an axis"),
    "other rank": (array(chunks=[4, 4]), "shape and chunks"),
    "unknown dtype": (array(dtype="<q9"), "does not know"),
    "an element of 900 MB": (array(dtype="|S900000000"), "impossibly large"),
    "nested fields without end": (
        array(dtype=json.loads('[["a",' * 40 + '"<i4"' + "]]" * 40)),
        "neither a type string",
    ),
    "an object in a field": (array(dtype=[["a", "|O"]]), None),
    "an object in an unknown field": (array(dtype=[["a", "|O5"]]), "does not know"),
    "negative offset": (array(refs={"0": ["https://h/a", -5, 16]}), "no range of bytes"),
    "length of zero": (array(refs={"0": ["https://h/a", 5, 0]}), "no range of bytes"),
    "a float offset": (array(refs={"0": ["https://h/a", 5.0, 16]}), "no range of bytes"),
    "an end beyond all files": (array(refs={"0": ["https://h/a", 2**63, 16]}), "which no file has"),
    "a chunk outside": (array(refs={"7": ["https://h/a", 0, 16]}), "outside the array"),
    "a chunk twice": (array(refs={"0": ["https://h/a", 0, 16], "00": ["https://h/a", 0, 16]}), "not 1 numbers"),
    "a chunk twice, once as text": (array(refs={"0": ["https://h/a", 0, 16], "00": "0123456789abcdef"}), "not 1 num"),
    "a chunk key with a huge number": (array(refs={"9" * 40: ["https://h/a", 0, 16]}), "not 1 numbers"),
    "a chunk of another rank": (array(refs={"0.0": ["https://h/a", 0, 16]}), "not 1 numbers"),
    "a number as a reference": (array(refs={"0": 5}), "not a reference"),
    "four members": (array(refs={"0": ["https://h/a", 0, 16, 1]}), "not a reference"),
    "a reference to no array": ({**GROUP, "y/0": ["https://h/a", 0, 1]}, "belongs to no array"),
    "a short chunk in the middle": (
        array(shape=[8], refs={"0": ["https://h/a", 0, 12], "1": ["https://h/a", 100, 16]}),
        "12 bytes|shorter",
    ),
    "a long chunk": (array(shape=[8], refs={"0": ["https://h/a", 0, 17], "1": ["https://h/a", 17, 17]}), "17 bytes"),
    "pickle": (array(dtype="|O", filters=[{"id": "pickle"}], refs={"0": PICKLE}), None),
    "pickle of numbers": (array(filters=[{"id": "pickle"}], refs={"0": PICKLE}), None),
    "a bomb": (array(compressor={"id": "zlib", "level": 9}, refs={"0": BOMB}), "more than 16 bytes"),
    "a bomb of strings": (
        array(
            dtype="|O", filters=[{"id": "vlen-utf8"}], refs={"0": "base64:" + base64.b64encode(b"\xff" * 8).decode()}
        ),
        "does not hold 4 strings",
    ),
    "text that promises a large array": (array(shape=[10**9], chunks=[10**9], refs={"0": "abc"}), "too many"),
    "no base64": (array(refs={"0": "base64:###"}), "not base64"),
    "short text": (array(refs={"0": "abc"}), "3 bytes, not 16"),
    "JSON of unknown things": (array(dtype="|O", filters=[JSON2], refs={"0": '[1,2,3,4,"|O",[4]]'}), None),
    "JSON without end": (array(dtype="|O", filters=[JSON2], refs={"0": DEEP}), "broken JSON"),
    "metadata that are no JSON": ({**GROUP, "x/.zarray": DEEP}, "broken JSON"),
    "metadata that are a list": ({**GROUP, "x/.zarray": []}, "not a JSON object"),
    "a compound without types": (
        array(dtype="|O", filters=[JSON2], attributes={"_COMPOUND_DTYPE": 5}, refs={"0": '["|O",[4]]'}),
        "_COMPOUND_DTYPE",
    ),
    "a scalar of four": (array(attributes={"_SCALAR": True}), "_SCALAR"),
    "a scalar that is compressed": (
        array(shape=[], chunks=[], compressor={"id": "zlib", "level": 4}, refs={"0": ["https://h/a", 0, 9]}),
        None,
    ),
    "a scalar that is too short": (array(shape=[], chunks=[], refs={"0": ["https://h/a", 0, 2]}), "2 bytes, not 4"),
    "a scalar that is too long": (array(shape=[], chunks=[], refs={"0": ["https://h/a", 0, 400]}), "400 bytes, not 4"),
    "a soft link to a number": ({**GROUP, "x/.zattrs": {"_SOFT_LINK": {"path": 5}}}, "_SOFT_LINK"),
    "an external link to a number": (array(attributes={"_EXTERNAL_ARRAY_LINK": {"url": 5}}), "_EXTERNAL_ARRAY_LINK"),
    "an undefined template": (array(refs={"0": ["{{v}}", 0, 16]}), "'v' is not defined"),
    "a call in a template": (array(refs={"0": ["{{u.__class__}}", 0, 16]}), "not defined"),
    "a name with a null": ({**GROUP, "a\0b/.zgroup": {}}, "null character"),
    "levels without end": ({**GROUP, "a/" * 3000 + ".zgroup": {}}, "levels deep"),
    "an array in an array": ({**array(), "x/y/.zarray": ZARRAY}, "no group"),
    "an address with a line break": (array(refs={"0": ["https://h/a\r\nX: y", 0, 16]}), "control characters"),
    "an unknown scheme": (array(refs={"0": ["gopher9://h/a", 0, 16]}), "gopher9"),
    "fill value of another type": (array(fill_value={"a": 1}), "fill value"),
    "fill value between two integers": (array(fill_value=1.5), "another number"),
    "fill value that is text": (array(fill_value="abc", dtype="|b1"), "fill value"),
    "fill value that is too large": (array(fill_value=1e300, dtype="<f4"), "too large"),
    "fill value that is too long": (array(fill_value="YWJjZA==", dtype="|S2"), "as long as an element"),
    "packed bits in packed bits": (
        array(shape=[8], chunks=[8], dtype="|u1", filters=[{"id": "packbits"}] * 9, refs={"0": ZEROS}),
        "decodes to more than",
    ),
    "small differences of large numbers": (
        array(filters=[{"id": "delta", "dtype": "<i8", "astype": "|i1"}] * 4, refs={"0": ZEROS}),
        "decodes to more than",
    ),
    "scaled objects": (
        array(filters=[{"id": "fixedscaleoffset", "scale": 1, "offset": 0, "dtype": "|O"}], refs={"0": ZEROS}),
        "no numbers",
    ),
    "an unknown byte order in v3": (
        {**GROUP, "x/zarr.json": {"zarr_format": 3, "node_type": "array", "shape": [4]}},
        "not a 'regular'",
    ),
}


@pytest.mark.parametrize("name", sorted(MALFORMED))
def test_a_malformed_document_is_an_error(name):
    refs, message = MALFORMED[name]
    began = time.monotonic()
    if message is None:
        with lb.open(document(refs, templates={"u": "x"})) as file, pytest.raises(lb.DocumentError):
            file["x"][()]
    else:
        with pytest.raises((lb.DocumentError, lb.UnsupportedSchemeError), match=message):
            lb.open(document(refs, templates={"u": "x"}))
    assert time.monotonic() - began < 5


def test_all_faults_are_told_at_once():
    refs = {**array("a", shape="x"), **array("b", dtype="?"), **array("c", refs={"0": 5})}
    with pytest.raises(lb.DocumentError, match=r"(?s)/a: .*/b: .*/c: "):
        lb.open(document(refs))


def test_templates_do_not_grow():
    """Each is replaced once, and what it brings in is not looked at again."""
    templates = {f"t{k}": f"{{{{t{k + 1}}}}}" * 10 for k in range(30)} | {"t30": "x" * 60_000}
    with pytest.raises(lb.DocumentError):
        lb.open(document(array(refs={"0": ["{{t0}}" * 5000, 0, 16]}), templates=templates))
    with lb.open(document(array(refs={"0": ["{{t0}}", 0, 16]}), templates=templates)) as file, pytest.raises(OSError):
        file["x"][()]


@pytest.mark.parametrize(
    "url",
    [
        "/etc/hostname",
        "file:///etc/hostname",
        "local:///etc/hostname",
        "filecache::file:///etc/hostname",
        "memory://x",
        "data:,abc",
    ],
)
@pytest.mark.parametrize("how", ["chunk", "link"])
def test_a_document_from_the_network_names_no_local_file(url, how):
    if how == "chunk":
        refs = array(refs={"0": [url, 0, 16]})
    else:
        refs = array(attributes={"_EXTERNAL_ARRAY_LINK": {"link_type": "hdf5_dataset", "url": url, "name": "x"}})
    with RangeServer() as server:
        address = server.add("a.json", document(refs))
        with pytest.raises((lb.DocumentError, lb.UnsupportedSchemeError, lb.LeavesFileError)):
            lb.open(address)["x"][()]


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest", "http://localhost:9000/a.h5", "zip://a::https://h/b"])
def test_a_document_from_a_public_host_names_no_private_one(url):
    with pytest.raises(lb.DocumentError, match="from the network"):
        locate(url, "https://public.example/a.json", AccessOptions())
    assert locate(url, "https://public.example/a.json", AccessOptions(source="x.h5")).place == "x.h5"


def test_a_link_to_another_host_gets_no_headers(tmp_path):
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file["x"] = np.arange(4, dtype="i4")
    with RangeServer() as server, RangeServer() as other:
        link = {"link_type": "hdf5_dataset", "url": other.add("a.h5", source), "name": "x"}
        address = server.add("a.json", document(array(attributes={"_EXTERNAL_ARRAY_LINK": link})))
        with lb.open(address, headers={"Authorization": "secret"}) as file:
            assert file["x"][:].tolist() == [0, 1, 2, 3]
        assert any("authorization" in {k.lower() for k in r.headers} for r in server.log)
        assert other.requests > 0
        assert not any("authorization" in {k.lower() for k in r.headers} for r in other.log)


_LARGE = """
import resource, sys
import lindi_bridge as lb
try:
    lb.open(sys.argv[1])
except lb.DocumentError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.parametrize("kind", ["text", "attribute", "faults"])
def test_large_documents_take_memory_in_proportion(kind, tmp_path):
    """100 MB of text in one value, or a million faults: an error, within a few times the size of the document."""
    long = "A" * 100_000_000
    if kind == "text":
        refs = array(refs={"0": long})
    elif kind == "attribute":
        refs = array(attributes={"k": long, "_SCALAR": True})
    else:
        refs = {**GROUP, **{f"y/{k}": ["https://h/a", 0, 1] for k in range(300_000)}}
    path = tmp_path / "a.json"
    path.write_bytes(document(refs))
    began = time.monotonic()
    run = subprocess.run([sys.executable, "-c", _LARGE, str(path)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout) < 1500
    assert time.monotonic() - began < 60
    assert resource.RUSAGE_SELF == 0


@pytest.mark.parametrize("etag", [5, [], {}, '"a"\r\nX-Injected: 1', True])
def test_an_etag_is_text_that_may_stand_in_a_header(etag, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = 1
    raw = json.loads(lb.index(tmp_path / "a.h5").to_json())
    for key in ("etag", "last_modified"):
        raw["hdf5"]["sources"][0] = {**raw["hdf5"]["sources"][0], "etag": None, "last_modified": None, key: etag}
        with pytest.raises(lb.DocumentError, match="hdf5 section"):
            lb.open(json.dumps(raw).encode())


def test_a_lying_annotation_is_an_error(tmp_path):
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file.create_dataset("x", data=np.arange(5000), chunks=(100,), compression="gzip", maxshape=(None,))
        file["x"].attrs["k"] = np.int8(3)
        file["c"] = np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])
    text = lb.index(source).to_json()
    lies = [
        ("/x", {"maxshape": [10]}, "maxshape"),
        ("/x", {"maxshape": [None, None]}, "maxshape"),
        ("/x", {"chunks": [99]}, "chunks"),
        ("/x", {"chunks": [0]}, "chunks"),
        ("/x", {"chunks": "no"}, "chunks"),
        ("/x", {"filters": [[1]]}, "filters"),
        ("/x", {"filters": 7}, "filters"),
        ("/x", {"dtype": "<f4"}, "annotation says"),
        ("/x", {"dtype": {"vlen": "<i8"}}, "annotation"),
        ("/x", {"type": "AAAA"}, "describes no type"),
        ("/x", {"attributes": {"k": {"dtype": {"compound": []}, "shape": []}}}, "attribute 'k'"),
        ("/x", {"attributes": {"k": {"dtype": "<i8", "shape": [2**60]}}}, "attribute 'k'"),
        ("/x", {"attributes": {"k": {"dtype": "|i1", "shape": [], "value": 300}}}, "attribute 'k'"),
        ("/c", {"dtype": {"compound": [["a", "<i4", 1 << 40], ["b", "<f8", 4]], "itemsize": 12}}, "describes no type"),
        ("/c", {"dtype": {"compound": [["a", "<i4", 0]], "itemsize": 1 << 40}}, "type"),
        ("/c", {"dtype": {"array": "<i4", "shape": [1 << 20, 1 << 20]}}, "impossible shape"),
        ("c", {"maxshape": [1]}, "annotations are damaged"),
    ]
    for path, lie, message in lies:
        raw = json.loads(text)
        raw["hdf5"]["annotations"].setdefault(path, {}).update(lie)
        with pytest.raises(lb.DocumentError, match=message):
            lb.open(json.dumps(raw).encode(), prefer="annotations", source=str(source))


_HUGE = {"array": "|i1", "shape": [1 << 27]}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"q": {"dtype": {"string": "ascii", "length": 1 << 27}, "shape": [1], "value": ["a"]}}, "attribute 'q'"),
        ({"q": {"dtype": _HUGE, "shape": [100_000], "value": [0] * 100_000}}, "attribute 'q'"),
        ({"q": {"dtype": {"vlen": _HUGE}, "shape": [], "value": [0] * 100}}, "attribute 'q'.*too many"),
        (
            {
                f"q{k}": {"dtype": {"string": "ascii", "length": 1 << 25}, "shape": [1], "value": ["a"]}
                for k in range(40)
            },
            "the attributes of all objects",
        ),
        ({"\ud800": {"dtype": "<i4", "shape": [], "value": 1}}, "no Unicode"),
    ],
    ids=["a long string", "elements that are large arrays", "in a list", "all together", "a name that is no Unicode"],
)
def test_attributes_have_a_budget(attributes, message, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = 1
    raw = json.loads(lb.index(tmp_path / "a.h5").to_json())
    raw["hdf5"]["annotations"].setdefault("/", {})["attributes"] = attributes
    with pytest.raises(lb.DocumentError, match=message):
        lb.open(json.dumps(raw).encode(), prefer="annotations", source=str(tmp_path / "a.h5"))


@pytest.mark.parametrize(
    ("profile", "path", "target", "message"),
    [
        ("lindi", "/", "/g", "where there are none"),
        ("zarr", "/", "/g", "where there are none"),
        ("lindi", "/y", "/z", "where there are none"),
        ("zarr", "/y", "/y", "copy of itself"),
        ("zarr", "/z", "/y", "which is another"),
        ("zarr", "/g", "/y", "which is another"),
        ("zarr", "/y", "/nowhere", "which is another"),
    ],
)
def test_what_is_no_copy_becomes_no_link(profile, path, target, message, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["g/x"] = np.arange(3)
        file["y"], file["z"] = np.arange(4), np.arange(5)
    raw = json.loads(lb.index(tmp_path / "a.h5", profile=profile).to_json())
    raw["hdf5"]["annotations"].setdefault(path, {})["copy_of"] = target
    with pytest.raises(lb.DocumentError, match=message):
        lb.open(json.dumps(raw).encode(), prefer="annotations", source=str(tmp_path / "a.h5"))


def test_a_bomb_in_a_source(tmp_path):
    """Chunks that no filter of HDF5 decodes are fetched and decoded by this package, within the same bounds."""
    (tmp_path / "a.bin").write_bytes(bytes(512))
    refs = array(
        shape=[8],
        chunks=[8],
        dtype="|u1",
        filters=[{"id": "packbits"}] * 9,
        refs={"0": [str(tmp_path / "a.bin"), 0, 512]},
    )
    (tmp_path / "a.json").write_bytes(document(refs))
    with (
        lb.open(tmp_path / "a.json") as file,
        pytest.raises(lb.DocumentError, match=r"chunk 0: .*decodes to more than"),
    ):
        file["x"][()]
