"""Values that lie in other files: virtual datasets and external raw storage, put together piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
from h5py import h5f, h5r, h5s, h5t
from h5py._hl.selections import select

from lindi_bridge.client.companions import MissingCompanionError
from lindi_bridge.errors import LeavesFileError
from lindi_bridge.hdf5.heaps import stored_layout
from lindi_bridge.ranges import ByteRange, RangeReader

__all__ = ["read_from_companions"]

_MOST_BYTES = 1 << 30


def read_from_companions(
    dataset: h5py.Dataset,
    args: Any,
    dtype: np.dtype[Any],
    read: Callable[[h5py.Dataset, Any], Any],
    open_file: Callable[[str], Any],
    open_bytes: Callable[[str], RangeReader],
) -> Any:
    """Read a selection of a dataset whose values lie in other files.

    The box around the selection is put together in a dataset in memory, from which h5py then reads the selection.

    Parameters
    ----------
    dataset : h5py.Dataset
        The virtual dataset, or the one with external storage.
    args : object
        The selection.
    dtype : numpy.dtype
        What the values are converted to in the end. libhdf5 converts those of a virtual dataset only once, from the
        type of their source.
    read : callable
        Is given the dataset in memory and the selection of it; its result is returned.
    open_file : callable
        Opens a companion HDF5 file by the name that the dataset has for it; ``"."`` is the file itself.
    open_bytes : callable
        Opens a companion raw file as a reader.
    """
    region = _region(dataset, args)
    box = _box(dataset, args) if region is None else _bounds(region)
    nbytes = int(np.prod([len(r) for r in box], dtype=np.float64)) * dataset.dtype.itemsize
    if nbytes > _MOST_BYTES:
        raise LeavesFileError(
            f"{dataset.name}: the selection covers {nbytes} bytes in other files; read at most {_MOST_BYTES} at once"
        )

    def read_copy(copy: h5py.Dataset) -> Any:
        return read(copy, args if region is None else h5r.create(copy.id, b".", h5r.DATASET_REGION, region))

    with h5py.File("values from companion files", "w", driver="core", backing_store=False) as memory:
        chunks = tuple(max(1, len(r)) for r in box) if box and 0 not in dataset.shape else None
        fill = None if dataset.dtype.kind == "O" else dataset.fillvalue
        blank = memory.create_dataset("fill values", dataset.shape, dataset.dtype, chunks=chunks, fillvalue=fill)
        is_converted = dataset.is_virtual and dtype != dataset.dtype
        if is_converted or not all(box):
            nothing = read_copy(blank)  # what the type cannot be converted to, h5py says
            if not all(box):
                return nothing
        copy = memory.create_dataset("values", dataset.shape, dtype if is_converted else dataset.dtype, chunks=chunks)
        place = tuple(slice(r.start, r.stop) for r in box)
        if dataset.is_virtual:
            fill_values = blank.astype(dtype)[place] if is_converted else None
            copy[place] = _read_virtual(dataset, box, dtype if is_converted else dataset.dtype, fill_values, open_file)
        else:
            copy[place] = _read_external_storage(dataset, box, open_bytes)
        return read_copy(copy)


def _region(dataset: h5py.Dataset, args: Any) -> h5s.SpaceID | None:
    """The selection of a region reference, if that is what ``args`` is."""
    item = args[0] if isinstance(args, tuple) and len(args) == 1 else args
    if not isinstance(item, h5py.RegionReference):
        return None
    if h5r.dereference(item, dataset.id) != dataset.id:
        raise ValueError("Region reference must point to this dataset")
    return h5r.get_region(item, dataset.id)


def _box(dataset: h5py.Dataset, args: Any) -> list[range]:
    """The indices along each axis around a selection. What is wrong with one, h5py says."""
    if not dataset.shape:
        return []
    items = args if isinstance(args, tuple) else (args,)
    if names := [item for item in items if isinstance(item, str)]:
        try:
            dataset.fields(names)
        except ValueError:  # there are none; whoever reads is told
            return [range(0)] * len(dataset.shape)
        items = tuple(item for item in items if not isinstance(item, str))
    if any(a is None for a in items):
        raise TypeError("Indexing with None (or np.newaxis) is not supported")
    return _bounds(select(dataset.shape, items, dataset).id)


def _bounds(space: h5s.SpaceID) -> list[range]:
    if not space.get_select_npoints():
        return [range(0)] * space.get_simple_extent_ndims()
    first, last = space.get_select_bounds()
    ends = space.get_simple_extent_dims()  # a list of indices may go beyond; reading it is an error
    return [range(start, min(stop + 1, end)) for start, stop, end in zip(first, last, ends, strict=True)]


# -- virtual datasets ---------------------------------------------------------------------------------------------


def _read_virtual(
    dataset: h5py.Dataset,
    box: list[range],
    dtype: np.dtype[Any],
    fill_values: np.ndarray[Any, Any] | None,
    open_file: Callable[[str], Any],
) -> np.ndarray[Any, Any]:
    out = np.full([len(r) for r in box], dataset.fillvalue, dtype) if fill_values is None else fill_values
    for source in dataset.virtual_sources():
        target = _axis_indices(source.vspace, dataset, dataset.shape)
        keep = [np.flatnonzero((t >= r.start) & (t < r.stop)) for t, r in zip(target, box, strict=True)]
        if any(len(k) == 0 for k in keep):
            continue
        obj = _source_dataset(dataset, open_file(source.file_name), source)
        origin = _axis_indices(source.src_space, dataset, obj.shape)
        if (
            len(origin) != obj.ndim
            or any(int(o.max()) >= n for o, n in zip(origin, obj.shape, strict=True))
            or _count(origin) != _count(target)
        ):
            raise LeavesFileError(
                f"{dataset.name}: its source {source.dset_name} in {source.file_name} has shape {obj.shape}, which "
                "does not fit the virtual dataset; open a local copy of all files with h5py"
            )
        place = np.ix_(*[t[k] - r.start for t, k, r in zip(target, keep, box, strict=True)])
        wide_target = [axis for axis, t in enumerate(target) if len(t) > 1]
        wide_origin = [axis for axis, s in enumerate(origin) if len(s) > 1]
        if [len(target[a]) for a in wide_target] == [len(origin[a]) for a in wide_origin]:
            for to, of in zip(wide_target, wide_origin, strict=True):
                origin[of] = origin[of][keep[to]]
            out[place] = _read_indices(obj, origin, dtype).reshape([len(k) for k in keep])
        else:  # the two sides have other shapes, and only their order in memory agrees
            values = _read_indices(obj, origin, dtype).reshape([len(t) for t in target])
            out[place] = values[np.ix_(*keep)]
    return out


def _source_dataset(dataset: h5py.Dataset, file: Any, source: Any) -> h5py.Dataset:
    try:
        obj = file[source.dset_name]
    except LeavesFileError:
        raise
    except KeyError as error:
        raise MissingCompanionError(
            f"{dataset.name}: its source {source.dset_name} is not in {source.file_name}: {error}"
        ) from None
    if not isinstance(obj, h5py.Dataset):
        raise LeavesFileError(f"{dataset.name}: its source {source.dset_name} in {source.file_name} does not fit")
    return obj


def _read_indices(obj: h5py.Dataset, indices: list[Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The outer product of indices along each axis, through the box around them."""
    corner = tuple(slice(int(i.min()), int(i.max()) + 1) for i in indices)
    values = obj[corner] if obj.dtype == dtype else obj.astype(dtype)[corner]
    return np.asarray(values)[np.ix_(*[i - i.min() for i in indices])] if indices else np.asarray(values)


def _count(indices: list[np.ndarray[Any, Any]]) -> int:
    return int(np.prod([len(i) for i in indices], dtype=np.int64))


def _axis_indices(space: h5s.SpaceID, dataset: h5py.Dataset, shape: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    """The indices that a mapping selects along each axis; ``shape`` is what it selects from."""
    kind = space.get_select_type()
    if kind == h5s.SEL_ALL:  # the space itself does not know the extent of the source
        return [np.arange(n) for n in shape]
    if kind == h5s.SEL_HYPERSLABS and space.is_regular_hyperslab():
        start, stride, count, block = space.get_regular_hyperslab()
        if h5s.UNLIMITED not in (*count, *block):
            return [
                (s + np.arange(c)[:, None] * st + np.arange(b)[None, :]).reshape(-1)
                for s, st, c, b in zip(start, stride, count, block, strict=True)
            ]
    raise LeavesFileError(
        f"{dataset.name}: a virtual dataset with unlimited or irregular mappings into other files; open a local copy "
        "of all its files with h5py"
    )


# -- external raw storage -----------------------------------------------------------------------------------------


def _read_external_storage(
    dataset: h5py.Dataset, box: list[range], open_bytes: Callable[[str], RangeReader]
) -> np.ndarray[Any, Any]:
    type_id, dtype, shape = dataset.id.get_type(), dataset.dtype, dataset.shape
    if stored_layout(type_id)[1] or type_id != h5t.py_create(dtype, logical=True):
        raise LeavesFileError(
            f"{dataset.name}: values of type {dtype} in external storage; open a local copy of all files with h5py"
        )
    row_nbytes = int(np.prod(shape[1:], dtype=np.int64)) * type_id.get_size()
    first, last = (box[0].start, box[0].stop) if box else (0, 1)
    data = _read_segments(dataset, first * row_nbytes, last * row_nbytes, open_bytes)
    values = np.frombuffer(data, dtype).reshape((last - first, *shape[1:]) if box else ())
    return values[(slice(None), *(slice(r.start, r.stop) for r in box[1:]))] if box else values


def _read_segments(dataset: h5py.Dataset, start: int, stop: int, open_bytes: Callable[[str], RangeReader]) -> bytes:
    """Bytes ``start`` to ``stop`` of the data, which lie in segments of files one after the other."""
    parts, position = [], 0
    for name, offset, size in dataset.external:
        end = stop if size in (h5f.UNLIMITED, h5s.UNLIMITED) else position + size
        low, high = max(start, position), min(stop, end)
        if low < high:
            parts.extend(open_bytes(name).read_ranges([ByteRange(offset + low - position, high - low)]))
        position = end
        if position >= stop:
            break
    data = b"".join(parts)
    if len(data) != stop - start:
        raise LeavesFileError(f"{dataset.name}: its external files are shorter than its data")
    return data
