"""A netCDF-4 file as xarray takes it from Zarr: dimensions by name, and no attributes of the libraries below."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import h5py
from h5py import h5d

from lindi_bridge.indexer.dimensions import (
    MACHINERY,
    dimension_names,
    dimension_number,
    is_only_a_dimension,
    is_scale,
)
from lindi_bridge.indexer.values import typed_attribute
from lindi_bridge.model.nodes import ArrayNode, GroupNode, Problem, ReferenceTree

__all__ = ["name_dimensions"]

JSONValue = Any

_DIMENSIONS = "_ARRAY_DIMENSIONS"
"""The attribute by which xarray knows the dimensions of arrays of Zarr v2 (xarray, "Zarr Encoding Specification")."""


def name_dimensions(tree: ReferenceTree, objects: Mapping[str, Any], path_of: Callable[[int], str | None]) -> None:
    """Name the dimensions of all arrays of a netCDF-4 file; does nothing for files without dimension scales.

    Attributes of one value lose their axis, as netCDF has none for them. Dimensions that are no variables are left out.

    Parameters
    ----------
    tree : ReferenceTree
        Is changed.
    objects : mapping
        The open object of every node, by path.
    path_of : callable
        Path of an object by the address of its header.
    """
    scales = {path: obj for path, obj in objects.items() if isinstance(obj, h5d.DatasetID) and is_scale(obj)}
    root = tree.nodes["/"]
    if not scales and not (isinstance(root, GroupNode) and "_NCProperties" in root.attributes):
        return
    by_number = {}
    for path, scale in scales.items():
        number = dimension_number(scale)
        if number is not None:
            by_number[number] = posixpath.basename(path)
        if is_only_a_dimension(scale) and tree.nodes.pop(path, None) is not None:
            tree.problems.append(Problem(path, "dimension", "a dimension without values; arrays name it"))
    for path, node in tree.nodes.items():
        if not isinstance(node, (ArrayNode, GroupNode)):
            continue
        attributes = _collapsed(tree, path, node, objects[path])
        if isinstance(node, ArrayNode) and _DIMENSIONS not in attributes:
            attributes[_DIMENSIONS] = list(dimension_names(objects[path], path, len(node.shape), path_of, by_number))
            tree.annotations.setdefault(path, {})["dimensions"] = True
        tree.nodes[path] = replace(node, attributes=attributes)


def _collapsed(tree: ReferenceTree, path: str, node: ArrayNode | GroupNode, obj: Any) -> dict[str, JSONValue]:
    """The attributes that netCDF shows; what they lose goes to the annotation."""
    manager = h5py.AttributeManager(h5py.HLObject(obj))
    attributes: dict[str, JSONValue] = {}
    typed: dict[str, JSONValue] = dict(tree.annotations.get(path, {}).get("attributes", {}))
    for name, value in node.attributes.items():
        is_of_one = isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list)
        if name in MACHINERY:
            typed[name] = (typed.get(name) or typed_attribute(manager, name)) | {"value": value}
        elif is_of_one:
            typed[name] = typed.get(name) or typed_attribute(manager, name)
            attributes[name] = value[0]
        else:
            attributes[name] = value
    if typed:
        tree.annotations.setdefault(path, {})["attributes"] = typed
    return attributes
