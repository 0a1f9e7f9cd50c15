"""Selections of Zarr arrays, whatever their layout, are those that h5py reads."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lindi_bridge as lb

LAYOUTS = {
    "contiguous": {},
    "chunked": {"chunks": True},
    "gzip": {"chunks": True, "compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"chunks": True, "compression": "lzf"},
    "scaleoffset": {"chunks": True, "scaleoffset": 0},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("zarr-selections")


@settings(max_examples=60)
@given(data=st.data())
def test_selections(data, folder):
    rank = data.draw(st.integers(0, 3))
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=rank, max_size=rank)))
    layout = data.draw(st.sampled_from(sorted(LAYOUTS)))
    options = dict(LAYOUTS[layout])
    if options.pop("chunks", False):
        if not rank:
            return
        options["chunks"] = tuple(data.draw(st.integers(1, n)) for n in shape)
    dtype = "<i4" if layout == "scaleoffset" else data.draw(st.sampled_from(["<i4", ">f8", "<u2"]))
    values = np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
    path = str(folder / "a.h5")
    with h5py.File(path, "w") as f:
        dataset = f.create_dataset("x", shape, dtype, fillvalue=3, **options)
        # Some chunks stay unwritten.
        written = tuple(slice(0, data.draw(st.integers(0, n))) for n in shape)
        if all(s.stop for s in written):
            dataset[written] = values[written]
    selection = tuple(
        data.draw(st.one_of(st.integers(0, n - 1), st.slices(n).filter(lambda s: (s.step or 1) > 0))) for n in shape
    )
    group = lb.open_zarr(path)
    with h5py.File(path) as f:
        np.testing.assert_array_equal(group["x"][selection], f["x"][selection])
        np.testing.assert_array_equal(group["x"][...], f["x"][...])
    group.store.close()


@pytest.mark.parametrize(
    "shape", [(3, 700_000), (2, 3, 200_000), (1_500_001,), (400_000, 3), (2, 5, 7, 30_000)], ids=str
)
def test_pieces_of_large_blocks(shape, tmp_path):
    path = str(tmp_path / "a.h5")
    values = np.arange(np.prod(shape), dtype="<i4").reshape(shape)
    with h5py.File(path, "w") as f:
        f["x"] = values
    array = lb.open_zarr(path)["x"]
    assert array.nchunks > 3
    assert np.prod(array.chunks) * 4 <= 1024 * 1024
    np.testing.assert_array_equal(array[...], values)
    np.testing.assert_array_equal(array[..., -5:], values[..., -5:])
