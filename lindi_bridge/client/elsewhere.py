"""Values that lie in other files: virtual datasets and external raw storage, put together piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
from h5py import h5f, h5r, h5s, h5t
from h5py._hl.selections import guess_shape

from lindi_bridge.client.companions import MissingCompanionError
from lindi_bridge.client.selection import select_axes
from lindi_bridge.errors import LeavesFileError
from lindi_bridge.hdf5.heaps import stored_layout
from lindi_bridge.ranges import ByteRange, RangeReader

__all__ = ["read_from_companions"]

_MOST_BYTES = 1 << 30


def read_from_companions(
    dataset: h5py.Dataset,
    args: Any,
    new_dtype: Any,
    open_file: Callable[[str], Any],
    open_bytes: Callable[[str], RangeReader],
) -> Any:
    """``dataset[args]`` of a dataset whose values lie in other files.

    The box around the selection is put together in a dataset in memory, from which h5py then reads the selection.

    Parameters
    ----------
    dataset : h5py.Dataset
        The virtual dataset, or the one with external storage.
    args, new_dtype
        As for ``Dataset.__getitem__``.
    open_file : callable
        Opens a companion HDF5 file by the name that the dataset has for it; ``"."`` is the file itself.
    open_bytes : callable
        Opens a companion raw file as a reader.
    """
    shape = dataset.shape
    region = _region(dataset, args)
    axes = select_axes(args, shape) if shape and region is None else [] if not shape else None
    box = [range(a.first, a.last + 1) for a in axes] if axes is not None else [range(n) for n in shape]
    nbytes = int(np.prod([len(r) for r in box], dtype=np.float64)) * dataset.dtype.itemsize
    if nbytes > _MOST_BYTES:
        raise LeavesFileError(
            f"{dataset.name}: the selection covers {nbytes} bytes in other files; read at most {_MOST_BYTES} at once"
        )
    read = _read_virtual if dataset.is_virtual else _read_external_storage
    values = None if 0 in shape else read(dataset, box, open_file, open_bytes)
    with h5py.File("values from companion files", "w", driver="core", backing_store=False) as memory:
        copy = memory.create_dataset(
            "values",
            shape=shape,
            dtype=dataset.dtype,
            chunks=tuple(max(1, len(r)) for r in box) if shape and 0 not in shape else None,
            fillvalue=None if dataset.dtype.kind == "O" else dataset.fillvalue,
        )
        if values is not None:
            copy[tuple(slice(r.start, r.stop) for r in box)] = values
        if region is not None:
            return _read_region(copy, region, new_dtype)
        return copy[args] if new_dtype is None else copy.astype(new_dtype)[args]


def _region(dataset: h5py.Dataset, args: Any) -> h5s.SpaceID | None:
    """The selection of a region reference, if that is what ``args`` is."""
    item = args[0] if isinstance(args, tuple) and len(args) == 1 else args
    if not isinstance(item, h5py.RegionReference):
        return None
    if h5r.dereference(item, dataset.id) != dataset.id:
        raise ValueError("Region reference must point to this dataset")
    return h5r.get_region(item, dataset.id)


def _read_region(copy: h5py.Dataset, region: h5s.SpaceID, new_dtype: Any) -> Any:
    dtype = copy.dtype if new_dtype is None else np.dtype(new_dtype)
    shape = guess_shape(region)
    if shape is None:
        return h5py.Empty(dtype)
    out = np.zeros(shape, dtype)
    if out.size:
        copy.id.read(h5s.create_simple(shape), region, out, h5t.py_create(dtype))
    return out


# -- virtual datasets ---------------------------------------------------------------------------------------------


def _read_virtual(
    dataset: h5py.Dataset, box: list[range], open_file: Callable[[str], Any], open_bytes: Any
) -> np.ndarray[Any, Any]:
    out = np.full([len(r) for r in box], dataset.fillvalue, dataset.dtype)
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
            out[place] = _read_indices(obj, origin, dataset.dtype).reshape([len(k) for k in keep])
        else:  # the two sides have other shapes, and only their order in memory agrees
            values = _read_indices(obj, origin, dataset.dtype).reshape([len(t) for t in target])
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
    dataset: h5py.Dataset, box: list[range], open_file: Any, open_bytes: Callable[[str], RangeReader]
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
