"""Remote HDF5 files as a small JSON document, opened as if they were local.

>>> import lindi_bridge as lb
>>> lb.index("https://host/atlas.h5ad").save("atlas.lindi.json")  # doctest: +SKIP
>>> f = lb.open("atlas.lindi.json")                               # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lindi_bridge.api import Index, hdf5_file, index, open, open_zarr, prefetch, read_lazy
    from lindi_bridge.client.file import Dataset, Datatype, File, Group, plain
    from lindi_bridge.elements.elem import read_elem
    from lindi_bridge.elements.h5ad import read_h5ad
    from lindi_bridge.elements.sparse import WholeReadWarning, sparse_columns, sparse_rows
    from lindi_bridge.errors import (
        DocumentError,
        ElementError,
        IndexingError,
        LeavesFileError,
        LindiBridgeError,
        MissingDependencyError,
        NotHDF5Error,
        ReadOnlyError,
        SourceChangedError,
        SourceError,
        SourceLockError,
        SourceNotFoundError,
        SourcePermissionError,
        SourceProtocolError,
        SourceTimeoutError,
        UnsupportedSchemeError,
    )
    from lindi_bridge.inspection.answers import Difference
    from lindi_bridge.inspection.check import check
    from lindi_bridge.inspection.diff import diff
    from lindi_bridge.inspection.relocation import relocate
    from lindi_bridge.model.nodes import Problem
    from lindi_bridge.store.omissions import IncompleteWarning

__version__ = "0.1.0"

_HOMES = {
    "lindi_bridge.api": ("File", "Index", "hdf5_file", "index", "open", "open_zarr", "prefetch", "read_lazy"),
    "lindi_bridge.client.file": ("Dataset", "Datatype", "Group", "plain"),
    "lindi_bridge.elements.elem": ("read_elem",),
    "lindi_bridge.elements.h5ad": ("read_h5ad",),
    "lindi_bridge.elements.sparse": ("WholeReadWarning", "sparse_columns", "sparse_rows"),
    "lindi_bridge.errors": (
        "DocumentError",
        "ElementError",
        "IndexingError",
        "LeavesFileError",
        "LindiBridgeError",
        "MissingDependencyError",
        "NotHDF5Error",
        "ReadOnlyError",
        "SourceChangedError",
        "SourceError",
        "SourceLockError",
        "SourceNotFoundError",
        "SourcePermissionError",
        "SourceProtocolError",
        "SourceTimeoutError",
        "UnsupportedSchemeError",
    ),
    "lindi_bridge.inspection.answers": ("Difference",),
    "lindi_bridge.inspection.check": ("check",),
    "lindi_bridge.inspection.diff": ("diff",),
    "lindi_bridge.inspection.relocation": ("relocate",),
    "lindi_bridge.model.nodes": ("Problem",),
    "lindi_bridge.store.omissions": ("IncompleteWarning",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Dataset",
    "Datatype",
    "Difference",
    "DocumentError",
    "ElementError",
    "File",
    "Group",
    "IncompleteWarning",
    "Index",
    "IndexingError",
    "LeavesFileError",
    "LindiBridgeError",
    "MissingDependencyError",
    "NotHDF5Error",
    "Problem",
    "ReadOnlyError",
    "SourceChangedError",
    "SourceError",
    "SourceLockError",
    "SourceNotFoundError",
    "SourcePermissionError",
    "SourceProtocolError",
    "SourceTimeoutError",
    "UnsupportedSchemeError",
    "WholeReadWarning",
    "check",
    "diff",
    "hdf5_file",
    "index",
    "open",
    "open_zarr",
    "plain",
    "prefetch",
    "read_elem",
    "read_h5ad",
    "read_lazy",
    "relocate",
    "sparse_columns",
    "sparse_rows",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'lindi_bridge' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
