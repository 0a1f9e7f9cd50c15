"""A whole AnnData object: in memory, or backed by the remote file, as :func:`anndata.read_h5ad` opens a local one."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import h5py

from lindi_bridge.client.file import File
from lindi_bridge.client.prefetch import contents, prefetch
from lindi_bridge.client.rebuild import complete
from lindi_bridge.elements.backing import keep_backing_file
from lindi_bridge.elements.elem import read_elem, require_anndata
from lindi_bridge.elements.encoding import encoding_of
from lindi_bridge.elements.registration import register_types
from lindi_bridge.errors import ElementError

__all__ = ["read_h5ad"]

_FRAMES = ("obs", "var")
_MAPPINGS = ("obsm", "varm", "obsp", "varp", "uns", "layers")
_ANNDATA_OPTIONS = ("as_sparse", "as_sparse_fmt", "chunk_size")


def read_h5ad(name: Any, backed: str | bool | None = None, **options: Any) -> Any:
    """Read an AnnData file, as :func:`anndata.read_h5ad` reads a local one.

    Parameters
    ----------
    name : str, os.PathLike, bytes, file object, Index, or File
        Path or URL of a document or of an .h5ad file, an index, or a file that is open already.
    backed : str, optional
        ``"r"``: ``X`` and ``raw.X`` stay where they are, and what is read of them is fetched; the file stays open until
        ``adata.file.close()``. All else is in memory, layers included. Otherwise everything is read into memory.
    **options
        As for :func:`lindi_bridge.open`; and, not backed, ``as_sparse``, ``as_sparse_fmt`` and ``chunk_size`` of
        :func:`anndata.read_h5ad`.

    Returns
    -------
    anndata.AnnData
        What anndata makes of the file.

    Raises
    ------
    ElementError
        Not an AnnData file.
    ValueError
        Another mode than ``"r"``.
    MissingDependencyError
        anndata is not installed.
    """
    require_anndata()
    if hasattr(name, "to_json"):
        name = name.to_json().encode("utf-8")
    if backed not in (None, False, "r"):
        raise ValueError(f"backed={backed!r}: files of lindi_bridge are read-only; use backed='r'")
    reading = {key: options.pop(key) for key in _ANNDATA_OPTIONS if key in options}
    if isinstance(name, File):
        return _read(name, bool(backed), reading, _reopening(name))
    file = File(name, **options)
    can_be_reopened = isinstance(name, (str, bytes, os.PathLike))
    try:
        adata = _read(file, bool(backed), reading, partial(File, name, **options) if can_be_reopened else None)
    except BaseException:
        file.close()
        raise
    if not backed:
        file.close()
    return adata


def _reopening(file: Any) -> Callable[[], Any] | None:
    """How to open a file again that somebody else opened."""
    properties = file._file_object.properties
    target = properties["reopen"]
    return None if target is None else partial(File, target, **vars(properties["access"]))


def _read(file: Any, backed: bool, reading: dict[str, Any], reopen: Callable[[], Any] | None) -> Any:
    missing = [name for name in _FRAMES if name not in file]
    if missing:
        raise ElementError(
            f"{file._file_object.address}: not an AnnData file: it has no {' and no '.join(missing)} at its root"
        )
    if reading and backed:
        raise ValueError(f"{', '.join(reading)}: only for reading into memory, without backed=")
    if backed:
        return _read_backed(file, reopen)
    if reading or _is_old(file):
        return _read_by_anndata(file, None, reading)
    prefetch([file])
    elements = {name: read_elem(file[name]) for name in file if name != "raw"}
    if "raw" in file:
        elements["raw"] = {name: read_elem(file["raw"][name]) for name in ("X", "var", "varm") if name in file["raw"]}
    import anndata

    return anndata.AnnData(**elements)


def _is_old(file: Any) -> bool:
    """Whether anndata has special cases for a file: those of 0.7 and older."""
    return (
        not encoding_of(file).type
        or any(isinstance(file[name], h5py.Dataset) for name in _FRAMES)
        or any(name.startswith("raw.") for name in file)
    )


def _read_by_anndata(file: Any, backed: str | None, reading: dict[str, Any]) -> Any:
    """Let anndata open the file object itself, after as much as possible was fetched."""
    import anndata

    objects = [file] if backed is None else [file[name] for name in file if name not in ("X", "raw.X", "raw")]
    if not contents([file]).is_self_contained:
        raise ElementError(
            f"{file._file_object.address}: a file of this kind (of anndata 0.7 or older, or read with as_sparse) that "
            "has links to other places is not supported; read its elements one by one with read_elem"
        )
    prefetch(objects)
    complete(file._file_object)  # anndata opens it with plain h5py
    return anndata.read_h5ad(file._file_object, backed=backed, **reading)


def _read_backed(file: Any, reopen: Callable[[], Any] | None) -> Any:
    import anndata

    register_types()
    elements: dict[str, Any] = {"filename": file}
    if _is_old(file):
        elements.update(_read_old_annotations(file))
    else:
        names = [name for name in (*_FRAMES, *_MAPPINGS) if name in file]
        raw = file.get("raw")
        raw_names = [name for name in ("var", "varm") if raw is not None and name in raw]
        prefetch([file[name] for name in names] + [raw[name] for name in raw_names])
        elements.update({name: read_elem(file[name]) for name in names})
        elements["raw"] = {name: read_elem(raw[name]) for name in raw_names}
    adata = anndata.AnnData(**elements)
    keep_backing_file(adata, reopen)
    return adata


def _read_old_annotations(file: Any) -> dict[str, Any]:
    """What anndata makes of all but the matrices of an old file; it has many special cases for these."""
    old = _read_by_anndata(file, "r", {})
    elements = {name: getattr(old, name) for name in _FRAMES}
    for name in _MAPPINGS:
        members = {
            key: value for key, value in getattr(old, name).items() if key is not None
        }  # None: X, in anndata 0.13
        if members:
            elements[name] = members
    elements["raw"] = {} if old.raw is None else {"var": old.raw.var, "varm": dict(old.raw.varm)}
    old.file.close()
    return elements
