"""Rows and columns of sparse matrices: scipy is the oracle for values, numpy for what a list means."""

from __future__ import annotations

import re
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from builders.documents import write_document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers.range_server import RangeServer

import lindi_bridge as lb

ROWS, COLUMNS = 3000, 400
LAYOUTS: dict[str, dict[str, Any]] = {
    "gzip": {"compression": "gzip", "shuffle": True, "chunks": (5000,)},
    "contiguous": {},
    "one chunk": {"chunks": True, "compression": "lzf"},
}


def _write(path: Path, matrix: Any, **options: Any) -> None:
    """A CSR matrix and the same as CSC, in their own groups."""
    with h5py.File(path, "w") as file:
        for form in ("csr", "csc"):
            stored = matrix.asformat(form)
            group = file.create_group(form)
            group.attrs.update({"encoding-type": f"{form}_matrix", "encoding-version": "0.1.0", "shape": matrix.shape})
            for part in ("indptr", "indices", "data"):
                values = getattr(stored, part)
                fitting = dict(options) if len(values) else {}
                if isinstance(fitting.get("chunks"), tuple):
                    fitting["chunks"] = (min(fitting["chunks"][0], len(values)),)
                group.create_dataset(part, data=values, **fitting)


def _same(found: Any, expected: Any) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert (found != expected).nnz == 0
    assert found.nnz == expected.nnz


@pytest.fixture(scope="module")
def matrix() -> Any:
    return scipy.sparse.random(ROWS, COLUMNS, 0.1, "csr", "f4", np.random.default_rng(11))


@pytest.fixture(scope="module", params=LAYOUTS)
def served(request: Any, matrix: Any, server: RangeServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The document of a file on the server."""
    path = tmp_path_factory.mktemp("sparse") / f"{request.param}.h5"
    _write(path, matrix, **LAYOUTS[request.param])
    document = path.with_suffix(".json")
    lb.index(server.add(path.name, path)).save(document)
    return document


LISTS = {
    "a list": [5, 900, 17],
    "repeats": [7, 7, 3, 7],
    "negative": [-1, 0, -ROWS],
    "one number": 42,
    "a numpy number": np.int16(-3),
    "a slice": slice(100, 200),
    "a slice backwards": slice(50, 20, -3),
    "a slice beyond": slice(ROWS - 3, ROWS + 10),
    "all": slice(None),
    "ellipsis": ...,
    "a mask": np.arange(ROWS) % 97 == 3,
    "a mask of nothing": np.zeros(ROWS, bool),
    "a list of bools": [i == 4 for i in range(ROWS)],
    "unsigned": np.array([3, 1], "u8"),
    "a series": pd.Series(np.arange(ROWS) % 500 == 0),
    "nothing": [],
    "an empty slice": slice(5, 5),
}


@pytest.mark.parametrize("name", LISTS)
def test_rows_of_csr(name: str, served: Path, matrix: Any) -> None:
    rows = LISTS[name]
    chosen = np.atleast_1d(np.arange(ROWS)[slice(0) if name == "nothing" else rows])
    with lb.open(served) as file:
        found = lb.sparse_rows(file["csr"], rows)
        assert type(found) is scipy.sparse.csr_matrix
        _same(found, matrix[chosen])


@pytest.mark.parametrize("columns", [[3, 399, -400, 3], slice(10, 300, 7), np.arange(COLUMNS) < 9, []], ids=str)
def test_columns_of_csc(columns: Any, served: Path, matrix: Any) -> None:
    with lb.open(served) as file:
        found = lb.sparse_columns(file["csc"], columns)
        assert type(found) is scipy.sparse.csc_matrix
        _same(found, matrix.tocsc()[:, slice(0) if isinstance(columns, list) and not columns else columns])


@pytest.mark.parametrize(
    "rows",
    [[ROWS], [-ROWS - 1], ROWS, [0.5], "name", ["a"], None, [[1, 2]], np.zeros(5, bool), (1, 2), [True], True],
    ids=str,
)
def test_errors_are_numpys(rows: Any, served: Path) -> None:
    try:
        np.arange(ROWS)[rows]
        expected = None
    except IndexError as error:
        expected = error
    with lb.open(served) as file, pytest.raises(IndexError) as caught:
        lb.sparse_rows(file["csr"], rows)
    if np.shape(rows) == (1,) and isinstance(rows[0], int) and rows != [True]:
        assert str(caught.value) == str(expected)


def _waves(file: Any) -> int:
    return int(file._file_object.reader.statistics.waves)


def _chunked(document: Path) -> bool:
    return "contiguous" not in document.name


@pytest.mark.parametrize("count", [1, 100, 2000])
def test_any_list_takes_one_wave_with_indptr_in_the_document(
    count: int, served: Path, matrix: Any, server: RangeServer
) -> None:
    rows = np.random.default_rng(count).permutation(ROWS)[:count]
    with lb.open(served) as file:
        server.reset()
        before = _waves(file)
        _same(lb.sparse_rows(file["csr"], rows), matrix[rows])
        assert file._file_object.misses == 0
        assert _waves(file) - before == 1
        if count == 1:
            assert server.requests <= 3
            assert server.nbytes < (200_000 if _chunked(served) else 40_000)
        server.reset()
        _same(lb.sparse_rows(file["csr"], rows[::-1]), matrix[rows[::-1]])
        assert server.requests == 0, "all of it is in memory"


@pytest.mark.parametrize("layout", ["gzip", "contiguous"])
def test_any_list_takes_two_waves(layout: str, server: RangeServer, tmp_path: Path) -> None:
    tall = scipy.sparse.random(40_000, 30, 0.1, "csr", "f4", np.random.default_rng(3))
    path = tmp_path / f"tall {layout}.h5"
    _write(path, tall, **LAYOUTS[layout])
    lb.index(server.add(path.name, path)).save(tmp_path / "a.json")
    random = np.random.default_rng(4)
    for rows in ([31_000], random.integers(0, 40_000, 100), random.permutation(40_000), slice(5000, 5100)):
        with lb.open(tmp_path / "a.json") as file:
            _same(lb.sparse_rows(file["csr"], rows), tall[rows])
            assert _waves(file) == 2
            assert file._file_object.misses == 0
            if isinstance(rows, list):
                assert file._file_object.reader.statistics.nbytes < 150_000
            _same(lb.sparse_rows(file["csr"], rows), tall[rows])
            assert _waves(file) == 2, "all of it is in memory"


def test_one_wave_where_indptr_is_known(served: Path, matrix: Any, server: RangeServer) -> None:
    with lb.open(served) as file:
        lb.prefetch(file["csr/indptr"])
        before = _waves(file)
        _same(lb.sparse_rows(file["csr"], [5, 900, 17]), matrix[[5, 900, 17]])
        assert _waves(file) - before == 1


def test_prefetching_rows(served: Path, matrix: Any, server: RangeServer) -> None:
    rows = np.arange(ROWS) % 300 == 7
    with lb.open(served) as file:
        lb.prefetch(file["csr/indptr"])  # anndata reads all of it
        assert lb.prefetch(file["csr"], rows) > 0
        server.reset()
        backed = anndata.io.sparse_dataset(file["csr"])
        _same(backed[np.flatnonzero(rows)], matrix[rows])
        _same(lb.sparse_rows(backed, rows), matrix[rows])
        assert server.requests == 0


def test_rows_that_are_larger_than_the_cache(served: Path, matrix: Any) -> None:
    with lb.open(served, cache_bytes=1 << 17) as file:
        _same(lb.sparse_rows(file["csr"], slice(None)), matrix)
        rows = np.random.default_rng(1).integers(0, ROWS, 4000)
        _same(lb.sparse_rows(file["csr"], rows), matrix[rows])


# -- across the compressed axis ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache_bytes", [1 << 28, 1 << 17])
@pytest.mark.parametrize("numbers", [[3, 399, -400, 3], slice(10, 30), []], ids=str)
def test_across_the_compressed_axis(numbers: Any, cache_bytes: int, served: Path, matrix: Any) -> None:
    chosen = numbers if numbers != [] else slice(0)
    with lb.open(served, cache_bytes=cache_bytes) as file:
        with pytest.warns(lb.WholeReadWarning, match="/csr is stored by rows: .* all of it is read") as caught:
            found = lb.sparse_columns(file["csr"], numbers)
        assert caught[0].filename == __file__
        assert type(found) is scipy.sparse.csr_matrix
        _same(found, matrix[:, chosen])
        with pytest.warns(lb.WholeReadWarning, match="/csc is stored by columns"):
            _same(lb.sparse_rows(file["csc"], numbers), matrix.tocsc()[chosen])
        assert file._file_object._ahead.nbytes <= cache_bytes


def test_the_warning_tells_the_bytes_that_are_read(served: Path, server: RangeServer) -> None:
    with lb.open(served) as file:
        server.reset()
        with pytest.warns(lb.WholeReadWarning) as caught:
            lb.sparse_columns(file["csr"], [1])
        told = int(re.search(r"([\d,]+) bytes", str(caught[0].message))[1].replace(",", ""))
        assert told * 0.9 < server.nbytes < told * 1.1 + 30_000


def test_the_whole_is_never_in_memory(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    wide = scipy.sparse.random(2000, 4000, 0.3, "csr", "f8", random)
    _write(tmp_path / "wide.h5", wide, chunks=(20_000,))
    with lb.open(write_document(tmp_path / "wide.h5"), cache_bytes=4_000_000) as file:
        expected = wide[:, [7]]
        tracemalloc.start()
        try:
            with pytest.warns(lb.WholeReadWarning):
                found = lb.sparse_columns(file["csr"], [7])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    _same(found, expected)
    assert peak < 12_000_000 < (wide.data.nbytes + wide.indices.nbytes) / 2


def test_progress_is_shown(served: Path, matrix: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import tqdm

    seen: dict[str, Any] = {"done": 0}

    class Bar(tqdm.tqdm):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            seen.update(options)
            super().__init__(*args, **options)

        def update(self, n: float | None = 1) -> bool | None:
            seen["done"] += n
            return super().update(n)

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    with lb.open(served) as file, pytest.warns(lb.WholeReadWarning):
        lb.sparse_columns(file["csr"], [1])
    assert seen["done"] == seen["total"] == matrix.nnz
    assert seen.get("file") is None, "tqdm's own choice: standard error"


# -- kinds of files ----------------------------------------------------------------------------------------------------


def test_the_old_form_of_h5sparse(tmp_path: Path, matrix: Any) -> None:
    _write(tmp_path / "a.h5", matrix[:50])
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        for form in ("csr", "csc"):
            file[form].attrs.clear()
            file[form].attrs.update({"h5sparse_format": np.bytes_(form), "h5sparse_shape": (50, COLUMNS)})
    with lb.open(write_document(tmp_path / "a.h5")) as file:
        _same(lb.sparse_rows(file["csr"], [3, 1]), matrix[[3, 1]])
        _same(lb.sparse_columns(file["csc"], [3, 1]), matrix[:50][:, [3, 1]])


def test_wide_indices_and_other_types(tmp_path: Path) -> None:
    for dtype in ("i8", "u2", "bool", "f8", "c16"):
        stored = scipy.sparse.random(20, 30, 0.3, "csr", "f8", np.random.default_rng(2)).astype(dtype)
        path = tmp_path / f"{dtype}.h5"
        _write(path, stored)
        with h5py.File(path, "r+") as file:
            for part in ("indptr", "indices"):
                values = file["csr"][part][:].astype("i8")
                del file["csr"][part]
                file["csr"][part] = values
        with lb.open(write_document(path)) as file:
            _same(lb.sparse_rows(file["csr"], [5, 2, 5]), stored[[5, 2, 5]])


@pytest.mark.parametrize("layout", [{}, {"chunks": (7,)}], ids=["contiguous", "chunked"])
def test_the_byte_order_of_other_machines(layout: dict[str, Any], tmp_path: Path) -> None:
    stored = scipy.sparse.random(20, 30, 0.3, "csr", "f4", np.random.default_rng(2))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for form in ("csr", "csc"):
            parts = stored.asformat(form)
            group = file.create_group(form)
            group.attrs.update({"encoding-type": f"{form}_matrix", "encoding-version": "0.1.0", "shape": stored.shape})
            for part, dtype in (("data", ">f4"), ("indices", ">i8"), ("indptr", ">u4")):
                group.create_dataset(part, data=getattr(parts, part).astype(dtype), **layout)
    numbers = [3, 3, -1, 0]
    with lb.open(write_document(tmp_path / "a.h5")) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", lb.WholeReadWarning)
        for form in ("csr", "csc"):
            _same(lb.sparse_rows(file[form], numbers), stored.asformat(form)[numbers])
            _same(lb.sparse_columns(file[form], numbers), stored.asformat(form)[:, numbers])


def test_rows_are_as_they_are_stored(tmp_path: Path) -> None:
    """Indices in any order, and twice, stay as they are; so do explicit zeros."""
    stored = scipy.sparse.csr_matrix(
        (np.array([1.0, 2, 3, 0, 5]), np.array([4, 1, 3, 3, 0]), np.array([0, 2, 2, 5])), shape=(3, 5)
    )
    _write(tmp_path / "a.h5", stored)
    with lb.open(write_document(tmp_path / "a.h5")) as file:
        found = lb.sparse_rows(file["csr"], [2, 0, 2])
    np.testing.assert_array_equal(found.indices, [3, 3, 0, 4, 1, 3, 3, 0])
    np.testing.assert_array_equal(found.data, [3, 0, 5, 1, 2, 3, 0, 5])
    np.testing.assert_array_equal(found.indptr, [0, 3, 5, 8])


@pytest.mark.parametrize("rows", [slice(None), [3, 900, 5]], ids=str)
def test_values_that_were_never_written(rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are zeros, as h5py has them, and not what was in memory before."""
    path, count = tmp_path / "a.h5", 100_000
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "shape": (1000, 100)})
        group["indptr"] = np.arange(0, count + 1, 100)
        group["indices"] = np.tile(np.arange(100), 1000)
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_chunk((5000,))
        create.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        h5py.h5d.create(group.id, b"data", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((count,)), create)
    monkeypatch.setattr(np, "empty", lambda shape, dtype=float, *_, **__: np.full(shape, 7, dtype))
    with lb.open(path) as file:
        found = lb.sparse_rows(file["X"], rows)
        assert np.array_equal(found.data, file["X/data"][: found.nnz])
        assert found.nnz
        assert not found.data.any()


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)], ids=str)
def test_axes_of_no_length(shape: tuple[int, int], tmp_path: Path) -> None:
    stored = scipy.sparse.csr_matrix(shape, dtype="f4")
    _write(tmp_path / "a.h5", stored)
    with lb.open(write_document(tmp_path / "a.h5")) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", lb.WholeReadWarning)
        for form in ("csr", "csc"):
            for numbers in ([], slice(None), np.zeros(shape[0], bool)):
                chosen = slice(0) if isinstance(numbers, list) else numbers
                _same(lb.sparse_rows(file[form], numbers), stored.asformat(form)[chosen])
            _same(lb.sparse_columns(file[form], slice(None)), stored.asformat(form))
        with pytest.raises(IndexError):
            lb.sparse_rows(file["csr"], [5])


def test_a_matrix_of_an_annotated_document(tmp_path: Path, matrix: Any) -> None:
    _write(tmp_path / "a.h5", matrix, compression="gzip", chunks=(5000,))
    with lb.open(write_document(tmp_path / "a.h5"), prefer="annotations") as file:
        _same(lb.sparse_rows(file["csr"], [2, 2000, 1]), matrix[[2, 2000, 1]])


def test_backed_anndata_gives_its_matrix(tmp_path: Path, matrix: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anndata.AnnData(matrix).write_h5ad(tmp_path / "a.h5ad")
    adata = lb.read_h5ad(write_document(tmp_path / "a.h5ad"), backed="r")
    _same(lb.sparse_rows(adata.X, [5, 2]), matrix[[5, 2]])
    adata.file.close()


def _damage(path: Path, part: str, position: int, value: int) -> None:
    with h5py.File(path, "r+") as file:
        file["csr"][part][position] = value


@pytest.mark.parametrize(
    ("part", "position", "value"), [("indptr", 3, 10**8), ("indptr", 3, -1), ("indices", 30, 400), ("indices", 30, -1)]
)
def test_a_damaged_matrix_is_an_error_and_no_crash(
    part: str, position: int, value: int, tmp_path: Path, matrix: Any
) -> None:
    _write(tmp_path / "a.h5", matrix)
    _damage(tmp_path / "a.h5", part, position, value)
    with lb.open(write_document(tmp_path / "a.h5")) as file:
        with pytest.raises(lb.ElementError, match="/csr: damaged"):
            lb.sparse_rows(file["csr"], slice(0, 10))
        with pytest.warns(lb.WholeReadWarning), pytest.raises(lb.ElementError, match="/csr: damaged"):
            lb.sparse_columns(file["csr"], [3])


@pytest.mark.parametrize("damage", ["no indices", "no shape", "a wrong shape", "lengths differ"])
def test_what_is_missing_is_named(damage: str, tmp_path: Path, matrix: Any) -> None:
    _write(tmp_path / "a.h5", matrix)
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        if damage == "no indices":
            del file["csr/indices"]
        elif damage == "no shape":
            del file["csr"].attrs["shape"]
        elif damage == "a wrong shape":
            file["csr"].attrs["shape"] = (5, 5)
        else:
            del file["csr/data"]
            file["csr/data"] = np.zeros(3)
    with lb.open(write_document(tmp_path / "a.h5")) as file, pytest.raises(lb.ElementError, match="/csr: damaged"):
        lb.sparse_rows(file["csr"], [1])


def test_a_matrix_whose_parts_lie_in_two_files_is_refused(tmp_path: Path, matrix: Any) -> None:
    _write(tmp_path / "a.h5", matrix)
    _write(tmp_path / "b.h5", matrix)
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["all"] = h5py.ExternalLink("b.h5", "/csr")
        del file["csr/indices"]
        file["csr/indices"] = h5py.ExternalLink("b.h5", "/csr/indices")
    with lb.open(write_document(tmp_path / "a.h5")) as file:
        with pytest.raises(lb.ElementError, match="parts lie in different files"):
            lb.sparse_rows(file["csr"], [1])
        _same(lb.sparse_rows(file["all"], [2, 1]), matrix[[2, 1]])


def test_other_elements_are_refused(tmp_path: Path, matrix: Any) -> None:
    _write(tmp_path / "a.h5", matrix)
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        anndata.io.write_elem(file, "dense", np.zeros((3, 3)))
    with lb.open(write_document(tmp_path / "a.h5")) as file, h5py.File(tmp_path / "a.h5") as local:
        with pytest.raises(lb.ElementError, match="/dense is no sparse matrix in compressed form but 'array'"):
            lb.sparse_rows(file["dense"], [1])
        with pytest.raises(lb.ElementError, match="no sparse matrix"):
            lb.sparse_rows(file, [1])
        with pytest.raises(TypeError, match=r"lindi_bridge\.open"):
            lb.sparse_rows(local["csr"], [1])


# -- any matrix, any list ----------------------------------------------------------------------------------------------


@st.composite
def _cases(draw: Any) -> tuple[Any, dict[str, Any], list[int]]:
    rows, columns = draw(st.integers(1, 40)), draw(st.integers(1, 20))
    density = draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    stored = scipy.sparse.random(rows, columns, density, "csr", "f8", random) * 9
    stored = scipy.sparse.csr_matrix(stored.astype(draw(st.sampled_from(["f4", "f8", "i8"]))))
    chunk = draw(st.sampled_from([None, 1, 3, 50]))
    layout = {} if chunk is None else {"chunks": (chunk,), "compression": draw(st.sampled_from([None, "gzip"]))}
    return stored, layout, draw(st.lists(st.integers(-min(rows, columns), min(rows, columns) - 1), max_size=30))


@given(_cases())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_matrix_and_any_list(tmp_path: Path, case: Any) -> None:
    stored, layout, numbers = case
    path = tmp_path / "any.h5"
    _write(path, stored, **layout)
    with lb.open(lb.index(path)) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", lb.WholeReadWarning)
        chosen = np.array(numbers, int)
        for form in ("csr", "csc"):
            matrix = stored.asformat(form)
            _same(lb.sparse_rows(file[form], numbers), matrix[chosen])
            _same(lb.sparse_columns(file[form], numbers), matrix[:, chosen])
