"""How a dataset lies in the file in memory: contiguous, compact or chunked; filters, fill value, maximal shape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from h5py import h5p, h5s, h5z

from lindi_bridge.client.codecs import Filter
from lindi_bridge.client.written_fill import fill_value_of
from lindi_bridge.client.written_types import plain_dtype
from lindi_bridge.document.problems import MalformedError
from lindi_bridge.model.nodes import ArrayNode

__all__ = ["Layout", "choose_layout", "set_filters"]

_COMPACT_LIMIT = 65_000
_BLOSC, _BITSHUFFLE = 32001, 32008

WrittenFilter = tuple[int, tuple[int, ...], int | None]


@dataclass(frozen=True)
class Layout:
    """Creation properties of a dataset.

    Parameters
    ----------
    chunks : tuple of int, optional
        Chunk shape; None for contiguous and compact datasets.
    maxshape : tuple of int, optional
        Maximal shape.
    compact : bool
        The values lie in the object header.
    filters : sequence of (int, tuple of int, int or None)
        Number, client values, and flags where they are known.
    fill_value : numpy array, optional
        Of one element.
    never_filled : bool
        What was never written is zeros, whatever the fill value is.
    attribute_order : int
        Flags of the order of attributes.
    """

    chunks: tuple[int, ...] | None = None
    maxshape: tuple[int, ...] | None = None
    compact: bool = False
    filters: tuple[WrittenFilter, ...] = ()
    fill_value: np.ndarray[Any, Any] | None = None
    never_filled: bool = False
    attribute_order: int = 0

    def with_filters(self, filters: Sequence[Filter]) -> Layout:
        """The same with other filters."""
        return replace(self, filters=tuple((number, values, None) for number, values in filters))


def choose_layout(
    node: ArrayNode, annotation: Mapping[str, Any], dtype: np.dtype[Any], shape: tuple[int, ...] | None
) -> Layout:
    """The layout that the annotation says, or the one that fits the references.

    Raises
    ------
    MalformedError
        The annotation contradicts the array.
    """
    maxshape = _maxshape(annotation.get("maxshape"), shape)
    fill = fill_value_of(node, dtype)
    filters = _annotated_filters(annotation.get("filters", []))
    order = annotation.get("attribute_order", 0)
    common = Layout(
        maxshape=maxshape,
        fill_value=fill,
        never_filled=_is_never_filled(node, annotation, fill),
        attribute_order=order if type(order) is int else 0,
    )
    kind = annotation.get("layout")
    if shape is None or shape == ():
        return replace(common, compact=kind == "compact" and shape == ())
    chunks = annotation.get("chunks")
    if chunks is not None:
        chunks = _chunks(chunks, shape)
        if node.table is not None and len(node.table) and chunks != node.chunks:
            raise MalformedError(f"its annotation says chunks of {chunks}, .zarray {node.chunks}")
        return replace(common, chunks=chunks, filters=filters)
    if kind == "compact" and node.table is None and math.prod(shape) * dtype.itemsize <= _COMPACT_LIMIT:
        return replace(common, compact=True)
    if kind in ("contiguous", "compact") or "maxshape" not in annotation:
        if _is_contiguous(node, dtype, kind is not None):
            return common
        if kind is not None:
            raise MalformedError("its annotation says that it is contiguous, but its references are not")
    chunks = tuple(max(1, n) for n in node.chunks)
    if maxshape is None and any(chunk > length for chunk, length in zip(chunks, shape, strict=True)):
        # HDF5 has chunks larger than the array only where the array may grow.
        maxshape = tuple(max(chunk, length) for chunk, length in zip(chunks, shape, strict=True))
    return replace(common, chunks=chunks, maxshape=maxshape)


def _is_never_filled(node: ArrayNode, annotation: Mapping[str, Any], fill: np.ndarray[Any, Any] | None) -> bool:
    """Whether what was never written is zeros; not where the fill value has been edited since."""
    return annotation.get("fill_time") == "never" and (fill is None or node.fill_value == annotation.get("fill_value"))


def _is_contiguous(node: ArrayNode, dtype: np.dtype[Any], said: bool) -> bool:
    """Whether the chunks are pieces of one block: whole rows, without filters, none missing.

    Without an annotation they have to be consecutive in one file: then they are a contiguous dataset that was cut.
    """
    table = node.table
    if table is None or not len(table):
        return said or node.chunks == node.shape or 0 in node.shape
    if node.filters or node.chunks[1:] != node.shape[1:] or 0 in node.shape:
        return False
    count = -(-node.shape[0] // node.chunks[0]) if node.shape else 1
    if len(table) + len(node.inline) != count:
        return False
    itemsize = np.dtype(plain_dtype(node.dtype)).itemsize
    row = math.prod(node.shape[1:]) * itemsize
    rows = node.chunks[0] if node.shape else 1
    length = node.shape[0] if node.shape else 1
    needed = np.minimum(rows, length - table.index * rows) * row
    if (table.nbytes < needed).any():
        raise MalformedError(f"a reference of {int(table.nbytes.min())} bytes is shorter than its part of the array")
    if (table.nbytes > rows * row).any():
        return False
    return said or (
        table.source is None and not node.inline and bool((np.diff(table.offset) == table.nbytes[:-1]).all())
    )


def _maxshape(maxshape: Any, shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if maxshape is None or not shape:
        return None
    if not isinstance(maxshape, list) or len(maxshape) != len(shape):
        raise MalformedError("its annotation has a maxshape of another rank")
    if not all(n is None or (type(n) is int and n >= m) for n, m in zip(maxshape, shape, strict=True)):
        raise MalformedError("its annotation has a maxshape smaller than the array")
    return tuple(h5s.UNLIMITED if n is None else n for n in maxshape)


def _chunks(chunks: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    if (
        not isinstance(chunks, list)
        or len(chunks) != len(shape)
        or not all(type(n) is int and 0 < n < 1 << 32 for n in chunks)
    ):
        raise MalformedError("its annotation has impossible chunks")
    return tuple(chunks)


def _annotated_filters(filters: Any) -> tuple[WrittenFilter, ...]:
    out = []
    try:
        for number, values, *flags in filters:
            if type(number) is not int or not 0 < number < 65536 or not all(0 <= v < 1 << 32 for v in values):
                raise MalformedError("its annotation has impossible filters")
            out.append((number, tuple(values), flags[0] if flags else None))
    except (TypeError, ValueError):
        raise MalformedError("its annotation has impossible filters") from None
    if len(out) > 32:
        raise MalformedError("its annotation has too many filters")
    return tuple(out)


def set_filters(create: h5p.PropDCID, filters: Sequence[WrittenFilter]) -> None:
    """Put filters into a creation property list.

    They are optional where nothing else is known or a plug-in is missing, so that a missing one fails at read only.
    Some filters complete their values when a dataset is created; those get the part that a user would give.
    """
    for number, values, flags in filters:
        available = h5z.filter_avail(number)
        optional = h5z.FLAG_OPTIONAL if flags is None or not available else flags
        if number == h5z.FILTER_DEFLATE:
            create.set_deflate(values[0] if values and values[0] <= 9 else 4)
        elif number == h5z.FILTER_SHUFFLE:
            create.set_shuffle()
        elif number == h5z.FILTER_FLETCHER32:
            create.set_fletcher32()
        elif number == h5z.FILTER_SCALEOFFSET and len(values) >= 2:
            create.set_scaleoffset(*values[:2])
        elif number == h5z.FILTER_SZIP and available and len(values) >= 2:
            create.set_szip(values[0] & 0b100100, values[1])
        elif number in (h5z.FILTER_NBIT, h5z.FILTER_LZF):
            create.set_filter(number, optional, ())
        elif number == _BITSHUFFLE and available:
            create.set_filter(number, optional, values[3:])
        else:
            create.set_filter(number, optional, values)
