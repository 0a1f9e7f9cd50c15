"""The samples, run as their readers run them: from the root of the project, against a file on a server."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import anndata
import numpy as np
import pytest
import scipy.sparse
from servers.range_server import RangeServer

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "samples").glob("*.py"))


@pytest.fixture(scope="module")
def atlas():
    """A small annotated matrix."""
    counts = scipy.sparse.random(300, 40, 0.2, format="csr", dtype="f4", random_state=1)
    adata = anndata.AnnData(counts)
    adata.obs_names = [f"cell{n}" for n in range(300)]
    adata.var_names = [f"gene{n}" for n in range(40)]
    adata.obs["cell_type"] = np.array(["B", "T", "NK"] * 100)
    adata.obs["n_counts"] = np.asarray(counts.sum(axis=1)).ravel()
    adata.strings_to_categoricals()
    adata.obs["barcode"] = [f"AC{n}" for n in range(300)]
    adata.obsm["X_umap"] = np.zeros((300, 2))
    return adata


@pytest.fixture(scope="module")
def served(atlas, tmp_path_factory):
    """Path and address of its file."""
    path = tmp_path_factory.mktemp("samples") / "atlas.h5ad"
    with warnings.catch_warnings(action="ignore"):  # what anndata says of pandas is not what is tested
        atlas.write_h5ad(path, convert_strings_to_categoricals=False)
    with RangeServer() as server:
        yield path, server.add("atlas.h5ad", path)


@pytest.fixture(scope="module")
def document(served):
    """A document made by the second sample, of the address."""
    path = served[0].with_name("atlas.lindi.json")
    run("02_open_remote.py", served[1], path)
    return path


def run(sample, *arguments):
    process = subprocess.run(
        [sys.executable, f"samples/{sample}", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_they_are_short():
    assert len(SAMPLES) >= 6
    assert all(len(sample.read_text().splitlines()) < 60 for sample in SAMPLES)


@pytest.mark.parametrize("sample", [sample.name for sample in SAMPLES])
def test_help(sample):
    assert "usage:" in run(sample, "--help")


def test_index_local(served, tmp_path):
    document = tmp_path / "x.json"
    assert "objects of a file" in run("01_index_local.py", served[0], document, "--url", served[1])
    assert served[1] in document.read_text()


def test_open_remote(served, tmp_path):
    out = run("02_open_remote.py", served[1], tmp_path / "x.json")
    assert "obs/cell_type/codes: (300,) int8" in out


def test_read_obs(document):
    assert sorted(run("03_read_obs.py", document).split()) == ["barcode", "cell_type", "n_counts"]
    out = run("03_read_obs.py", document, "cell_type", "n_counts", "barcode")
    assert "  NK: 100" in out
    assert "barcode: 300 values, the first AC0, AC1" in out


def test_slice_matrix(document, atlas):
    out = run("04_slice_matrix.py", document, 100, 103)
    assert f"sum {atlas.X[100:103].sum():.6g}" in out
    assert f"row 102: {atlas.X[102].nnz} values" in out


@pytest.mark.parametrize("mode", [[], ["--in-memory"]])
def test_hand_to_scanpy(document, atlas, mode):
    out = run("05_hand_to_scanpy.py", document, *mode)
    assert "n_obs × n_vars = 300 × 40" in out  # noqa: RUF001
    assert f"the first 5 cells have {atlas.X[:5].sum():.6g} counts" in out


def test_cells_of_one_type(document, atlas, tmp_path):
    out = run("06_cells_of_one_type.py", document, "NK", "--most", "50", "-o", tmp_path / "nk.h5ad")
    assert "50 cells with " in out
    rows = np.flatnonzero(atlas.obs["cell_type"] == "NK")[:50]
    assert (atlas.X[rows] != anndata.read_h5ad(tmp_path / "nk.h5ad").X).nnz == 0


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]], ids=["threads", "workers"])
def test_sum_lazily(document, atlas, workers):
    for package in ("dask", "xarray", *(["distributed"] if workers else [])):
        pytest.importorskip(package)
    out = run("07_sum_lazily.py", document, *workers)
    sums = np.asarray(atlas.X.sum(axis=1), "f8").ravel()
    assert f"300 cells in 1 blocks: {sums.sum():.6g} counts" in out
    assert f"most in {atlas.obs_names[sums.argmax()]}" in out
