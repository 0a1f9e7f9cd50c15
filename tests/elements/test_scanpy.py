"""An analysis of some cells of a remote atlas with scanpy: it runs, and reads only what it needs."""

from __future__ import annotations

import warnings
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from builders.elements import assert_same
from servers.range_server import RangeServer

import lindi_bridge as lb

scanpy = pytest.importorskip("scanpy")

CELLS, GENES = 20_000, 400


@pytest.fixture(scope="module")
def files(server: RangeServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A local atlas and the document of the same on the server."""
    random = np.random.default_rng(3)
    counts = scipy.sparse.random(CELLS, GENES, 0.1, "csr", "f4", random)
    counts.data = np.ceil(counts.data * 20)
    # Cells of one type lie together, as in atlases put together of datasets.
    obs = pd.DataFrame({"cell_type": pd.Categorical(np.repeat([f"type {i}" for i in range(10)], CELLS // 10))})
    obs.index = [f"cell {i}" for i in range(CELLS)]
    adata = anndata.AnnData(counts, obs=obs, var=pd.DataFrame(index=[f"gene {i}" for i in range(GENES)]))
    path = tmp_path_factory.mktemp("scanpy") / "atlas.h5ad"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata.write_h5ad(path, compression="gzip")
    lb.index(server.add("atlas.h5ad", path)).save(path.with_suffix(".json"))
    return path, path.with_suffix(".json")


def _some_cells(document: Path, server: RangeServer) -> anndata.AnnData:
    server.reset()
    with lb.open(document) as file:
        obs, var = lb.read_elem(file["obs"]), lb.read_elem(file["var"])
        rows = np.flatnonzero(obs["cell_type"] == "type 4")[:500]
        cells = anndata.AnnData(lb.sparse_rows(file["X"], rows), obs=obs.iloc[rows], var=var)
        assert file._file_object.misses == 0
    return cells


def test_reading_as_scanpy_does(files: tuple[Path, Path]) -> None:
    path, document = files
    assert_same(scanpy.read_h5ad(lb.hdf5_file(document)), scanpy.read_h5ad(path))
    backed, local = lb.read_h5ad(document, backed="r"), scanpy.read_h5ad(path, backed="r")
    keys = ["cell_type", "gene 7"]
    pd.testing.assert_frame_equal(scanpy.get.obs_df(backed, keys), scanpy.get.obs_df(local, keys))
    backed.file.close()
    local.file.close()


def test_some_cells_of_one_type_cost_what_they_weigh(files: tuple[Path, Path], server: RangeServer) -> None:
    path, document = files
    cells = _some_cells(document, server)
    assert cells.shape == (500, GENES)
    spent = server.nbytes
    assert_same(cells.X, anndata.read_h5ad(path)[cells.obs_names].copy().X)
    assert set(cells.obs["cell_type"]) == {"type 4"}
    share = 500 / CELLS
    assert spent < path.stat().st_size * (share + 0.15), "obs, var, indptr, and the chunks of these cells"


@pytest.mark.full
def test_the_same_numbers_as_from_the_local_file(files: tuple[Path, Path], server: RangeServer) -> None:
    path, document = files
    both = [_some_cells(document, server), None]
    both[1] = anndata.read_h5ad(path)[both[0].obs_names].copy()
    for data in both:
        scanpy.pp.normalize_total(data)
        scanpy.pp.log1p(data)
        scanpy.pp.highly_variable_genes(data, n_top_genes=100)
        scanpy.pp.pca(data, n_comps=10)
    assert_same(both[0].X, both[1].X)
    np.testing.assert_array_equal(both[0].obsm["X_pca"], both[1].obsm["X_pca"])


@pytest.mark.full
def test_neighbours_and_umap(files: tuple[Path, Path], server: RangeServer) -> None:
    cells = _some_cells(files[1], server)
    scanpy.pp.normalize_total(cells)
    scanpy.pp.log1p(cells)
    scanpy.pp.pca(cells, n_comps=10)
    scanpy.pp.neighbors(cells)
    scanpy.tl.umap(cells)
    assert cells.obsm["X_umap"].shape == (500, 2)
    assert np.isfinite(cells.obsm["X_umap"]).all()
