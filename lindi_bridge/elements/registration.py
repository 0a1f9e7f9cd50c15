"""What anndata is told of our classes, so that ``anndata.io.read_elem(f["obs"])`` works on them.

anndata looks readers up by the exact type of an object and knows no subclasses. There is no public way to add types;
its own entries are copied here where the registry has the layout of anndata 0.12 and 0.13, and left alone where it has
not. Nothing but that convenience depends on it: :func:`~lindi_bridge.elements.elem.read_elem` hands anndata h5py's own
types.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from lindi_bridge.client.file import Dataset, File, Group
from lindi_bridge.client.prefetch import prefetch
from lindi_bridge.client.wrapping import is_ours, when_imported
from lindi_bridge.elements.sparse import fetch_slices, sparse_columns, sparse_rows

__all__ = ["register_types"]

_logger = logging.getLogger(__name__)

_OURS = {h5py.File: File, h5py.Group: Group, h5py.Dataset: Dataset}


def register_types() -> None:
    """Let anndata read elements of our classes with its own readers, and write what it was given of them."""
    try:
        from anndata._io.specs.registry import _REGISTRY

        readers, partial_readers = _REGISTRY.read, _REGISTRY.read_partial
        writers, specs = _REGISTRY.write, _REGISTRY.write_specs
    except (ImportError, AttributeError) as error:
        _logger.info("this version of anndata cannot be told of new types (%s); use lindi_bridge.read_elem", error)
        return
    for (kind, *rest), reader in list(readers.items()):
        if kind in _OURS:
            readers.setdefault((_OURS[kind], *rest), _fetching_ahead(reader))
        if kind is h5py.Group:
            readers.setdefault((File, *rest), _fetching_ahead(reader))
    for (kind, *rest), reader in list(partial_readers.items()):
        if kind in _OURS:
            partial_readers.setdefault((_OURS[kind], *rest), reader)
    for (destination, source, *rest), writer in list(writers.items()):
        writers.setdefault((destination, _our_source(source), *rest), writer)
    for source, spec in list(specs.items()):
        specs.setdefault(_our_source(source), spec)


def _our_source(source: Any) -> Any:
    """The key of what is written: a class, or a tuple that begins with one."""
    if isinstance(source, tuple):
        return tuple(_our_source(part) for part in source)
    return _OURS.get(source, source) if isinstance(source, type) else source


def _fetching_ahead(reader: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reader)
    def read(elem: Any, *args: Any, **options: Any) -> Any:
        prefetch([elem])
        return reader(elem, *args, **options)

    return read


def _fetch_before_subsetting() -> None:
    """Have the rows of a view of a backed object fetched together, which anndata reads one after the other."""
    try:
        from anndata._core.index import _subset
        from anndata._core.sparse_dataset import _CSCDataset, _CSRDataset

        known = {cls: _subset.dispatch(cls) for cls in (_CSRDataset, _CSCDataset)}
    except (ImportError, AttributeError) as error:
        _logger.info("with this version of anndata, rows are fetched one by one (%s); use lindi_bridge.prefetch", error)
        return
    for cls, subset in known.items():
        _subset.register(cls, _fetching_slices(subset))


def _fetching_slices(subset: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(subset)
    def read(matrix: Any, index: Any) -> Any:
        place = 0 if matrix.format == "csr" else 1
        numbers: Any = index[place] if isinstance(index, tuple) and len(index) == 2 else None
        if not is_ours(matrix.group) or not (isinstance(numbers, slice) or np.ndim(numbers) == 1):
            return subset(matrix, index)
        _, is_complete = fetch_slices(matrix, numbers)
        if is_complete or isinstance(numbers, slice):
            return subset(matrix, index)
        # More single rows than the cache holds: read here, in pieces.
        rows = (sparse_rows if place == 0 else sparse_columns)(matrix, numbers)
        everything = slice(None)
        return type(subset(matrix, (slice(0), slice(0))))(
            rows[(everything, index[1]) if place == 0 else (index[0], everything)]
        )

    return read


def _tell_anndata() -> None:
    register_types()
    _fetch_before_subsetting()


when_imported("anndata", _tell_anndata)
