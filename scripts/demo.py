"""The Python part of scripts/demo: index an .h5ad over HTTP, open the JSON, read, and compare with h5py."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import lindi_bridge as lb
from lindi_bridge.cli.text import size
from lindi_bridge.ranges import is_local, strip_secrets

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

LATENCY = 0.05
MOST_READ = 100_000_000

Part = tuple[str, Any]
"""Path of a dataset and what to read of it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Show what lindi_bridge does.")
    parser.add_argument("source", nargs="?", help="an HDF5 or .h5ad file of yours: address or path")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="keep the document (and the file) there")
    parser.add_argument("--serve", metavar="PATH", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        return show(options.source, options.keep)
    with tempfile.TemporaryDirectory(prefix="lindi_bridge_demo") as folder:
        return show(options.source, Path(folder))


def show(source: str | None, folder: Path) -> int:
    """Do it all, and say so."""
    local: Path | None = None
    if source is None:
        local = folder / "atlas.h5ad"
        began = time.perf_counter()
        shape = make_h5ad(local)
        say("file", f"{shape}, {size(local.stat().st_size)}, made in {time.perf_counter() - began:.1f} s")
    elif is_local(source):
        local = Path(source)
        if not local.is_file():
            print(f"scripts/demo: {source}: there is no such file", file=sys.stderr)
            return 1
        say("file", f"{local.name}, {size(local.stat().st_size)}")
    if local is None:
        say("address", strip_secrets(str(source)))
        return demonstrate(str(source), None, None, folder, everything=False)
    with Server(local) as server:
        say("server", f"{server.url}, {LATENCY * 1000:.0f} ms before each answer")
        return demonstrate(server.url, server, local, folder, everything=source is None)


def demonstrate(url: str, server: Server | None, local: Path | None, folder: Path, everything: bool) -> int:
    """Index, open, read; with a local copy, compare."""
    table = Table(server)
    with table.step("index the file over the network") as step:
        index = lb.index(url)
        step.statistics = getattr(index, "statistics", None)
    document = folder / "atlas.lindi.json"
    with table.step("save the document") as step:
        index.save(document)
    written = document.stat().st_size
    with table.step("open the document"):
        io = lb.hdf5_file(document, allow_external=True)
        file = lb.File(io)
    read: list[tuple[Part, Any]] = []
    for label, parts in plan(file):
        with table.step(label, io):
            read += [(part, file[part[0]][part[1]]) for part in parts(file)]
    if everything:
        with table.step("the rest of the file, to compare", io):
            done = {part[0] for part, _ in read if part[1] == ()}
            rest = [name for name in datasets(file) if name not in done]
            lb.prefetch(file)
            read += [((name, ()), file[name][()]) for name in rest]
    file.close()
    io.close()

    print()
    say("document", f"{size(written)} for a file of {size(index.size)} ({100 * written / index.size:.2g} %)")
    for problem in index.problems[:5]:
        say("not in it", f"{problem.path}: {problem.message}")
    if local is None:
        say("compared", "nothing: there is no local copy (give a path to have the values compared with h5py's)")
        return 0
    return compare(read, local, everything)


def compare(read: list[tuple[Part, Any]], local: Path, everything: bool) -> int:
    """Hold what was read against h5py on the local file."""
    different, elements = [], 0
    with h5py.File(local, "r") as file:
        for (path, selection), value in read:
            expected = file[path][selection]
            elements += np.size(expected)
            if not same(value, expected):
                different.append(path)
    what = "every dataset of the file" if everything else "what was read above"
    if different:
        say("compared", f"{len(different)} of {len(read)} reads DIFFER from h5py's: {', '.join(different)}")
        return 1
    say("compared", f"{what}: {elements:,} values in {len(read)} reads, all equal to h5py's on the local file")
    return 0


def same(mine: Any, other: Any) -> bool:
    mine, other = np.asarray(mine), np.asarray(other)
    return (
        mine.dtype == other.dtype
        and mine.shape == other.shape
        and bool(np.array_equal(mine, other, equal_nan=other.dtype.kind in "fc"))
    )


# -- what is read ---------------------------------------------------------------------------------------------------


def plan(file: h5py.File) -> Iterator[tuple[str, Any]]:
    """Labels, and functions that say what to read: obs, rows of X, an embedding; else the beginnings of datasets."""
    found = False
    if isinstance(file.get("obs"), h5py.Group):
        found = True
        columns = set(file["obs"]) - {file["obs"].attrs.get("_index"), "__categories"}
        yield f"obs: {len(columns)} columns and the index", lambda f: whole(f, "obs")
    if "X" in file:
        found = True
        yield rows_of_x(file)
    if isinstance(file.get("obsm"), h5py.Group):
        names = [name for name in file["obsm"] if isinstance(file["obsm"][name], h5py.Dataset)]
        name = next((n for n in names if "umap" in n.lower()), names[0] if names else None)
        if name:
            found = True
            yield f"the embedding {name}", lambda f: whole(f, f"obsm/{name}")
    if not found:
        names = datasets(file)[:10]
        yield (
            f"the first rows of {len(names)} datasets",
            lambda f: [(n, np.s_[:10] if f[n].shape else ()) for n in names],
        )


def whole(file: h5py.File, path: str) -> list[Part]:
    """All datasets at or below a path, fetched ahead in one wave."""
    lb.prefetch(file[path])
    names = [path] if isinstance(file[path], h5py.Dataset) else [f"{path}/{name}" for name in datasets(file[path])]
    left, parts = MOST_READ, []
    for name in names:
        left -= file[name].nbytes
        if left >= 0:
            parts.append((name, ()))
    return parts


def rows_of_x(file: h5py.File) -> tuple[str, Any]:
    matrix = file["X"]
    n = int(matrix.shape[0] if isinstance(matrix, h5py.Dataset) else matrix["indptr"].shape[0] - 1)
    first, stop = n // 2, min(n, n // 2 + 100)
    if isinstance(matrix, h5py.Dataset):
        return f"rows {first} to {stop - 1} of X", lambda f: [("X", np.s_[first:stop])]
    kind = "columns" if matrix.attrs.get("encoding-type") == "csc_matrix" else "rows"

    def parts(f: h5py.File) -> list[Part]:
        begin, end = (int(p) for p in f["X/indptr"][first : stop + 1][[0, -1]])
        return [("X/indptr", np.s_[first : stop + 1]), ("X/data", np.s_[begin:end]), ("X/indices", np.s_[begin:end])]

    return f"{kind} {first} to {stop - 1} of X", parts


def datasets(group: h5py.Group) -> list[str]:
    """Datasets below a group that hold anything, by path from there."""
    found: list[str] = []
    group.visititems(lambda name, obj: found.append(name) if isinstance(obj, h5py.Dataset) and obj.size else None)
    return found


# -- what is printed ------------------------------------------------------------------------------------------------


def say(label: str, text: str) -> None:
    print(f"  {label:<10}{text}", flush=True)


class Step:
    """What one step cost; ``statistics`` are the reader's, where no server of ours counts."""

    statistics: Any = None


class Table:
    """Steps with their time, requests, waves and bytes."""

    def __init__(self, server: Server | None) -> None:
        self.server = server
        print(f"\n  {'step':<36}{'time':>9}{'requests':>10}{'waves':>7}{'bytes':>10}")

    @contextmanager
    def step(self, label: str, io: Any = None) -> Iterator[Step]:
        """Time what is done inside."""
        step = Step()
        before = io.reader.statistics if io is not None else None
        began = time.perf_counter()
        yield step
        seconds = time.perf_counter() - began
        cost: tuple[Any, ...] = ("", "", "")
        if self.server is not None:
            cost = self.server.count()
        elif io is not None:
            after = io.reader.statistics
            cost = after.requests - before.requests, after.waves - before.waves, after.nbytes - before.nbytes
        elif step.statistics is not None:
            cost = step.statistics.requests, step.statistics.waves, step.statistics.nbytes
        took = f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.1f} ms"
        nbytes = size(cost[2]) if cost[2] != "" else ""
        print(f"  {label:<36}{took:>9}{cost[0]:>10}{cost[1]:>7}{nbytes:>10}", flush=True)


# -- the server, in a process of its own ------------------------------------------------------------------------------


class Server:
    """Serves one file, in another process, and tells what it was asked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Server:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url: str = self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def count(self) -> tuple[int, int, int]:
        """Requests, waves and bytes since the last time."""
        assert self.process.stdin is not None
        self.process.stdin.write("count\n")
        self.process.stdin.flush()
        requests, waves, nbytes = self._answer()
        return requests, waves, nbytes

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


def serve(path: Path) -> int:
    """Be that process."""
    from servers.range_server import RangeServer

    with RangeServer(latency=LATENCY) as server:
        print(json.dumps(server.add(path.name, path)), flush=True)
        for _ in sys.stdin:
            print(json.dumps([server.requests, server.waves(), server.nbytes]), flush=True)
            server.reset()
    return 0


# -- the file -------------------------------------------------------------------------------------------------------


def make_h5ad(path: Path, n_obs: int = 20_000, n_var: int = 2_000) -> str:
    """Write a made-up atlas, and say what it is."""
    import anndata
    import pandas as pd
    import scipy.sparse

    rng = np.random.default_rng(0)
    kinds = np.array(["B cell", "CD4 T cell", "CD8 T cell", "NK cell", "monocyte", "dendritic cell", "platelet"])
    kind = rng.integers(0, len(kinds), n_obs)
    # Counts as they come: each cell type has genes of its own, and cells differ in depth.
    rate = rng.gamma(0.35, 0.8, (len(kinds), n_var))
    blocks = [
        scipy.sparse.csr_matrix(
            rng.poisson(rate[kind[k : k + 2000]] * rng.lognormal(0, 0.4, (len(kind[k : k + 2000]), 1)))
        )
        for k in range(0, n_obs, 2000)
    ]
    counts = scipy.sparse.vstack(blocks, format="csr").astype(np.int32)
    normal = counts.astype(np.float32)
    depth = np.maximum(np.asarray(normal.sum(axis=1)).ravel(), 1)
    normal.data = np.log1p(normal.data * np.repeat(1e4 / depth, np.diff(normal.indptr)).astype(np.float32))

    barcodes = ["".join(row) + "-1" for row in np.array(list("ACGT"))[rng.integers(0, 4, (n_obs, 16))]]
    obs = pd.DataFrame(
        {
            "cell_type": pd.Categorical(kinds[kind]),
            "donor": pd.Categorical([f"donor {d}" for d in rng.integers(1, 13, n_obs)]),
            "sex": pd.Categorical(np.where(rng.random(n_obs) < 0.5, "female", "male")),
            "n_counts": depth,
            "n_genes": np.diff(counts.indptr),
            "percent_mito": rng.beta(2, 40, n_obs).astype(np.float32),
            "is_doublet": rng.random(n_obs) < 0.04,
            "barcode": barcodes,
        },
        index=[f"{barcode}_{n}" for n, barcode in enumerate(barcodes)],
    )
    var = pd.DataFrame(
        {"symbol": [f"GENE{n}" for n in range(n_var)], "highly_variable": rng.random(n_var) < 0.2},
        index=[f"ENSG{n:011}" for n in range(n_var)],
    )
    adata = anndata.AnnData(normal, obs=obs, var=var)
    adata.layers["counts"] = counts
    centres = rng.normal(0, 6, (len(kinds), 30))
    adata.obsm["X_pca"] = (centres[kind] + rng.normal(size=(n_obs, 30))).astype(np.float32)
    adata.obsm["X_umap"] = (adata.obsm["X_pca"][:, :2] + rng.normal(size=(n_obs, 2))).astype(np.float32)
    adata.uns["title"] = "A made-up atlas of blood"
    adata.write_h5ad(path, compression="gzip", convert_strings_to_categoricals=False)
    return f"{path.name}, {n_obs:,} cells x {n_var:,} genes, {counts.nnz:,} counts"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except lb.LindiBridgeError as error:
        print(f"scripts/demo: {error}", file=sys.stderr)
        sys.exit(1)
