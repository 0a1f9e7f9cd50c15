"""Values in JSON -> arrays for h5py to write; the inverse of ``indexer.values``."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np
from h5py import h5r, h5s

from lindi_bridge.document.problems import MalformedError

__all__ = ["MissingTargetError", "ReferenceMaker", "array_of", "infer_attribute"]

_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class MissingTargetError(MalformedError):
    """A reference to an object that is not in the file."""


class ReferenceMaker:
    """Makes HDF5 references of LINDI's ``_REFERENCE`` objects.

    Parameters
    ----------
    root : h5py.h5g.GroupID
        Root group of the file that is written.
    """

    def __init__(self, root: Any) -> None:
        self._root = root

    def __call__(self, value: Any, is_region: bool) -> Any:
        """The reference, or a null reference.

        Raises
        ------
        MalformedError
            There is no such object, or no such region of it.
        """
        reference = value.get("_REFERENCE") if isinstance(value, dict) else None
        if not isinstance(reference, dict) or reference.get("source", ".") != ".":
            raise MalformedError("a value that is no reference where one belongs")
        path = reference.get("path")
        if path is None:
            return h5py.h5r.RegionReference() if is_region else h5py.h5r.Reference()
        if not isinstance(path, str) or not path or "\0" in path:
            raise MalformedError("a reference without a path")
        name = path.encode("utf-8", "surrogateescape")
        try:
            if not is_region:
                return h5r.create(self._root, name, h5r.OBJECT)
            space = h5py.h5d.open(self._root, name).get_space()
            _select(space, reference.get("selection"))
            return h5r.create(self._root, name, h5r.DATASET_REGION, space)
        except (KeyError, OSError, ValueError, TypeError, RuntimeError) as error:
            raise MissingTargetError(f"a reference to {path[:100]}, which is not there: {error}") from None


def _select(space: h5s.SpaceID, selection: Any) -> None:
    if selection == "all":
        space.select_all()
    elif selection == "none":
        space.select_none()
    elif isinstance(selection, dict) and "points" in selection:
        space.select_elements(np.array(selection["points"], np.uint64))
    elif isinstance(selection, dict) and "blocks" in selection:
        for number, (first, last) in enumerate(selection["blocks"]):
            block = tuple(b - a + 1 for a, b in zip(first, last, strict=True))
            ones = (1,) * len(first)
            space.select_hyperslab(tuple(first), ones, ones, block, h5s.SELECT_OR if number else h5s.SELECT_SET)
    else:
        raise MalformedError("a reference to a region without a selection")


def array_of(
    items: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...], reference: ReferenceMaker
) -> np.ndarray[Any, Any]:
    """An array of ``dtype`` from one JSON value for each element, in row-major order.

    Raises
    ------
    MalformedError
        A value does not fit.
    """
    if len(items) != math.prod(shape):
        raise MalformedError(f"{len(items)} values where the shape {shape} wants {math.prod(shape)}")
    base, inner = dtype.subdtype if dtype.subdtype is not None else (dtype, ())
    out = np.empty((len(items), *inner), base)
    for position, item in enumerate(items):
        out[position] = _element(item, dtype, reference)
    return out.reshape((*shape, *inner))


def _element(value: Any, dtype: np.dtype[Any], reference: ReferenceMaker) -> Any:
    try:
        return _convert(value, dtype, reference)
    except MalformedError:
        raise
    except (TypeError, ValueError, OverflowError, KeyError, UnicodeError, binascii.Error) as error:
        raise MalformedError(f"the value {str(value)[:60]} does not fit the type {dtype}: {error}") from None


def _convert(value: Any, dtype: np.dtype[Any], reference: ReferenceMaker) -> Any:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return array_of(_flatten(value, len(shape)), base, shape, reference)
    if dtype.names:
        if not isinstance(value, list) or len(value) != len(dtype.names):
            raise MalformedError(f"a row that has not {len(dtype.names)} fields")
        return tuple(_element(v, dtype[name], reference) for v, name in zip(value, dtype.names, strict=True))
    kind = h5py.check_ref_dtype(dtype)
    if kind is not None:
        return reference(value, kind is h5py.RegionReference)
    if h5py.check_string_dtype(dtype) is not None:
        data = _bytes(value) if isinstance(value, dict) else _text(value)
        if b"\0" in data and dtype.kind == "O":
            raise MalformedError("a string with a null character, which HDF5 cannot hold")
        if dtype.kind == "S" and len(data) > dtype.itemsize:
            raise MalformedError(f"a string longer than {dtype.itemsize} bytes")
        return data
    vlen = h5py.check_vlen_dtype(dtype)
    if vlen is not None:
        return array_of(_flatten(value, 1), np.dtype(vlen), (len(value),), reference)
    return _number(value, dtype)


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):  # of the codec vlen-bytes
        return value
    if not isinstance(value, str):
        raise MalformedError(f"the value {str(value)[:60]} where a string belongs")
    return value.encode("utf-8", "surrogateescape")


def _bytes(value: Mapping[str, Any]) -> bytes:
    return base64.b64decode(value["base64"], validate=True)


def _number(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, dict):
        data = _bytes(value)
        if len(data) != dtype.itemsize:
            raise MalformedError(f"{len(data)} bytes where the type {dtype} has {dtype.itemsize}")
        return np.frombuffer(data, dtype)[0]
    if dtype.kind == "c":
        real, imaginary = value
        return complex(_real(real), _real(imaginary))
    if dtype.kind == "b":
        if not isinstance(value, bool) and value not in (0, 1):
            raise MalformedError(f"the value {str(value)[:60]} where a boolean belongs")
        return bool(value)
    if dtype.kind in "iu":
        if type(value) not in (int, bool):
            raise MalformedError(f"the value {str(value)[:60]} where an integer belongs")
        return dtype.type(int(value))
    if dtype.kind == "f":
        return dtype.type(_real(value))
    raise MalformedError(f"the value {str(value)[:60]} does not fit the type {dtype}")


def _real(value: Any) -> float:
    if isinstance(value, str):
        return _SPECIAL[value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise MalformedError(f"the value {str(value)[:60]} where a number belongs")


def _flatten(value: Any, depth: int) -> list[Any]:
    """The elements of nested lists, ``depth`` deep."""
    if not isinstance(value, list):
        raise MalformedError(f"the value {str(value)[:60]} where a list belongs")
    for _ in range(depth - 1):
        if not all(isinstance(item, list) for item in value):
            raise MalformedError("nested lists of different depths")
        value = [inner for item in value for inner in item]
    return value  # type: ignore[no-any-return]


# -- attributes without a type --------------------------------------------------------------------------------------


def infer_attribute(value: Any) -> tuple[np.dtype[Any], tuple[int, ...] | None, list[Any]]:
    """Dtype, shape and elements of an attribute of which only its JSON is known, as h5py would write it.

    Integers are 64 bits wide, floats doubles, strings of variable length; lists whose members have one type are arrays.
    ``"NaN"`` and the infinities are numbers, as LINDI writes them. Null is an empty attribute. Anything else has no
    HDF5 type, and is kept as its JSON text.
    """
    if value is None:
        return np.dtype("f8"), None, []
    flat, shape = _regular(value)
    dtype = _common_dtype(flat) if flat is not None else None
    if dtype is None:
        return h5py.string_dtype(), (), [json.dumps(value)]
    assert flat is not None
    return dtype, shape, flat


def _regular(value: Any) -> tuple[list[Any] | None, tuple[int, ...]]:
    """The elements and the shape of nested lists; None if they are ragged."""
    shape: list[int] = []
    flat = [value]
    while flat and isinstance(flat[0], list):
        lengths = {len(item) if isinstance(item, list) else -1 for item in flat}
        if len(lengths) > 1 or len(shape) == 32:
            return None, ()
        shape.append(lengths.pop())
        flat = [inner for item in flat for inner in item]
    if any(isinstance(item, list) for item in flat):
        return None, ()
    return flat, tuple(shape)


def _common_dtype(flat: list[Any]) -> np.dtype[Any] | None:
    if not flat:
        return np.dtype("f8")
    if all(isinstance(item, bool) for item in flat):
        return np.dtype(np.bool_)
    if all(type(item) is int for item in flat):
        if min(flat) >= -(1 << 63) and max(flat) < 1 << 63:
            return np.dtype("i8")
        return np.dtype("u8") if min(flat) >= 0 and max(flat) < 1 << 64 else None
    if all(type(item) in (int, float) or (isinstance(item, str) and item in _SPECIAL) for item in flat):
        return np.dtype("f8")
    if all(isinstance(item, str) for item in flat):
        text: np.dtype[Any] = h5py.string_dtype()
        return None if any("\0" in item for item in flat) else text
    if all(isinstance(item, dict) and isinstance(item.get("_REFERENCE"), dict) for item in flat):
        regions = ["selection" in item["_REFERENCE"] for item in flat]
        if all(regions) or not any(regions):
            reference: np.dtype[Any] = h5py.regionref_dtype if regions[0] else h5py.ref_dtype
            return reference
    return None
