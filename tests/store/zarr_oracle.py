"""What a Zarr group of an HDF5 file must hold, said by h5py of the local file alone."""

from __future__ import annotations

import base64
import json
from typing import Any

import h5py
import numpy as np
import zarr

_NETCDF = {
    *("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"),
    *("_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties"),
}


def differences(expected: h5py.Group, actual: zarr.Group, left_out: set[str]) -> list[str]:
    """Everything in which a Zarr group is not as h5py says; paths in ``left_out`` may be missing, and must be."""
    found: list[str] = []
    is_netcdf = _has_scales(expected)
    _compare_group(expected, actual, "", left_out, is_netcdf, found, ())
    return found


def _compare_group(
    expected: h5py.Group,
    actual: zarr.Group,
    path: str,
    left_out: set[str],
    is_netcdf: bool,
    found: list[str],
    above: tuple[Any, ...],
) -> None:
    _compare_attributes(expected, actual, path, is_netcdf, found)
    names = [name for name in expected if f"{path}/{name}" not in left_out]
    if names != list(actual.keys()):
        found.append(f"{path}: members {list(actual.keys())}, expected {names}")
        return
    for name in expected:
        below = f"{path}/{name}"
        if below in left_out:
            if name in actual:
                found.append(f"{below}: there, and said to be left out")
            continue
        _compare_node(expected[name], actual[name], below, left_out, is_netcdf, found, (*above, expected.id))


def _compare_node(
    expected: Any, actual: Any, path: str, left_out: set[str], is_netcdf: bool, found: list[str], above: tuple[Any, ...]
) -> None:
    if isinstance(expected, h5py.Group):
        if any(expected.id == group for group in above):
            found.append(f"{path}: a link back")
        elif not isinstance(actual, zarr.Group):
            found.append(f"{path}: no group")
        else:
            _compare_group(expected, actual, path, left_out, is_netcdf, found, above)
    elif not isinstance(actual, zarr.Array):
        found.append(f"{path}: no array")
    else:
        _compare_attributes(expected, actual, path, is_netcdf, found)
        _compare_values(expected, actual, path, found)


# -- values -----------------------------------------------------------------------------------------------------------


def _compare_values(expected: h5py.Dataset, actual: zarr.Array, path: str, found: list[str]) -> None:
    if expected.shape is None:
        if actual.shape != (0,) or not actual.attrs["_HDF5_EMPTY"]:
            found.append(f"{path}: shape {actual.shape} of an empty dataset")
        return
    if expected.dtype.kind == "f" and expected.dtype.itemsize > 8:
        _compare_long_doubles(expected[()], actual[...], path, found)
        return
    values, wanted = np.asarray(actual[...]), expected_values(expected)
    if actual.shape != wanted.shape:
        found.append(f"{path}: shape {actual.shape}, expected {wanted.shape}")
        return
    difference = value_difference(values, wanted)
    if difference:
        found.append(f"{path}: {difference}")


def _compare_long_doubles(expected: np.ndarray, actual: np.ndarray, path: str, found: list[str]) -> None:
    """Those that no double is equal to are bytes, of which the last six mean nothing."""
    values = [json.loads(text) for text in actual]
    numbers = [
        np.frombuffer(base64.b64decode(v["base64"]), expected.dtype)[0]
        if isinstance(v, dict)
        else expected.dtype.type(v)
        for v in values
    ]
    if not np.array_equal(np.array(numbers, expected.dtype), expected):
        found.append(f"{path}: {numbers}, expected {expected.tolist()}")


def value_difference(values: np.ndarray, wanted: np.ndarray) -> str | None:
    """How two arrays differ, to the bit; None if they do not."""
    if wanted.dtype.kind == "O":
        texts = values.astype(object)
        # numpy makes a scalar a string of fixed length.
        if values.dtype.kind not in ("TU" if values.ndim == 0 else "T") or texts.tolist() != wanted.tolist():
            return f"{texts.tolist()!r:.200}, expected {wanted.tolist()!r:.200}"
        return None
    native = values.astype(values.dtype.newbyteorder("="))
    if native.dtype != wanted.dtype:
        return f"dtype {values.dtype}, expected {wanted.dtype}"
    if native.tobytes() != wanted.tobytes():
        return f"{native.tolist()!r:.200}, expected {wanted.tolist()!r:.200}"
    return None


def expected_values(dataset: h5py.Dataset) -> np.ndarray:
    """The values of a dataset as its Zarr array has them, in native byte order; strings as objects."""
    dtype = dataset.dtype
    values = np.asarray(dataset[()])
    if dtype.subdtype is not None:
        dtype = dtype.subdtype[0]
    string = h5py.check_string_dtype(dtype)
    if string is not None and (string.length is None or dataset.attrs.get("encoding-type") == "string-array"):
        return _objects(values, lambda v: v.decode("utf-8") if isinstance(v, bytes) else v)
    if h5py.check_ref_dtype(dtype) is h5py.Reference:
        return _objects(values, lambda v: dataset.file[v].name if v else "")
    if _is_json(dtype):
        return _objects(values, lambda v: json.dumps(plain(v, dtype, dataset.file), ensure_ascii=False))
    if dtype.names:
        return _compound(values, dtype)
    return np.ascontiguousarray(values.astype(np.dtype(dtype.str).newbyteorder("="))).reshape(values.shape)


def _objects(values: np.ndarray, convert: Any) -> np.ndarray:
    out = np.empty(values.shape, object)
    for index in np.ndindex(values.shape):
        out[index] = convert(values[index])
    return out


def _is_json(dtype: np.dtype) -> bool:
    if dtype.names:
        return any(
            dtype[n].subdtype is not None
            or dtype[n].names
            or (_is_json(dtype[n]) and not h5py.check_string_dtype(dtype[n]))
            for n in dtype.names
        )
    if dtype.hasobject:
        return True
    return dtype.itemsize > {"f": 8, "c": 16}.get(dtype.kind, dtype.itemsize)


def _compound(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    fields = []
    for name in dtype.names:
        field = dtype[name]
        if field.hasobject:
            longest = max([1, *(len(v.decode()) for v in values[name].reshape(-1))])
            fields.append((name, f"<U{longest}"))
        else:
            fields.append((name, np.dtype(field.str).newbyteorder("=")))
    out = np.empty(values.shape, fields)
    for name in dtype.names:
        column = values[name]
        out[name] = (
            np.array([v.decode() for v in column.reshape(-1)]).reshape(column.shape)
            if column.dtype.hasobject
            else column
        )
    return out


def plain(value: Any, dtype: np.dtype, file: h5py.File) -> Any:
    """A value in JSON's terms."""
    if isinstance(value, h5py.RegionReference) or (isinstance(value, h5py.Reference) and dtype.hasobject):
        return _reference(value, file)
    if dtype.subdtype is not None:
        return [plain(v, dtype.subdtype[0], file) for v in np.asarray(value)]
    if dtype.names:
        return [plain(value[name], dtype[name], file) for name in dtype.names]
    if isinstance(value, np.ndarray):
        base = h5py.check_vlen_dtype(dtype) or dtype
        return [plain(v, np.dtype(base), file) for v in value]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, np.complexfloating):
        return [plain(part, np.dtype("f8"), file) for part in (value.real, value.imag)]
    if isinstance(value, np.floating):
        if value != value:
            return "NaN"
        if np.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        if type(value)(float(value)) != value:
            return {"base64": base64.b64encode(value.tobytes()).decode()}
        return float(value)
    if isinstance(value, np.void):
        return {"base64": base64.b64encode(value.tobytes()).decode()}
    return value.item() if isinstance(value, np.generic) else value


def _reference(value: Any, file: h5py.File) -> Any:
    identifier = file.attrs.get("object_id")
    if not value:
        return {"_REFERENCE": {"source": ".", "path": None, "object_id": None, "source_object_id": None}}
    target = file[value]
    found = {
        "source": ".",
        "path": target.name,
        "object_id": target.attrs.get("object_id"),
        "source_object_id": identifier,
    }
    if isinstance(value, h5py.RegionReference):
        space = h5py.h5r.get_region(value, file.id)
        found["selection"] = {"blocks": space.get_select_hyper_blocklist().tolist()}
    return {"_REFERENCE": found}


# -- attributes -------------------------------------------------------------------------------------------------------


def _compare_attributes(expected: Any, actual: Any, path: str, is_netcdf: bool, found: list[str]) -> None:
    wanted = {name: expected_attribute(expected, name) for name in expected.attrs}
    if is_netcdf:
        wanted = {n: v[0] if isinstance(v, list) and len(v) == 1 else v for n, v in wanted.items() if n not in _NETCDF}
    got = {name: value for name, value in actual.attrs.items() if not name.startswith("_HDF5_")}
    for skipped in ("_FillValue",):  # has a test of its own
        got.pop(skipped, None)
        wanted.pop(skipped, None)
    # Text, because NaN is not equal to itself.
    if json.dumps(got, sort_keys=True) != json.dumps(wanted, sort_keys=True):
        found.append(f"{path}: attributes {got!r:.300}, expected {wanted!r:.300}")


def expected_attribute(obj: Any, name: str) -> Any:
    """An attribute as plain JSON, NaN as a number."""
    value, dtype = obj.attrs[name], obj.attrs.get_id(name).dtype
    if isinstance(value, h5py.Empty):
        return None
    return _attribute(value, dtype, obj.file)


def _attribute(value: Any, dtype: np.dtype, file: h5py.File) -> Any:
    if isinstance(value, h5py.Reference) and not isinstance(value, h5py.RegionReference):
        return file[value].name if value else None
    if dtype.subdtype is not None:
        dtype = dtype.subdtype[0]
    if isinstance(value, np.ndarray) and value.shape:
        return [_attribute(v, dtype, file) for v in value]
    if isinstance(value, np.floating) and value.itemsize <= 8:
        return float(value)
    return plain(value, dtype, file)


def _has_scales(file: h5py.Group) -> bool:
    names: list[bool] = ["_NCProperties" in file.attrs]
    file.visititems(lambda name, obj: names.append(isinstance(obj, h5py.Dataset) and bool(obj.is_scale)))
    return any(names)
