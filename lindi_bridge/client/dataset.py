"""Dataset: h5py's own class, fetching ahead of every read in one wave, in slabs where that is too much at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import h5py
import numpy as np

from lindi_bridge.client.companions import open_companion
from lindi_bridge.client.dimensions import DimensionManager
from lindi_bridge.client.elsewhere import read_from_companions
from lindi_bridge.client.linked import linked_dataset
from lindi_bridge.client.mount import AccessOptions
from lindi_bridge.client.near import NearChunks
from lindi_bridge.client.pairing import Pair, pair_of
from lindi_bridge.client.plan import ReadPlan, read_plan
from lindi_bridge.client.readahead import Stream, stream_of
from lindi_bridge.client.selection import box_of
from lindi_bridge.client.slabs import LARGE, ReadInto, read_in_slabs
from lindi_bridge.client.unfiltered import Beside, UnfilteredValues, unfiltered_values
from lindi_bridge.client.wrapping import (
    Wrapped,
    open_companion_file,
    our_class,
    register,
    register_unknown_extent,
    wrap,
)
from lindi_bridge.errors import LeavesFileError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.ranges import ByteRange, RangeReader, h5py_lock_is_held, open_reader

__all__ = ["Dataset"]

_ITERATION_NBYTES = 4 * 1024 * 1024


class _Reading(NamedTuple):
    """What is known of how one dataset is read."""

    plan: ReadPlan
    near: NearChunks
    unfiltered: UnfilteredValues | None
    stream: Stream
    pair: Pair | None

    def follow(self, args: Any, dataset: Dataset, file: HDF5File) -> Beside:
        """Have fetched ahead what comes after a selection, unless the file is on this machine.

        Returns
        -------
        callable
            Tells what is to be fetched along with the selection, if something of it has to be fetched.
        """
        if file.is_local:
            return _nothing
        box = box_of(args, self.plan.shape)
        if not box or args == ():  # () asks for all at once
            return _nothing
        self.stream.follow(box, dataset, file)
        if self.pair is None:
            return _nothing
        self.pair.note(self.plan, box, dataset, file)
        return partial(self.pair.beside, self.plan, box, file)

    def past_libhdf5(self, file: HDF5File) -> ReadInto | None:
        """What reads a selection into an array past libhdf5, if anything does."""
        unfiltered = self.unfiltered
        return None if unfiltered is None else lambda out, args: unfiltered.read_direct(out, args, file, _nothing)


def _nothing() -> list[ByteRange]:
    return []


class Dataset(Wrapped, h5py.Dataset):  # type: ignore[misc]
    """A dataset; see :class:`h5py.Dataset`. Reads fetch what they need in one wave."""

    def __getitem__(self, args: Any, new_dtype: Any = None) -> Any:
        if not self:
            return self._read(args, new_dtype)  # closed: h5py says so
        reading = self._reading
        plan, near, unfiltered = reading.plan, reading.near, reading.unfiltered
        if plan.leaves_file:
            return self._read_elsewhere(plan, args, new_dtype, lambda copy, args: copy.__getitem__(args, new_dtype))
        beside = reading.follow(args, self, self._file_object)
        if unfiltered is not None and new_dtype is None:
            values = unfiltered.read(args, self._file_object, beside)
            if values is not None:
                return values
        if near.are_held(args):
            return self._read(args, new_dtype)
        whole = self._fetch(plan, args, beside)
        if whole is not None:
            out = read_in_slabs(
                self,
                plan,
                self._file_object,
                args,
                nbytes=whole,
                new_dtype=new_dtype,
                past_libhdf5=reading.past_libhdf5(self._file_object),
            )
            if out is not None:
                return out
        return self._read(args, new_dtype)

    def _read_elsewhere(
        self, plan: ReadPlan, args: Any, new_dtype: Any, read: Callable[[h5py.Dataset, Any], Any]
    ) -> Any:
        if plan.linked:
            return read(linked_dataset(self, self._file_object, our_class(h5py.File)), args)
        dtype = self.dtype if new_dtype is None else np.dtype(new_dtype)
        return read_from_companions(self, args, dtype, read, self._companion_file, self._companion_bytes)

    def _read(self, args: Any, new_dtype: Any) -> Any:
        if new_dtype is None:
            return super().__getitem__(args)
        return super().__getitem__(args, new_dtype=new_dtype)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        if copy is False or not self or self._is_empty:
            return super().__array__(dtype, copy=copy)  # type: ignore[no-any-return]
        # As h5py's, but not under its lock, where nothing could be fetched ahead.
        out = np.zeros(self.shape, self.dtype if dtype is None else dtype)
        if self.size:
            self.read_direct(out)
        return out

    def read_direct(self, dest: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Read into an existing array; see :meth:`h5py.Dataset.read_direct`."""
        if not self:
            super().read_direct(dest, source_sel, dest_sel)
            return
        reading = self._reading
        plan, unfiltered = reading.plan, reading.unfiltered
        selection = () if source_sel is None else source_sel
        if plan.linked:
            linked_dataset(self, self._file_object, our_class(h5py.File)).read_direct(dest, source_sel, dest_sel)
            return
        if plan.leaves_file:
            self._read_elsewhere(plan, selection, dest.dtype, lambda copy, args: copy.read_direct(dest, args, dest_sel))
            return
        file = self._file_object
        beside = reading.follow(selection, self, file)
        if unfiltered is not None and dest_sel is None and unfiltered.read_direct(dest, selection, file, beside):
            return
        whole = self._fetch(plan, selection, beside)
        if (
            whole is not None
            and dest_sel is None
            and isinstance(dest, np.ndarray)
            and read_in_slabs(
                self,
                plan,
                file,
                selection,
                nbytes=whole,
                out=dest,
                past_libhdf5=reading.past_libhdf5(file),
            )
            is not None
        ):
            return
        super().read_direct(dest, source_sel, dest_sel)

    def __iter__(self) -> Iterator[Any]:
        shape = self.shape
        if not shape:
            raise TypeError("Can't iterate over a scalar dataset")
        row_nbytes = self.nbytes // max(1, shape[0]) or 1
        step = max(1, _ITERATION_NBYTES // row_nbytes)
        for first in range(0, shape[0], step):
            self._fetch(self._reading.plan, slice(first, first + step))
            for row in range(first, min(first + step, shape[0])):
                yield self[row]

    @property
    def dims(self) -> DimensionManager:
        """Dimension scales attached to this dataset."""
        return DimensionManager(self, lambda scale: wrap(scale, self._file_object))

    @property
    def _reading(self) -> _Reading:
        reading: _Reading | None = self.__dict__.get("_known_reading")
        if reading is None:
            file = self._file_object
            plan = read_plan(self.id, file)
            # Kept at once and whole: other threads may read, and ctrl-C may come at any moment.
            reading = _Reading(
                plan,
                NearChunks(plan, file),
                unfiltered_values(self.id, plan),
                stream_of(plan, file),
                pair_of(self, plan, file),
            )
            self.__dict__["_known_reading"] = reading
        return reading

    def _fetch(self, plan: ReadPlan, args: Any, beside: Beside = _nothing) -> int | None:
        """Fetch ahead what a selection needs; where that is better done in slabs, only say how many bytes it is."""
        if h5py_lock_is_held():
            return None
        ranges = plan.ranges(args)
        total = sum(r.length for r in ranges)
        if total > min(LARGE, self._file_object.cache_bytes // 2):
            return total
        wanted = [r for r in ranges if not (plan.is_decoded and self._file_object.is_straight(r))]
        self._file_object.ensure([*wanted, *beside()])
        return None

    def _companion_file(self, filename: str) -> Any:
        if filename == ".":
            return self.file
        return open_companion_file(self._file_object, str(self.name), filename)

    def _companion_bytes(self, filename: str) -> RangeReader:
        access: AccessOptions = self._file_object.properties["access"]
        return open_companion(  # type: ignore[no-any-return]
            self._file_object,
            str(self.name),
            filename,
            "bytes",
            lambda address: _opened(open_reader(address, access.for_companion().reader_options(address, None))),
        )


def _opened(reader: RangeReader) -> RangeReader:
    reader.identity()  # a file that is not there is said now, with the name of the object
    return reader


class UnknownExtentDataset(Dataset):
    """A virtual dataset whose very shape depends on other files, which libhdf5 would look for in this one.

    Everything that can be told without its shape works; the rest is refused.
    """

    _HARMLESS = frozenset(
        [
            "attrs",
            "dtype",
            "external",
            "file",
            "fillvalue",
            "id",
            "is_virtual",
            "name",
            "parent",
            "ref",
            "virtual_sources",
        ]
    )

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in UnknownExtentDataset._HARMLESS:
            return super().__getattribute__(name)
        raise LeavesFileError(
            f"{self._file_object.address}: {self.name} is a virtual dataset whose shape depends on other files "
            f"({', '.join(sorted({s.file_name for s in self.virtual_sources()}))}); open a local copy of all of them "
            "with h5py"
        )

    def __getitem__(self, args: Any, new_dtype: Any = None) -> Any:
        return self.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.shape

    def __iter__(self) -> Any:
        return iter(self.shape)

    def __len__(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"<HDF5 dataset {self.name!r}: shape depends on other files>"


register(h5py.Dataset, Dataset)
register_unknown_extent(UnknownExtentDataset)
