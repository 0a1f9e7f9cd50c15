"""HDF5 datatypes: which of them Zarr v2 can name, and a description in JSON for those that it cannot."""

from __future__ import annotations

import base64
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5t

from lindi_bridge.hdf5.stored_types import is_type
from lindi_bridge.model.floats import is_usual_nan, number_bytes, real_parts
from lindi_bridge.model.text import text_name

__all__ = [
    "contains_references",
    "describe_dtype",
    "encode_exact_fill",
    "encode_fill",
    "encoded_type",
    "fill_value",
    "has_fill_value",
    "holds_nested_array",
    "is_same_fill",
    "stored_dtype",
    "without_gaps",
    "zarr_dtype",
]

JSONValue = Any


def stored_dtype(type_id: h5t.TypeID) -> np.dtype[Any] | None:
    """The numpy dtype whose bytes are exactly the stored bytes of an HDF5 type, or None.

    None for everything that points elsewhere (variable length, references), for types whose bits numpy reads
    otherwise (odd integers, space-padded strings), and for compound and array types.
    """
    dtype: np.dtype[Any] = type_id.dtype
    if isinstance(type_id, h5t.TypeEnumID):
        base = type_id.get_super()
        if dtype == np.bool_ and base.get_size() == 1:
            return np.dtype(np.bool_)
        plain = base.dtype
        return np.dtype(plain.str) if base == h5t.py_create(plain) else None
    if isinstance(type_id, h5t.TypeOpaqueID):
        return dtype if dtype.itemsize == type_id.get_size() else None
    if dtype.kind in "iufcS" and h5py.check_vlen_dtype(dtype) is None and dtype.subdtype is None:
        return np.dtype(dtype.str) if type_id == h5t.py_create(dtype, logical=True) else None
    return None


def zarr_dtype(dtype: np.dtype[Any]) -> str:
    """The Zarr v2 type string of a plain dtype (Zarr specification v2, "Data type encoding")."""
    return f"|V{dtype.itemsize}" if dtype.kind == "V" else dtype.str


def fill_value(dataset: h5py.Dataset, dtype: np.dtype[Any]) -> JSONValue:
    """The fill value of a dataset, as ``.zarray`` has it; None where HDF5 has none either."""
    if not has_fill_value(dataset):
        return None
    if is_never_filled(dataset):
        return encode_fill(np.zeros((), dtype), dtype)
    return encode_fill(declared_fill(dataset, dtype), dtype)


def declared_fill(dataset: h5py.Dataset, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The fill value as a value of ``dtype``."""
    # h5py's has the dtype that h5py shows, which is not always the stored one.
    return np.asarray(dataset.fillvalue).astype(dtype)


def is_never_filled(dataset: h5py.Dataset) -> bool:
    """Whether libhdf5 leaves alone what was never written: h5py then reads zeros, whatever the fill value is."""
    return bool(dataset.id.get_create_plist().get_fill_time() == h5d.FILL_TIME_NEVER)


def has_fill_value(dataset: h5py.Dataset) -> bool:
    """Whether there is a value for what was never written; one who makes a file may say that there is none."""
    try:
        return bool(dataset.id.get_create_plist().fill_value_defined() != h5d.FILL_VALUE_UNDEFINED)
    except (ValueError, RuntimeError):  # what h5py makes of damage
        return True


def without_gaps(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same values, with zeros where a compound has nothing; HDF5 leaves there whatever was in memory."""
    out = np.zeros(values.shape, values.dtype)
    if values.dtype.names is None:
        out[...] = values
    for name in values.dtype.names or ():
        out[name] = without_gaps(values[name])
    return out


def encode_fill(value: Any, dtype: np.dtype[Any]) -> JSONValue:
    """A value of ``dtype`` as the ``fill_value`` of ``.zarray`` (Zarr specification v2, "Fill value encoding")."""
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iu":
        return int(value)
    if dtype.kind in "mM":
        return int(value.view(np.int64))
    if dtype.kind == "f":
        return _float(float(value))
    if dtype.kind == "c":
        return [_float(float(value.real)), _float(float(value.imag))]
    return base64.standard_b64encode(value.tobytes()).decode("ascii")


def encode_exact_fill(value: Any, dtype: np.dtype[Any]) -> JSONValue:
    """The same for annotations: all bits of a number in base64 where a double has fewer, or ``"NaN"`` has others."""
    if dtype.kind in "fc":
        parts = real_parts(np.asarray(value))
        with np.errstate(over="ignore", invalid="ignore"):  # infinite is another value, and NaN has signals
            doubles = parts.astype("f8").astype(parts.dtype)
        unusual = any(np.isnan(part) and not is_usual_nan(np.asarray(part)) for part in parts)
        if unusual or not np.array_equal(doubles, parts, equal_nan=True):
            return base64.standard_b64encode(number_bytes(parts)).decode("ascii")
    return encode_fill(value, dtype)


def is_same_fill(one: JSONValue, other: JSONValue) -> bool:
    """Whether two encoded fill values are the same; 0.0 and -0.0 are not."""
    return repr(one) == repr(other)


def _float(value: float) -> float | str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def contains_references(dtype: np.dtype[Any]) -> bool:
    """Whether an element holds an object or region reference anywhere."""
    if h5py.check_ref_dtype(dtype) is not None:
        return True
    if dtype.names:
        return any(contains_references(dtype[name]) for name in dtype.names)
    if dtype.subdtype is not None:
        return contains_references(dtype.subdtype[0])
    vlen = h5py.check_vlen_dtype(dtype)
    return vlen is not None and contains_references(np.dtype(vlen))


def holds_nested_array(dtype: np.dtype[Any], in_list: bool = False) -> bool:
    """Whether an element holds an array of arrays, or a list of arrays, anywhere: numpy and h5py merge or lose axes."""
    if dtype.names:
        return any(holds_nested_array(dtype[name]) for name in dtype.names)
    if dtype.subdtype is not None:
        base = dtype.subdtype[0]
        return in_list or base.subdtype is not None or holds_nested_array(base)
    vlen = h5py.check_vlen_dtype(dtype)
    return vlen is not None and holds_nested_array(np.dtype(vlen), in_list=True)


def describe_dtype(dtype: np.dtype[Any]) -> JSONValue:
    """Describe a dtype as h5py shows it, metadata included, in JSON.

    A type string for numbers, booleans and opaque bytes; else an object with one of the keys ``string``
    (``utf-8`` or ``ascii``; ``length`` in bytes or null), ``enum``, ``vlen``, ``reference``, ``array`` (with
    ``shape``), ``compound`` (with ``itemsize``).
    """
    string = h5py.check_string_dtype(dtype)
    if string is not None:
        return {"string": string.encoding, "length": string.length}
    enum = h5py.check_enum_dtype(dtype)
    if enum is not None:
        return {"enum": {text_name(name): int(value) for name, value in enum.items()}, "base": dtype.str}
    reference = h5py.check_ref_dtype(dtype)
    if reference is not None:
        return {"reference": "region" if reference is h5py.RegionReference else "object"}
    vlen = h5py.check_vlen_dtype(dtype)
    if vlen is not None:
        return {"vlen": describe_dtype(np.dtype(vlen))}
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"array": describe_dtype(base), "shape": list(shape)}
    if dtype.names:
        return {
            "compound": [[name, describe_dtype(dtype[name]), dtype.fields[name][1]] for name in dtype.names],  # type: ignore[index]
            "itemsize": dtype.itemsize,
        }
    return dtype.str


def encoded_type(type_id: h5t.TypeID, dtype: np.dtype[Any]) -> str | None:
    """The stored type (``H5Tencode``, base64) where h5py would make another one of the dtype; else None."""
    try:
        # Names that are not UTF-8, lone surrogates in the description, come back by the stored type alone.
        same = "\\udc" not in ascii(describe_dtype(dtype)) and is_type(h5t.py_create(dtype, logical=True), type_id)
    except (TypeError, ValueError):
        same = False
    return None if same else base64.standard_b64encode(type_id.encode()).decode("ascii")
