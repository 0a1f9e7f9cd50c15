"""Names of objects, their order and number, and one file shaped like real ones."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from builders.registry import feature, random_numbers


@feature
def names_unicode(path: Path) -> None:
    """names outside ASCII, with spaces and URL characters"""
    with h5py.File(path, "w") as file:
        file["grüppe/日本"] = np.arange(3)
        file["a b"] = np.arange(3)
        file["p%20q#?&"] = np.arange(2000)


@feature
def names_dot(path: Path) -> None:
    """names with dots, some like chunk keys"""
    with h5py.File(path, "w") as file:
        file["a.b"] = np.arange(3)
        file["g.x/0.0"] = np.arange(2000)
        file["v.1/.hidden"] = np.arange(3)


@feature
def names_numeric(path: Path) -> None:
    """names that are numbers, like chunk keys"""
    with h5py.File(path, "w") as file:
        file["0"] = np.arange(2000)
        file["1/0"] = np.arange(2000)
        file["1/1.0"] = np.arange(5)


@feature
def names_zarr_reserved(path: Path) -> None:
    """names that Zarr reserves"""
    with h5py.File(path, "w") as file:
        file[".zattrs"] = np.arange(3)
        file["g/.zarray"] = np.arange(3)
        file["zarr.json"] = np.arange(2000)


@feature
def names_backslash_case(path: Path) -> None:
    """a backslash, and names that differ in case only"""
    with h5py.File(path, "w") as file:
        file["A\\B"] = np.arange(3)
        file["Case"] = np.arange(3)
        file["case"] = np.arange(4)


@feature
def track_order(path: Path) -> None:
    """links and attributes in the order of their creation"""
    with h5py.File(path, "w", track_order=True) as file:
        for name in ("zz", "aa", "mm"):
            file[name] = np.arange(3)
        group = file.create_group("g", track_order=True)
        for name in ("z", "a"):
            group[name] = 1
        for name in ("q", "b"):
            group.attrs[name] = 1


@feature
def many_groups_dense_links(path: Path) -> None:
    """sixty groups, in dense link storage"""
    with h5py.File(path, "w", libver="latest") as file:
        for i in range(60):
            file.create_group(f"g{i:02}")


@feature
def h5ad_like(path: Path) -> None:
    """a small file laid out as AnnData does: sparse X, categorical and string obs, uns"""
    random = random_numbers()
    cells, genes, values = 300, 50, 3000
    text = h5py.string_dtype()
    with h5py.File(path, "w") as file:
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        matrix = file.create_group("X")
        matrix.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [cells, genes]})
        matrix.create_dataset("data", data=random.random(values).astype("f4"), compression="gzip")
        matrix.create_dataset("indices", data=random.integers(0, genes, values).astype("i4"), compression="gzip")
        matrix["indptr"] = np.linspace(0, values, cells + 1).astype("i4")
        obs = file.create_group("obs")
        obs.attrs.update({"_index": "_index", "encoding-type": "dataframe"})
        obs.attrs["column-order"] = np.array(["ct", "q", "flag"], dtype=text)
        obs["_index"] = np.array([f"cell{i}" for i in range(cells)], dtype=text)
        cell_type = obs.create_group("ct")
        cell_type.attrs.update({"ordered": False, "encoding-type": "categorical"})
        cell_type["codes"] = random.integers(0, 3, cells).astype("i1")
        cell_type["categories"] = np.array(["B", "T", "NK"], dtype=text)
        obs["q"] = random.random(cells)
        obs["flag"] = random.random(cells) > 0.5
        file.create_group("layers")
        file["uns/title"] = "x"
        file["uns/rank_names"] = np.zeros(5, dtype=[("0", "S4"), ("1", "f4")])
