"""What is not a readable HDF5 file."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np

from builders.registry import SkipFeature, bad_feature


@bad_feature
def bad_not_hdf5(path: Path) -> None:
    """text instead of HDF5"""
    path.write_bytes(b"this is not hdf5" * 100)


@bad_feature
def bad_empty_file(path: Path) -> None:
    """an empty file"""
    path.write_bytes(b"")


@bad_feature
def bad_truncated_half(path: Path) -> None:
    """the first half of an HDF5 file"""
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(50_000)
    os.truncate(path, path.stat().st_size // 2)


@bad_feature
def bad_no_permission(path: Path) -> None:
    """a file that may not be read"""
    with h5py.File(path, "w") as file:
        file["d"] = 1
    path.chmod(0)
    if os.access(path, os.R_OK):
        path.chmod(0o644)
        raise SkipFeature("this user may read every file, whatever its permissions (root)")


@bad_feature
def bad_missing_file(path: Path) -> None:
    """no file at all"""
    path.unlink(missing_ok=True)
