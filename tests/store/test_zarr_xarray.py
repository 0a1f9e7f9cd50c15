"""netCDF-4 files as Zarr groups: xarray finds in them what it finds in the files."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

import lindi_bridge as lb

xarray = pytest.importorskip("xarray")
h5netcdf = pytest.importorskip("h5netcdf")


@pytest.fixture
def netcdf(tmp_path):
    path = tmp_path / "a.nc"
    with h5netcdf.File(path, "w") as f:
        f.dimensions = {"time": 6, "lat": 4, "lon": 5, "without": 3}
        f.attrs["title"] = "a title"
        f.attrs["level"] = np.array([3])
        f.attrs["levels"] = np.array([3.0, np.nan])
        time = f.create_variable("time", ("time",), "i8", data=np.arange(6) * 24)
        time.attrs["units"], time.attrs["calendar"] = "hours since 2020-01-01", "standard"
        f.create_variable("lat", ("lat",), "f4", data=np.linspace(-60, 60, 4))
        f.create_variable("lon", ("lon",), "f4", data=np.linspace(0, 288, 5))
        values = np.arange(6 * 4 * 5, dtype="i2").reshape(6, 4, 5)
        values[2, 1, 3] = -999
        shape = {"chunks": (2, 4, 5), "compression": "gzip", "shuffle": True}
        packed = f.create_variable(
            "packed", ("time", "lat", "lon"), "i2", fillvalue=np.int16(-999), data=values, **shape
        )
        packed.attrs["scale_factor"] = np.array([0.5])
        packed.attrs["add_offset"] = 10.0
        packed.attrs["coordinates"] = "height"
        real = f.create_variable("real", ("time", "lon"), "f8", fillvalue=1e20, data=np.full((6, 5), 1e20))
        real.attrs["missing_value"] = 1e20
        f.create_variable("big", ("lat",), ">f4", fillvalue=np.float32(np.nan), data=[1, np.nan, 3, 4])
        f.create_variable("part", ("time", "without"), "i4", chunks=(2, 3), fillvalue=np.int32(-5))[2:4] = 1
        f.create_variable("height", ("lat", "lon"), "f4", data=np.ones((4, 5)))
        f.create_variable("names", ("lat",), h5py.string_dtype(), data=np.array(["a", "bc", "", "é"], object))
        f.create_variable("letters", ("lat", "without"), "S1", data=np.array([list("abc")] * 4, "S1"))
        f.create_variable("number", (), "f8", data=3.5)
        f.create_variable("inner/values", ("lat",), "i4", data=np.arange(4))
    return path


@pytest.fixture
def document(netcdf, tmp_path):
    lb.index(str(netcdf)).save(str(tmp_path / "a.json"))
    return str(tmp_path / "a.json")


@pytest.fixture(params=["group", "store"])
def opened(request, document):
    """The file by xarray, through the group that we made, and through the store, which xarray reads by itself."""
    group = lb.open_zarr(document)
    assert [p.kind for p in group.store.problems] == ["dimension"]

    def opening(path="", **options):
        if request.param == "group":
            inner = group[path] if path else group
            return xarray.open_dataset(xarray.backends.ZarrStore(inner, mode="r"), **options)
        return xarray.open_zarr(group.store, group=path or None, **options)

    yield opening
    group.store.close()


# zarr's words, where xarray reads the metadata anew.
quiet = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not", "ignore:The data type .* does not have a Zarr V3")


@quiet
@pytest.mark.parametrize("options", [{}, {"mask_and_scale": False}, {"decode_cf": False}], ids=str)
def test_it_is_what_xarray_finds_in_the_file(netcdf, opened, options):
    with xarray.open_dataset(netcdf, engine="h5netcdf", **options) as expected, opened(**options) as found:
        assert sorted(found.variables) == sorted(expected.variables)
        for name, variable in expected.variables.items():
            assert found[name].dims == variable.dims
            # Strings have other types here and there; there is no byte order in Zarr's types.
            dtypes = [np.dtype(v.dtype) for v in (found[name], variable)]
            assert len({"strings" if d.kind in "TUO" else d.newbyteorder("=").str for d in dtypes}) == 1, name
        xarray.testing.assert_identical(found.load(), expected.load())


@quiet
def test_a_group(netcdf, opened):
    with xarray.open_dataset(netcdf, engine="h5netcdf", group="inner") as expected, opened("inner") as found:
        np.testing.assert_array_equal(found["values"], expected["values"])
        assert found["values"].dims == expected["values"].dims


def test_a_coordinate_of_two_dimensions(tmp_path):
    """netCDF-4 numbers the dimensions that such a one has, because it is a scale and cannot have scales."""
    path = str(tmp_path / "b.nc")
    with h5py.File(path, "w") as f:
        f["y"], f["x"], f["both"] = np.arange(2.0), np.arange(3.0), np.ones((2, 3))
        for number, name in enumerate(["y", "x", "both"]):
            f[name].make_scale(name)
            f[name].attrs["_Netcdf4Dimid"] = np.int32(number)
        f["both"].attrs["_Netcdf4Coordinates"] = np.array([0, 1], "i4")
    assert lb.open_zarr(path)["both"].metadata.dimension_names == ("y", "x")


def test_axes_without_a_scale_have_names_of_their_own(tmp_path):
    path = str(tmp_path / "c.h5")
    with h5py.File(path, "w") as f:
        f["x"], f["d"], f["alone"] = np.arange(3.0), np.ones((3, 4)), np.ones(4)
        f["x"].make_scale("x")
        f["d"].dims[0].attach_scale(f["x"])
    group = lb.open_zarr(path)
    assert group["d"].metadata.dimension_names == ("x", "d_dim_1")
    assert group["alone"].metadata.dimension_names == ("alone_dim_0",)


def test_a_file_without_scales_names_no_dimension(tmp_path):
    path = str(tmp_path / "d.h5")
    with h5py.File(path, "w") as f:
        f["d"] = np.ones((3, 4))
        f["d"].attrs["NAME"], f["d"].attrs["one"] = "mine", np.array([1])
    group = lb.open_zarr(path)
    assert group["d"].metadata.dimension_names is None
    assert group["d"].attrs == {"NAME": "mine", "one": [1]}
