"""Hard, soft and external links."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from builders.registry import companion_feature, feature


@feature
def softlink(path: Path) -> None:
    """soft links to a dataset and to a group"""
    with h5py.File(path, "w") as file:
        group = file.create_group("g")
        group["d"] = np.arange(5.0)
        group["d"].attrs["u"] = 1
        file["sd"] = h5py.SoftLink("/g/d")
        file["sg"] = h5py.SoftLink("/g")


@feature
def softlink_relative(path: Path) -> None:
    """soft links with relative targets"""
    with h5py.File(path, "w") as file:
        group = file.create_group("g/sub")
        group["d"] = np.arange(5.0)
        group["rel"] = h5py.SoftLink("d")
        file["g/rel2"] = h5py.SoftLink("sub/d")


@feature
def softlink_through(path: Path) -> None:
    """a soft link whose target path leads through another soft link"""
    with h5py.File(path, "w") as file:
        file["a/b/d"] = np.arange(5.0)
        file["lnk"] = h5py.SoftLink("/a")
        file["l2"] = h5py.SoftLink("/lnk/b")


@feature
def softlink_dangling(path: Path) -> None:
    """a soft link to nothing"""
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(5.0)
        file["bad"] = h5py.SoftLink("/nowhere")


@feature
def hardlink_alias(path: Path) -> None:
    """two hard links to one dataset and to one group"""
    with h5py.File(path, "w") as file:
        file["g/d"] = np.arange(5.0)
        file["g/d"].attrs["k"] = 3
        file["alias_d"] = file["g/d"]
        file["alias_g"] = file["g"]


@feature
def hardlink_cycle(path: Path) -> None:
    """a group that contains itself and the root by hard links"""
    with h5py.File(path, "w") as file:
        group = file.create_group("g")
        group["d"] = np.arange(3)
        group["self"] = group
        group["root"] = file["/"]


@feature
def softlink_cycle(path: Path) -> None:
    """a soft link back to the root"""
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(3)
        file["g/up"] = h5py.SoftLink("/")


@companion_feature
def external_link(path: Path) -> None:
    """an external link to a dataset of a file beside this one"""
    companion = path.with_name(path.name + ".ext.h5")
    with h5py.File(companion, "w") as file:
        file["x/y"] = np.arange(4)
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(3)
        file["el"] = h5py.ExternalLink(companion.name, "/x/y")


@feature
def external_link_dangling(path: Path) -> None:
    """an external link to a file that does not exist"""
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(3)
        file["el"] = h5py.ExternalLink("nope.h5", "/x")
