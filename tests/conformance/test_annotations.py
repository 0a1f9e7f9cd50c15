"""Every HDF5 feature, rebuilt from a document's annotations, equals what h5py says of the local file, or is listed."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from builders.compare import compare_files
from builders.documents import unlisted, write_document
from builders.features import BAD, COMPANIONS, FEATURES, SkipFeature, make
from numcodecs import Shuffle

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


# -- documents by hand, and edited ones ------------------------------------------------------------------------------


def _by_hand(tmp_path, name="x", refs=None, attributes=None, **zarray):
    defaults = {"zarr_format": 2, "dtype": "<i4", "fill_value": 0, "order": "C", "filters": None, "compressor": None}
    members = {".zgroup": {"zarr_format": 2}, f"{name}/.zarray": defaults | zarray}
    members |= {f"{name}/{key}": value for key, value in (refs or {}).items()}
    if attributes is not None:
        members[f"{name}/.zattrs"] = attributes
    path = tmp_path / "by_hand.json"
    path.write_text(json.dumps({"version": 1, "refs": members}))
    return path


def test_chunks_larger_than_the_array(tmp_path):
    """HDF5 has them only where an array may grow; Zarr always."""
    (tmp_path / "raw").write_bytes(np.arange(64, dtype="i4").tobytes())
    document = _by_hand(tmp_path, shape=[3, 2], chunks=[8, 8], refs={"0.0": ["raw", 0, 256]})
    with lb.open(document) as file:
        assert np.array_equal(file["x"][()], np.arange(64).reshape(8, 8)[:3, :2])
        assert (file["x"].chunks, file["x"].maxshape) == ((8, 8), (8, 8))


@pytest.mark.parametrize(
    ("dtype", "fill_value", "expected"),
    [
        ("|V3", [1, 2, 3], b"\1\2\3"),  # as Zarr v3 has it
        ("<f4", "0x7f800000", np.inf),
        ("|b1", 1, True),
        ("<i4", 7.0, 7),
        ("<f8", "NaN", np.nan),
    ],
)
def test_fill_values_in_all_their_forms(tmp_path, dtype, fill_value, expected):
    document = _by_hand(tmp_path, shape=[2], chunks=[1], dtype=dtype, fill_value=fill_value)
    with lb.open(document) as file:
        found = file["x"][1]
    assert found.tobytes() == expected if dtype == "|V3" else np.array_equal(found, expected, equal_nan=True)


def test_an_object_of_an_unknown_kind_does_not_cost_the_file(tmp_path):
    document = _by_hand(
        tmp_path, shape=[2], chunks=[2], dtype="|O", filters=[{"id": "json2"}], refs={"0": '[1,2,"|O",[2]]'}
    )
    raw = json.loads(document.read_text())
    raw["refs"][".zattrs"] = {"title": "still there"}
    document.write_text(json.dumps(raw))
    with lb.open(document) as file:
        assert file.attrs["title"] == "still there"
        assert [p.path for p in file._file_object.properties["problems"]] == ["/x"]
        with pytest.raises(lb.DocumentError, match="several kinds"):
            file["x"][()]


def test_integers_that_are_no_doubles_stay_what_they_are(tmp_path):
    document = _by_hand(tmp_path, shape=[1], chunks=[1], attributes={"a": [2**53 + 1, 0.5], "b": [2**53, 0.5]})
    with lb.open(document) as file:
        assert json.loads(file["x"].attrs["a"]) == [2**53 + 1, 0.5]
        assert file["x"].attrs["b"].tolist() == [2.0**53, 0.5]


def test_what_was_found_before_chunks_were_put_in_is_forgotten(tmp_path):
    """The page of memory that they lie in was all zeros when the file was opened."""
    (tmp_path / "raw").write_bytes(np.ones(16, "i4").tobytes())
    codec = {"id": "delta", "dtype": "<i4", "astype": "<i4"}
    document = _by_hand(tmp_path, shape=[16], chunks=[4], filters=[codec], refs={"0": ["raw", 0, 16]})
    with lb.open(document) as file:
        below = file._file_object
        below.seek(0)
        below.read(8)
        place = file["x"].id.get_chunk_info(0).byte_offset
        assert bytes(below.find(place)[:16]) == np.arange(1, 5, dtype="i4").tobytes()
        assert file["x"][:5].tolist() == [1, 2, 3, 4, 0]


def test_a_region_of_no_blocks_is_empty(tmp_path):
    region = {"_REFERENCE": {"source": ".", "path": "/x", "selection": {"blocks": []}}}
    document = _by_hand(
        tmp_path, shape=[3], chunks=[3], refs={"0": "base64:AQAAAAIAAAADAAAA"}, attributes={"r": region}
    )
    with lb.open(document) as file:
        assert file["x"][file["x"].attrs["r"]].tolist() == []


@pytest.fixture
def edited(tmp_path):
    """Makes a document of a file, edits it, and opens it."""

    def edit(write, change):
        source = tmp_path / "source.h5"
        with h5py.File(source, "w") as file:
            write(file)
        document = write_document(source)
        raw = json.loads(document.read_text())
        change(raw["refs"])
        document.write_text(json.dumps(raw))
        return lb.open(document)

    return edit


def test_another_type_in_the_references_is_the_newer_one(edited):
    """The annotation would make the same bytes other numbers."""

    def write(file):
        file["x"] = np.array([1, 200], h5py.enum_dtype({"A": 1, "B": 200}, "u1"))

    with edited(write, lambda refs: refs["x/.zarray"].update(dtype="|i1")) as file:
        assert file["x"].dtype == np.int8
        assert file["x"][:].tolist() == [1, -56]


def test_another_size_of_shuffled_elements_is_decoded_as_the_references_say(edited):
    values = np.arange(4000, dtype="i4")

    def write(file):
        file.create_dataset("x", data=values, chunks=(1000,), shuffle=True)

    expected = np.concatenate([Shuffle(2).decode(Shuffle(4).encode(part)).view("i4") for part in values.reshape(4, -1)])
    with edited(write, lambda refs: refs["x/.zarray"]["filters"][0].update(elementsize=2)) as file:
        assert np.array_equal(file["x"][:], expected)


def test_another_fill_value_counts_although_the_file_never_filled(edited):
    def write(file):
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_chunk((1000,))
        create.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        create.set_fill_value(np.array(5, "i4"))
        space = h5py.h5s.create_simple((4000,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, create)

    with edited(write, lambda refs: refs["x/.zarray"].update(fill_value=7)) as file:
        assert file["x"][:].tolist() == [7] * 4000


def test_another_value_of_an_attribute_that_only_the_annotation_had(edited):
    def write(file):
        file.attrs["nothing"] = h5py.Empty("f4")
        file.attrs["pair"] = np.array([(1, 2.0)], "i4,f8")[0]
        file.attrs["small"] = np.float32(0.5)

    def change(refs):
        refs[".zattrs"] = {"nothing": 5, "pair": "text", "small": 1e300}

    with edited(write, change) as file:
        assert dict(file.attrs) == {"nothing": 5, "pair": "text", "small": 1e300}


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ({"dtype": "<f4"}, r"says float32, but \.zarray <i4"),
        ({"dtype": ">i4"}, r"says >i4, but"),
        ({"shape": None}, "says that it is empty"),
        ({"dtype": {"string": "utf-8", "length": None}, "type": "AwAQCAAABAAAAAAAIAA="}, "do not agree"),
    ],
)
def test_an_annotation_that_contradicts_the_references_is_refused(tmp_path, annotation, message):
    source = tmp_path / "source.h5"
    with h5py.File(source, "w") as file:
        file["x"] = np.arange(5000, dtype="i4")
    document = write_document(source)
    raw = json.loads(document.read_text())
    raw["hdf5"]["annotations"]["/x"].update(annotation)
    document.write_text(json.dumps(raw))
    assert any(message.split(",")[0].replace("\\", "") in p.message for p in lb.check(document))
    with pytest.raises(lb.DocumentError, match=message):
        lb.open(document, prefer="annotations")


# -- what random trees found ------------------------------------------------------------------------------------------


def both_ways(tmp_path, write):
    """Differences of a document that is opened by its annotations."""
    source = tmp_path / "source.h5"
    with h5py.File(source, "w") as file:
        write(file)
    document = write_document(source)
    with h5py.File(source) as expected, lb.open(document, prefer="annotations") as actual:
        return compare_files(expected, actual, storage=False), document


def test_order_of_links_of_all_kinds(tmp_path):
    def write(file):
        group = file.create_group("g", track_order=True)
        group["z"] = h5py.ExternalLink("other.h5", "/x")
        group["y"] = np.dtype("i4")
        group["x"] = np.arange(3)
        group["w"] = h5py.SoftLink("/nowhere")
        group["v"] = np.dtype("f8")
        group["a"] = group["x"]
        group.create_dataset("uses", data=np.arange(2.0), dtype=group["v"])

    differences, document = both_ways(tmp_path, write)
    assert [d for d in differences if d.kind in ("order", "metadata", "value")] == []
    order = json.loads(document.read_text())["hdf5"]["annotations"]["/g"]["links_in_order"]
    assert order == ["z", "y", "x", "w", "v", "a", "uses"]


def test_lists_in_foreign_byte_order_have_the_numbers_that_are_stored(tmp_path):
    """h5py reads them wrong, and from the file that is built anew just as wrong."""

    def write(file):
        file.attrs["x"] = np.array([np.arange(3), np.arange(2)], object).astype(h5py.vlen_dtype(np.dtype(">i4")))

    differences, document = both_ways(tmp_path, write)
    assert differences == []
    typed = json.loads(document.read_text())["hdf5"]["annotations"]["/"]["attributes"]["x"]
    assert typed["value"] == [[0, 1, 2], [0, 1]]


def test_lengths_of_time_are_no_integers(tmp_path):
    def write(file):
        file.attrs["x"] = np.array([5], "m8[s]").astype(h5py.opaque_dtype("m8[s]"))
        file["d"] = np.array([5], "m8[s]").astype(h5py.opaque_dtype("m8[s]"))

    assert both_ways(tmp_path, write)[0] == []


def test_arrays_as_long_as_their_elements(tmp_path):
    def write(file):
        file.create_dataset("x", (3,), np.dtype((h5py.string_dtype("utf-8", 6), (3,))))
        file.create_dataset("y", (3,), np.dtype(("f8", (3,))))

    assert both_ways(tmp_path, write)[0] == []


def test_references_in_arrays_are_told_of(tmp_path):
    def write(file):
        file.create_dataset("empty", (0,), np.dtype((h5py.ref_dtype, (2,))))
        file.create_dataset("some", (2,), np.dtype((h5py.ref_dtype, (2,))))

    differences, document = both_ways(tmp_path, write)
    assert unlisted(differences, document) == []
    problems = json.loads(document.read_text())["generationMetadata"]["problems"]
    assert [(p["path"], p["kind"]) for p in problems] == [("/some", "datatype")]
