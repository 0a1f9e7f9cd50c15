"""Chunk tables with libhdf5 as the authority.

The walk of the file's structures makes a table in numpy (:mod:`lindi_bridge.hdf5.chunk_tables`); it is taken if libhdf5
agrees about the number and the bytes of all chunks and, for array indexes of rank > 1, about where some of them are.
Otherwise libhdf5 lists the chunks itself.

``H5Dchunk_iter`` and ``H5Dget_chunk_info`` of libhdf5 1.14 and 2.0 return *wrong coordinates* for datasets with
an extensible array index (HDF5 File Format Specification 3.0, section VII.D) of rank > 1 whose unlimited dimension is
not the first. Which index a dataset has cannot be asked through h5py, so without a table from the walk every dataset of
that shape is checked against libhdf5's own look-up: a chunk is "read" by its coordinates while the file object only
records where libhdf5 goes (:meth:`HDF5File.probe`).
"""

from __future__ import annotations

import numpy as np
from h5py import h5d, h5i, h5s
from h5py._objects import phil

from lindi_bridge.hdf5.chunk_tables import WalkedTable
from lindi_bridge.hdf5.damage import refuse_source_error
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.messages import ChunkIndexKind
from lindi_bridge.model.chunks import ChunkTable, Int64Array, chunk_grid

__all__ = ["ChunkTableError", "read_chunk_table"]

_PROBE_LIMIT = 2_000_000
_SAMPLES = 4
_ARRAYS = (ChunkIndexKind.IMPLICIT, ChunkIndexKind.FIXED_ARRAY, ChunkIndexKind.EXTENSIBLE_ARRAY)
"""Indexes that do not store a chunk's coordinates but number the chunks."""


class ChunkTableError(ValueError):
    """libhdf5 cannot list the chunks of a dataset, or its answers about them contradict each other."""


def read_chunk_table(dataset: h5d.DatasetID, file: HDF5File, walked: WalkedTable | None = None) -> ChunkTable:
    """Read where the chunks of a chunked dataset lie.

    Parameters
    ----------
    dataset : h5py.h5d.DatasetID
        A dataset with chunked layout, open over ``file``.
    file : HDF5File
        The file object below it.
    walked : WalkedTable, optional
        The table that the walk made of this dataset.

    Returns
    -------
    ChunkTable
        Addresses are absolute, a user block included.

    Raises
    ------
    ChunkTableError
        The chunks cannot be told for certain.
    """
    try:
        if walked is not None and _is_confirmed(walked, dataset, file):
            return walked.table
        return _listed_table(dataset, file, walked)
    except (OSError, RuntimeError, ValueError, OverflowError) as error:
        if isinstance(error, ChunkTableError):
            raise
        refuse_source_error(error)
        raise ChunkTableError(f"libhdf5 cannot list the chunks: {error}") from error


def _is_confirmed(walked: WalkedTable, dataset: h5d.DatasetID, file: HDF5File) -> bool:
    """Whether libhdf5 agrees with a table from the walk, as far as it can be asked in little time."""
    table, chunks = walked.table, dataset.get_create_plist().get_chunk()
    if table.grid != chunk_grid(dataset.shape, chunks):
        return False
    if (dataset.get_num_chunks(), dataset.get_storage_size()) != (walked.listed_count, walked.listed_nbytes):
        return False
    if walked.kind not in _ARRAYS or len(chunks) == 1 or not len(table):
        return True
    rows = np.unique(np.linspace(0, len(table) - 1, _SAMPLES).astype(np.int64))
    sampled = np.stack(np.unravel_index(table.index[rows], table.grid), axis=1).astype(np.int64)
    return bool((_probe(dataset, file, sampled, chunks, table.offset[rows]) == table.offset[rows]).all())


def _listed_table(dataset: h5d.DatasetID, file: HDF5File, walked: WalkedTable | None) -> ChunkTable:
    """The table as libhdf5 lists it, looked up chunk by chunk where the listing is not to be trusted."""
    chunks = dataset.get_create_plist().get_chunk()
    grid = chunk_grid(dataset.shape, chunks)
    found: list[h5d.StoreInfo] = []
    with phil:
        dataset.chunk_iter(found.append)
    offset = np.array([c.byte_offset if c.byte_offset is not None else -1 for c in found], np.int64)
    nbytes = np.array([c.size for c in found], np.int64)
    mask = np.array([c.filter_mask for c in found], np.int64)
    coordinates = np.array([c.chunk_offset for c in found], np.int64).reshape(len(found), len(grid)) // np.array(chunks)
    has_array = walked is None or walked.kind == ChunkIndexKind.EXTENSIBLE_ARRAY
    if has_array and _may_be_misplaced(dataset):
        listed = _probe(dataset, file, coordinates, chunks, offset)
        if (listed != offset).any():
            return _probed_table(dataset, file, grid, chunks, offset, nbytes, mask)
    offset = offset + _shift(dataset, file, coordinates, chunks, offset)
    # Chunks that a dataset lost by shrinking may still be listed.
    inside = (coordinates < np.array(grid)).all(axis=1) & (offset >= 0)
    try:
        return ChunkTable.from_coordinates(grid, coordinates[inside], offset[inside], nbytes[inside], mask[inside])
    except ValueError as error:
        raise ChunkTableError(str(error)) from error


def _shift(
    dataset: h5d.DatasetID, file: HDF5File, coordinates: Int64Array, chunks: tuple[int, ...], offset: Int64Array
) -> int:
    """What is missing in listed addresses: the user block, which libhdf5 1.14.2 leaves out of them."""
    user_block = _user_block(dataset)
    if not user_block or not len(offset) or offset.max() < 0:
        return 0
    # The highest address cannot be mistaken for another chunk's: with the user block added it is nobody's.
    rows = np.array([int(offset.argmax())])
    known = np.concatenate([offset, offset + user_block])
    found = _probe(dataset, file, coordinates[rows], chunks, known)
    return user_block if found[0] >= 0 and found[0] not in offset else 0


def _user_block(dataset: h5d.DatasetID) -> int:
    return int(h5i.get_file_id(dataset).get_create_plist().get_userblock())


def _may_be_misplaced(dataset: h5d.DatasetID) -> bool:
    limits = dataset.get_space().get_simple_extent_dims(True)
    unlimited = [axis for axis, limit in enumerate(limits) if limit == h5s.UNLIMITED]
    return len(limits) > 1 and len(unlimited) == 1 and unlimited[0] != 0


def _probe(
    dataset: h5d.DatasetID, file: HDF5File, coordinates: Int64Array, chunks: tuple[int, ...], offset: Int64Array
) -> Int64Array:
    """Address of the chunk at each of (n, rank) grid coordinates by libhdf5's look-up; -1 where there is none."""
    out = np.full(len(coordinates), -1, np.int64)
    data = set(offset.tolist())
    with phil, file.probe(data) as recorder:
        for row, corner in enumerate((coordinates * np.array(chunks)).tolist()):
            recorder.clear()
            try:
                dataset.read_direct_chunk(tuple(corner))
            except (OSError, RuntimeError, ValueError, MemoryError, SystemError):
                continue  # h5py's ways to say that the chunk is not allocated
            if recorder and recorder[-1][0] in data:
                out[row] = recorder[-1][0]
    return out


def _probed_table(
    dataset: h5d.DatasetID,
    file: HDF5File,
    grid: tuple[int, ...],
    chunks: tuple[int, ...],
    offset: Int64Array,
    nbytes: Int64Array,
    mask: Int64Array,
) -> ChunkTable:
    """The table by looking up every chunk of the grid; sizes and masks by address from the listing."""
    count = int(np.prod(grid))
    if count > _PROBE_LIMIT:
        raise ChunkTableError(
            f"libhdf5 misplaces the chunks of this extensible array; {count} are too many to look up one by one"
        )
    every = np.stack(np.unravel_index(np.arange(count), grid), axis=1).astype(np.int64)
    user_block = _user_block(dataset)
    address = _probe(dataset, file, every, chunks, np.concatenate([offset, offset + user_block]))
    if user_block and address.max(initial=-1) == offset.max(initial=0) + user_block:
        offset = offset + user_block  # see _shift
    every, address = every[address >= 0], address[address >= 0]
    order = np.argsort(offset)
    position = np.searchsorted(offset[order], address)
    position[position == len(order)] = 0
    row = order[position]
    if (offset[row] != address).any() or len(np.unique(address)) != len(address):
        raise ChunkTableError("libhdf5's listing and look-up of chunks name different addresses")
    return ChunkTable.from_coordinates(grid, every, address, nbytes[row], mask[row])
