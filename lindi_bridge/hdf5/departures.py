"""Objects whose content lies in other files than their own."""

from __future__ import annotations

from collections.abc import Iterator

import h5py
from h5py import h5d, h5f, h5g, h5i, h5l, h5o, h5s

from lindi_bridge.hdf5.walk import header_address, is_stored_here
from lindi_bridge.model.snapshot import Departure
from lindi_bridge.model.text import text_name

__all__ = ["dataset_departure", "find_departures", "has_unknown_extent"]


def dataset_departure(dataset: h5d.DatasetID, path: str) -> Departure | None:
    """How a dataset leaves its file, or None if all its values are in it."""
    if is_stored_here(dataset):
        return None
    obj = h5py.Dataset(dataset)
    if obj.is_virtual:
        files = sorted({source.file_name for source in obj.virtual_sources()} - {"."})
        return Departure(path, "virtual_dataset", tuple(files)) if files else None
    return Departure(path, "external_storage", tuple(name for name, _, _ in obj.external or ()))


def has_unknown_extent(dataset: h5d.DatasetID) -> bool:
    """Whether the shape of a dataset depends on other files.

    An unlimited mapping of a virtual dataset reaches as far as its source does, and a source name with ``%b`` stands
    for as many files as there are (HDF5 reference manual, ``H5Pset_virtual``). Over a file object libhdf5 finds
    every such source in the file itself, without end; so not even the shape may be asked.
    """
    create = dataset.get_create_plist()
    if create.get_layout() != h5d.VIRTUAL:
        return False
    return any(
        "%b" in create.get_virtual_filename(k) or _is_unlimited(create.get_virtual_vspace(k))
        for k in range(create.get_virtual_count())
        if create.get_virtual_filename(k) != "."
    )


def _is_unlimited(space: h5s.SpaceID) -> bool:
    if space.get_select_type() != h5s.SEL_HYPERSLABS or not space.is_regular_hyperslab():
        return False
    _, _, count, block = space.get_regular_hyperslab()
    return h5s.UNLIMITED in (*count, *block)


def find_departures(file_id: h5f.FileID) -> list[Departure]:
    """Everything in an open file that leaves it, found without following any of it."""
    return list(_departures_below(h5g.open(file_id, b"/")))


def _departures_below(root: h5g.GroupID) -> Iterator[Departure]:
    seen = {header_address(root)}
    pending = [("", root)]
    while pending:
        parent, group = pending.pop()
        for raw in list(group):
            path = f"{parent}/{raw.decode('utf-8', 'surrogateescape')}"
            kind = group.links.get_info(raw).type
            if kind == h5l.TYPE_EXTERNAL:
                filename, _ = group.links.get_val(raw)
                yield Departure(path, "external_link", (text_name(filename),))
            if kind != h5l.TYPE_HARD:
                continue
            try:
                child = h5o.open(group, raw)
            except (KeyError, OSError, ValueError, RuntimeError):
                continue  # whoever asks for it gets libhdf5's error
            address = header_address(child)
            if address in seen:
                continue
            seen.add(address)
            if h5i.get_type(child) == h5i.GROUP:
                pending.append((path, child))
            elif h5i.get_type(child) == h5i.DATASET and (found := dataset_departure(child, path)):
                yield found
