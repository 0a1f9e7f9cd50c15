"""AnnData files as Zarr groups: anndata reads from them what it reads from the files, at once and lazily."""

from __future__ import annotations

import multiprocessing
import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
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


def _needs_dask():
    pytest.importorskip("dask")
    pytest.importorskip("xarray")


def test_lazily(remote, server, expected):
    _needs_dask()
    lazy = lb.read_lazy(remote)
    assert lazy.shape == expected.shape
    helpers.assert_equal(lazy.to_memory(), expected)
    _close(lazy)


def test_lazily_reading_fetches_what_is_computed(remote, server, expected):
    _needs_dask()
    lazy = lb.read_lazy(remote, load_annotation_index=False)
    at_first = server.nbytes
    found = lazy.layers["columns"][:, :5].compute(scheduler="synchronous")
    assert (found != expected.layers["columns"][:, :5]).nnz == 0
    assert server.nbytes >= at_first


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
