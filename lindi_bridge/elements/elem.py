"""One element of an AnnData file, read by anndata on h5py's own types, after everything below it was fetched."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from lindi_bridge.client.file import plain
from lindi_bridge.client.prefetch import contents, prefetch
from lindi_bridge.client.wrapping import is_ours, wrap
from lindi_bridge.elements.encoding import UNTAGGED, Encoding, encoding_of, inferred_type, text_attribute
from lindi_bridge.elements.keys import unescape_key
from lindi_bridge.elements.registration import register_types
from lindi_bridge.errors import ElementError, MissingDependencyError
from lindi_bridge.store.origin import hdf5_object

__all__ = ["read_elem", "require_anndata"]

ESCAPED_MAPPING = Encoding("dict", "0.2.0")
ACCESSOR = Encoding("accessor", "0.1.0")
_MAPPINGS = {UNTAGGED, Encoding("dict", "0.1.0"), ESCAPED_MAPPING}
_ANNDATA = {Encoding("anndata", "0.1.0"), Encoding("raw", "0.1.0")}
_SPARSE = {"csr_matrix", "csc_matrix"}


def read_elem(obj: Any) -> Any:
    """Read an element into memory, as :func:`anndata.io.read_elem` reads it from a local file.

    Everything below it is fetched first, at the same time; what is larger than half of the cache follows in pieces.

    Parameters
    ----------
    obj : File, Group or Dataset
        From a file opened with :func:`lindi_bridge.open`: ``f["obs"]``, ``f["uns/pca"]``, ``f`` itself; or a group or
        array of :func:`lindi_bridge.open_zarr`, which stands for the HDF5 object that it shows.

    Returns
    -------
    DataFrame, array, sparse matrix, AnnData, dict, ...
        What anndata makes of it. Beyond that, encodings that are newer than the installed anndata: mappings with
        escaped keys (``dict`` 0.2.0) are dictionaries, accessors are those of :mod:`anndata.acc`, or where anndata has
        none their JSON form, a list. And groups that do not say what they are: a group of codes and categories, of
        values and a mask, or with an attribute ``_index`` is read as a categorical, a nullable array, a data frame,
        if it is the element asked for or a column of a data frame.

    Raises
    ------
    ElementError
        The element contradicts itself.
    TypeError
        Not an object of ours.
    MissingDependencyError
        anndata is not installed.
    """
    require_anndata()
    obj = hdf5_object(obj)
    if not is_ours(obj):
        raise TypeError(f"{type(obj).__name__}: read_elem takes an object of a file from lindi_bridge.open")
    found = contents([obj])
    prefetch([obj], found)
    if not found.is_self_contained:
        # h5py's own types would look in this file for what lies in others.
        import anndata

        register_types()
        return anndata.io.read_elem(obj)
    inferred = inferred_type(obj)
    return _READERS[inferred](obj) if inferred else _read(obj)


def require_anndata() -> None:
    """Import anndata, or say how to get it."""
    try:
        import anndata  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"anndata is needed to read its elements ({error}); install lindi_bridge[anndata]"
        ) from error


def _read(obj: Any) -> Any:
    encoding = encoding_of(obj)
    if encoding == ACCESSOR and not _is_known(ACCESSOR):
        return _read_accessor(obj)
    if isinstance(obj, h5py.Group) and _needs_us(obj):
        if encoding in _ANNDATA:
            import anndata

            return anndata.AnnData(**_read_mapping(obj, encoding))
        if encoding.type == "dataframe":
            return _read_dataframe(obj)
        return _read_mapping(obj, encoding)
    return _read_by_anndata(obj)


def _needs_us(obj: Any) -> bool:
    """Whether there is something in an element that anndata does not know."""
    encoding = encoding_of(obj)
    if encoding in (ESCAPED_MAPPING, ACCESSOR):
        return not _is_known(encoding)
    if not isinstance(obj, h5py.Group):
        return False
    if encoding in _MAPPINGS or encoding in _ANNDATA:
        return "h5sparse_format" not in obj.attrs and any(map(_needs_us, filter(None, obj.values())))
    return encoding == Encoding("dataframe", "0.2.0") and any(inferred_type(child) for child in obj.values())


@functools.cache
def _is_known(encoding: Encoding) -> bool:
    """Whether the installed anndata reads an encoding; it is asked with a small element."""
    import anndata

    with h5py.File(f"{encoding.type} {encoding.version}", "w", driver="core", backing_store=False) as file:
        if encoding == ACCESSOR:
            file["element"] = json.dumps(["obs", "name"])
        else:
            file.create_group("element")
        file["element"].attrs.update({"encoding-type": encoding.type, "encoding-version": encoding.version})
        try:
            anndata.io.read_elem(file["element"])
        except Exception as error:  # noqa: BLE001 (the class is not public; any other error comes from a reader)
            return type(error).__name__ != "IORegistryError"
    return True


def _read_by_anndata(obj: Any) -> Any:
    """Hand over h5py's types, but read leaves through ours, which read in pieces what is larger than the cache."""
    from anndata.experimental import read_dispatched

    file = obj._file_object

    def read(reader: Callable[[Any], Any], name: str, elem: Any, iospec: Any) -> Any:
        ours = wrap(type(elem)(elem.id), file)
        if isinstance(elem, h5py.Dataset) or iospec.encoding_type in _SPARSE or "h5sparse_format" in elem.attrs:
            return reader(ours)
        prefetch([ours])  # where all of it together was too much
        return reader(elem)

    return read_dispatched(plain(obj), read)


def _read_mapping(group: Any, encoding: Encoding) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in group:
        try:
            key = unescape_key(name) if encoding == ESCAPED_MAPPING else name
        except ElementError as error:
            raise ElementError(f"{group._file_object.address}: {group.name}: {error}") from None
        if key in out:
            raise ElementError(f"{group._file_object.address}: {group.name} has two members that stand for {key!r}")
        out[key] = _read(group[name])
    return out


def _read_accessor(obj: Any) -> Any:
    """A reference to a vector of an AnnData object; stored as JSON, a list of strings, integers and nulls."""
    try:
        form = json.loads(obj.asstr()[()])
        return form if (accessors := _accessors()) is None else accessors.from_json(form)
    except (RecursionError, TypeError, ValueError) as error:
        raise ElementError(f"{obj._file_object.address}: {obj.name} is no accessor: {error}") from error


def _accessors() -> Any:
    """Where accessors start from in anndata 0.13 and newer."""
    try:
        from anndata.acc import A
    except ImportError:
        return None
    return A


def _read_dataframe(group: Any) -> Any:
    """A data frame of version 0.2.0; without a list of columns all members are columns, in the file's order."""
    import pandas

    index = text_attribute(group, "_index")
    columns = group.attrs.get("column-order")
    names = [n for n in group if n not in (index, "__categories")] if columns is None else [_text(n) for n in columns]
    frame = pandas.DataFrame(
        {name: _read_column(group[name]) for name in names},
        index=_read_column(group[index]),
        columns=names or None,
    )
    if index != "_index":
        frame.index.name = index
    return frame


def _read_column(obj: Any) -> Any:
    inferred = inferred_type(obj)
    if isinstance(obj, h5py.Dataset) and "categories" in obj.attrs:  # a data frame of version 0.1.0
        categories = obj.parent[obj.attrs["categories"]]
        return _categorical(obj, _read(obj), _read(categories), categories.attrs)
    return _READERS[inferred](obj) if inferred and inferred != "dataframe" else _read(obj)


def _read_categorical(group: Any) -> Any:
    return _categorical(group, _read(group["codes"]), _read(group["categories"]), group.attrs)


def _categorical(obj: Any, codes: Any, categories: Any, attributes: Any) -> Any:
    import pandas

    if len(codes) and not -1 <= codes.min() <= codes.max() < len(categories):
        raise ElementError(
            f"{obj._file_object.address}: {obj.name}: damaged: it has codes from {codes.min()} to {codes.max()}, but "
            f"{len(categories)} categories"
        )
    return pandas.Categorical.from_codes(codes, categories, ordered=bool(attributes.get("ordered", False)))


def _read_nullable(group: Any) -> Any:
    import pandas

    values, mask = _read(group["values"]), _read(group["mask"])
    if values.dtype.kind in "iu":
        return pandas.arrays.IntegerArray(values, mask)
    if values.dtype.kind == "b":
        return pandas.arrays.BooleanArray(values, mask)
    dtype = pandas.StringDtype()
    if text_attribute(group, "na-value") == "NaN":
        with contextlib.suppress(TypeError):  # pandas before 2.3 knows one kind of missing value
            dtype = pandas.StringDtype(na_value=np.nan)
    out = pandas.array(values, dtype=dtype)
    out[mask] = pandas.NA
    return out


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "categorical": _read_categorical,
    "dataframe": _read_dataframe,
    "nullable-boolean": _read_nullable,
    "nullable-integer": _read_nullable,
    "nullable-string-array": _read_nullable,
}
