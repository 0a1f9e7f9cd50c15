"""Names of dimensions out of HDF5's dimension scales, which is how netCDF-4 says them.

HDF5 Dimension Scale Specification; NetCDF-4 file format, "Dimensions".
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping

import h5py
import numpy as np
from h5py import h5d, h5ds

from lindi_bridge.hdf5.damage import DAMAGE, refuse_source_error
from lindi_bridge.hdf5.walk import header_address
from lindi_bridge.indexer.attribute import attribute_or_none

__all__ = ["MACHINERY", "dimension_names", "dimension_number", "is_only_a_dimension", "is_scale"]

MACHINERY = frozenset(
    [
        *("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"),
        *("_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties"),
    ]
)
"""Attributes of which the HDF5 library makes dimension scales, and the netCDF library its files. No program over these
libraries shows them; the names of dimensions say the same."""

_WITHOUT_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"


def is_scale(dataset: h5d.DatasetID) -> bool:
    """Whether a dataset is a dimension scale."""
    try:
        return bool(h5ds.is_scale(dataset))
    except DAMAGE as error:
        refuse_source_error(error)
        return False


def is_only_a_dimension(scale: h5d.DatasetID) -> bool:
    """Whether a scale only tells the length of a netCDF dimension, and has no values."""
    try:
        return bool(h5ds.get_scale_name(scale).startswith(_WITHOUT_VARIABLE))
    except DAMAGE as error:
        refuse_source_error(error)
        return False


def dimension_number(scale: h5d.DatasetID) -> int | None:
    """The number that netCDF has given to the dimension of a scale, if it has."""
    found = _numbers(scale, "_Netcdf4Dimid")
    return found[0] if len(found) == 1 else None


def dimension_names(
    dataset: h5d.DatasetID, path: str, rank: int, path_of: Callable[[int], str | None], by_number: Mapping[int, str]
) -> tuple[str, ...]:
    """A name for each axis: of its first scale, of the dataset itself if it is a scale, or a made up one of its own.

    Parameters
    ----------
    dataset : h5py.h5d.DatasetID
        The dataset.
    path : str
        Of the dataset.
    rank : int
        Axes of the Zarr array.
    path_of : callable
        Path of an object by the address of its header.
    by_number : mapping
        Names of the file's netCDF dimensions by their numbers, by which coordinates of several axes name theirs.
    """
    own = posixpath.basename(path)
    own_scale = is_scale(dataset)
    numbers = _numbers(dataset, "_Netcdf4Coordinates") if own_scale else []
    names = []
    for axis in range(rank):
        scale = _scale(dataset, axis, path_of) if axis < dataset.rank else None
        if scale is not None:
            names.append(posixpath.basename(scale))
        elif len(numbers) == rank and numbers[axis] in by_number:
            names.append(by_number[numbers[axis]])
        elif own_scale and rank == 1:
            names.append(own)
        else:
            names.append(f"{own}_dim_{axis}")
    return tuple(names)


def _numbers(dataset: h5d.DatasetID, name: str) -> list[int]:
    value = attribute_or_none(h5py.AttributeManager(h5py.HLObject(dataset)), name)
    try:
        return [] if value is None else [int(n) for n in np.ravel(value)]
    except (TypeError, ValueError):
        return []


def _scale(dataset: h5d.DatasetID, axis: int, path_of: Callable[[int], str | None]) -> str | None:
    found: list[int] = []
    try:
        h5ds.iterate(dataset, axis, lambda scale: found.append(header_address(scale)), 0)
    except DAMAGE as error:
        refuse_source_error(error)
        return None  # scales that are not there any more
    return path_of(found[0]) if found else None
