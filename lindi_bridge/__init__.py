"""Remote HDF5 files as a small JSON document, opened as if they were local.

>>> import lindi_bridge as lb
>>> lb.index("https://host/atlas.h5ad").save("atlas.lindi.json")  # doctest: +SKIP
>>> f = lb.open("atlas.lindi.json")                               # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lindi_bridge.api import Index, hdf5_file, index, open, prefetch
    from lindi_bridge.client.file import Dataset, Datatype, File, Group, plain
    from lindi_bridge.errors import (
        DocumentError,
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
    from lindi_bridge.model.nodes import Problem

__version__ = "0.1.0"

_HOMES = {
    "lindi_bridge.api": ("Index", "hdf5_file", "index", "open", "prefetch"),
    "lindi_bridge.client.file": ("Dataset", "Datatype", "File", "Group", "plain"),
    "lindi_bridge.errors": (
        "DocumentError",
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
    "lindi_bridge.model.nodes": ("Problem",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Dataset",
    "Datatype",
    "DocumentError",
    "File",
    "Group",
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
    "hdf5_file",
    "index",
    "open",
    "plain",
    "prefetch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'lindi_bridge' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
