"""One .h5ad file with everything that the installed version of anndata can write. Runs on Python 3.8 and newer.

python write.py FOLDER
"""

import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import scipy.sparse

RELEASE = version("anndata").split(".")[:3]
VERSION = tuple(map(int, RELEASE[:2]))
CELLS, GENES = 40, 15


def annotations(random: np.random.RandomState) -> pd.DataFrame:
    """Columns of every kind."""
    obs = pd.DataFrame(index=[f"cell-{i}" for i in range(CELLS)])
    obs["type"] = pd.Categorical(random.choice(["B", "T", "NK"], CELLS))
    obs["stage"] = pd.Categorical(random.choice(["early", "late"], CELLS), ["early", "late"], ordered=True)
    obs["holes"] = pd.Categorical([None if i % 4 == 0 else f"h{i % 3}" for i in range(CELLS)])
    obs["barcode"] = [f"AÇ{i}" for i in range(CELLS)]
    obs["score"] = random.rand(CELLS)
    obs["count"] = random.randint(0, 9, CELLS)
    obs["good"] = random.rand(CELLS) > 0.5
    if VERSION >= (0, 8):
        obs["maybe"] = pd.array([None if i % 4 == 0 else i for i in range(CELLS)], dtype="Int64")
        obs["perhaps"] = pd.array([None if i % 3 == 0 else i % 2 == 0 for i in range(CELLS)], dtype="boolean")
    if VERSION >= (0, 12):
        anndata.settings.allow_write_nullable_strings = True
        obs["words"] = pd.array([None if i % 5 == 0 else f"w{i}" for i in range(CELLS)], dtype="string")
    return obs


def build() -> anndata.AnnData:
    """An object with all elements."""
    random = np.random.RandomState(3)
    counts = scipy.sparse.random(CELLS, GENES, 0.3, format="csr", dtype=np.float32, random_state=3)
    obs = annotations(random)
    var = pd.DataFrame({"length": random.rand(GENES)}, index=[f"gene-{i}" for i in range(GENES)])
    var["chromosome"] = pd.Categorical(random.choice(["1", "X"], GENES))
    adata = anndata.AnnData(counts, obs=obs, var=var)
    adata.raw = adata
    adata.obsm["X_umap"] = random.rand(CELLS, 2)
    adata.varm["PCs"] = random.rand(GENES, 3)
    adata.layers["dense"] = random.rand(CELLS, GENES).astype(np.float32)
    adata.layers["columns"] = counts.tocsc()
    adata.uns["title"] = "título"
    adata.uns["nested"] = {"number": 3, "real": 0.5, "flag": True, "names": np.array(["a", "b"], dtype=object)}
    adata.uns["records"] = np.array([(1, 0.5), (2, 1.5)], dtype=[("rank", "i4"), ("score", "f8")])
    adata.uns["empty"] = {}
    near = scipy.sparse.random(CELLS, CELLS, 0.1, format="csr", random_state=4)
    if VERSION >= (0, 7):
        adata.obsp["near"] = near
        adata.obsm["table"] = pd.DataFrame({"a": np.arange(CELLS)}, index=obs.index)
        adata.obsm["sparse"] = near[:, :5].tocsc()
        adata.uns["frame"] = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}, index=["r", "s"])
    else:
        adata.uns["neighbors"] = {"connectivities": near}
    if VERSION >= (0, 8):
        adata.uns["category"] = pd.Categorical(["x", "y", "x"])
    if VERSION >= (0, 9):
        import awkward

        adata.obsm["ragged"] = awkward.Array([list(range(i % 4)) for i in range(CELLS)])
    if VERSION >= (0, 12):
        adata.uns["nothing"] = None
    return adata


def main() -> None:
    warnings.simplefilter("ignore")
    path = Path(sys.argv[1]) / f"anndata-{'.'.join(RELEASE)}.h5ad"
    adata = build()
    write = adata.write_h5ad if hasattr(adata, "write_h5ad") else adata.write
    write(path)
    sys.stdout.write(f"{path}: {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
