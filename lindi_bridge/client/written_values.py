"""Values in JSON -> arrays for h5py to write; the inverse of ``indexer.values``."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np
from h5py import h5r, h5s

from lindi_bridge.client.written_nans import NaNBits
from lindi_bridge.document.problems import MalformedError
from lindi_bridge.model.text import stored_name

__all__ = ["SPECIAL", "MissingTargetError", "ReferenceMaker", "array_of", "string_bytes"]

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Numbers that JSON has no word for, as LINDI writes them."""

_MOST_BYTES = 1 << 30
"""Of one array."""


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
        name = stored_name(path)
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
        space.select_none()
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
    if len(items) * dtype.itemsize > _MOST_BYTES:
        raise MalformedError(f"{len(items)} values of {dtype.itemsize} bytes, which are too many")
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
        data = string_bytes(value)
        if b"\0" in data and dtype.kind == "O":
            raise MalformedError("a string with a null character, which HDF5 cannot hold")
        if dtype.kind == "S" and len(data) > dtype.itemsize:
            raise MalformedError(f"a string longer than {dtype.itemsize} bytes")
        return data
    vlen = h5py.check_vlen_dtype(dtype)
    if vlen is not None:
        return array_of(_flatten(value, 1), np.dtype(vlen), (len(value),), reference)
    return _number(value, dtype)


def string_bytes(value: Any) -> bytes:
    """The bytes of a string: text, ``{"base64": ...}`` where they are not UTF-8, or as they are."""
    if isinstance(value, dict):
        return _bytes(value)
    if isinstance(value, bytes):  # of the codec vlen-bytes
        return value
    if not isinstance(value, str):
        raise MalformedError(f"the value {str(value)[:60]} where a string belongs")
    return value.encode("utf-8", "surrogateescape")


def _bytes(value: Mapping[str, Any]) -> bytes:
    return base64.b64decode(value["base64"], validate=True)


def _number(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, (dict, NaNBits)):
        data = value.data if isinstance(value, NaNBits) else _bytes(value)
        if len(data) != dtype.itemsize:
            raise MalformedError(f"{len(data)} bytes where the type {dtype} has {dtype.itemsize}")
        found = np.frombuffer(data, dtype)[0]
        if isinstance(value, NaNBits) and not (dtype.kind == "f" and np.isnan(found)):
            raise MalformedError(f"its annotation says bits of a NaN that are none of {dtype}")
        return found
    if dtype.kind == "c":
        real, imaginary = value
        out = np.zeros((), dtype)
        # Each part as a number by itself, which is its bytes where no double holds it.
        out.real, out.imag = _number(real, out.real.dtype), _number(imaginary, out.real.dtype)
        return out[()]
    if dtype.kind == "b":
        if not isinstance(value, bool) and value not in (0, 1):
            raise MalformedError(f"the value {str(value)[:60]} where a boolean belongs")
        return bool(value)
    if dtype.kind in "iu":
        if type(value) not in (int, bool):
            raise MalformedError(f"the value {str(value)[:60]} where an integer belongs")
        return dtype.type(int(value))
    if dtype.kind == "f":
        return _float(_real(value), dtype)
    raise MalformedError(f"the value {str(value)[:60]} does not fit the type {dtype}")


def _real(value: Any) -> float:
    if isinstance(value, str):
        return SPECIAL[value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise MalformedError(f"the value {str(value)[:60]} where a number belongs")


def _float(value: float, dtype: np.dtype[Any]) -> Any:
    with np.errstate(over="ignore"):
        found = dtype.type(value)
    if np.isinf(found) and not math.isinf(value):
        raise MalformedError(f"the number {value}, which the type {dtype} does not have")
    return found


def _flatten(value: Any, depth: int) -> list[Any]:
    """The elements of nested lists, ``depth`` deep."""
    if not isinstance(value, list):
        raise MalformedError(f"the value {str(value)[:60]} where a list belongs")
    for _ in range(depth - 1):
        if not all(isinstance(item, list) for item in value):
            raise MalformedError("nested lists of different depths")
        value = [inner for item in value for inner in item]
    return value  # type: ignore[no-any-return]
