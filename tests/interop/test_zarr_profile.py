"""Documents of the profile ``zarr``, read over HTTP without this package: equal to what h5py says, or listed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from builders.compare import compare_files
from builders.documents import unlisted
from builders.features import BAD, COMPANIONS, FEATURES, SkipFeature, make
from servers.range_server import RangeServer

import lindi_bridge as lb

zarr = pytest.importorskip("zarr")
pytest.importorskip("aiohttp")

READABLE = sorted(set(FEATURES) - BAD - COMPANIONS)
NOT_ALL_BY_ANNOTATIONS = {
    "names_zarr_reserved": "value",  # how many members the group has of which some are left out
}
"""Feature -> the kind of difference that a file built of the annotations has."""


@pytest.fixture(scope="module")
def server() -> Iterator[RangeServer]:
    with RangeServer() as running:
        yield running


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The libraries warn of what they themselves, or the libraries below them, deprecate."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, UserWarning):
            warnings.simplefilter("ignore", category)
        yield


def zarr_document(path: Path, server: RangeServer) -> dict[str, Any]:
    """The document of a file on the server, as any JSON reader has it."""
    document: dict[str, Any] = json.loads(lb.index(server.add(path.name, path), profile="zarr").to_json())
    return document


@pytest.fixture(scope="module")
def web() -> Iterator[Any]:
    """fsspec's HTTP file system in zarr's event loop, closed at the end."""
    import fsspec
    from zarr.core.sync import sync

    http = fsspec.filesystem("http", asynchronous=True, skip_instance_cache=True)
    yield http
    sync(sync(http.set_session()).close())


def store_of(document: Any, web: Any) -> Any:
    """A document, or its address, as zarr's own store."""
    import fsspec
    from zarr.storage import FsspecStore

    options = {"asynchronous": True, "skip_instance_cache": True}
    return FsspecStore(fsspec.filesystem("reference", fo=document, fs={"http": web}, **options), read_only=True)


def open_group(document: Any, web: Any) -> Any:
    """What plain zarr makes of a document."""
    return zarr.open_group(store_of(document, web), mode="r", zarr_format=2, use_consolidated=True)


def problems_of(document: dict[str, Any]) -> dict[str, str]:
    return {problem["path"]: problem["message"] for problem in document["generationMetadata"]["problems"]}


# -- every feature ----------------------------------------------------------------------------------------------------


def values_of(dataset: h5py.Dataset) -> np.ndarray[Any, Any]:
    """The values as h5py reads them; strings of variable length as text, where they are text."""
    if dataset.shape is None:
        return np.zeros(0, converted(dataset.dtype))
    values = np.asarray(dataset[()], dataset.dtype.base)
    if h5py.check_string_dtype(dataset.dtype) is None or dataset.dtype.kind != "O":
        return values
    try:
        return np.vectorize(lambda item: item.decode(), otypes=[object])(values) if values.size else values
    except UnicodeDecodeError:
        return values


def converted(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype without h5py's metadata, and without gaps between fields."""
    if dtype.names is None:
        return np.dtype(dtype.str)
    return np.dtype([(name, converted(dtype[name])) for name in dtype.names])


def assert_equal_arrays(array: Any, dataset: h5py.Dataset) -> None:
    expected, actual = values_of(dataset), np.asarray(array[...], array.dtype)  # scalars of Python have no length
    assert array.shape == actual.shape == expected.shape
    if expected.dtype.names and expected.dtype.hasobject:
        assert [converted(expected.dtype[n]) for n in expected.dtype.names if not expected.dtype[n].hasobject] == [
            actual.dtype[n] for n in actual.dtype.names if actual.dtype[n].kind != "U"
        ]
        assert actual.tolist() == [tuple(map(as_json, row)) for row in expected]
        return
    if expected.dtype == object:
        assert actual.astype(object).tolist() == expected.tolist()
        return
    assert actual.dtype == array.dtype == converted(expected.dtype)
    assert actual.tobytes() == expected.astype(converted(expected.dtype)).tobytes()


def as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [as_json(item) for item in value]
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if isinstance(value, np.generic) else value


def assert_equal_attributes(actual: dict[str, Any], thing: Any, left_out: str) -> None:
    expected = {name: value for name, value in thing.attrs.items() if f"attribute {name!r}" not in left_out}
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, h5py.Reference):
            assert actual[name]["_REFERENCE"]["path"] == thing.file[value].name
        else:
            assert actual[name] == as_json(value), name


def walk(group: h5py.Group, listed: set[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every object by every name, through links; what a document lists is yielded, and not entered."""
    for name in group:
        child = f"{path}/{name}"
        if child in listed:
            yield child, None
            continue
        yield child, group[name]
        if isinstance(group[name], h5py.Group):
            yield from walk(group[name], listed, child)


@pytest.mark.parametrize("name", READABLE)
def test_every_object_is_equal_or_listed(name: str, tmp_path: Path, server: RangeServer, web: Any) -> None:
    try:
        source = make(name, tmp_path)
    except SkipFeature as reason:
        pytest.skip(str(reason))
    document = zarr_document(source, server)
    attributes = {}
    for problem in document["generationMetadata"]["problems"]:
        if problem["kind"] == "attribute":
            attributes[problem["path"]] = attributes.get(problem["path"], "") + problem["message"]
    listed = {p["path"] for p in document["generationMetadata"]["problems"] if p["kind"] != "attribute"}
    group = open_group(document, web)
    names = {f"/{path}" for path, _ in group.members(max_depth=None)}
    with h5py.File(source) as file:
        if name != "dimension_scales":  # below
            assert_equal_attributes(dict(group.attrs), file, attributes.get("/", ""))
        for path, thing in walk(file, listed - {"/v"} if name == "virtual_dataset_same_file" else listed):
            if thing is None:
                assert path not in names
                continue
            found = group[path.lstrip("/")]
            names.discard(path)
            if isinstance(thing, h5py.Dataset):
                assert_equal_arrays(found, thing)
            if name != "dimension_scales":
                assert_equal_attributes(dict(found.attrs), thing, attributes.get(path, ""))
    assert not names, "more than the file has"


@pytest.mark.parametrize("name", READABLE)
def test_it_opens_as_the_file(name: str, tmp_path: Path, server: RangeServer) -> None:
    """By the embedded metadata; and by the annotations, as far as they say."""
    try:
        source = make(name, tmp_path)
    except SkipFeature as reason:
        pytest.skip(str(reason))
    path = tmp_path / "document.json"
    lb.index(server.add(source.name, source), profile="zarr").save(path)
    with h5py.File(source) as expected, lb.open(path) as actual:
        assert compare_files(expected, actual) == []
    with h5py.File(source) as expected, lb.open(path, prefer="annotations") as actual:
        differences = unlisted(compare_files(expected, actual, storage=False), path)
        assert [d for d in differences if d.kind != NOT_ALL_BY_ANNOTATIONS.get(name)] == []


# -- what is written --------------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source.h5"


def array_of(document: dict[str, Any], path: str) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads(document["refs"][f"{path}/.zarray"])
    return metadata


def test_metadata_are_text_and_consolidated(source: Path, server: RangeServer) -> None:
    with h5py.File(source, "w") as file:
        file["g/d"] = np.arange(5000)
        file["g"].attrs["{{u}}"] = "{{u}}"
    document = zarr_document(source, server)
    metadata = {key: json.loads(value) for key, value in document["refs"].items() if isinstance(value, str)}
    consolidated = metadata.pop(".zmetadata")
    assert consolidated == {"zarr_consolidated_format": 1, "metadata": metadata}
    assert set(metadata) == {".zgroup", "g/.zgroup", "g/.zattrs", "g/d/.zarray"}
    assert document["generationMetadata"]["profile"] == "zarr"


def test_a_document_for_lindi_is_not_another(source: Path) -> None:
    with h5py.File(source, "w") as file:
        file["d"] = np.arange(5000)
    documents = [json.loads(lb.index(source, **options).to_json()) for options in ({}, {"profile": "lindi"})]
    for document in documents:
        del document["generationMetadata"]["generated"]
    assert documents[0] == documents[1]
    assert "profile" not in documents[0]["generationMetadata"]
    assert documents[0]["refs"]["d/.zarray"]["fill_value"] == 0


def test_the_command_line(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from lindi_bridge.cli import main

    monkeypatch.chdir(tmp_path)
    with h5py.File(source, "w") as file:
        file["d"], file["link"] = np.arange(3), h5py.SoftLink("/nowhere")
    assert main(["index", "source.h5", "--profile", "zarr"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "source.h5.zarr.json\n"
    assert "/link: link: a link to /nowhere" in printed.err
    assert json.loads(Path("source.h5.zarr.json").read_text())["generationMetadata"]["profile"] == "zarr"
    with pytest.raises(SystemExit, match="2"):
        main(["index", "source.h5", "--profile", "n5"])


def test_an_unknown_profile(source: Path) -> None:
    with pytest.raises(ValueError, match="profile='zar': there are 'lindi', 'zarr'"):
        lb.index(source, profile="zar")


def test_the_address_of_a_local_source_is_absolute(source: Path, tmp_path: Path) -> None:
    """Other readers take a relative one for relative to where they run."""
    with h5py.File(source, "w") as file:
        file["d"] = np.arange(5000)
    lb.index(source, profile="zarr").save(tmp_path / "a.json")
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["templates"] == {"u": str(source)}
    group = zarr.open_group("reference://", storage_options={"fo": document}, mode="r", zarr_format=2)
    assert np.array_equal(group["d"][:], np.arange(5000))


def test_a_fill_value_is_written_where_it_is_used(source: Path, server: RangeServer, web: Any) -> None:
    with h5py.File(source, "w") as file:
        file.create_dataset("whole", data=np.zeros(5000, "i4"), chunks=(1000,), fillvalue=7)
        file.create_dataset("holes", (5000,), "i4", chunks=(1000,), fillvalue=7)[2000:3000] = 1
        file.create_dataset("default", (5000,), "i4", chunks=(1000,))[2000:3000] = 1
        file.create_dataset("unwritten", (5000,), "i4", fillvalue=-3)
        file.create_dataset("marked", data=np.zeros(5000, "i4"), chunks=(1000,)).attrs["_FillValue"] = np.int32(9)
        file.create_dataset("nan", data=np.zeros(5000), chunks=(1000,), fillvalue=np.nan).attrs["_FillValue"] = np.nan
    document = zarr_document(source, server)
    found = {name: array_of(document, name)["fill_value"] for name in ("whole", "holes", "default", "unwritten")}
    assert found == {"whole": None, "holes": 7, "default": 0, "unwritten": -3}
    assert [array_of(document, name)["fill_value"] for name in ("marked", "nan")] == [9, "NaN"]
    assert problems_of(document) == {}
    group = open_group(document, web)
    with h5py.File(source) as file, lb.open(json.dumps(document).encode(), prefer="annotations") as built:
        for name in file:
            assert_equal_arrays(group[name], file[name])
            np.testing.assert_equal(built[name].fillvalue, file[name].fillvalue)


def test_values_of_other_bits_than_numpy_has_are_converted(source: Path, server: RangeServer, web: Any) -> None:
    padded, odd = h5py.h5t.C_S1.copy(), h5py.h5t.STD_I32LE.copy()
    padded.set_size(5)
    padded.set_strpad(h5py.h5t.STR_SPACEPAD)
    odd.set_precision(20)
    apart = h5py.h5t.create(h5py.h5t.COMPOUND, 16)
    apart.insert(b"a", 0, h5py.h5t.STD_I32LE)
    apart.insert(b"b", 8, h5py.h5t.STD_I16LE)
    pairs = h5py.h5t.array_create(odd, (2,))
    with h5py.File(source, "w") as file:
        for name, made in {"padded": padded, "odd": odd, "apart": apart, "pairs": pairs}.items():
            for shape in ((0,), (3,), ()):
                space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
                dataset = h5py.Dataset(
                    h5py.h5d.create(file.id, f"{name}{len(shape)}{sum(shape)}".encode(), made, space)
                )
                values = np.zeros(dataset.shape, dataset.dtype)
                values.reshape(-1).view("u1")[1::5] = 1
                dataset[()] = np.full(dataset.shape, b"ab", "S5") if name == "padded" else values
    document = zarr_document(source, server)
    assert problems_of(document) == {}
    group = open_group(document, web)
    with h5py.File(source) as file, lb.open(json.dumps(document).encode(), prefer="annotations") as built:
        assert len(file) == 12
        for name in file:
            assert_equal_arrays(group[name], file[name])
        assert compare_files(file, built, storage=False) == []


def test_compounds_with_strings_of_variable_length(source: Path, server: RangeServer, web: Any) -> None:
    dtype = np.dtype([("name", h5py.string_dtype()), ("n", "i2"), ("good", "?")])
    with h5py.File(source, "w") as file:
        file["rows"] = np.array([("é", 1, True), ("", -2, False)], dtype)
        file["two axes"] = np.array([[("a", 1, True)], [("longer", 2, True)]], dtype)
        file.create_dataset("one", (), dtype)[()] = np.array(("x", 5, False), dtype)
        file.create_dataset("none", (0,), dtype)
        file["empty"] = h5py.Empty(dtype)
        file.create_dataset("long", (2000,), dtype)[7] = ("x" * 10_000, 1, True)  # 80 MB of records
        file.create_dataset("wrong", (1,), dtype)[0] = (b"\xff", 1, True)
    document = zarr_document(source, server)
    assert problems_of(document).keys() == {"/long", "/wrong"}
    group = open_group(document, web)
    found = {name: (array.shape, array[...].tolist()) for name, array in group.arrays()}
    assert found == {
        "rows": ((2,), [("é", 1, True), ("", -2, False)]),
        "two axes": ((2, 1), [[("a", 1, True)], [("longer", 2, True)]]),
        "one": ((), ("x", 5, False)),
        "none": ((0,), []),
        "empty": ((0,), []),
    }
    with h5py.File(source) as file, lb.open(json.dumps(document).encode(), prefer="annotations") as built:
        different = {difference.path.split()[0] for difference in compare_files(file, built, storage=False)}
        assert different == {"/", "/long", "/wrong"}


def test_what_is_too_large_to_copy_is_left_out_and_listed(source: Path, server: RangeServer, web: Any) -> None:
    with h5py.File(source, "w") as file:
        file.create_dataset("strings", (2_200_000,), h5py.string_dtype())
        file.create_dataset("lzf", data=np.zeros(9_000_000, "i4"), chunks=(1_000_000,), compression="lzf")
        file.create_dataset("plain", data=np.arange(9_000_000), chunks=(1_000_000,))
        file["few"] = ["a", "b"]
    document = zarr_document(source, server)
    limit = "are too many to copy (at most 33554432 of a dataset, 67108864 in all)"
    assert problems_of(document) == {
        "/strings": f"strings of variable length can only be copied, and 35200000 bytes {limit}",
        "/lzf": f"Zarr has no codecs for its filters as they are used (lzf), and 36000000 bytes {limit}",
    }
    assert sorted(open_group(document, web)) == ["few", "plain"]
    with lb.open(json.dumps(document).encode()) as file:
        assert file["lzf"][8_999_999] == 0
    with pytest.raises(lb.IndexingError, match=r"/lzf: .*\n.*/strings"):
        lb.index(source, profile="zarr", strict=True)


def test_links_are_links_again(source: Path) -> None:
    with h5py.File(source, "w") as file:
        file["g/d"] = np.arange(5000)
        file["g/d"].attrs["k"] = np.int8(3)
        file["hard"], file["soft"], file["gone"] = file["g"], h5py.SoftLink("g/d"), h5py.SoftLink("/nowhere")
    document = lb.index(source, profile="zarr").to_json()
    with lb.open(document.encode(), prefer="annotations") as file:
        assert file["hard"] == file["g"]
        assert file["hard/d"] == file["g/d"]
        assert (file.get("soft", getlink=True).path, file.get("gone", getlink=True).path) == ("g/d", "/nowhere")
        assert np.array_equal(file["soft"][:], np.arange(5000))
        assert sorted(file) == ["g", "gone", "hard", "soft"]


def test_an_edited_document_has_what_its_references_say(source: Path) -> None:
    with h5py.File(source, "w") as file:
        file["g/d"] = np.arange(5000)
        file["hard"] = file["g"]
    document = json.loads(lb.index(source, profile="zarr").to_json())
    document["refs"]["hard/d/.zattrs"] = '{"only": "here"}'
    with lb.open(json.dumps(document).encode()) as file:
        assert dict(file["hard/d"].attrs) == {"only": "here"}
        assert dict(file["g/d"].attrs) == {}
        assert np.array_equal(file["hard/d"][:], np.arange(5000))


def test_a_document_saved_by_another_program_is_not_edited(source: Path) -> None:
    """Metadata as objects, members in another order, templates expanded: it opens by the embedded metadata."""
    with h5py.File(source, "w") as file:
        file["g/d"] = np.arange(5000)
        file["odd"] = np.array([np.arange(2), np.arange(3)], object).astype(h5py.vlen_dtype("i4"))
    document = json.loads(lb.index(source, profile="zarr").to_json())
    refs = {}
    for key, value in sorted(document["refs"].items(), reverse=True):
        refs[key] = json.loads(value) if isinstance(value, str) else [str(source), *value[1:]]
    with lb.open(json.dumps(document | {"refs": refs, "templates": {}}).encode()) as file:
        assert file["odd"][1].tolist() == [0, 1, 2]  # which refs do not have


def test_damaged_annotations_of_links(source: Path) -> None:
    with h5py.File(source, "w") as file:
        file["d"], file["link"] = np.arange(3), h5py.SoftLink("/d")
    document = json.loads(lb.index(source, profile="zarr").to_json())
    for wrong in (5, "d", "/d\0", ["/d"]):
        document["hdf5"]["annotations"]["/link"]["copy_of"] = wrong
        with pytest.raises(lb.DocumentError, match="/link: its annotation names no path"):
            lb.open(json.dumps(document).encode(), prefer="annotations")


def test_names_of_dimensions(source: Path, server: RangeServer, web: Any) -> None:
    with h5py.File(source, "w") as file:
        file["x"], file["t"], file["data"], file["other"] = np.arange(3), np.arange(2), np.zeros((2, 3)), np.zeros(4)
        file["x"].make_scale("the x")
        file["t"].make_scale()
        file["data"].dims[0].attach_scale(file["t"])
        file["data"].dims[1].attach_scale(file["x"])
        file["data"].attrs["one"] = np.array([5])
        file["alone"], file["place"] = 1.0, np.zeros((2, 3))
        for number, name in enumerate("tx"):
            file[name].attrs["_Netcdf4Dimid"] = number
        file["place"].make_scale()  # a coordinate of two axes, as netCDF-4 has them
        file["place"].attrs["_Netcdf4Coordinates"] = [0, 1]
    document = zarr_document(source, server)
    assert problems_of(document) == {}
    group = open_group(document, web)
    names = {name: array.attrs["_ARRAY_DIMENSIONS"] for name, array in group.arrays()}
    assert names == {
        "x": ["x"],
        "t": ["t"],
        "data": ["t", "x"],
        "other": ["other_dim_0"],
        "alone": [],
        "place": ["t", "x"],
    }
    assert {name for _, array in group.arrays() for name in array.attrs} == {"_ARRAY_DIMENSIONS", "one"}
    assert group["data"].attrs["one"] == 5
    with h5py.File(source) as file, lb.open(json.dumps(document).encode(), prefer="annotations") as built:
        assert compare_files(file, built, storage=False) == []


# -- anndata ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def h5ad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pandas, sparse = pytest.importorskip("pandas"), pytest.importorskip("scipy.sparse")
    anndata = pytest.importorskip("anndata")
    random = np.random.default_rng(6)
    cells, genes = 3000, 200
    obs = pandas.DataFrame(index=[f"cell-{i}" for i in range(cells)])
    obs["a type"] = pandas.Categorical(random.choice(["B", "T", "NK"], cells))
    obs["stage"] = pandas.Categorical(random.choice(["early", "late"], cells), ["early", "late"], ordered=True)
    obs["note"] = [f"nöte {i % 97}" for i in range(cells)]
    obs["score"], obs["good"] = random.random(cells), random.random(cells) > 0.5
    obs["maybe"] = pandas.array([None if i % 4 == 0 else i for i in range(cells)], dtype="Int64")
    obs["perhaps"] = pandas.array([None if i % 3 == 0 else i % 2 == 0 for i in range(cells)], dtype="boolean")
    path = tmp_path_factory.mktemp("anndata") / "a.h5ad"
    with warnings.catch_warnings(action="ignore"):
        data = anndata.AnnData(
            sparse.random(cells, genes, 0.1, "csr", "f4", random),
            obs=obs,
            var=pandas.DataFrame({"length": np.arange(genes)}, index=[f"gene {i}" for i in range(genes)]),
            obsm={"X_umap": random.random((cells, 2)), "frame": pandas.DataFrame({"a": range(cells)}, obs.index)},
            obsp={"near": sparse.random(cells, cells, 0.001, "csr", "f8", random)},
            layers={
                "dense": random.random((cells, genes)).astype("f4"),
                "csc": sparse.random(cells, genes, 0.05, "csc", "f4", random),
            },
            uns={
                "ranks": np.array([("gene 1", "é", 0.5), ("g", "", 2.0)], [("B", "O"), ("T", "O"), ("score", "f4")]),
                "text": "some",
                "numbers": np.arange(10),
                "nested": {"x": 1.5, "list": ["a", "b"]},
                "nothing": None,
            },
        )
        data.raw = data[:, :100]
        data.write_h5ad(path, compression="gzip", convert_strings_to_categoricals=False)
    return path


def with_objects(value: Any) -> Any:
    """Arrays of strings, which zarr 3 reads as numpy's strings, as the objects that h5py makes of them."""
    if isinstance(value, dict):
        return {name: with_objects(item) for name, item in value.items()}
    return value.astype(object) if isinstance(value, np.ndarray) and value.dtype.kind == "T" else value


def test_anndata(h5ad: Path, server: RangeServer, web: Any) -> None:
    import anndata
    from anndata.io import read_elem
    from test_users import _equal

    document = zarr_document(h5ad, server)
    assert document["generationMetadata"]["problems"] == []
    group, expected = open_group(document, web), anndata.read_h5ad(h5ad)
    found = anndata.read_zarr(group)
    found.uns = with_objects(dict(found.uns))
    _equal(found, expected)
    with h5py.File(h5ad) as file:
        for name in ("obs", "var", "X", "obsm", "obsp/near", "layers/dense", "layers/csc", "uns", "raw/X"):
            _equal(with_objects(read_elem(group[name])), read_elem(file[name]))


def test_anndata_reads_only_what_it_needs(h5ad: Path, server: RangeServer, web: Any) -> None:
    from anndata.io import read_elem, sparse_dataset

    group = open_group(zarr_document(h5ad, server), web)
    server.reset()
    read_elem(group["obs/a type"])
    read_elem(group["obs/note"])  # its text is in the document
    codes = server.nbytes
    assert 0 < codes < 5000
    rows = sparse_dataset(group["X"])[100:120]
    with h5py.File(h5ad) as file:
        assert (rows != sparse_dataset(file["X"])[100:120]).nnz == 0


def test_columns_of_anndata_0_7(source: Path, server: RangeServer, web: Any) -> None:
    """The codes refer to their categories; anndata's reader of Zarr looks for a path."""
    pytest.importorskip("anndata")
    from anndata.io import read_elem

    with h5py.File(source, "w") as file:
        frame = file.create_group("obs")
        frame["index"], frame["n"] = ["a", "b", "c"], np.arange(3)
        frame.create_dataset("kind", data=np.array([0, 1, 0], "i1"))
        frame["__categories/kind"] = ["B", "T"]
        frame["kind"].attrs["categories"] = frame["__categories/kind"].ref
        frame["__categories/kind"].attrs["ordered"] = False
        frame.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.1.0", "_index": "index"})
        frame.attrs["column-order"] = ["kind", "n"]
    group = open_group(zarr_document(source, server), web)
    with h5py.File(source) as file:
        assert read_elem(group["obs"]).equals(read_elem(file["obs"]))
        assert read_elem(group["obs"])["kind"].tolist() == ["B", "T", "B"]


# -- xarray -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def netcdf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    random = np.random.default_rng(7)
    path = tmp_path_factory.mktemp("netcdf") / "a.nc"
    with warnings.catch_warnings(action="ignore"):
        data = xarray.Dataset(
            {
                "height": (("time", "x"), random.random((200, 50)), {"units": "m", "range": [0.0, 1.0]}),
                "count": (("time",), random.integers(0, 3, 200)),
                "packed": (("time",), np.where(np.arange(200) % 9, np.arange(200.0), np.nan)),
                "when": (("time",), np.datetime64("2024-01-01", "ns") + np.arange(200) * np.timedelta64(1, "h")),
                "bounds": (("x", "edge"), random.random((50, 2))),
                "alone": ((), 5.0),
                "words": (("x",), [f"w{i}" if i % 5 else "" for i in range(50)]),
            },
            coords={"time": np.arange(200), "x": np.linspace(0, 1, 50), "name": ("x", [f"n{i}" for i in range(50)])},
            attrs={"title": "a title", "numbers": [1, 2, 3], "one": 1},
        )
        data.to_netcdf(
            path,
            engine="h5netcdf",
            encoding={
                "height": {"zlib": True, "chunksizes": (20, 50), "_FillValue": -1.0},
                "packed": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -999, "zlib": True},
                "bounds": {"_FillValue": None},
            },
            unlimited_dims=["time"],
        )
    return path


def test_xarray(netcdf: Path, server: RangeServer, web: Any) -> None:
    """Nothing is masked that is not marked: the counts are zeros in part, which is the fill value of HDF5."""
    import xarray

    document = zarr_document(netcdf, server)
    assert problems_of(document) == {"/edge": "a dimension without values; arrays name it"}
    with xarray.open_dataset(netcdf, engine="h5netcdf") as expected:
        for found in (
            xarray.open_zarr(store_of(document, web), zarr_format=2, consolidated=True),
            xarray.open_dataset(document, engine="kerchunk", storage_options={"fs": web}),
        ):
            xarray.testing.assert_identical(found.load(), expected.load())
            for name, variable in expected.variables.items():
                # Text of a zarr array has the type that this zarr has for text: "O" in 3.1.3, "T" later.
                assert found[name].dtype == variable.dtype or (
                    found[name].dtype.kind in "OT" and variable.dtype.kind == "U"
                )
                np.testing.assert_equal(found[name].encoding.get("_FillValue"), variable.encoding.get("_FillValue"))


def test_xarray_takes_no_document_for_lindi(netcdf: Path, tmp_path: Path, server: RangeServer, web: Any) -> None:
    """docs/format.md, 7.12: an error, where names of dimensions alone would make it wrong without a word."""
    import xarray

    path = tmp_path / "lindi.json"
    lb.index(server.add(netcdf.name, netcdf)).save(path)
    document = json.loads(path.read_text())
    with pytest.raises((KeyError, TypeError)):  # TypeError: xarray stumbles while it looks for another name of them
        xarray.open_dataset(document, engine="kerchunk", storage_options={"fs": web})
    plain = zarr_document(netcdf, server)["refs"]
    for key in [key for key in document["refs"] if key.endswith("/.zarray")]:
        attributes = document["refs"].setdefault(key.replace(".zarray", ".zattrs"), {})
        name, rank = key.partition("/")[0], len(document["refs"][key]["shape"])
        known = json.loads(plain.get(key.replace(".zarray", ".zattrs"), "{}")).get("_ARRAY_DIMENSIONS", [])
        attributes["_ARRAY_DIMENSIONS"] = known if len(known) == rank else [f"{name}_{axis}" for axis in range(rank)]
    with (
        warnings.catch_warnings(action="ignore"),
        xarray.open_dataset(netcdf, engine="h5netcdf") as expected,
        xarray.open_dataset(document, engine="kerchunk", storage_options={"fs": web}) as found,
    ):
        assert (expected["count"].values == 0).any()
        assert np.array_equal(np.isnan(found["count"].values), expected["count"].values == 0)
        assert (expected["alone"].shape, found["alone"].shape) == ((), (1,))
