"""Object references, region references and dimension scales, which are made of references."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from builders.registry import feature


@feature
def objref_attr(path: Path) -> None:
    """object references to a dataset and a group, as attributes"""
    with h5py.File(path, "w") as file:
        file["g/d"] = np.arange(3)
        file.attrs["r"] = file["g/d"].ref
        file.attrs["rg"] = file["g"].ref


@feature
def objref_attr_array(path: Path) -> None:
    """an attribute that is an array of object references"""
    with h5py.File(path, "w") as file:
        file["a"] = np.arange(3)
        file["b"] = np.arange(3)
        pair = np.array([file["a"].ref, file["b"].ref], dtype=h5py.ref_dtype)
        file.attrs.create("rr", pair, dtype=h5py.ref_dtype)


@feature
def objref_dataset(path: Path) -> None:
    """a dataset of object references"""
    with h5py.File(path, "w") as file:
        file["g/d"] = np.arange(3)
        references = file.create_dataset("refs", (2,), dtype=h5py.ref_dtype)
        references[0] = file["g/d"].ref
        references[1] = file["g"].ref


@feature
def objref_scalar(path: Path) -> None:
    """a scalar dataset that is an object reference"""
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(3)
        file.create_dataset("r", data=file["d"].ref, dtype=h5py.ref_dtype)


@feature
def objref_null(path: Path) -> None:
    """a dataset of references, one of them null"""
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(3)
        references = file.create_dataset("refs", (2,), dtype=h5py.ref_dtype)
        references[0] = file["d"].ref


@feature
def regionref_dataset(path: Path) -> None:
    """a dataset of region references"""
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(10)
        regions = file.create_dataset("rr", (1,), dtype=h5py.regionref_dtype)
        regions[0] = file["d"].regionref[2:5]


@feature
def regionref_attr(path: Path) -> None:
    """a region reference as an attribute"""
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(10)
        file["d"].attrs["rr"] = file["d"].regionref[2:5]


@feature
def dimension_scales(path: Path) -> None:
    """a dimension scale, attached and labelled"""
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3.0)
        file["d"] = np.ones(3)
        file["x"].make_scale("x")
        file["d"].dims[0].attach_scale(file["x"])
        file["d"].dims[0].label = "X"
