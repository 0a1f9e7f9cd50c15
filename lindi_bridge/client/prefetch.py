"""Everything below an object in as few waves as its structure allows, before anybody reads it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import h5py
from h5py import h5d, h5g, h5i, h5l, h5o

from lindi_bridge.client.companions import external_target
from lindi_bridge.client.names import fetch_names_below
from lindi_bridge.client.plan import read_plans
from lindi_bridge.client.rebuild import complete
from lindi_bridge.client.strings import fetch_strings
from lindi_bridge.hdf5.damage import refuse_source_error
from lindi_bridge.hdf5.departures import dataset_departure
from lindi_bridge.hdf5.walk import header_address
from lindi_bridge.ranges import ByteRange, h5py_lock_is_held

__all__ = ["Contents", "contents", "prefetch"]


@dataclass
class Contents:
    """What lies below some objects.

    Parameters
    ----------
    datasets : dict
        Every dataset that links inside the file lead to, open, by the address of its object header.
    is_self_contained : bool
        No link leads out of the file and no dataset has values in another one: plain h5py on the same identifiers reads
        what our objects read.
    """

    datasets: dict[int, h5d.DatasetID] = field(default_factory=dict)
    is_self_contained: bool = True


def contents(objects: Iterable[Any]) -> Contents:
    """Look at everything below objects, without reading any data and without leaving the file.

    Parameters
    ----------
    objects : iterable of Dataset or Group
        Ours, of one file.
    """
    objects = list(objects)
    for obj in objects:
        if isinstance(obj, h5py.Group):
            fetch_names_below(obj, obj._file_object, all_levels=True)
    found = Contents()
    seen: set[int] = set()
    pending: list[Any] = [obj.id if not isinstance(obj, h5py.File) else h5g.open(obj.id, b"/") for obj in objects]
    while pending:
        current = pending.pop()
        address = header_address(current)
        if address in seen:
            continue
        seen.add(address)
        if isinstance(current, h5d.DatasetID):
            found.datasets[address] = current
            found.is_self_contained &= dataset_departure(current, "") is None
        elif isinstance(current, h5g.GroupID):
            children, stays_here = _children(current)
            pending += reversed(children)
            found.is_self_contained &= stays_here
    return found


def _children(group: h5g.GroupID) -> tuple[list[Any], bool]:
    """The objects that the links of a group lead to in its file, and whether that is all of them."""
    children: list[Any] = []
    stays_here = True
    try:
        names = list(group)
    except (KeyError, OSError, RuntimeError, ValueError) as error:
        refuse_source_error(error)  # a damaged group: whoever reads it gets libhdf5's error
        return [], False
    for name in names:
        try:
            is_hard = group.links.get_info(name).type == h5l.TYPE_HARD
            if not is_hard and external_target(group, name) is not None:
                stays_here = False
                continue
            child = h5o.open(group, name)
        except (KeyError, OSError, RuntimeError, ValueError) as error:
            refuse_source_error(error)  # damaged, or a link to nowhere
            continue
        if h5i.get_type(child) in (h5i.GROUP, h5i.DATASET):
            children.append(child)
    return children, stays_here


def prefetch(objects: Iterable[Any], found: Contents | None = None) -> int:
    """Fetch the data of datasets, and of everything below groups.

    One concurrent wave; one or two more for strings and lists of variable length in a file without a document, where it
    takes the values to know where their contents lie. At most half of the cache is filled. The smallest datasets come
    first; those that do not fit are left out, and fetched when they are read. Nothing is done under h5py's lock.

    Parameters
    ----------
    objects : iterable of Dataset or Group
        Ours.
    found : Contents, optional
        What lies below them, if that is known already.

    Returns
    -------
    int
        Bytes that were wanted and fit.
    """
    objects = list(objects)
    if not objects or h5py_lock_is_held():
        return 0
    file = objects[0]._file_object
    others = [obj for obj in objects if obj._file_object is not file]
    if others:  # that were reached by links to other files
        return prefetch(obj for obj in objects if obj._file_object is file) + prefetch(others)
    found = contents(objects) if found is None else found
    datasets = list(found.datasets.values())
    for dataset in datasets:
        complete(file, dataset)
    plans = read_plans(datasets, file)
    room = file.cache_bytes // 2
    wanted: list[ByteRange] = []
    chosen = []
    for number in sorted(range(len(plans)), key=lambda k: plans[k].stored_nbytes):
        if plans[number].stored_nbytes > room:
            break
        room -= plans[number].stored_nbytes
        wanted += plans[number].everything()
        chosen.append((datasets[number], plans[number]))
    file.ensure(wanted)
    return sum(r.length for r in wanted) + fetch_strings(chosen, file, room)
