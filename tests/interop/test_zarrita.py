"""A document of the profile ``zarr``, read over HTTP by zarrita, the Zarr of viewers in browsers."""

from __future__ import annotations

import json
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")
sparse = pytest.importorskip("scipy.sparse")

SCRIPT = Path(__file__).parent / "zarrita"
COLUMNS = ["cell type", "stage", "größe", "score", "good"]

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("node") is None or shutil.which("npm") is None, reason="needs node and npm"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script with the packages that it needs beside it."""
    folder = tmp_path_factory.mktemp("zarrita")
    for name in ("package.json", "read_h5ad.js"):
        shutil.copy(SCRIPT / name, folder)
    options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
    subprocess.run(["npm", "install", *options], cwd=folder, check=True, capture_output=True, timeout=300)
    return folder / "read_h5ad.js"


@pytest.fixture(scope="module")
def h5ad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(11)
    cells, genes = 3000, 200
    obs = pandas.DataFrame(index=[f"cell-{i}" for i in range(cells)])
    obs["cell type"] = pandas.Categorical(random.choice(["B", "T", "NK"], cells))
    obs["stage"] = pandas.Categorical(random.choice(["early", "late"], cells), ["early", "late"], ordered=True)
    obs["größe"] = [f"nöte {i % 97}" for i in range(cells)]
    obs["score"], obs["good"] = random.random(cells), random.random(cells) > 0.5
    matrix = sparse.random(cells, genes, 0.1, "csr", "f4", random)
    path = tmp_path_factory.mktemp("anndata") / "a.h5ad"
    with warnings.catch_warnings(action="ignore"):  # what anndata says of pandas is not what is tested
        data = anndata.AnnData(matrix, obs=obs, obsm={"X_umap": random.random((cells, 2)).astype("f4")})
        data.write_h5ad(path, compression="gzip", convert_strings_to_categoricals=False)
    return path


def test_columns_a_sparse_row_and_an_embedding(program: Path, h5ad: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        expected = anndata.read_h5ad(h5ad)
    with RangeServer() as server:
        address = server.add("a.h5ad", h5ad)
        lb.index(address, profile="zarr").save(tmp_path / "a.json")
        document = server.add("a.json", tmp_path / "a.json")
        server.reset()
        process = subprocess.run(
            ["node", program, document, "17", *COLUMNS], capture_output=True, text=True, timeout=120
        )
        assert process.returncode == 0, process.stderr
        asked = [request for request in server.log if request.path == "/a.h5ad"]
        assert asked
        assert all(request.status == 206 for request in asked)
    found: dict[str, Any] = json.loads(process.stdout)
    row = expected.X[17]
    assert found["shape"] == list(expected.shape)
    assert found["indices"] == row.indices.tolist()
    assert found["data"] == row.data.tolist()
    assert found["order"] == list(expected.obs.columns)
    assert found["index"] == list(expected.obs_names)
    for name in ("cell type", "stage"):
        column = expected.obs[name].cat
        assert found["columns"][name] == {
            "codes": column.codes.tolist(),
            "categories": column.categories.tolist(),
        }
    assert found["columns"]["größe"] == {"values": expected.obs["größe"].tolist()}
    assert found["columns"]["score"]["values"] == expected.obs["score"].tolist()
    assert [bool(value) for value in found["columns"]["good"]["values"]] == expected.obs["good"].tolist()
    assert found["embedding"]["shape"] == [3000, 2]
    assert found["embedding"]["values"] == expected.obsm["X_umap"][10:20].reshape(-1).tolist()
