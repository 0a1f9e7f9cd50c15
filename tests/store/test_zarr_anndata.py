"""AnnData files as Zarr groups: anndata reads from them what it reads from the files, at once and lazily."""

from __future__ import annotations

import multiprocessing
import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from builders.documents import write_document
from builders.elements import tag, write_elements
from servers.range_server import RangeServer

import lindi_bridge as lb

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # anndata warns of what its own dependencies deprecate
    anndata = pytest.importorskip("anndata")
    helpers = pytest.importorskip("anndata.tests.helpers")
pandas = pytest.importorskip("pandas")
sparse = pytest.importorskip("scipy.sparse")

CELLS, GENES = 1500, 25


@pytest.fixture(autouse=True)
def quiet_anndata():
    """anndata warns of deprecations, which are not what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", lb.IncompleteWarning)
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("zarr-anndata") / "made.h5ad"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = helpers.gen_adata((CELLS, GENES), sparse.csr_matrix, **helpers.GEN_ADATA_NO_XARRAY_ARGS)
        made.raw = made.copy()
        made.layers["columns"] = sparse.csc_matrix(made.X)
        made.uns["text"], made.uns["number"], made.uns["nothing"], made.uns["none"] = "é", 3.5, {}, None
        made.write_h5ad(path, compression="gzip")
    return path


@pytest.fixture
def document(source, tmp_path):
    lb.index(str(source)).save(str(tmp_path / "made.json"))
    return str(tmp_path / "made.json")


@pytest.fixture(scope="module")
def expected(source):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return anndata.read_h5ad(source)


def test_the_whole_object(document, expected):
    group = lb.open_zarr(document)
    helpers.assert_equal(anndata.io.read_zarr(group), expected)
    helpers.assert_equal(anndata.io.read_elem(group), expected)
    group.store.close()


def test_every_element(document, source):
    import h5py

    group = lb.open_zarr(document)
    with h5py.File(source) as f:
        names = [name for name in f if name != "raw"]
        assert len(names) > 6
        for name in names:
            for child in f[name] if f[name].attrs.get("encoding-type") == "dict" else [""]:
                path = f"{name}/{child}".rstrip("/")
                wanted, found = anndata.io.read_elem(f[path]), anndata.io.read_elem(group[path])
                helpers.assert_equal(found, wanted, elem_name=path)
    group.store.close()


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory):
    """A file with one element of each kind, and its document."""
    path = tmp_path_factory.mktemp("zarr-elements") / "elements.h5ad"
    write_elements(path)
    return path, write_document(path)


def test_every_kind_of_element(every_kind):
    import h5py

    source, document = every_kind
    kinds = set()
    group = lb.open_zarr(document)
    with h5py.File(source) as f, pandas.option_context("future.infer_string", False):
        for name in f:
            kinds.add(f[name].attrs["encoding-type"])
            wanted, found = anndata.io.read_elem(f[name]), anndata.io.read_elem(group[name])
            if getattr(found, "dtype", None) == "T":  # what zarr has for strings
                found = found.astype(object)
            if isinstance(wanted, float) and np.isnan(wanted):
                assert np.isnan(found)
            else:
                helpers.assert_equal(found, wanted, elem_name=name)
    assert {"dataframe", "categorical", "nullable-string-array", "rec-array", "null", "csc_matrix", "raw"} - kinds == {
        "raw"
    }
    group.store.close()


def test_an_element_that_zarr_has_no_type_for_is_left_out_and_never_text(tmp_path):
    import h5py

    with h5py.File(tmp_path / "a.h5", "w") as f:
        tag(f.create_group("uns"), "dict", "0.1.0")["fine"] = np.arange(3)
        tag(f["uns/fine"], "array", "0.2.0")
        f["uns/long"] = np.arange(3, dtype=np.longdouble)
        f["uns/rows"] = np.array([(1, [1, 2])], dtype=[("a", "i4"), ("b", "f4", (2,))])
        f["uns/none"] = h5py.Empty(np.longdouble)
        for name, kind in (("long", "array"), ("rows", "rec-array"), ("none", "null")):
            tag(f["uns"][name], kind, "0.1.0" if kind == "null" else "0.2.0")
        f["untold"] = np.arange(3, dtype=np.longdouble)
    with pytest.warns(lb.IncompleteWarning, match="2 things.*element of AnnData of a type that Zarr does not have"):
        group = lb.open_zarr(str(tmp_path / "a.h5"))
    assert {p.path: p.kind for p in group.store.problems} == {"/uns/long": "datatype", "/uns/rows": "datatype"}
    found = anndata.io.read_elem(group["uns"])
    assert set(found) == {"fine", "none"}
    assert found["none"] is None
    assert group["untold"][:].tolist() == ["0.0", "1.0", "2.0"], "where nobody says that it is an element"
    with h5py.File(tmp_path / "a.h5") as f:
        whole = lb.read_elem(group["uns"])
        np.testing.assert_array_equal(whole["long"], f["uns/long"][:])
        np.testing.assert_array_equal(whole["rows"], f["uns/rows"][:])
    group.store.close()


TESTS = Path(__file__).parents[1]
FOLDERS = [TESTS / "data" / "anndata", TESTS.parents[1] / "shared" / "data" / "anndata"]
REAL_FILES = sorted(path for folder in FOLDERS for path in folder.glob("*.h5ad"))
"""Files written by real versions of anndata; some lie outside the repository."""


@pytest.mark.parametrize("path", REAL_FILES, ids=lambda path: path.name)
def test_files_of_older_versions(path):
    group = lb.open_zarr(str(path))
    # With pandas 3, anndata makes columns of strings out of HDF5, and of objects out of any Zarr group.
    with pandas.option_context("future.infer_string", False):
        helpers.assert_equal(anndata.io.read_zarr(group), anndata.read_h5ad(path))
    group.store.close()


# -- lazily -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def server():
    with RangeServer() as server:
        yield server


@pytest.fixture
def remote(source, server, tmp_path):
    """A document of a file that the server gives only to those who know the signature in its document."""
    lb.index(server.add("made.h5ad", source)).save(str(tmp_path / "remote.json"))
    server.reset()
    return str(tmp_path / "remote.json")


def test_what_was_fetched_ahead_is_not_asked_for_again(remote, server, expected):
    """The group and the file of its store have their memory in common."""
    group = lb.open_zarr(remote)
    lb.prefetch(group.store.file["layers"])
    before = server.requests
    assert before > 0
    assert (anndata.io.read_elem(group["layers/sparse"]) != expected.layers["sparse"]).nnz == 0
    np.testing.assert_array_equal(anndata.io.read_elem(group["layers/array"]), expected.layers["array"])
    assert server.requests == before
    group.store.close()


def test_our_functions_take_zarr_groups_for_the_objects_that_they_show(remote, server, source, expected):
    import h5py

    rows = [1400, 3, 3, -1]
    group = lb.open_zarr(remote)
    with h5py.File(source) as local:
        reader = group.store.file._file_object.reader
        before = reader.statistics.waves
        assert lb.prefetch(group["layers"]) > 0
        helpers.assert_equal(anndata.io.read_elem(group["layers"]), anndata.io.read_elem(local["layers"]))
        assert reader.statistics.waves == before + 1
        for name in ("var", "layers", "obsm/array", ""):
            helpers.assert_equal(lb.read_elem(group[name] if name else group), anndata.io.read_elem(local[name or "/"]))
        for matrix in (group["X"], anndata.io.sparse_dataset(group["X"])):
            found = lb.sparse_rows(matrix, rows)
            assert type(found) is type(expected.X)
            assert (found != expected.X[rows]).nnz == 0
    with pytest.raises(TypeError, match=r"lindi_bridge\.open"):
        lb.prefetch(anndata.AnnData(np.eye(2)))
    group.store.close()


def test_a_zarr_group_of_others_is_none_of_ours():
    zarr = pytest.importorskip("zarr")
    other = zarr.create_group(zarr.storage.MemoryStore())
    for take in (lb.prefetch, lb.read_elem, lambda group: lb.sparse_rows(group, [1])):
        with pytest.raises(TypeError, match=r"lindi_bridge\.open"):
            take(other)


def test_zarr_groups_behind_links_show_the_objects_that_the_links_lead_to(tmp_path):
    import h5py

    with h5py.File(tmp_path / "other.h5", "w") as other:
        anndata.io.write_elem(other, "frame", pandas.DataFrame({"a": [10, 20]}, index=["x", "y"]))
    with h5py.File(tmp_path / "a.h5", "w") as f:
        anndata.io.write_elem(f, "frame", pandas.DataFrame({"a": [1, 2]}, index=["x", "y"]))
        f["elsewhere"] = h5py.ExternalLink("other.h5", "/")
        f["here"] = h5py.SoftLink("/frame")
    group = lb.open_zarr(str(tmp_path / "a.h5"))
    assert lb.read_elem(group["here"])["a"].tolist() == [1, 2]
    assert lb.read_elem(group["elsewhere/frame"])["a"].tolist() == [10, 20]
    assert lb.read_elem(group["elsewhere/frame/a"]).tolist() == [10, 20]
    group.store.close()


def _needs_dask():
    pytest.importorskip("dask")
    pytest.importorskip("xarray")


def test_lazily(remote, server, expected):
    _needs_dask()
    lazy = lb.read_lazy(remote)
    assert lazy.shape == expected.shape
    helpers.assert_equal(lazy.to_memory(), expected)
    _close(lazy)


def test_every_kind_of_column_and_member_lazily(every_kind, tmp_path):
    """As anndata reads the local file lazily, and its parts are what lies in memory."""
    _needs_dask()
    import h5py
    from anndata.experimental import read_lazy

    with h5py.File(every_kind[0]) as f:
        made = anndata.io.read_elem(f["anndata"])
        made.obsm["frame"], made.obsm["dense"] = made.obs.copy(), np.arange(3.0 * made.n_obs).reshape(-1, 3)
        made.layers["csc"] = made.X.tocsc()
        made.varm["nothing"] = np.empty((made.n_vars, 0))
        made.obsp["near"] = sparse.random(made.n_obs, made.n_obs, 0.05, "csr")
        for name in ("string", "integer", "null", "string-array-2d", "bool-array", "dict"):
            made.uns[name] = anndata.io.read_elem(f[name])
    made.write_h5ad(tmp_path / "a.h5ad", compression="gzip")
    lazy, whole = lb.read_lazy(write_document(tmp_path / "a.h5ad")), anndata.read_h5ad(tmp_path / "a.h5ad")
    del made.varm["nothing"]  # from HDF5 anndata 0.12.8 does not read it lazily
    made.write_h5ad(tmp_path / "b.h5ad", compression="gzip")
    found = lazy.to_memory()
    assert found.varm.pop("nothing").shape == (made.n_vars, 0)
    with h5py.File(tmp_path / "b.h5ad") as f:
        helpers.assert_equal(found, read_lazy(f).to_memory())
    for where in (slice(3, 9), [5, 2, 7], np.arange(made.n_obs) % 7 == 0):
        part, wanted = lazy[where].to_memory(), whole[where].copy()
        helpers.assert_equal(part.X, wanted.X)
        for name in wanted.obs:
            column, values = part.obs[name], wanted.obs[name]
            assert column.isna().tolist() == values.isna().tolist(), name
            assert column.dropna().tolist() == values.dropna().tolist(), name
        for name in ("dense", "frame"):
            assert part.obsm[name].shape == wanted.obsm[name].shape
        np.testing.assert_array_equal(part.obsm["dense"], wanted.obsm["dense"])
        helpers.assert_equal(part.obsp["near"], wanted.obsp["near"])


@pytest.mark.parametrize("version", ["0.6.22", "0.7.8"])
def test_what_anndata_does_not_read_lazily(version):
    _needs_dask()
    with pytest.raises(lb.ElementError, match=r"anndata 0\.7 or older.*read_h5ad"):
        lb.read_lazy(TESTS / "data" / "anndata" / f"anndata-{version}.h5ad")


def test_lazily_reading_fetches_what_is_computed(remote, server, expected):
    _needs_dask()
    lazy = lb.read_lazy(remote, load_annotation_index=False)
    rows = lazy.layers["array"][:100]
    with lb.open(remote) as file:
        stored = file["layers/array"].id.get_storage_size()
    server.reset()
    np.testing.assert_array_equal(rows.compute(scheduler="synchronous"), expected.layers["array"][:100])
    assert 0 < server.nbytes <= stored + 4096
    found = lazy.layers["columns"][:, :5].compute(scheduler="synchronous")
    assert (found != expected.layers["columns"][:, :5]).nnz == 0


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_rows_are_computed_by(scheduler, remote, expected):
    _needs_dask()
    lazy = lb.read_lazy(remote)
    found = lazy.X[:1000].compute(scheduler=scheduler)
    assert type(found) is type(expected.X)
    assert (found != expected.X[:1000]).nnz == 0
    helpers.assert_equal(np.asarray(lazy.obsm["array"][:1000].compute()), expected.obsm["array"][:1000])


def test_rows_are_computed_by_processes(remote, expected):
    _needs_dask()
    lazy = lb.read_lazy(remote)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = lazy.X.compute(scheduler="processes", pool=pool)
    assert (found != expected.X).nnz == 0


def test_rows_are_computed_by_two_workers_of_dask_distributed(remote, server, expected):
    _needs_dask()
    distributed = pytest.importorskip("distributed")
    lazy = lb.read_lazy(remote)
    rows = lazy.X[:1000]
    embedding = lazy.obsm["array"]
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert len(client.scheduler_info()["workers"]) == 2
        before = server.requests
        assert (rows.compute() != expected.X[:1000]).nnz == 0
        np.testing.assert_array_equal(embedding.compute(), expected.obsm["array"])
    assert server.requests > before  # by the workers: nothing else was read meanwhile


def test_what_travels_to_workers_holds_no_secret(source, server, tmp_path):
    _needs_dask()
    url = server.add("secret.h5ad", source, query="sig=SECRET")
    lb.index(f"{url}?sig=SECRET").save(str(tmp_path / "secret.json"))
    lazy = lb.read_lazy(
        str(tmp_path / "secret.json"), source=f"{url}?sig=SECRET", headers={"Authorization": "Bearer SECRET"}
    )
    graph = pickle.dumps(dict(lazy.X[:1000].__dask_graph__()))
    assert b"secret.json" in graph
    assert b"SECRET" not in graph


def test_lazily_without_what_it_needs(monkeypatch, document):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "dask" else real(name, *rest))
    with pytest.raises(lb.MissingDependencyError, match=r"dask.*lindi_bridge\[lazy\]"):
        lb.read_lazy(document)


def _close(lazy):
    """Nothing holds the file any more."""
    del lazy
