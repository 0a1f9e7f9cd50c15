"""read_h5ad, in memory and backed: what anndata.read_h5ad makes of the local file."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from builders.documents import write_document
from builders.elements import assert_same, tag, write_escaped
from servers.range_server import RangeServer

import lindi_bridge as lb

OLD_FILES = Path(__file__).parents[1] / "data" / "anndata"
"""One file by each of several versions of anndata; scripts/make_anndata_files makes them."""

REAL_FILES = Path(__file__).parents[3] / "shared" / "data" / "anndata"
"""Further files by real versions of anndata; they lie outside the repository, and need not be there."""

PARTS = ("obs", "var", "obsm", "varm", "obsp", "varp", "layers", "uns")


def _generated(sparse: bool) -> anndata.AnnData:
    from anndata.tests.helpers import GEN_ADATA_NO_XARRAY_ARGS, gen_adata

    adata = gen_adata((50, 30), scipy.sparse.csc_matrix if sparse else np.asarray, **GEN_ADATA_NO_XARRAY_ARGS)
    adata.raw = adata[:, :20].copy()
    return adata


SOURCES: dict[str, Path | Callable[[], anndata.AnnData]] = {
    "generated, sparse": lambda: _generated(True),
    "generated, dense": lambda: _generated(False),
    "without X": lambda: anndata.AnnData(obs=pd.DataFrame({"a": [1, 2]}, index=["x", "y"])),
    **{path.stem: path for path in sorted([*OLD_FILES.glob("*.h5ad"), *REAL_FILES.glob("*.h5ad")])},
}


@pytest.fixture(scope="module", params=SOURCES)
def files(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A local file and its document."""
    made = SOURCES[request.param]
    source = tmp_path_factory.mktemp("h5ad") / "source.h5ad"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(made, Path):
            source.write_bytes(made.read_bytes())
        else:
            made().write_h5ad(source, compression="gzip")
    return source, write_document(source)


def _outcome(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:  # noqa: BLE001 (whatever anndata makes of the local file, it is the answer)
        return type(error)


def _same_object(found: anndata.AnnData, expected: anndata.AnnData) -> None:
    assert_same(found, expected)
    for part in PARTS:
        mine, theirs = getattr(found, part), getattr(expected, part)
        if isinstance(theirs, pd.DataFrame):
            assert_same(mine, theirs, part)
        else:
            assert list(mine) == list(theirs)
            for key in theirs:
                if key is not None:  # X, in anndata 0.13
                    assert_same(mine[key], theirs[key], f"{part}/{key}")
    assert (found.raw is None) == (expected.raw is None)
    if expected.raw is not None:
        assert_same(_memory(found.raw.X), _memory(expected.raw.X), "raw/X")
        pd.testing.assert_frame_equal(found.raw.var, expected.raw.var)


def _memory(matrix: Any) -> Any:
    if hasattr(matrix, "to_memory"):
        return matrix.to_memory()
    return matrix[()] if isinstance(matrix, h5py.Dataset) else matrix


def test_there_are_old_files() -> None:
    minors = {path.stem.rpartition(".")[0] for path in OLD_FILES.glob("*.h5ad")}
    assert minors >= {f"anndata-0.{minor}" for minor in range(6, 14)}


@pytest.mark.parametrize("options", [{}, {"prefer": "annotations"}], ids=str)
def test_in_memory(files: tuple[Path, Path], options: dict[str, Any]) -> None:
    source, document = files
    found = lb.read_h5ad(document, **options)
    assert not found.isbacked
    _same_object(found, anndata.read_h5ad(source))


def test_of_the_file_itself(files: tuple[Path, Path]) -> None:
    source, _ = files
    _same_object(lb.read_h5ad(source), anndata.read_h5ad(source))


@pytest.fixture
def backed(files: tuple[Path, Path]) -> Iterator[tuple[anndata.AnnData, anndata.AnnData]]:
    source, document = files
    expected = anndata.read_h5ad(source, backed="r")
    found = lb.read_h5ad(document, backed="r")
    yield found, expected
    found.file.close()
    expected.file.close()


SELECTIONS: dict[str, Callable[[int], Any]] = {
    "a slice": lambda cells: np.s_[3:17],
    "a list": lambda cells: np.s_[[5, 2, 20]],
    "a mask": lambda cells: np.arange(cells) % 7 == 0,
    "columns": lambda cells: np.s_[:, 2:9],
    "both": lambda cells: np.s_[5:30, [3, 1]],
    "one": lambda cells: np.s_[4, 3],
}


def test_backed(backed: tuple[anndata.AnnData, anndata.AnnData]) -> None:
    found, expected = backed
    assert found.isbacked
    assert found.shape == expected.shape
    for part in PARTS:
        if part != "layers" or None not in found.layers:
            assert_same(getattr(found, part), getattr(expected, part), part)
    wanted = _outcome(lambda: _memory(expected.X))
    assert_same(_outcome(lambda: _memory(found.X)), wanted, "X")
    assert (found.raw is None) == (expected.raw is None)
    if expected.raw is not None:
        pd.testing.assert_frame_equal(found.raw.var, expected.raw.var)
        assert_same(_memory(found.raw.X), _memory(expected.raw.X), "raw/X")


def test_parts_of_a_backed_object(backed: tuple[anndata.AnnData, anndata.AnnData]) -> None:
    found, expected = backed
    for name, select in SELECTIONS.items():
        where = select(expected.n_obs)
        wanted = _outcome(lambda where=where: expected[where].X)
        assert_same(_outcome(lambda where=where: found[where].X), wanted, name)
    for _ in range(2):  # anndata 0.12 closes the file after to_memory, and opens it again
        wanted = _outcome(lambda: expected[:9].to_memory())
        if isinstance(wanted, type):
            assert _outcome(lambda: found[:9].to_memory()) is wanted
        else:
            _same_object(found[:9].to_memory(), wanted)


def test_a_backed_object_is_written(backed: tuple[anndata.AnnData, anndata.AnnData], tmp_path: Path) -> None:
    found, expected = backed
    outcomes = [_outcome(lambda a=a, n=n: a.write_h5ad(tmp_path / n)) for a, n in ((expected, "e"), (found, "f"))]
    assert outcomes[0] == outcomes[1]
    if outcomes[0] is None:
        _same_object(anndata.read_h5ad(tmp_path / "f"), anndata.read_h5ad(tmp_path / "e"))


@pytest.mark.parametrize("of", ["a document", "a document in memory", "an index", "a file", "a file object"])
def test_the_backing_file_is_never_written_to(
    of: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    document = write_document(source)
    names: dict[str, Any] = {
        "a document": document,
        "a document in memory": document.read_bytes(),
        "an index": lb.index(source),
        "a file": source,
        "a file object": io.BytesIO(source.read_bytes()),
    }
    before = {path.name: path.read_bytes() for path in source.parent.iterdir()}
    adata = lb.read_h5ad(names[of], backed="r")
    adata.obs["new"] = 1
    for write in (
        adata.write_h5ad,
        adata.write,
        lambda: adata.write_h5ad(adata.filename),
        lambda: setattr(adata, "filename", tmp_path / "moved.h5ad"),
    ):
        with pytest.raises(lb.ReadOnlyError, match="read-only"):
            write()
    assert {path.name: path.read_bytes() for path in source.parent.iterdir()} == before
    assert str(adata.filename) in repr(adata)
    assert adata.isbacked
    if of != "a file object":  # anndata closes the backing file to write, and opens it again
        expected = anndata.read_h5ad(source)
        adata.write_h5ad(tmp_path / "copy.h5ad")
        adata.file.close()
        assert_same(_memory(adata.X), _memory(expected.X))
        expected.obs["new"] = 1
        _same_object(anndata.read_h5ad(tmp_path / "copy.h5ad"), expected)
    else:
        adata.file.close()
        with pytest.raises(lb.SourceError, match="no address to open it"):
            _ = adata.X
    adata.file.close()


def test_an_open_file_stays_open(files: tuple[Path, Path]) -> None:
    source, document = files
    with lb.open(document) as file:
        _same_object(lb.read_h5ad(file), anndata.read_h5ad(source))
        assert file


# -- one file is enough ------------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _generated(True).write_h5ad(tmp_path / "a.h5ad")
    return tmp_path / "a.h5ad"


def test_an_index_is_taken(source: Path) -> None:
    _same_object(lb.read_h5ad(lb.index(source)), anndata.read_h5ad(source))


def test_options_of_opening_and_of_anndata(source: Path, server: RangeServer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _generated(False).write_h5ad(source)
    lb.index(server.add("moved.h5ad", source)).save(source.with_suffix(".json"))
    del server.resources["moved.h5ad"]
    found = lb.read_h5ad(source.with_suffix(".json"), source=str(source), as_sparse=("X",))
    assert scipy.sparse.issparse(found.X)
    _same_object(found, anndata.read_h5ad(source, as_sparse=("X",)))


def test_wrong_arguments(source: Path) -> None:
    document = write_document(source)
    with pytest.raises(ValueError, match="read-only"):
        lb.read_h5ad(document, backed="r+")
    with pytest.raises(ValueError, match="as_sparse: only for reading into memory"):
        lb.read_h5ad(document, backed="r", as_sparse=("X",))
    with pytest.raises(TypeError, match="nonsense"):
        lb.read_h5ad(document, nonsense=1)


def test_not_an_anndata_file(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = 1
    with pytest.raises(lb.ElementError, match="not an AnnData file: it has no obs and no var at its root"):
        lb.read_h5ad(write_document(tmp_path / "a.h5"))


@pytest.mark.parametrize("backed", [None, "r"])
def test_an_old_file_that_others_are_linked_to(backed: str | None, tmp_path: Path) -> None:
    """Links inside the file are harmless; where one leads out, anndata over a file object would read wrong values."""
    source = tmp_path / "a.h5ad"
    source.write_bytes((OLD_FILES / "anndata-0.7.8.h5ad").read_bytes())
    with h5py.File(source, "r+") as file:
        file["layers/same"] = h5py.SoftLink("/layers/dense")
    expected = anndata.read_h5ad(source, backed=backed)
    found = lb.read_h5ad(write_document(source), backed=backed)
    np.testing.assert_array_equal(found.layers["same"], expected.layers["same"])
    for data in (found, expected) if backed else ():
        data.file.close()
    with h5py.File(source, "r+") as file:
        file["layers/other"] = h5py.ExternalLink("b.h5ad", "/layers/dense")
    with pytest.raises(lb.ElementError, match="links to other places"):
        lb.read_h5ad(write_document(source), backed=backed)


@pytest.mark.parametrize("backed", [None, "r"])
def test_parts_in_other_files(backed: str | None, source: Path) -> None:
    """Two files of one layout: what is taken from the wrong one has other values at the same addresses."""
    other = source.with_name("other.h5ad")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _generated(True).write_h5ad(other)
    with h5py.File(source, "r+") as file:
        for name in ("obs", "X", "layers/array", "raw"):
            del file[name]
            file[name] = h5py.ExternalLink("other.h5ad", f"/{name}")
    expected = anndata.read_h5ad(source, backed=backed)
    found = lb.read_h5ad(write_document(source), backed=backed)
    for part in PARTS:
        if part != "layers" or backed is None:
            assert_same(getattr(found, part), getattr(expected, part), part)
    assert_same(found.layers["array"], expected.layers["array"])
    assert_same(_memory(found.X), _memory(expected.X))
    assert_same(_memory(found.raw.X), _memory(expected.raw.X))
    if backed:
        found.file.close()
        expected.file.close()


@pytest.mark.parametrize("backed", [None, "r"])
def test_the_form_of_anndata_0_5(backed: str | None, tmp_path: Path) -> None:
    """Compound obs and var, compound obsm with arrays in it, raw.X, categories in uns, fixed-length strings."""
    random = np.random.default_rng(2)
    names = [(b"c%d" % i, i % 3, i / 2) for i in range(10)]
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file.create_dataset("X", data=random.random((10, 4)).astype("f4"), chunks=(5, 4), compression="gzip")
        file["obs"] = np.array(names, [("index", "S5"), ("louvain", "i1"), ("n", "f4")])
        file["var"] = np.array([(b"g%d" % i, i) for i in range(4)], [("index", "S5"), ("mean", "f8")])
        for name, length in (("obsm", 10), ("varm", 4)):
            file[name] = np.array([(row,) for row in random.random((length, 3))], [("X_pca", "f4", (3,))])
        file["raw.X"] = random.random((10, 6)).astype("f4")
        file["raw.var"] = np.array([(b"g%d" % i, i) for i in range(6)], [("index", "S5"), ("mean", "f8")])
        file["uns/louvain_categories"] = np.array([b"a", b"b", b"c"])
        file["uns/pca/variance"] = np.arange(3.0)
        file["uns/method"] = np.array([b"umap"])
        near = scipy.sparse.random(10, 10, 0.3, "csr", "f8", random)
        group = file.create_group("uns/graph")
        group.attrs.update({"h5sparse_format": b"csr", "h5sparse_shape": (10, 10)})
        group.update({"data": near.data, "indices": near.indices, "indptr": near.indptr})
    document = write_document(tmp_path / "a.h5ad")
    expected = anndata.read_h5ad(tmp_path / "a.h5ad", backed=backed)
    found = lb.read_h5ad(document, backed=backed)
    assert list(expected.obs["louvain"][:3]) == ["a", "b", "c"]
    for part in ("obs", "var", "uns"):
        assert_same(getattr(found, part), getattr(expected, part), part)
    for part in ("obsm", "varm"):
        np.testing.assert_array_equal(getattr(found, part)["X_pca"], getattr(expected, part)["X_pca"])
    assert_same(_memory(found.X), _memory(expected.X))
    assert_same(_memory(found.raw.X), _memory(expected.raw.X))
    pd.testing.assert_frame_equal(found.raw.var, expected.raw.var)
    with lb.open(document) as file, h5py.File(tmp_path / "a.h5ad") as local:
        for name in ("obs", "obsm", "uns", "raw.var", "uns/graph", "uns/method"):
            assert_same(lb.read_elem(file[name]), anndata.io.read_elem(local[name]), name)


@pytest.mark.parametrize("backed", [None, "r"])
def test_newer_encodings_are_read(backed: str | None, source: Path) -> None:
    expected = anndata.read_h5ad(source)
    with h5py.File(source, "r+") as file:
        write_escaped(tag(file["uns"].create_group("new"), "dict", "0.2.0"), {"a%2Fb": np.arange(2)})
    found = lb.read_h5ad(write_document(source), backed=backed)
    assert_same(
        {k: v for k, v in found.uns.items() if k != "new"}, {k: v for k, v in expected.uns.items() if k != "new"}
    )
    assert list(found.uns["new"]) == ["a/b"]


def test_backed_x_is_read_in_few_waves_of_few_bytes(tmp_path: Path, server: RangeServer) -> None:
    matrix = scipy.sparse.random(20_000, 300, 0.05, "csr", "f4", np.random.default_rng(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anndata.AnnData(matrix).write_h5ad(tmp_path / "big.h5ad", compression="gzip")
    lb.index(server.add("big.h5ad", tmp_path / "big.h5ad")).save(tmp_path / "big.json")
    adata = lb.read_h5ad(tmp_path / "big.json", backed="r")
    reader = adata.file._file._file_object.reader
    assert reader.statistics.nbytes < 400_000
    before = reader.statistics.waves
    random = np.random.default_rng(2)
    rows = random.choice(20_000, 200, replace=False)
    assert (matrix[rows] != adata[rows].X).nnz == 0
    assert reader.statistics.waves - before <= 3, "places, values, and the rest of indptr, which anndata reads"
    mask = random.random(20_000) < 0.02
    assert (matrix[mask] != adata[mask].X).nnz == 0
    assert reader.statistics.waves - before <= 4
    assert (matrix[5:900][:, [3, 1]] != adata[5:900, [3, 1]].X).nnz == 0
    assert reader.statistics.waves - before <= 5
    assert adata.file._file._file_object.misses == 0
    assert reader.statistics.nbytes < 2_000_000
    adata.file.close()


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_parts_of_x_that_are_larger_than_the_cache(form: str, tmp_path: Path) -> None:
    matrix = scipy.sparse.random(2000, 2000, 0.1, form, "f4", np.random.default_rng(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anndata.AnnData(matrix).write_h5ad(tmp_path / "a.h5ad")
    adata = lb.read_h5ad(write_document(tmp_path / "a.h5ad"), backed="r", cache_bytes=1 << 20)
    reader = adata.file._file._file_object.reader
    some = np.random.default_rng(2).permutation(2000)[:1500]
    for where in (np.s_[some, :], np.s_[:, some], np.s_[some, 5:900], np.s_[some, some]):
        before = reader.statistics.waves
        assert_same(
            adata[where].X, matrix[where if where[1] is not some or where[0] is not some else np.ix_(some, some)]
        )
        assert reader.statistics.waves - before < 200, "not one for each row"
    adata.file.close()


def test_the_backing_file_is_opened_again_with_its_options(source: Path, server: RangeServer) -> None:
    url = server.add("guarded.h5ad", source, require={"Authorization": "Bearer secret"})
    options = {"headers": {"Authorization": "Bearer secret"}}
    lb.index(url, **options).save(source.with_suffix(".json"))
    adata = lb.read_h5ad(source.with_suffix(".json"), backed="r", **options, credentials_for=[url])
    adata.file.close()
    assert not adata.file.is_open
    assert adata.X.shape == (50, 30)
    assert adata.file.is_open
    assert "secret" not in repr(adata) + repr(adata.file)
    adata.file.close()
