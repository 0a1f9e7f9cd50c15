"""read_elem, and anndata's own on our objects: what anndata makes of the same element of the local file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from builders.documents import write_document
from builders.elements import assert_same, tag, write_elements, write_escaped

import lindi_bridge as lb
from lindi_bridge.elements import elem


@pytest.fixture(scope="module")
def elements(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file with an element of each kind, and its document."""
    source = tmp_path_factory.mktemp("elements") / "elements.h5ad"
    write_elements(source)
    return source, write_document(source)


def _paths(source: Path) -> list[str]:
    found: list[str] = []
    with h5py.File(source) as file:
        file.visititems(lambda name, obj: found.append(name) if "encoding-type" in obj.attrs else None)
    return found


@pytest.mark.parametrize("prefer", [None, "annotations"])
def test_every_element_is_what_anndata_reads(elements: tuple[Path, Path], prefer: str | None) -> None:
    source, document = elements
    kinds = set()
    with h5py.File(source) as local, lb.open(document, prefer=prefer) as file:
        for path in _paths(source):
            kinds.add(str(local[path].attrs["encoding-type"]))
            assert_same(lb.read_elem(file[path]), anndata.io.read_elem(local[path]), path)
    assert kinds >= {
        *("anndata", "raw", "dict", "dataframe", "array", "csr_matrix", "csc_matrix", "categorical", "string-array"),
        *("nullable-integer", "nullable-boolean", "nullable-string-array", "numeric-scalar", "string", "null"),
        *("rec-array", "bytes"),
    }


def test_every_element_is_what_anndata_reads_of_a_file_without_a_document(elements: tuple[Path, Path]) -> None:
    source, _ = elements
    with h5py.File(source) as local, lb.open(source) as file:
        for path in local:
            assert_same(lb.read_elem(file[path]), anndata.io.read_elem(local[path]), path)


def test_awkward_arrays(elements: tuple[Path, Path]) -> None:
    pytest.importorskip("awkward")
    source, document = elements
    with h5py.File(source) as local, lb.open(document) as file:
        assert local["awkward"].attrs["encoding-type"] == "awkward-array"
        assert_same(lb.read_elem(file["awkward"]), anndata.io.read_elem(local["awkward"]))


def test_anndata_reads_our_objects_itself(elements: tuple[Path, Path]) -> None:
    source, document = elements
    with h5py.File(source) as local, lb.open(document) as file:
        for path in _paths(source):
            assert_same(anndata.io.read_elem(file[path]), anndata.io.read_elem(local[path]), path)


def test_anndata_reads_our_objects_in_part(elements: tuple[Path, Path]) -> None:
    from anndata._io.specs.registry import read_elem_partial

    source, document = elements
    with h5py.File(source) as local, lb.open(document) as file:
        for path, where in (
            ("categorical", (slice(1, 3),)),
            ("array", (slice(1, 5), slice(2, 4))),
            ("csr", (slice(9),) * 2),
            ("string-array", (slice(4, 9),)),
        ):
            found, expected = (read_elem_partial(root[path], indices=where) for root in (file, local))
            assert_same(found, expected, path)


def test_a_whole_file(tmp_path: Path) -> None:
    from anndata.tests.helpers import GEN_ADATA_NO_XARRAY_ARGS, gen_adata

    adata = gen_adata((30, 20), **GEN_ADATA_NO_XARRAY_ARGS)
    adata.write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad") as local, lb.open(write_document(tmp_path / "a.h5ad")) as file:
        expected = anndata.io.read_elem(local)
        assert_same(lb.read_elem(file), expected)
        assert_same(lb.read_elem(file["/"]), expected)
        assert_same(anndata.io.read_elem(file), expected)


def test_what_is_larger_than_the_cache_is_read_in_pieces(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    matrix = scipy.sparse.random(4000, 300, 0.3, "csr", "f8", random)
    with h5py.File(tmp_path / "a.h5ad", "w") as local:
        options = {"chunks": (4000,)}
        anndata.io.write_elem(local, "m", {"csr": matrix, "x": np.arange(9000)}, dataset_kwargs=options)
        anndata.io.write_elem(local, "dense", random.random((3000, 100)))
    document = write_document(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad") as local, lb.open(document, cache_bytes=1 << 20) as file:
        for name in ("m", "dense"):
            assert_same(lb.read_elem(file[name]), anndata.io.read_elem(local[name]), name)
        assert file._file_object._ahead.nbytes <= 1 << 20


# -- newer than the installed anndata ----------------------------------------------------------------------------------


@pytest.fixture
def escaped(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "escaped.h5ad", "w") as file:
        group = tag(file.create_group("uns"), "dict", "0.1.0")
        inner = tag(group.create_group("inner"), "dict", "0.2.0")
        write_escaped(inner, {"a%2Fb": np.arange(2), "%CON%": np.arange(3), "plain": np.ones(2)})
        write_escaped(group, {"where": ["obsm", "pca", 0], "kept%2F": np.arange(1)})
        write_escaped(tag(file.create_group("wrong"), "dict", "0.2.0"), {"%41": np.arange(1)})
        write_escaped(tag(file.create_group("twice"), "dict", "0.2.0"), {"CON": np.arange(1), "%CON%": np.arange(2)})
    return write_document(tmp_path / "escaped.h5ad")


def _without_accessors(document: Path, name: str) -> Any:
    with lb.open(document) as file:
        return lb.read_elem(file[name])


def test_escaped_keys(escaped: Path, tmp_path: Path) -> None:
    found = _without_accessors(escaped, "uns")
    assert list(found) == ["inner", "kept%2F", "where"]
    assert set(found["inner"]) == {"a/b", "CON", "plain"}
    np.testing.assert_array_equal(found["inner"]["CON"], [0, 1, 2])


def test_an_accessor(escaped: Path) -> None:
    found = _without_accessors(escaped, "uns/where")
    try:
        from anndata.acc import A
    except ImportError:
        assert found == ["obsm", "pca", 0]
    else:
        assert found == A.obsm["pca"][:, 0]


@pytest.mark.parametrize(("name", "message"), [("wrong", "'%41' is not an escaped key"), ("twice", "two members")])
def test_keys_that_no_writer_makes(name: str, message: str, escaped: Path) -> None:
    with lb.open(escaped) as file, pytest.raises(lb.ElementError, match=message) as error:
        lb.read_elem(file[name])
    assert f"/{name}" in str(error.value)


def test_anndata_is_preferred_where_it_knows_an_encoding(escaped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(elem, "_is_known", lambda encoding: asked.append(encoding) or True)
    with lb.open(escaped) as file, pytest.raises(Exception, match="No read method registered"):
        lb.read_elem(file["uns"])
    assert asked


def test_an_unknown_encoding_is_anndatas_error(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        tag(file.create_group("x"), "something", "9.9.9")
    with lb.open(write_document(tmp_path / "a.h5ad")) as file, pytest.raises(Exception, match="something"):
        lb.read_elem(file["x"])


# -- elements that do not say what they are ----------------------------------------------------------------------------


def _untagged(path: Path, names: list[str]) -> None:
    with h5py.File(path, "r+") as file:

        def strip(name: str, obj: Any) -> None:
            for key in ("encoding-type", "encoding-version"):
                obj.attrs.pop(key, None)

        for name in names:
            strip(name, file[name])
            if isinstance(file[name], h5py.Group):
                file[name].visititems(strip)


def test_elements_are_known_by_their_structure(tmp_path: Path) -> None:
    source = tmp_path / "a.h5ad"
    write_elements(source)
    names = ["categorical", "categorical-of-numbers", "nullable-integer", "nullable-boolean", "nullable-string"]
    names += ["dataframe", "dataframe-of-index"]
    with h5py.File(source) as local:
        expected = {name: anndata.io.read_elem(local[name]) for name in names}
    _untagged(source, names)
    with lb.open(write_document(source)) as file:
        for name in names:
            assert_same(lb.read_elem(file[name]), expected[name], name)


def test_an_untagged_column_of_a_tagged_data_frame(tmp_path: Path) -> None:
    source = tmp_path / "a.h5ad"
    write_elements(source)
    with h5py.File(source) as local:
        expected = anndata.io.read_elem(local["dataframe"])
    _untagged(source, ["dataframe/category", "dataframe/integer"])
    with lb.open(write_document(source)) as file:
        assert_same(lb.read_elem(file["dataframe"]), expected)


def test_missing_strings_mean_what_the_element_says(tmp_path: Path) -> None:
    pandas_is_new = tuple(map(int, pd.__version__.split(".")[:2])) >= (2, 3)
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        for kind in ("NA", "NaN", "unheard of"):
            group = file.create_group(kind)
            group["values"], group["mask"] = ["a", ""], np.array([False, True])
            group.attrs["na-value"] = kind
    with lb.open(write_document(tmp_path / "a.h5ad")) as file:
        for kind, missing in (("NA", pd.NA), ("NaN", np.nan), ("unheard of", pd.NA)):
            found = lb.read_elem(file[kind])
            if pandas_is_new:
                assert found.dtype.na_value is missing, kind
            assert list(found.isna()) == [False, True]


@pytest.mark.parametrize("kind", ["extra member", "mask of another type", "codes are not integers", "no index"])
def test_where_the_structure_leaves_a_doubt_anndata_decides(kind: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        group = file.create_group("x")
        if kind == "extra member":
            group.update({"codes": np.arange(2), "categories": np.arange(2), "more": 1})
        elif kind == "mask of another type":
            group.update({"values": np.arange(2), "mask": np.arange(2)})
        elif kind == "codes are not integers":
            group.update({"codes": np.arange(2.0), "categories": np.arange(2)})
        else:
            group.update({"a": np.arange(2)})
            group.attrs["_index"] = "b"
    with h5py.File(tmp_path / "a.h5ad") as local, lb.open(write_document(tmp_path / "a.h5ad")) as file:
        found = lb.read_elem(file["x"])
        assert isinstance(found, dict)
        assert_same(found, anndata.io.read_elem(local["x"]))


def test_a_code_without_a_category(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["x/codes"], file["x/categories"] = np.array([0, 5]), np.arange(2)
    with (
        lb.open(write_document(tmp_path / "a.h5ad")) as file,
        pytest.raises(lb.ElementError, match="codes from 0 to 5, but 2 categories"),
    ):
        lb.read_elem(file["x"])


def test_an_untagged_data_frame_of_anndata_0_7(tmp_path: Path) -> None:
    """Its categories are found by object references."""
    source = tmp_path / "a.h5ad"
    source.write_bytes((Path(__file__).parents[1] / "data" / "anndata" / "anndata-0.7.8.h5ad").read_bytes())
    with h5py.File(source) as local:
        expected = anndata.io.read_elem(local["obs"])
        assert str(local["obs"].attrs["encoding-version"]) == "0.1.0"
    _untagged(source, ["obs"])
    with lb.open(write_document(source)) as file:
        assert_same(lb.read_elem(file["obs"]), expected)


@pytest.mark.parametrize("text", ["no JSON", "5", "[" * 100_000])
def test_an_accessor_that_is_none(text: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["x"] = text
        tag(file["x"], "accessor", "0.1.0")
    with lb.open(write_document(tmp_path / "a.h5ad")) as file:
        if text == "5" and elem._accessors() is None:
            pytest.skip("without anndata.acc whatever is JSON is handed on")
        with pytest.raises(lb.ElementError, match="/x is no accessor"):
            lb.read_elem(file["x"])


def test_fixed_length_attributes_as_other_writers_have_them(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["x/codes"], file["x/categories"] = np.array([0, 1], "i1"), np.arange(2)
        file["x"].attrs["encoding-type"] = np.bytes_("categorical")
        file["x"].attrs["encoding-version"] = np.bytes_("0.2.0")
        file["x"].attrs["ordered"] = True
        for name in ("codes", "categories"):
            tag(file["x"][name], "array", "0.2.0")
    with h5py.File(tmp_path / "a.h5ad") as local, lb.open(write_document(tmp_path / "a.h5ad")) as file:
        assert_same(lb.read_elem(file["x"]), anndata.io.read_elem(local["x"]))


# -- what lies elsewhere -----------------------------------------------------------------------------------------------


def test_links_to_other_files_are_followed(tmp_path: Path) -> None:
    """Plain h5py over a file object would take the other file's objects out of this one."""
    frame = pd.DataFrame({"a": [1, 2]}, index=["x", "y"])
    with h5py.File(tmp_path / "other.h5ad", "w") as other:
        anndata.io.write_elem(other, "column", np.array([10, 20]))
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        anndata.io.write_elem(file, "frame", frame)
        anndata.io.write_elem(file, "column", np.array([-1, -1]))
        del file["frame/a"]
        file["frame/a"] = h5py.ExternalLink("other.h5ad", "/column")
        file["soft"] = tag(file.create_group("mapping"), "dict", "0.1.0")
        file["mapping/here"] = h5py.SoftLink("/frame")
    with h5py.File(tmp_path / "a.h5ad") as local, lb.open(write_document(tmp_path / "a.h5ad")) as file:
        for name in ("frame", "mapping"):
            assert_same(lb.read_elem(file[name]), anndata.io.read_elem(local[name]), name)
        assert lb.read_elem(file["frame"])["a"].tolist() == [10, 20]


def test_links_inside_the_file_are_fetched_ahead(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        anndata.io.write_elem(file, "column", np.arange(50_000), dataset_kwargs={"chunks": (10_000,)})
        tag(file.create_group("mapping"), "dict", "0.1.0")["soft"] = h5py.SoftLink("/column")
        file["mapping/back"] = h5py.SoftLink("/mapping/soft")
    with h5py.File(tmp_path / "a.h5ad") as local, lb.open(write_document(tmp_path / "a.h5ad")) as file:
        assert lb.prefetch(file["mapping"]) == 400_000
        assert_same(lb.read_elem(file["mapping"]), anndata.io.read_elem(local["mapping"]))
        assert file._file_object.reader.statistics.waves == 2, "samples of the source, and the values"


def test_a_link_to_nowhere(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        tag(file.create_group("plain"), "dict", "0.1.0")["gone"] = h5py.SoftLink("/nowhere")
        tag(file.create_group("escaped"), "dict", "0.2.0")["gone"] = h5py.SoftLink("/nowhere")
    document = write_document(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad") as local, pytest.raises(KeyError):
        anndata.io.read_elem(local["plain"])
    with lb.open(document) as file:
        for name in ("plain", "escaped"):
            with pytest.raises(KeyError):
                lb.read_elem(file[name])


def test_only_our_objects_are_taken(elements: tuple[Path, Path]) -> None:
    with h5py.File(elements[0]) as local, pytest.raises(TypeError, match=r"lindi_bridge\.open"):
        lb.read_elem(local["array"])


def test_without_anndata(elements: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "anndata", None)
    with lb.open(elements[1]) as file, pytest.raises(lb.MissingDependencyError, match=r"lindi_bridge\[anndata\]"):
        lb.read_elem(file["array"])
