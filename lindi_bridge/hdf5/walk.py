"""Walking a whole HDF5 file, to learn which of its bytes are metadata and where its chunks lie.

The file is walked twice. :func:`walk_structures` goes from the superblock down, all children of a level in one
wave of range requests, and fills the file object's memory. :func:`walk_file` then lets libhdf5 walk over that memory:
it is the authority for names, types, attributes and strings, and confirms the chunk tables.

What libhdf5 reads is recorded. Whoever opens the file later reads the same structures, perhaps in another
order, so several orders are walked: by recursion over links, by ``H5Ovisit``, and by looking up the first element of
every dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import h5py
import numpy as np
from h5py import h5d, h5g, h5i, h5l, h5o
from h5py._objects import phil

from lindi_bridge.hdf5.chunk_index import ChunkTableError, read_chunk_table
from lindi_bridge.hdf5.chunk_tables import WalkedTable
from lindi_bridge.hdf5.damage import DAMAGE, refuse_source_error
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.stored_types import has_overlapping_members
from lindi_bridge.hdf5.structures import StructureWalk, read_dataset_table
from lindi_bridge.hdf5.waves import Visit, Waves
from lindi_bridge.model.chunks import ChunkTable

__all__ = [
    "Structures",
    "Walk",
    "header_address",
    "index_in_memory",
    "is_stored_here",
    "structure_table",
    "structure_tables",
    "walk_file",
    "walk_names",
    "walk_structures",
]


_MOST_UNDER_LOCK = 16 * 1024 * 1024
"""Budget in bytes: it lets indexes of a million chunks pass."""


@dataclass(frozen=True)
class Structures:
    """What the walk of a file's structures found.

    Parameters
    ----------
    tables : mapping
        Chunk tables, not yet confirmed by libhdf5, by the address of the dataset's object header as
        :func:`header_address` tells it.
    waves : int
        Waves of range requests that it took.
    problems : tuple of str
        What it did not understand and left to libhdf5.
    """

    tables: Mapping[int, WalkedTable] = field(default_factory=dict)
    waves: int = 0
    problems: tuple[str, ...] = ()


def walk_structures(file: HDF5File) -> Structures:
    """Bring the metadata of a whole file into memory, and read its chunk tables.

    A hint only: damaged and unknown structures are passed over. Always ends, and within a budget of bytes. Must not be
    called while h5py's lock is held (it then finds only what is in memory).
    """
    waves = Waves(file)
    walk = StructureWalk(waves)
    walk.run()
    return Structures(walk.tables, waves.waves, tuple(waves.problems))


def walk_names(file: HDF5File, budget: int, header_address: int | None = None) -> bool:
    """Bring into memory what names, headers and attributes lie in, level by level, and nothing of the data.

    A hint, as :func:`walk_structures` is; the same must hold for h5py's lock.

    Parameters
    ----------
    file : HDF5File
        The file object.
    budget : int
        Bytes to fetch at the most. What lies deepest is left out.
    header_address : int, optional
        Object to begin at, as :func:`header_address` tells it; the root group by default.

    Returns
    -------
    bool
        Whether the budget was enough.
    """
    waves = Waves(file, budget=budget)
    StructureWalk(waves, data=False).run(header_address)
    return not waves.was_cut_off


def structure_table(file: HDF5File, header_address: int, *, fetch: bool = False) -> WalkedTable | None:
    """Read the chunk table of one dataset, not yet confirmed by libhdf5.

    Parameters
    ----------
    file : HDF5File
        The file object.
    header_address : int
        Address of the dataset's object header as :func:`header_address` tells it.
    fetch : bool
        Whether the source may be read, level by level of the index; otherwise only what is in memory is looked at.

    Returns
    -------
    WalkedTable or None
        None if not all of its index can be had, or it cannot be understood.
    """
    return structure_tables(file, [header_address], fetch=fetch).get(header_address)


def index_in_memory(file: HDF5File, addresses: Iterable[int]) -> dict[int, WalkedTable]:
    """Read chunk tables out of what is in memory, as :func:`structure_tables` does, in little time whatever it holds.

    Takes no lock, so that it may be called while h5py's is held.
    """
    return structure_tables(file, addresses, budget=_MOST_UNDER_LOCK)


def structure_tables(
    file: HDF5File, addresses: Iterable[int], *, fetch: bool = False, budget: int | None = None
) -> dict[int, WalkedTable]:
    """Read the chunk tables of several datasets together, not yet confirmed by libhdf5.

    Parameters
    ----------
    file : HDF5File
        The file object.
    addresses : iterable of int
        Of object headers.
    fetch : bool
        As for :func:`structure_table`; a level of all indexes is one wave.
    budget : int, optional
        Bytes to fetch at the most; four times as many are looked at in memory.

    Returns
    -------
    dict
        By address, what could be had and understood.
    """
    waves = Waves(file, fetch=fetch) if budget is None else Waves(file, fetch=fetch, budget=budget)
    found: dict[int, WalkedTable] = {}

    def keep(address: int) -> Visit[None]:
        table = yield from read_dataset_table(waves, address)
        if table is not None:
            found[address] = table

    for address in addresses:
        waves.start(keep(address))
    waves.run()
    return found


@dataclass
class Walk:
    """What a walk learnt.

    Parameters
    ----------
    reads : set of (int, int)
        What libhdf5 read of the metadata: address and length (bytes).
    index_reads : set of (int, int)
        The same, to find chunks and to add up how much they take.
    tables : dict
        Chunk table of every chunked dataset by the address of its object header, or the error that says why
        there is none.
    datasets : dict
        Every dataset, open, by the address of its object header.
    """

    reads: set[tuple[int, int]] = field(default_factory=set)
    index_reads: set[tuple[int, int]] = field(default_factory=set)
    tables: dict[int, ChunkTable | ChunkTableError] = field(default_factory=dict)
    datasets: dict[int, h5d.DatasetID] = field(default_factory=dict)


def header_address(obj: h5py.h5g.GroupID | h5d.DatasetID | h5py.h5t.TypeID) -> int:
    """Address of an object's header, relative to the superblock: the same number for every name of an object.

    ``h5o.get_info`` tells it as well, but reads all of a group's or dataset's index to add up its size.
    """
    low, high = h5g.get_objinfo(obj).objno
    return int(low) | int(high) << 32


def is_stored_here(dataset: h5d.DatasetID) -> bool:
    """Whether the raw data of a dataset lie in its own file: neither virtual nor in external files."""
    create = dataset.get_create_plist()
    return bool(create.get_layout() != h5d.VIRTUAL and create.get_external_count() <= 0)


def walk_file(
    file_id: h5py.h5f.FileID,
    file: HDF5File,
    progress: Callable[[int], None] | None = None,
    structures: Structures | None = None,
) -> Walk:
    """Walk everything below the root group of an open file.

    Parameters
    ----------
    file_id : h5py.h5f.FileID
        The file, open over ``file``.
    file : HDF5File
        The file object.
    progress : callable, optional
        Called with 1 for each object found.
    structures : Structures, optional
        What :func:`walk_structures` found.
    """
    walk = Walk()
    tables = structures.tables if structures is not None else {}
    with file.record() as recorder:
        root = h5g.open(file_id, b"/")
        _walk_links(root, file, walk, tables, progress)
    walk.reads.update(recorder)
    with file.record() as recorder:  # it adds up the sizes of all indexes
        try:
            h5o.visit(root, lambda name: None)
        except (OSError, RuntimeError, ValueError) as error:
            refuse_source_error(error)  # a damaged object; whoever visits it later gets the same error
    walk.index_reads.update(recorder)
    for address, table in walk.tables.items():
        if isinstance(table, ChunkTable) and len(table):
            walk.index_reads |= _first_chunk_reads(walk.datasets[address], file, table)
    return walk


def _walk_links(
    root: h5g.GroupID,
    file: HDF5File,
    walk: Walk,
    tables: Mapping[int, WalkedTable],
    progress: Callable[[int], None] | None,
) -> None:
    """Open every object once, by recursion over hard links, and read all that is metadata of it."""
    seen = {header_address(root)}
    pending: list[h5g.GroupID] = [root]
    _read_attributes(root)
    while pending:
        for child in _children(pending.pop()):
            address = header_address(child)
            if address in seen:
                continue
            seen.add(address)
            _read_attributes(child)
            kind = h5i.get_type(child)
            if kind == h5i.GROUP:
                pending.append(child)
            elif kind == h5i.DATASET:
                _note_dataset(walk, address, child, file, tables.get(address))
            if progress is not None:
                progress(1)


def _note_dataset(walk: Walk, address: int, dataset: h5d.DatasetID, file: HDF5File, known: WalkedTable | None) -> None:
    """Take a dataset in with its chunk table, unless libhdf5 cannot say how it is stored."""
    try:
        is_chunked = is_stored_here(dataset) and dataset.get_create_plist().get_layout() == h5d.CHUNKED
    except (OSError, RuntimeError, ValueError) as error:
        refuse_source_error(error)
        return  # a damaged fill value; whoever asks for it later gets the same error
    walk.datasets[address] = dataset
    if is_chunked:
        with file.record() as index_reads:
            try:
                walk.tables[address] = read_chunk_table(dataset, file, known)
            except ChunkTableError as error:
                walk.tables[address] = error
        walk.index_reads.update(index_reads)


def _children(group: h5g.GroupID) -> Iterator[h5py.h5o.ObjectID]:
    """The objects that hard links of a group name. What libhdf5 cannot list or open now, it cannot later either."""
    try:
        names = list(group)
    except (OSError, RuntimeError, ValueError) as error:
        refuse_source_error(error)
        return
    for name in names:
        try:
            if group.links.get_info(name).type == h5l.TYPE_HARD:
                yield h5o.open(group, name)
        except (KeyError, OSError, RuntimeError, ValueError) as error:
            refuse_source_error(error)


def _read_attributes(obj: h5py.h5o.ObjectID) -> None:
    """Read all attributes, for the heaps and dense storage behind them."""
    attributes = h5py.Group(obj).attrs if isinstance(obj, h5g.GroupID) else h5py.AttributeManager(h5py.HLObject(obj))
    try:
        names = list(attributes)
    except (OSError, RuntimeError, ValueError) as error:
        refuse_source_error(error)
        return
    for name in names:
        try:
            if not has_overlapping_members(attributes.get_id(name).dtype):
                attributes[name]
        except DAMAGE as error:
            refuse_source_error(error)  # h5py cannot read it here, nor later


def _first_chunk_reads(dataset: h5d.DatasetID, file: HDF5File, table: ChunkTable) -> set[tuple[int, int]]:
    """What libhdf5 reads to look up the first chunk of a dataset, the chunk itself left out.

    The chunk is taken as it is stored: filters must not see the zeros that a probe answers with.
    """
    corner = table.coordinates()[0] * np.array(dataset.get_create_plist().get_chunk())
    with phil, file.probe({int(table.offset[0])}) as recorder:
        try:
            dataset.read_direct_chunk(tuple(corner.tolist()))
        except (OSError, RuntimeError, ValueError, MemoryError, SystemError) as error:
            refuse_source_error(error)  # a damaged index
        reads = set(recorder)
    return {(start, length) for start, length in reads if start != table.offset[0]}
