"""What is fetched before elements are read: how many waves, requests and bytes."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from builders.elements import assert_same
from servers.range_server import RangeServer

import lindi_bridge as lb
from lindi_bridge.ranges import ReadStatistics

CELLS = 60_000


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that neither strings nor indptr are in the document."""
    random = np.random.default_rng(7)
    obs = pd.DataFrame(index=[f"{''.join(random.choice(list('ACGT'), 6))}-{i}" for i in range(CELLS)])
    obs["cell_type"] = pd.Categorical(random.choice([f"type {i}" for i in range(12)], CELLS))
    obs["donor"] = pd.Categorical(random.choice([f"D{i}" for i in range(40)], CELLS))
    obs["barcode"] = [f"barcode number {i}" for i in range(CELLS)]
    for number in range(6):
        obs[f"score{number}"] = random.random(CELLS)
    obs["good"] = random.random(CELLS) > 0.5
    obs["maybe"] = pd.array(np.where(obs["good"], 1, None), dtype="Int64")
    adata = anndata.AnnData(
        scipy.sparse.random(CELLS, 500, 0.01, "csr", "f4", random),
        obs=obs,
        var=pd.DataFrame({"mean": random.random(500)}, index=[f"gene {i}" for i in range(500)]),
        obsm={"X_pca": random.random((CELLS, 20)).astype("f4")},
    )
    path = tmp_path_factory.mktemp("prefetch") / "atlas.h5ad"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata.strings_to_categoricals()
        adata.obs["barcode"] = adata.obs["barcode"].astype(object)
        adata.write_h5ad(path, compression="gzip", convert_strings_to_categoricals=False)
    return path


@pytest.fixture(scope="module")
def url(atlas: Path, server: RangeServer) -> str:
    return server.add("atlas.h5ad", atlas)


@pytest.fixture(scope="module")
def document(atlas: Path, url: str) -> Path:
    lb.index(url).save(atlas.with_suffix(".json"))
    return atlas.with_suffix(".json")


class Spent:
    """What a file's source was asked for since the last look."""

    def __init__(self, file: Any) -> None:
        self._file = file._file_object
        self._before = ReadStatistics(**vars(self._file.reader.statistics))

    def look(self) -> ReadStatistics:
        now = self._file.reader.statistics
        spent = ReadStatistics(**{key: value - getattr(self._before, key) for key, value in vars(now).items()})
        self._before = ReadStatistics(**vars(now))
        return spent

    @property
    def misses(self) -> int:
        return int(self._file.misses)


def test_a_data_frame_is_one_wave_of_few_requests(document: Path, atlas: Path) -> None:
    with lb.open(document) as file, h5py.File(atlas) as local:
        spent = Spent(file)
        assert_same(lb.read_elem(file["obs"]), anndata.io.read_elem(local["obs"]))
        once = spent.look()
        assert once.waves == 1
        assert once.requests <= 12
        assert spent.misses == 0
        lb.read_elem(file["obs"])
        lb.prefetch(file["obs"])
        assert spent.look() == ReadStatistics(), "all of it is in memory"


def test_anndatas_own_reader_is_as_fast(document: Path, atlas: Path) -> None:
    with lb.open(document) as file, h5py.File(atlas) as local:
        spent = Spent(file)
        assert_same(anndata.io.read_elem(file["obs"]), anndata.io.read_elem(local["obs"]))
        assert spent.look().waves == 1
        assert spent.misses == 0


def test_without_a_document_strings_take_two_waves_more(url: str, atlas: Path) -> None:
    with lb.open(url) as file, h5py.File(atlas) as local:
        lb.prefetch(file["obsm"])  # whatever opening has left
        spent = Spent(file)
        assert lb.prefetch(file["obs"]) > 1_000_000
        once = spent.look()
        assert once.waves <= 5, "two levels of chunk indexes, the values, the beginnings and the rest of the strings"
        misses = spent.misses
        assert_same(lb.read_elem(file["obs"]), anndata.io.read_elem(local["obs"]))
        assert spent.misses == misses
        assert spent.look() == ReadStatistics(), "strings as well"


def test_rows_and_slices_take_two_waves(document: Path, atlas: Path) -> None:
    random = np.random.default_rng(1)
    with lb.open(document) as file, h5py.File(atlas) as local:
        expected = anndata.io.read_elem(local["X"])
        spent = Spent(file)
        rows = random.choice(CELLS, 100, replace=False)
        assert (lb.sparse_rows(file["X"], rows) != expected[rows]).nnz == 0
        assert spent.look().waves == 2
        np.testing.assert_array_equal(file["obsm/X_pca"][500:600], local["obsm/X_pca"][500:600])
        assert spent.look().waves == 1
    with lb.open(document) as file:
        spent = Spent(file)
        assert (lb.sparse_rows(file["X"], slice(500, 600)) != expected[500:600]).nnz == 0
        assert spent.look().waves == 2
        assert spent.misses == 0


def test_at_most_half_of_the_cache_is_filled_the_smallest_first(document: Path, atlas: Path) -> None:
    with h5py.File(atlas) as local:
        small = local["obsm/X_pca"].id.get_storage_size() // 2
    with lb.open(document, cache_bytes=4 * small) as file:
        wanted = lb.prefetch(file)
        assert 0 < wanted <= 2 * small
        assert file._file_object._ahead.nbytes <= 4 * small
        spent = Spent(file)
        _ = file["var/mean"][:], file["obs/good"][:], file["obs/cell_type/codes"][:]
        assert spent.look() == ReadStatistics()


def test_elements_larger_than_the_cache_are_right(document: Path, atlas: Path) -> None:
    with lb.open(document, cache_bytes=1 << 20) as file, h5py.File(atlas) as local:
        for name in ("obs", "X", "obsm"):
            assert_same(lb.read_elem(file[name]), anndata.io.read_elem(local[name]), name)


def test_frames_that_do_not_fit_together_are_fetched_one_by_one(server: RangeServer, tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    frames = {
        name: pd.DataFrame(random.random((20_000, 5)), columns=list("abcde"), index=[str(i) for i in range(20_000)])
        for name in "xyz"
    }
    with h5py.File(tmp_path / "frames.h5ad", "w") as local:
        anndata.io.write_elem(local, "frames", frames)
    lb.index(server.add("frames.h5ad", tmp_path / "frames.h5ad")).save(tmp_path / "a.json")
    with lb.open(tmp_path / "a.json", cache_bytes=4_000_000) as file, h5py.File(tmp_path / "frames.h5ad") as local:
        spent = Spent(file)
        assert_same(lb.read_elem(file["frames"]), anndata.io.read_elem(local["frames"]))
        assert spent.look().waves <= 4, "not one for each of 18 columns"
        assert spent.misses == 0


@pytest.mark.parametrize("of", ["document", "url"])
def test_many_threads_of_one_file(of: str, document: Path, url: str, atlas: Path) -> None:
    with h5py.File(atlas) as local:
        matrix, obs = anndata.io.read_elem(local["X"]), anndata.io.read_elem(local["obs"])

    def read(number: int) -> None:
        rows = np.random.default_rng(number).integers(0, CELLS, 50)
        assert (lb.sparse_rows(file["X"], rows) != matrix[rows]).nnz == 0
        if number % 4 == 0:
            assert_same(lb.read_elem(file["obs"]), obs)

    with lb.open(document if of == "document" else url, cache_bytes=8_000_000) as file, ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(read, number) for number in range(24)]:
            done.result()


def test_what_cannot_be_fetched_is_an_error_and_no_value(atlas: Path, server: RangeServer, tmp_path: Path) -> None:
    url = server.add("refused.h5ad", atlas)
    lb.index(url).save(tmp_path / "a.json")
    server.resources["refused.h5ad"].fault = "403"
    reading = [
        lambda file: lb.read_elem(file["obs"]),
        lambda file: lb.sparse_rows(file["X"], [1]),
        lambda file: lb.prefetch(file["X"], [1]),
        lambda file: anndata.io.read_elem(file["obs"]),
        lb.read_h5ad,
    ]
    for read in reading:
        with lb.open(tmp_path / "a.json") as file, pytest.raises(lb.SourcePermissionError, match=r"refused\.h5ad"):
            read(file)


def test_what_prefetch_takes(document: Path, atlas: Path) -> None:
    with lb.open(document) as file, h5py.File(atlas) as local:
        assert lb.prefetch(file["obs/good"]) == local["obs/good"].id.get_storage_size()
        with pytest.raises(TypeError, match=r"lindi_bridge\.open"):
            lb.prefetch(local["obs"])
        with pytest.raises(lb.ElementError, match="no sparse matrix"):
            lb.prefetch(file["obs"], [1, 2])
