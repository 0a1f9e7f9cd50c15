"""How each implementation indexes a file and opens the result: ``OPENERS[name](path)`` gives an h5py-like file.

Every adapter goes the whole way that a user's JSON goes: indexed, serialised, parsed, opened.
"""

from __future__ import annotations

import json
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np


class ZarrGroup:
    """The few methods of an h5py group that the comparison uses, over a Zarr group."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self.attrs = dict(group.attrs)
        self.name = f"/{group.path}"

    def keys(self) -> list[str]:
        """Names of the members."""
        return list(self._group.keys())

    def get(self, name: str, getlink: bool = False) -> Any:
        """A member; Zarr knows no links."""
        return None if getlink else self[name]

    def __getitem__(self, name: Any) -> Any:
        if not isinstance(name, str):
            raise KeyError(f"no object for {name!r}")
        member = self._group[name]
        return ZarrArray(member) if hasattr(member, "dtype") else ZarrGroup(member)


class ZarrArray:
    """The same for a Zarr array."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.attrs = dict(array.attrs)
        self.name = f"/{array.path}"
        self.shape, self.dtype, self.chunks = array.shape, array.dtype, array.chunks
        self.fillvalue = array.fill_value

    def __getitem__(self, selection: Any) -> Any:
        value = self._array[selection]
        return value[()] if self.shape == () and isinstance(value, np.ndarray) else value


def open_with_lindi(path: Path) -> tuple[Any, list[str]]:
    """LINDI's own index and client."""
    import lindi

    indexed = lindi.LindiH5pyFile.from_hdf5_file(str(path), url=str(path))
    document = json.loads(json.dumps(indexed.to_reference_file_system()))
    return lindi.LindiH5pyFile.from_reference_file_system(document), []


def open_with_kerchunk(path: Path) -> tuple[Any, list[str]]:
    """kerchunk's index, opened by zarr over fsspec's reference file system."""
    import fsspec
    import zarr
    from kerchunk.hdf import SingleHdf5ToZarr
    from zarr.storage import FsspecStore

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        indexer = SingleHdf5ToZarr(str(path))
        document = json.loads(json.dumps(indexer.translate()))
        indexer.close()
    warned = [str(warning.message) for warning in caught if "quashed" in str(warning.message)]
    files = fsspec.filesystem("reference", fo=document, remote_protocol="file", asynchronous=True)
    group = zarr.open_group(FsspecStore(files, read_only=True, path=""), mode="r", zarr_format=2)
    return ZarrGroup(group), warned


def open_with_virtualizarr(path: Path) -> tuple[Any, list[str]]:
    """VirtualiZarr's manifests, read by zarr through VirtualiZarr's own store: no JSON of its holds nested groups."""
    import zarr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store = HDFParser(links_and_references=True)(f"file://{path}", registry)
    group = zarr.open_group(store, mode="r", zarr_format=3)
    return ZarrGroup(group), [str(warning.message) for warning in caught]


def open_by_mount(path: Path) -> tuple[Any, list[str]]:
    """Our own index and client, as they come."""
    import lindi_bridge

    return lindi_bridge.open(_written(path)), []


def open_by_annotations(path: Path) -> tuple[Any, list[str]]:
    """Our own index and client, which leaves the embedded HDF5 metadata aside."""
    import lindi_bridge

    return lindi_bridge.open(_written(path), prefer="annotations"), []


def _written(path: Path) -> Path:
    from builders.documents import write_document

    return write_document(path)


OURS = {"mount": open_by_mount, "annotations": open_by_annotations}
OPENERS = {
    **OURS,
    "lindi": open_with_lindi,
    "kerchunk": open_with_kerchunk,
    "virtualizarr": open_with_virtualizarr,
}

_VERSIONS_OF = ("lindi", "kerchunk", "virtualizarr", "zarr", "h5py", "numpy")


def versions() -> dict[str, str]:
    """Versions of what takes part, as installed in this environment."""
    found = {}
    for package in _VERSIONS_OF:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
