"""How each array of a document is written: decided from its metadata, its annotation and its chunks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
from h5py import h5t

from lindi_bridge.client.codecs import MOST_DECODED, as_filters, skipped_filters, unknown_codec
from lindi_bridge.client.written_datasets import PlannedDataset
from lindi_bridge.client.written_layout import choose_layout
from lindi_bridge.client.written_objects import (
    as_strings,
    is_object,
    is_opaque_record,
    is_unicode,
    object_dtype,
    object_refusal,
    opaque_record,
)
from lindi_bridge.client.written_types import described_dtype, plain_dtype, stored_type
from lindi_bridge.document.problems import MalformedError
from lindi_bridge.indexer.dtypes import stored_dtype
from lindi_bridge.indexer.zarr_types import element_dtype, zarr_type
from lindi_bridge.model.chunks import ChunkTable
from lindi_bridge.model.nodes import ArrayNode

__all__ = ["plan_dataset"]

_FETCHED_WHOLE = 16 * 1024 * 1024
_MOST_FILLED = 1 << 20
_MOST_BYTES = 1 << 56
"""Of address space for one dataset."""


def plan_dataset(path: str, node: ArrayNode, annotation: Mapping[str, Any]) -> PlannedDataset:
    """Decide how an array is written.

    Parameters
    ----------
    path : str
        Of the array.
    node : ArrayNode
        The array.
    annotation : mapping
        What the document says of it besides.

    Raises
    ------
    MalformedError
        Its metadata, its annotation and its chunks contradict each other.
    """
    scalar = node.attributes.get("_SCALAR") is True
    if scalar and math.prod(node.shape) != 1:
        raise MalformedError("_SCALAR, but not of one element")
    shape = None if annotation.get("shape", ()) is None else () if scalar else node.shape
    if shape is None and (node.shape != (0,) or node.table is not None or node.inline):
        raise MalformedError("its annotation says that it is empty, but .zarray and its chunks do not")
    refusal = node.refusal
    if is_unicode(node.dtype):
        node, dtype = as_strings(node), h5py.string_dtype()
    elif isinstance(node.dtype, list) and is_opaque_record(node.dtype):
        dtype = opaque_record(node.dtype)
        node = replace(node, dtype="|O", fill_value=None)
        refusal = refusal or "records with objects or UTF-32 text, whose bytes say nothing in HDF5"
    elif "dtype" in annotation:
        dtype = described_dtype(annotation["dtype"])
    elif is_object(node):
        dtype, unknown = object_dtype(node)
        refusal = refusal or unknown
    else:
        dtype = plain_dtype(node.dtype)
    type_id = stored_type(annotation, dtype)
    if not is_object(node):
        if not _is_type(type_id, node.dtype, "dtype" in annotation or "type" in annotation) or dtype.hasobject:
            raise MalformedError(f"its annotation says {dtype}, but .zarray {node.dtype}")
    elif node.external is None and refusal is None:
        refusal = object_refusal(node)
    if is_object(node) and refusal is not None:
        node = replace(node, table=None, inline={})  # they say nothing of how it would lie in a file
    layout = choose_layout(node, annotation, dtype, shape)
    planned = PlannedDataset(path, node, dtype, type_id, shape, layout, refusal=refusal, nan=annotation.get("nan"))
    if math.prod(max(1, n) for n in node.shape) * type_id.get_size() > _MOST_BYTES:
        raise MalformedError("it is impossibly large")
    if node.external is not None:
        planned.refusal = (
            f"{path}: its values are not in the document, which names {node.external} of the HDF5 file they lie in; "
            "open the document with lindi_bridge.open"
        )
    elif not is_object(node) and refusal is None:
        _plan_plain(planned)
    if planned.refusal is not None:
        planned.layout = layout = replace(planned.layout, compact=False)
    if planned.refusal is not None and dtype.hasobject and math.prod(node.shape) > _MOST_FILLED and shape:
        # Not filled by HDF5 at once, as a contiguous dataset would be.
        planned.layout = replace(layout, chunks=layout.chunks or (1,) * len(shape), compact=False)
    if planned.refusal is not None and node.external is None:
        planned.refusal = f"{path}: its values cannot be had: {planned.refusal}"
    return planned


def _plan_plain(planned: PlannedDataset) -> None:
    """How chunks of plain bytes get into the file."""
    node, layout = planned.node, planned.layout
    unknown = unknown_codec(node.filters) if node.inline else None
    if unknown is not None:
        planned.refusal = f"its text has the codec {unknown!r}, which is not one that this package decodes"
        return
    raw = planned.chunk_nbytes * len(node.inline)
    if raw > MOST_DECODED:
        raise MalformedError(f"its text stands for {raw} bytes, which are too many")
    table = node.table
    if table is None or not len(table):
        return
    if layout.chunks is None:
        if planned.shape == ():
            _plan_scalar(planned, table)
        return  # the pieces of others were checked when the layout was chosen
    pipeline, itemsize = layout.filters, int(planned.type_id.get_size())
    mask = skipped_filters([(f[0], f[1]) for f in pipeline], node.filters, itemsize) if pipeline else None
    if mask is None:
        found = as_filters(node.filters, itemsize)
        if isinstance(found, str):
            _plan_decoding(planned, found)
            return
        planned.layout = layout = layout.with_filters(found)
        mask = 0
    planned.mask = mask
    if not planned.shrinks:
        _check_unfiltered(planned, planned.full_nbytes)
    if int(table.nbytes.max()) >= 1 << 32 or planned.chunk_nbytes >= 1 << 32:
        planned.refusal = "a chunk of 4 GiB or more, which HDF5 does not have"


def _plan_scalar(planned: PlannedDataset, table: ChunkTable) -> None:
    """The one chunk of a dataset without axes, which HDF5 has as plain bytes only."""
    if planned.node.filters:
        codec = str(planned.node.filters[-1]["id"])[:50]
        planned.refusal = f"a single value with the codec {codec!r} in another file; HDF5 has no filters of such"
    elif int(table.nbytes[0]) not in (planned.chunk_nbytes, planned.type_id.get_size()):
        raise MalformedError(f"a chunk without filters has {int(table.nbytes[0])} bytes, not {planned.chunk_nbytes}")


def _plan_decoding(planned: PlannedDataset, codec: str) -> None:
    """Chunks that no HDF5 filter can decode are fetched and decoded when the dataset is opened, if they are few."""
    node = planned.node
    assert node.table is not None
    stored = int(node.table.nbytes.sum())
    decoded = planned.chunk_nbytes * len(node.table)
    planned.layout = planned.layout.with_filters([])
    if stored <= _FETCHED_WHOLE and decoded <= MOST_DECODED:
        planned.decode = True
    else:
        planned.refusal = f"its codec {codec!r} is none of HDF5's filters, and {decoded} bytes are too many to copy"


def _check_unfiltered(planned: PlannedDataset, full: int) -> None:
    """Chunks as they are must be whole; a last one that ends where the array ends is made whole with zeros."""
    table = planned.node.table
    assert table is not None
    if (table.nbytes > full).any():
        raise MalformedError(f"a chunk without filters has {int(table.nbytes.max())} bytes, not {full}")
    short = np.flatnonzero(table.nbytes < full)
    if not len(short):
        return
    node = planned.node
    rows_left = node.shape[0] - table.coordinates()[short, 0] * node.chunks[0] if node.shape else np.zeros(1)
    row = math.prod(node.chunks[1:]) * planned.type_id.get_size()
    if planned.layout.filters or not all(
        left < node.chunks[0] and nbytes == left * row
        for left, nbytes in zip(rows_left.tolist(), table.nbytes[short].tolist(), strict=True)
    ):
        raise MalformedError(f"a chunk without filters has {int(table.nbytes[short].min())} bytes, not {full}")


def _is_type(type_id: h5t.TypeID, dtype: Any, is_annotated: bool) -> bool:
    """Whether the bytes of an array of ``dtype``, as ``.zarray`` has it, are those of elements of a stored type."""
    plain = np.dtype(plain_dtype(dtype))
    if plain.itemsize != type_id.get_size():
        return False
    # Opaque bytes are what elements become that Zarr has no type for; see client.restore.
    if not is_annotated or (plain.kind == "V" and plain.names is None):
        return True
    found = (of_type(type_id) for of_type in (stored_dtype, element_dtype))
    return any(known is not None and plain_dtype(zarr_type(known)) == plain for known in found)
