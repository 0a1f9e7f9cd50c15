"""Lazy AnnData objects, whose arrays are fetched chunk by chunk as they are computed."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from lindi_bridge.errors import ElementError, LindiBridgeError, MissingDependencyError
from lindi_bridge.store.group import open_group
from lindi_bridge.store.origin import hdf5_object

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["read_lazily"]

_NEEDED = ("anndata", "dask", "xarray")


def read_lazily(name: Any, *, load_annotation_index: bool = True, stacklevel: int = 1, **options: Any) -> AnnData:
    """Read an AnnData file without its arrays.

    Parameters
    ----------
    name, **options
        As for :func:`~lindi_bridge.store.group.open_group`.
    load_annotation_index : bool
        As for :func:`anndata.experimental.read_lazy`.
    stacklevel : int
        Whom to name in the warning about what is missing, as for :func:`warnings.warn`.

    Raises
    ------
    ElementError
        Not an AnnData file, or one of anndata 0.7 or older, which anndata does not read lazily.
    MissingDependencyError
        anndata, dask or xarray is not installed.
    """
    missing = [package for package in _NEEDED if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingDependencyError(
            f"reading lazily needs {', '.join(missing)}: pip install 'lindi_bridge[lazy]' brings all that it needs"
        )
    from anndata.experimental import read_lazy

    group = open_group(name, stacklevel=stacklevel + 1, **options)
    try:
        return read_lazy(group, load_annotation_index=load_annotation_index)
    except BaseException as error:
        address = hdf5_object(group)._file_object.address
        group.store.close()
        is_ours = isinstance(error, LindiBridgeError) or not isinstance(error, Exception)
        if "encoding-type" not in group.attrs and not is_ours:
            raise ElementError(
                f"{address}: not an AnnData file, or one written by anndata 0.7 or older, which anndata does not read "
                f"lazily ({error}); use lindi_bridge.read_h5ad"
            ) from error
        raise
