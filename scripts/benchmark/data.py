"""Makes the files that are measured, once: ``make("M", folder)``.

===== ================================================================================================ =========
S     5,000 cells x 3,000 genes, 150 counts a cell, gzip                                                  10 MB
M     100,000 cells x 20,000 genes, 400 counts a cell, gzip: X, a layer, raw, obsp, obsm, uns            370 MB
ML    the same, written with ``libver="latest"``: no B-trees of version 1                                370 MB
N     like NWB: 1 GiB in one block, 200,000 small chunks, 421 groups, compounds, references, links       1.2 GB
L     M with matrices of 1e9 values: 100,000 chunks in 24 GB, a sparse file without values                24 GB
C10k  one dataset of so many chunks, allocated and never written; also C100k, C1M
===== ================================================================================================ =========
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

if TYPE_CHECKING:
    import anndata

NAMES = ("S", "M", "ML", "N", "L")
CHUNK = 256
"""Values of a chunk of C10k and the like: 1 KiB, too much for kerchunk to copy into its document."""


def file_name(name: str) -> str:
    """Name of the file in the folder."""
    return f"{name}.h5" if name == "N" or chunk_count(name) else f"{name}.h5ad"


def chunk_count(name: str) -> int:
    """Chunks of ``C10k`` and the like; 0 for other names."""
    match = re.fullmatch(r"C(\d+)([kM]?)", name)
    return int(match[1]) * {"": 1, "k": 1000, "M": 1_000_000}[match[2]] if match else 0


def make(name: str, folder: Path) -> Path:
    """Path of a file, which is made where it does not exist yet."""
    path = folder / file_name(name)
    if path.exists():
        return path
    if name not in NAMES and not chunk_count(name):
        raise SystemExit(f"no file {name!r}: there are {', '.join(NAMES)}, and C10k, C100k, C1M")
    print(f"making {path}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"unfinished-{path.name}")
    if chunk_count(name):
        with h5py.File(unfinished, "w") as file:
            allocate(file, "many", chunk_count(name) * CHUNK, CHUNK, np.dtype("<i4"))
    elif name == "N":
        make_nwb(unfinished)
    elif name == "L":
        make_sparse(unfinished, make("M", folder))
    else:
        cells = atlas(5_000, 3_000, 150, seed=0) if name == "S" else atlas(100_000, 20_000, 400, seed=1)
        write(cells, unfinished, "latest" if name == "ML" else "earliest")
    return unfinished.rename(path)


# -- h5ad -------------------------------------------------------------------------------------------------------------


def counts(cells: int, genes: int, per_cell: int, rng: np.random.Generator) -> Any:
    """Sparse counts; each cell's genes are spread over all genes, one in each of equal strata."""
    import scipy.sparse

    sizes = np.clip(rng.poisson(per_cell, cells), 1, genes // 2)
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    total = int(indptr[-1])
    width = np.repeat(genes / sizes, sizes)  # of a stratum, at least 2
    position = np.arange(total) - np.repeat(indptr[:-1], sizes)
    # Less than a whole stratum of jitter, so that two neighbours never fall on one gene.
    indices = ((position + rng.random(total) * (1 - 1 / width)) * width).astype(np.int32)
    values = rng.geometric(0.55, total).astype(np.float32)
    return scipy.sparse.csr_matrix((values, indices, indptr.astype(np.int32)), shape=(cells, genes))


def words(letters: str, length: int, number: int, rng: np.random.Generator) -> list[str]:
    """Random words."""
    table = np.array(list(letters))[rng.integers(0, len(letters), (number, length))]
    return ["".join(row) for row in table]


def atlas(cells: int, genes: int, per_cell: int, seed: int) -> anndata.AnnData:
    """A made-up atlas with everything that published ones have."""
    import anndata
    import pandas as pd
    import scipy.sparse

    rng = np.random.default_rng(seed)
    raw = counts(cells, genes, per_cell, rng)
    depth = np.asarray(raw.sum(axis=1)).ravel()
    normal = raw.copy()
    normal.data = np.log1p(raw.data * np.repeat((1e4 / depth).astype(np.float32), np.diff(raw.indptr)))

    def category(values: list[str]) -> pd.Categorical:
        return pd.Categorical(np.array(values)[rng.integers(0, len(values), cells)])

    obs = pd.DataFrame(
        {
            "cell_type": category([f"cell type {k}" for k in range(40)]),
            "donor_id": category([f"D{k:03}" for k in range(60)]),
            "tissue": category(["lung", "blood", "liver", "brain cortex"]),
            "leiden": category([str(k) for k in range(25)]),
            "barcode_orig": words("ACGT", 16, cells, rng),
            "library_uuid": [f"lib-{k % 977:05}-{k % 13}" for k in range(cells)],
            "total_counts": depth.astype(np.float32),
            "pct_mito": rng.random(cells),
            "n_genes": np.diff(raw.indptr).astype(np.int64),
            "is_primary": rng.random(cells) > 0.3,
        },
        index=[f"{word}-{k}" for k, word in enumerate(words("ACGT", 16, cells, rng))],
    )
    var = pd.DataFrame(
        {
            "feature_name": [f"GENE{k}" for k in range(genes)],
            "highly_variable": rng.random(genes) > 0.9,
            "means": rng.random(genes),
            "chrom": pd.Categorical([f"chr{k}" for k in rng.integers(1, 23, genes)]),
        },
        index=[f"ENSG{k:011}" for k in range(genes)],
    )
    made = anndata.AnnData(normal, obs=obs, var=var)
    made.layers["counts"] = raw
    made.raw = anndata.AnnData(raw, obs=obs[[]].copy(), var=var[["feature_name"]].copy())
    made.obsm["X_pca"] = rng.standard_normal((cells, 50)).astype(np.float32)
    made.obsm["X_umap"] = rng.standard_normal((cells, 2)).astype(np.float32)
    made.varm["PCs"] = rng.standard_normal((genes, 50))
    neighbours, ends = rng.integers(0, cells, 15 * cells), np.arange(0, 15 * cells + 1, 15)
    for name, dtype in (("connectivities", np.float32), ("distances", np.float64)):
        weights = rng.random(15 * cells).astype(dtype)
        made.obsp[name] = scipy.sparse.csr_matrix((weights, neighbours, ends), shape=(cells, cells))
    made.uns.update(_results(rng))
    return made


def _results(rng: np.random.Generator) -> dict[str, Any]:
    """What analyses leave in ``uns``."""
    groups = [str(k) for k in range(25)]
    genes = [np.array([f"GENE{k}" for k in range(200)], "U20")] * len(groups)
    scores = [rng.random(200).astype(np.float32) for _ in groups]
    return {
        "title": "a made-up atlas",
        "schema_version": "5.2.0",
        "batch_condition": np.array(["donor_id"], object),
        "log1p": {"base": np.float64(np.e)},
        "pca": {"variance": rng.random(50), "variance_ratio": rng.random(50), "params": {"zero_center": True}},
        "neighbors": {
            "connectivities_key": "connectivities",
            "params": {"n_neighbors": 15, "method": "umap", "metric": "euclidean"},
        },
        "leiden": {"params": {"resolution": 1.0, "random_state": 0, "n_iterations": -1}},
        "leiden_colors": np.array([f"#{k:06x}" for k in range(25)], object),
        "rank_genes_groups": {
            "params": {"groupby": "leiden", "reference": "rest", "method": "t-test", "use_raw": True},
            "names": np.rec.fromarrays(genes, names=groups),
            "scores": np.rec.fromarrays(scores, names=groups),
        },
    }


def write(made: anndata.AnnData, path: Path, libver: str) -> None:
    """Write an atlas with gzip."""
    import anndata

    with h5py.File(path, "w", libver=libver) as file:
        anndata.io.write_elem(file, "/", made, dataset_kwargs={"compression": "gzip"})


def allocate(group: h5py.Group, name: str, length: int, chunk: int, dtype: np.dtype[Any]) -> None:
    """A chunked vector whose chunks have places in the file and no values: on the disk it takes no space."""
    create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    create.set_chunk((chunk,))
    create.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    create.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    space = h5py.h5s.create_simple((length,), (length,))
    h5py.h5d.create(group.id, name.encode(), h5py.h5t.py_create(dtype, logical=True), space, create)


def make_sparse(path: Path, model: Path, length: int = 1_000_000_000, chunk: int = 30_518) -> None:
    """L: the file M, but the values of its three large matrices are so many, and never written.

    30,518 is the chunk that h5py guesses for a billion values.
    """
    matrices = ("X", "layers/counts", "raw/X")
    with h5py.File(model, "r") as source, h5py.File(path, "w") as file:
        source.visititems(lambda name, member: _copy(source, file, name, member, matrices))
        file.attrs.update(source.attrs)
        for matrix in matrices:
            allocate(file[matrix], "data", length, chunk, np.dtype("<f4"))
            allocate(file[matrix], "indices", length, chunk, np.dtype("<i4"))


def _copy(source: h5py.File, file: h5py.File, name: str, member: Any, matrices: tuple[str, ...]) -> None:
    if isinstance(member, h5py.Group):
        file.require_group(name).attrs.update(member.attrs)
    elif name not in {f"{matrix}/{part}" for matrix in matrices for part in ("data", "indices")}:
        source.copy(member, file, name)


# -- NWB --------------------------------------------------------------------------------------------------------------


def make_nwb(path: Path, samples: int = 8_388_608, chunks: int = 200_000, series: int = 400) -> None:
    """N: what files of neurophysiology are like; sizes for the tests of this benchmark."""
    rng = np.random.default_rng(7)
    with h5py.File(path, "w") as file:
        file.attrs.update({"neurodata_type": "NWBFile", "nwb_version": "2.6.0", "namespace": "core"})
        _recording(file, samples, rng)
        _electrodes(file, rng)
        _many_chunks(file.create_group("processing/ophys/ImageSegmentation"), chunks, rng)
        units = file.create_group("units")
        times = np.sort(rng.random(10 * chunks))
        units.create_dataset("spike_times", data=times, chunks=(16_384,), maxshape=(None,), compression="gzip")
        units["spike_times_index"] = np.linspace(0, len(times), 501)[1:].astype("u8")
        units["id"] = np.arange(500)
        _stimuli(file.create_group("stimulus/presentation"), series, rng)
        schemas = file.create_group("specifications/core/2.6.0")
        for k in range(20):
            schemas.create_dataset(f"nwb.{k}", data="{" + "x" * 20_000 + "}", dtype=h5py.string_dtype())


def _recording(file: h5py.File, samples: int, rng: np.random.Generator) -> None:
    recording = file.create_group("acquisition/ElectricalSeries")
    recording.attrs["neurodata_type"] = "ElectricalSeries"
    data = recording.create_dataset("data", (samples, 64), "i2")
    data.attrs.update({"conversion": 1e-6, "unit": "volts"})
    block = rng.integers(-200, 200, (min(samples, 1 << 18), 64), dtype=np.int16)
    for first in range(0, samples, len(block)):
        data[first : first + len(block)] = block[: samples - first]
    recording.create_dataset("starting_time", data=0.0).attrs["rate"] = 30_000.0
    recording["electrodes"] = h5py.SoftLink("/general/extracellular_ephys/electrodes")


def _electrodes(file: h5py.File, rng: np.random.Generator) -> None:
    probes = file.create_group("general/extracellular_ephys")
    for k in range(4):
        shank = probes.create_group(f"shank{k}")
        shank.attrs["description"] = f"shank {k}"
        shank["pos"] = np.arange(3.0)
    shanks = [probes[f"shank{k % 4}"].ref for k in range(64)]
    text = h5py.string_dtype()
    fields = [("x", "f4"), ("y", "f4"), ("location", text), ("group", h5py.ref_dtype), ("group_name", text)]
    rows = np.array([(k, 2 * k, "CA1", shanks[k], f"shank{k % 4}") for k in range(64)], fields)
    probes["electrodes_compound"] = rows
    table = probes.create_group("electrodes")
    table.attrs["colnames"] = ["x", "y", "group"]
    for name in ("x", "y", "z", "imp"):
        table[name] = rng.random(64)
    table.create_dataset("group", data=np.array(shanks, h5py.ref_dtype), dtype=h5py.ref_dtype)
    table.create_dataset("location", data=["CA1"] * 64, dtype=text)
    recording = file["acquisition/ElectricalSeries"]
    recording.attrs["electrodes_ref"] = table.ref
    epochs = file.create_group("intervals/epochs")
    fields = [("idx_start", "i4"), ("count", "i4"), ("timeseries", h5py.ref_dtype)]
    epochs["timeseries"] = np.array([(k, 10, recording.ref) for k in range(1000)], fields)
    epochs.create_dataset("tags", data=[f"tag{k % 7}" for k in range(1000)], dtype=text)


def _many_chunks(group: h5py.Group, chunks: int, rng: np.random.Generator) -> None:
    shape, dtype = (64, 16), np.dtype("<i2")
    data = group.create_dataset(
        "many_chunks", (chunks * shape[0], shape[1]), dtype, chunks=shape, compression="gzip", compression_opts=1
    )
    stored = [zlib.compress((rng.integers(0, 4, shape) + k).astype(dtype).tobytes(), 1) for k in range(32)]
    for k in range(chunks):
        data.id.write_direct_chunk((k * shape[0], 0), stored[k % len(stored)])


def _stimuli(group: h5py.Group, series: int, rng: np.random.Generator) -> None:
    for k in range(series):
        one = group.create_group(f"ts_{k:04}")
        one.attrs.update({"neurodata_type": "TimeSeries", "description": f"series {k}", "object_id": f"{k:032x}"})
        one.attrs["comments"] = "no comments"
        one.create_dataset("data", data=rng.random(100)).attrs.update({"unit": "V", "conversion": 1.0})
        one.create_dataset("timestamps", data=np.arange(100.0)).attrs["interval"] = 1
        if k % 10 == 0:
            one["link"] = h5py.SoftLink(f"/stimulus/presentation/ts_{(k + 1) % series:04}/data")
