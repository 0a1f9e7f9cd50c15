"""One object of a file as a node of a Zarr hierarchy."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import Any

import h5py
from h5py import h5d, h5i, h5t

from lindi_bridge.client.file import File
from lindi_bridge.hdf5.damage import DAMAGE, refuse_source_error
from lindi_bridge.hdf5.departures import has_unknown_extent
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.walk import header_address
from lindi_bridge.indexer.dimensions import MACHINERY, dimension_names, dimension_number, is_only_a_dimension
from lindi_bridge.model.nodes import Problem
from lindi_bridge.model.text import text_name
from lindi_bridge.store.attributes import collapsed, plain_attribute, xarray_fill_value
from lindi_bridge.store.element_types import Text
from lindi_bridge.store.objects import FileObjects
from lindi_bridge.store.presentation import NotPresentableError, Presentation, present

__all__ = ["ArrayNode", "GroupNode", "Node", "NodeMaker", "present_dataset"]

JSONValue = Any

_STRINGS = ("string", "string-array", b"string", b"string-array")
"""What anndata calls strings in ``encoding-type``."""


@dataclass(frozen=True, eq=False)
class GroupNode:
    """A group: its attributes and the names of its members, in the file's order."""

    attributes: dict[str, JSONValue]
    members: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class ArrayNode:
    """A dataset as an array.

    Parameters
    ----------
    file : File
        The file that it is in: not always the one of the hierarchy.
    path : str
        Its path in that file.
    presentation : Presentation
        How it is presented.
    attributes : mapping
        Plain values.
    dimensions : tuple of str, optional
        Names of its axes.
    """

    file: File
    path: str
    presentation: Presentation
    attributes: dict[str, JSONValue]
    dimensions: tuple[str, ...] | None = None


Node = GroupNode | ArrayNode


class NodeMaker:
    """Makes nodes of the objects of one file.

    Parameters
    ----------
    objects : FileObjects
        What the file holds.
    problems : list of Problem
        Attributes that cannot be expressed are added to these.
    """

    def __init__(self, objects: FileObjects, problems: list[Problem]) -> None:
        self._objects = objects
        self._problems = problems
        self._netcdf = _NetCDF(objects)
        self._known: dict[int, Node | Problem] = {}

    def node(self, path: str, address: int) -> Node | Problem:
        """The node of an object, or why there is none; the same one for all names of the object.

        Parameters
        ----------
        path : str
            In the hierarchy, for messages.
        address : int
            Header of the object.
        """
        if address not in self._known:
            self._known[address] = self._make(path, address)
        return self._known[address]

    def _make(self, path: str, address: int) -> Node | Problem:
        try:
            obj = self._objects.open(address)
            kind = h5i.get_type(obj)
            if kind == h5i.GROUP:
                return GroupNode(self._attributes(path, obj))
            if kind != h5i.DATASET:
                return Problem(path, "committed_datatype", "a committed datatype; Zarr has no place for it")
            return self._array(path, address, obj)
        except DAMAGE as error:
            refuse_source_error(error)
            return Problem(path, "unreadable", f"libhdf5 cannot open it: {error}")

    def _array(self, path: str, address: int, obj: h5d.DatasetID) -> ArrayNode | Problem:
        objects = self._objects
        if address in objects.scales and is_only_a_dimension(obj):
            return Problem(path, "dimension", "a netCDF dimension without values: only its name and length are kept")
        try:
            presentation = present_dataset(obj, objects.file_object)
        except NotPresentableError as error:
            return Problem(path, error.kind, str(error))
        attributes = self._attributes(path, obj)
        is_null = "_HDF5_EMPTY" in presentation.notes
        if "encoding-type" in attributes and presentation.element.text is Text.JSON and not is_null:
            # anndata would take the strings for the values of the element.
            dtype = h5py.Dataset(obj).dtype
            return Problem(path, "datatype", f"an element of AnnData of a type that Zarr does not have: {dtype}")
        if "_FillValue" in attributes:
            fill = xarray_fill_value(attributes.pop("_FillValue"), presentation.element.dtype)
            if fill is not None:
                attributes["_FillValue"] = fill
        attributes.update(presentation.notes)
        own = objects.paths[address]
        names = None
        if self._netcdf.is_one:
            numbers = self._netcdf.by_number
            names = dimension_names(obj, own, len(presentation.shape), objects.paths.get, numbers)
        return ArrayNode(objects.file, own, presentation, attributes, names)

    def _attributes(self, path: str, obj: Any) -> dict[str, JSONValue]:
        manager = h5py.AttributeManager(h5py.HLObject(obj))
        found: dict[str, JSONValue] = {}
        try:
            names = list(manager)
        except DAMAGE as error:
            refuse_source_error(error)
            self._problem(path, f"libhdf5 cannot list its attributes: {error}")
            return found
        reference, netcdf = self._objects.reference, self._netcdf.is_one
        for name in names:
            if netcdf and name in MACHINERY:
                continue
            try:
                attribute = manager.get_id(name)
                value = plain_attribute(manager[name], attribute.dtype, attribute.shape, reference)
            except DAMAGE as error:
                refuse_source_error(error)
                self._problem(path, f"attribute {name!r} cannot be expressed: {error}")
                continue
            if name == "categories" and isinstance(value, str) and h5py.check_ref_dtype(attribute.dtype) is not None:
                # anndata up to 0.7 looks for the categories of a column relative to the group that the column is in.
                folder = posixpath.dirname(self._objects.paths[header_address(obj)]).rstrip("/") + "/"
                value = value.removeprefix(folder)
            found[text_name(name)] = value
        return collapsed(found) if netcdf else found

    def _problem(self, path: str, message: str) -> None:
        self._problems.append(Problem(f"/{path}", "attribute", message))


def present_dataset(dataset: h5d.DatasetID, file: HDF5File) -> Presentation:
    """Decide how a dataset is presented.

    Parameters
    ----------
    dataset : h5py.h5d.DatasetID
        The dataset.
    file : HDF5File
        The file object below it.

    Raises
    ------
    NotPresentableError
        Zarr has no array for it.
    """
    create = dataset.get_create_plist()
    if create.get_layout() == h5d.VIRTUAL and has_unknown_extent(dataset):
        raise NotPresentableError("virtual_dataset", "a virtual dataset whose shape depends on other files")
    obj = h5py.Dataset(dataset)
    strings = isinstance(dataset.get_type(), h5t.TypeStringID) and obj.attrs.get("encoding-type") in _STRINGS
    linked = header_address(dataset) in file.properties.get("linked", ())
    return present(obj, create, strings=strings, linked=linked)


class _NetCDF:
    """What a file knows of netCDF: whether it has dimension scales at all, and the numbers of its dimensions."""

    def __init__(self, objects: FileObjects) -> None:
        self.is_one = bool(objects.scales) or _is_there(objects.file.attrs, "_NCProperties")
        self.by_number: dict[int, str] = {}
        for address in objects.scales:
            number = dimension_number(objects.open(address))
            if number is not None:
                self.by_number[number] = posixpath.basename(objects.paths[address])


def _is_there(attributes: h5py.AttributeManager, name: str) -> bool:
    try:
        return name in attributes
    except DAMAGE as error:
        refuse_source_error(error)
        return False
