"""Exact equality of types and values, as h5py hands them out.

Two values are the same when no program could tell them apart: the same class, the same dtype with h5py's metadata
(encoding of strings, mapping of enums, base of variable-length arrays, kind of references), the same byte order, the
same bits. References are the same when they lead to the object of the same name, and the same points of it.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import h5py
import numpy as np
from h5py import h5s, h5t


def describe_dtype(dtype: np.dtype) -> Any:
    """Everything h5py and numpy know of a dtype, as nested tuples that compare by value."""
    dtype = np.dtype(dtype)
    if dtype.names is not None:
        fields = tuple((name, dtype.fields[name][1], describe_dtype(dtype[name])) for name in dtype.names)
        body: Any = ("struct", dtype.itemsize, fields)
    elif dtype.subdtype is not None:
        body = ("array", dtype.shape, describe_dtype(dtype.base))
    else:
        body = dtype.str
    metadata = {key: _describe_metadata(value) for key, value in (dtype.metadata or {}).items()}
    return (body, tuple(sorted(metadata.items()))) if metadata else body


def _describe_metadata(value: Any) -> Any:
    if isinstance(value, np.dtype):
        return describe_dtype(value)
    if isinstance(value, dict):
        return tuple((key, int(number)) for key, number in value.items())
    return value.__name__ if isinstance(value, type) else value


def describe_type(datatype: h5t.TypeID) -> Any:
    """The type as the file stores it, with all that a numpy dtype does not show (padding, precision, offsets)."""
    base: list[Any] = [type(datatype).__name__, datatype.get_size(), bool(datatype.committed())]
    if isinstance(datatype, h5t.TypeCompoundID):
        for i in range(datatype.get_nmembers()):
            member = (datatype.get_member_name(i), datatype.get_member_offset(i))
            base.append((*member, describe_type(datatype.get_member_type(i))))
    elif isinstance(datatype, h5t.TypeEnumID):
        base.append(describe_type(datatype.get_super()))
        members = range(datatype.get_nmembers())
        base.extend((datatype.get_member_name(i), datatype.get_member_value(i)) for i in members)
    elif isinstance(datatype, h5t.TypeArrayID):
        base.extend((datatype.get_array_dims(), describe_type(datatype.get_super())))
    elif isinstance(datatype, h5t.TypeVlenID):
        base.append(describe_type(datatype.get_super()))
    elif isinstance(datatype, h5t.TypeStringID):
        base.extend((datatype.is_variable_str(), datatype.get_cset(), datatype.get_strpad()))
    elif isinstance(datatype, h5t.TypeOpaqueID):
        base.append(datatype.get_tag())
    elif isinstance(datatype, h5t.TypeReferenceID):
        base.extend(datatype.equal(kind) for kind in (h5t.STD_REF_OBJ, h5t.STD_REF_DSETREG))
    elif isinstance(datatype, h5t.TypeAtomicID):
        base.extend((datatype.get_order(), datatype.get_precision(), datatype.get_offset(), datatype.get_pad()))
        if isinstance(datatype, h5t.TypeIntegerID):
            base.append(datatype.get_sign())
        if isinstance(datatype, h5t.TypeFloatID):
            base.extend((datatype.get_fields(), datatype.get_ebias(), datatype.get_norm(), datatype.get_inpad()))
    return tuple(base)


def describe_space(space: h5s.SpaceID) -> Any:
    """Shape and selection of a dataspace."""
    if space.get_simple_extent_type() != h5s.SIMPLE:
        return space.get_simple_extent_type()
    extent = (space.get_simple_extent_dims(), space.get_simple_extent_dims(True))
    selection = space.get_select_type()
    if selection == h5s.SEL_HYPERSLABS:
        points = space.get_select_hyper_blocklist().tolist()
    elif selection == h5s.SEL_POINTS:
        points = space.get_select_elem_pointlist().tolist()
    else:
        points = None
    return (*extent, selection, space.get_select_npoints(), points)


def describe_reference(reference: Any, root: h5py.Group) -> Any:
    """Where a reference leads, seen from a file: class and name of the object, and the selected points."""
    if not reference:
        return (type(reference).__name__, "null")
    target = root[reference]
    place = (type(reference).__name__, object_kind(target), target.name, h5py.h5r.get_name(reference, root.id))
    if not isinstance(reference, h5py.RegionReference):
        return place
    proxy = target.regionref
    points = describe_space(h5py.h5r.get_region(reference, root.id))
    return (*place, points, proxy.shape(reference), proxy.selection(reference))


def object_kind(thing: Any) -> str:
    """The h5py class that an object is, its subclasses included."""
    for kind in (h5py.Datatype, h5py.Dataset, h5py.File, h5py.Group):
        if isinstance(thing, kind):
            return kind.__name__
    return type(thing).__name__


def value_difference(expected: Any, actual: Any, expected_root: h5py.Group, actual_root: h5py.Group) -> str | None:
    """Why two values are not the same; None when they are."""

    def differ(expected: Any, actual: Any) -> str | None:
        if type(expected) is not type(actual):
            return f"{type(expected).__name__} {short(expected)} -> {type(actual).__name__} {short(actual)}"
        if isinstance(expected, (h5py.Reference, h5py.RegionReference)):
            return unequal(describe_reference(expected, expected_root), describe_reference(actual, actual_root))
        if isinstance(expected, h5py.Empty):
            return unequal(describe_dtype(expected.dtype), describe_dtype(actual.dtype))
        if isinstance(expected, (np.ndarray, np.generic)):
            return arrays_differ(expected, actual)
        if isinstance(expected, (tuple, list)):
            return sequences_differ(expected, actual)
        if isinstance(expected, float) and expected != expected:
            return None if actual != actual else f"nan -> {actual}"
        return unequal(expected, actual)

    def arrays_differ(expected: Any, actual: Any) -> str | None:
        problem = unequal(describe_dtype(expected.dtype), describe_dtype(actual.dtype))
        problem = problem or unequal(expected.shape, actual.shape)
        if problem:
            return f"type or shape {problem}"
        if expected.dtype.names is not None:
            fields = ((name, differ(expected[name], actual[name])) for name in expected.dtype.names)
            return next((f"field {name}: {problem}" for name, problem in fields if problem), None)
        if expected.dtype.kind == "O":
            return sequences_differ(np.ravel(expected).tolist(), np.ravel(actual).tolist())
        if expected.dtype.kind in "fc" and expected.dtype.itemsize not in (2, 4, 8):
            same = _unpadded(expected) == _unpadded(actual)
        else:
            same = expected.tobytes() == actual.tobytes()
        return None if same else f"{short(expected)} -> {short(actual)}"

    def sequences_differ(expected: Any, actual: Any) -> str | None:
        if len(expected) != len(actual):
            return f"length {len(expected)} -> {len(actual)}"
        for i, pair in enumerate(zip(expected, actual, strict=True)):
            if problem := differ(*pair):
                return f"element {i}: {problem}"
        return None

    return differ(expected, actual)


def _unpadded(values: Any) -> bytes:
    """The bits of long doubles; the bytes that they are padded with are whatever was in memory."""
    raw = np.ascontiguousarray(values).reshape(-1)
    order = raw.dtype.byteorder
    parts = raw.view(np.dtype("g").newbyteorder(order)).view(np.uint8).reshape(-1, np.dtype("g").itemsize)
    if np.finfo("g").nmant != 63:  # not those of x86
        return parts.tobytes()
    is_little = order == "<" or (order == "=" and sys.byteorder == "little")
    return (parts[:, :10] if is_little else parts[:, -10:]).tobytes()


def unequal(expected: Any, actual: Any) -> str | None:
    """Why two plain values are not equal; None when they are."""
    return None if expected == actual else f"{short(expected)} -> {short(actual)}"


def short(value: Any) -> str:
    """A value on one line of bounded length."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 120 else text[:117] + "..."


def builtin_error(error: BaseException) -> type[BaseException]:
    """The builtin exception class that an error is, by which programs catch it."""
    return next(cls for cls in type(error).__mro__ if cls.__module__ == "builtins")


def readable_dtype(dataset: h5py.Dataset) -> np.dtype | None:
    """The dtype of a dataset; None where numpy has no type for what the file holds."""
    try:
        return dataset.dtype
    except TypeError:
        return None


def selections(dataset: h5py.Dataset) -> dict[str, Any]:
    """Ways to index a dataset, each with the text that a report shows for it."""
    if not dataset.shape:
        return {"()": (), "...": Ellipsis}
    length = dataset.shape[0]
    step = max(3, length // 500)
    mask = np.zeros(length, bool)
    mask[: 4 * step : step] = True
    ways = {
        "()": (),
        "...": Ellipsis,
        "0:2": slice(0, 2),
        f"::{step}": slice(None, None, step),
        "..., 0:1": (Ellipsis, slice(0, 1)),
        "5:5": slice(5, 5),
        "-1": -1,
        "last element": tuple(n - 1 for n in dataset.shape),
        "beyond the end": length,
        "mask": mask,
        "list": sorted({0, length // 2, length - 1} & set(range(length))),
    }
    dtype = readable_dtype(dataset)
    for name in itertools.islice((dtype.names if dtype is not None else None) or (), 4):
        ways[f"field {name}"] = name
        ways[f"field {name}, 0:2"] = (name, slice(0, 2))
    return ways
