"""Libraries that read HDF5 files, unmodified, over what lindi_bridge opens: the same results as from the local file."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The libraries warn of what they themselves, or the libraries below them, deprecate."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, UserWarning):
            warnings.simplefilter("ignore", category)
        yield


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with _quiet():
        yield


@pytest.fixture(scope="module")
def server() -> Iterator[RangeServer]:
    with RangeServer() as running:
        yield running


def _served(server: RangeServer, path: Path) -> str:
    """The document of a file on the server."""
    document = path.with_name(f"{path.name}.lindi.json")
    lb.index(server.add(path.name, path)).save(document)
    return str(document)


# -- anndata and scanpy ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def h5ad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pandas, sparse = pytest.importorskip("pandas"), pytest.importorskip("scipy.sparse")
    with _quiet():
        anndata = pytest.importorskip("anndata")
        random = np.random.default_rng(6)
        cells, genes = 3000, 200
        obs = pandas.DataFrame(index=[f"cell-{i}" for i in range(cells)])
        obs["type"] = pandas.Categorical(random.choice(["B", "T", "NK"], cells))
        obs["stage"] = pandas.Categorical(random.choice(["early", "late"], cells), ["early", "late"], ordered=True)
        obs["note"] = [f"nöte {i % 97}" for i in range(cells)]
        obs["score"], obs["good"] = random.random(cells), random.random(cells) > 0.5
        obs["maybe"] = pandas.array([None if i % 4 == 0 else i for i in range(cells)], dtype="Int64")
        data = anndata.AnnData(
            sparse.random(cells, genes, 0.1, "csr", "f4", random),
            obs=obs,
            var=pandas.DataFrame({"length": np.arange(genes)}, index=[f"gene {i}" for i in range(genes)]),
            obsm={
                "X_umap": random.random((cells, 2)),
                "frame": pandas.DataFrame({"a": np.arange(cells)}, index=obs.index),
            },
            obsp={"near": sparse.random(cells, cells, 0.001, "csr", "f8", random)},
            layers={
                "dense": random.random((cells, genes)).astype("f4"),
                "csc": sparse.random(cells, genes, 0.05, "csc", "f4", random),
            },
            uns={"text": "some", "numbers": np.arange(10), "nested": {"x": 1.5, "list": ["a", "b"]}, "none": True},
        )
        data.raw = data[:, :100]
        path = tmp_path_factory.mktemp("anndata") / "a.h5ad"
        data.write_h5ad(path, compression="gzip")
    return path


@pytest.fixture(scope="module")
def h5ad_document(h5ad: Path, server: RangeServer) -> str:
    return _served(server, h5ad)


def _in_memory(matrix: Any) -> Any:
    return matrix.to_memory() if hasattr(matrix, "to_memory") else matrix


def _equal(found: Any, expected: Any) -> None:
    """The same classes, types and values, all the way down (anndata's own helper needs its own pytest settings)."""
    import anndata
    import pandas
    from scipy import sparse

    assert type(found) is type(expected)
    if isinstance(expected, anndata.AnnData):
        for name in ("obs", "var", "obsm", "varm", "obsp", "varp", "layers", "uns", "raw"):
            _equal(getattr(found, name), getattr(expected, name))
        _equal(_in_memory(found.X), _in_memory(expected.X))
    elif isinstance(expected, anndata.Raw):
        _equal(_in_memory(found.X), _in_memory(expected.X))
        _equal(found.var, expected.var)
    elif isinstance(expected, pandas.DataFrame):
        pandas.testing.assert_frame_equal(found, expected, check_freq=False)
    elif sparse.issparse(expected):
        assert (found.shape, found.dtype, found.format) == (expected.shape, expected.dtype, expected.format)
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    elif hasattr(expected, "keys") and hasattr(expected, "items"):
        assert list(found.keys()) == list(expected.keys())
        for name in expected:
            _equal(found[name], expected[name])
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    else:
        assert found == expected


def test_anndata_read_h5ad(h5ad: Path, h5ad_document: str) -> None:
    import anndata

    expected = anndata.read_h5ad(h5ad)
    for options in ({}, {"source": str(h5ad)}):
        _equal(anndata.read_h5ad(lb.hdf5_file(h5ad_document, **options)), expected)


def test_anndata_of_the_file_itself(h5ad: Path, server: RangeServer) -> None:
    import anndata

    _equal(anndata.read_h5ad(lb.hdf5_file(server.add(h5ad.name, h5ad))), anndata.read_h5ad(h5ad))


@pytest.mark.parametrize("rows", [slice(5, 900), [3, 100, 2000], np.arange(3000) % 7 == 0, slice(None)], ids=str)
@pytest.mark.parametrize("columns", [slice(None), slice(10, 50)], ids=str)
def test_anndata_backed(rows: Any, columns: Any, h5ad: Path, h5ad_document: str) -> None:
    """Each file is good for one to_memory(): anndata closes it then, and cannot open a file object again."""
    import anndata

    found, expected = anndata.read_h5ad(lb.hdf5_file(h5ad_document), backed="r"), anndata.read_h5ad(h5ad, backed="r")
    assert found.isbacked
    _equal(found.obs, expected.obs)
    _equal(_in_memory(found.X[rows, columns]), _in_memory(expected.X[rows, columns]))
    _equal(found[rows, columns].obsm["frame"], expected[rows, columns].obsm["frame"])
    _equal(_in_memory(found.raw.X[100:200]), _in_memory(expected.raw.X[100:200]))
    _equal(found[rows, columns].to_memory(), expected[rows, columns].to_memory())
    found.file.close()
    expected.file.close()


@pytest.mark.parametrize(
    "element", ["obs", "var", "X", "obsm", "obsp/near", "layers/dense", "layers/csc", "uns", "raw"]
)
def test_anndata_read_elem(element: str, h5ad: Path, h5ad_document: str) -> None:
    from anndata.io import read_elem

    with h5py.File(h5ad) as local:
        expected = read_elem(local[element])
        with h5py.File(lb.hdf5_file(h5ad_document)) as file:
            _equal(read_elem(file[element]), expected)
        with lb.open(h5ad_document) as file:
            _equal(read_elem(lb.plain(file[element])), expected)


def test_anndata_sparse_dataset(h5ad: Path, h5ad_document: str) -> None:
    from anndata.io import sparse_dataset

    with h5py.File(h5ad) as local, h5py.File(lb.hdf5_file(h5ad_document)) as file:
        expected, found = sparse_dataset(local["X"]), sparse_dataset(file["X"])
        assert found.shape == expected.shape
        _equal(found[100:300], expected[100:300])
        _equal(found[[5, 900, 17]], expected[[5, 900, 17]])
        _equal(found.to_memory(), expected.to_memory())


def test_anndata_of_an_h5py_file(h5ad: Path, h5ad_document: str) -> None:
    from anndata.io import read_elem

    with h5py.File(h5ad) as local, h5py.File(lb.hdf5_file(h5ad_document)) as file:
        _equal(read_elem(file), read_elem(local))


def test_scanpy(h5ad: Path, h5ad_document: str) -> None:
    scanpy = pytest.importorskip("scanpy")

    expected, found = scanpy.read_h5ad(h5ad), scanpy.read_h5ad(lb.hdf5_file(h5ad_document))
    _equal(found, expected)
    for data in (found, expected):
        scanpy.pp.normalize_total(data)
        scanpy.pp.log1p(data)
    _equal(found.X, expected.X)


def test_the_filename_is_no_local_h5ad(h5ad: Path, h5ad_document: str) -> None:
    import anndata

    found = anndata.read_h5ad(lb.hdf5_file(h5ad_document), backed="r")
    assert not Path(str(found.filename)).exists(), "anndata would open it again"
    found.file.close()


# -- xarray and h5netcdf -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def netcdf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with _quiet():
        xarray = pytest.importorskip("xarray")
        pytest.importorskip("h5netcdf")
        random = np.random.default_rng(7)
        coordinates = {"time": np.arange(200), "x": np.linspace(0, 1, 50), "name": ("x", [f"n{i}" for i in range(50)])}
        data = xarray.Dataset(
            {
                "height": (("time", "x"), random.random((200, 50)), {"units": "m"}),
                "count": (("time",), random.integers(0, 9, 200)),
                "when": (("time",), np.datetime64("2024-01-01", "ns") + np.arange(200) * np.timedelta64(1, "h")),
                "alone": ((), 5.0),
            },
            coords=coordinates,
            attrs={"title": "a title", "numbers": [1, 2, 3]},
        )
        path = tmp_path_factory.mktemp("netcdf") / "a.nc"
        encoding = {"height": {"zlib": True, "chunksizes": (20, 50), "_FillValue": -1.0}}
        data.to_netcdf(path, engine="h5netcdf", encoding=encoding, unlimited_dims=["time"])
    return path


OPENED: dict[str, Callable[[str], Any]] = {
    "lb.open": lambda document: lb.open(document),
    "lb.File": lambda document: lb.File(document, "r"),
    "file object": lambda document: lb.hdf5_file(document),
    "plain h5py": lambda document: h5py.File(lb.hdf5_file(document)),
}


@pytest.mark.parametrize("kind", OPENED)
def test_xarray(kind: str, netcdf: Path, server: RangeServer) -> None:
    import xarray

    document = _served(server, netcdf)
    opened = OPENED[kind](document)
    with (
        xarray.open_dataset(netcdf, engine="h5netcdf") as expected,
        xarray.open_dataset(opened, engine="h5netcdf") as found,
    ):
        xarray.testing.assert_identical(found, expected)
        part = {"time": slice(30, 90, 7), "x": [3, 5, 40]}
        xarray.testing.assert_identical(found.isel(part).load(), expected.isel(part).load())
        xarray.testing.assert_identical(found.load(), expected.load())


def test_h5netcdf(netcdf: Path, server: RangeServer) -> None:
    import h5netcdf

    with h5netcdf.File(lb.open(_served(server, netcdf)), "r") as found, h5netcdf.File(netcdf, "r") as expected:
        assert dict(found.dimensions).keys() == dict(expected.dimensions).keys()
        assert {n: v.shape for n, v in found.variables.items()} == {n: v.shape for n, v in expected.variables.items()}
        assert (found.variables["height"][5:50:3] == expected.variables["height"][5:50:3]).all()
        assert found.attrs["title"] == "a title"


# -- pandas ------------------------------------------------------------------------------------------------------------


def test_numpy_and_pandas_take_datasets(h5ad: Path, h5ad_document: str) -> None:
    pandas = pytest.importorskip("pandas")

    with h5py.File(h5ad) as local, lb.open(h5ad_document) as file:
        pandas.testing.assert_series_equal(pandas.Series(file["obs/score"]), pandas.Series(local["obs/score"]))
        assert np.concatenate([file["obs/score"], file["obs/score"]]).sum() == 2 * local["obs/score"][:].sum()
        assert np.array_equal(np.stack([file["obsm/X_umap"]]), local["obsm/X_umap"][:][None])


# -- pynwb -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nwb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with _quiet():
        pynwb = pytest.importorskip("pynwb")
        from pynwb.behavior import Position
        from pynwb.ecephys import ElectricalSeries

        random = np.random.default_rng(8)
        start = datetime(2024, 1, 2, tzinfo=UTC)
        nwb = pynwb.NWBFile("a session", "an identifier", start, keywords=["one", "two"], experimenter=["A", "B"])
        nwb.add_acquisition(pynwb.TimeSeries("plain", data=random.random((5000, 4)), unit="V", rate=30.0))
        device = nwb.create_device("a device")
        group = nwb.create_electrode_group("shank", "described", "brain", device)
        for number in range(8):
            nwb.add_electrode(x=float(number), y=1.0, z=2.0, location=f"area {number}", group=group)
        region = nwb.create_electrode_table_region([0, 2, 5], "some of them")
        wrapped = pynwb.H5DataIO(random.random((20_000, 3)), compression="gzip", chunks=(1000, 3))
        nwb.add_acquisition(ElectricalSeries("electrical", wrapped, region, starting_time=1.0, rate=1000.0))
        for number in range(20):
            nwb.add_trial(start_time=float(number), stop_time=number + 0.5)
        nwb.add_unit_column("quality", "how good")
        for number in range(6):
            nwb.add_unit(spike_times=random.random(10 + number), quality=f"q{number}", electrodes=[number])
        position = Position()
        position.create_spatial_series("place", random.random((100, 2)), "a frame", timestamps=np.arange(100.0))
        nwb.create_processing_module("behavior", "processed").add(position)
        path = tmp_path_factory.mktemp("nwb") / "a.nwb"
        series = nwb.get_acquisition("plain")
        nwb.add_epoch_column("label", "a label")
        for number in range(4):  # rows of a compound type with references: (index, count, timeseries)
            nwb.add_epoch(float(number), number + 1.0, timeseries=[series], label=f"epoch {number}")
        with pynwb.NWBHDF5IO(path, "w") as io:
            io.write(nwb)
    return path


NWB_FACTS: dict[str, Callable[[Any], Any]] = {
    "session": lambda nwb: (nwb.session_description, nwb.identifier, nwb.session_start_time, nwb.experimenter[:]),
    "series": lambda nwb: nwb.acquisition["plain"].data[100:2000:7],
    "all of a series": lambda nwb: nwb.acquisition["plain"].data[:],
    "chunks of a series": lambda nwb: nwb.acquisition["electrical"].data[500:9000],
    "rate": lambda nwb: (nwb.acquisition["electrical"].rate, nwb.acquisition["plain"].unit),
    "electrodes": lambda nwb: nwb.electrodes.to_dataframe().drop(columns="group").to_dict(),
    "groups of electrodes": lambda nwb: [group.name for group in nwb.electrodes["group"][:]],
    "region": lambda nwb: nwb.acquisition["electrical"].electrodes.to_dataframe()["location"].tolist(),
    "trials": lambda nwb: nwb.trials.to_dataframe().to_dict(),
    "units": lambda nwb: [nwb.units["spike_times"][k].tolist() for k in range(6)],
    "columns of units": lambda nwb: nwb.units["quality"][:].tolist(),
    "references in a compound": lambda nwb: [
        [(int(row.idx_start), int(row.count), row.timeseries.name) for row in nwb.epochs["timeseries"][k]]
        for k in range(4)
    ],
    "processing": lambda nwb: nwb.processing["behavior"]["Position"]["place"].timestamps[:],
    "repr": lambda nwb: str(nwb.acquisition["electrical"].electrodes.table.colnames),
}


@pytest.mark.parametrize("kind", ["lb.open", "lb.File", "plain h5py"])
def test_pynwb(kind: str, nwb: Path, server: RangeServer) -> None:
    import pynwb

    with pynwb.NWBHDF5IO(nwb, "r") as local:
        expected = local.read()
        with pynwb.NWBHDF5IO(file=OPENED[kind](_served(server, nwb)), mode="r") as io:
            found = io.read()
            for name, fact in NWB_FACTS.items():
                np.testing.assert_equal(fact(found), fact(expected), err_msg=name)


def test_pynwb_validates_and_exports(nwb: Path, server: RangeServer, tmp_path: Path) -> None:
    """Over plain h5py: to export, hdmf asks for the exact type of datasets, and takes ours for something else."""
    import pynwb

    copy, document = tmp_path / "copy.nwb", _served(server, nwb)
    with pynwb.NWBHDF5IO(file=lb.open(document), mode="r") as io:
        assert pynwb.validate(io=io) == []
    with (
        pynwb.NWBHDF5IO(file=h5py.File(lb.hdf5_file(document)), mode="r") as io,
        pynwb.NWBHDF5IO(copy, "w") as out,
    ):
        out.export(src_io=io, write_args={"link_data": False})
    with pynwb.NWBHDF5IO(copy, "r") as io, pynwb.NWBHDF5IO(nwb, "r") as local:
        found, expected = io.read(), local.read()
        for name, fact in NWB_FACTS.items():
            np.testing.assert_equal(fact(found), fact(expected), err_msg=name)
