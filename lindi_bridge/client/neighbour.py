"""How the other array of a sparse matrix is stored."""

from __future__ import annotations

import logging

import h5py

from lindi_bridge.client.plan import ReadPlan, read_plan
from lindi_bridge.errors import LindiBridgeError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.sparse import sparse_neighbour

__all__ = ["neighbour_plan"]

_LOGGER = logging.getLogger(__name__)


def neighbour_plan(dataset: h5py.Dataset, file: HDF5File) -> ReadPlan | None:
    """The plan of the array that belongs to a dataset; None if there is none, or it cannot be read.

    Parameters
    ----------
    dataset : Dataset
        One array of a sparse matrix.
    file : HDF5File
        The file object below.
    """
    try:
        neighbour = sparse_neighbour(dataset)
        return None if neighbour is None else read_plan(neighbour.id, file)
    except (LindiBridgeError, OSError, KeyError, RuntimeError, ValueError) as problem:
        _LOGGER.debug("nothing is fetched along with %s: %s", dataset.name, problem)
        return None
