"""``lindi-bridge view``."""

from __future__ import annotations

import argparse
from typing import Any

from lindi_bridge.cli.source import encoding_of, find, link_target, open_source
from lindi_bridge.cli.text import clean, count, display, kind_of, size, write
from lindi_bridge.errors import LindiBridgeError

__all__ = ["run"]

_MOST_CHILDREN = 200
_MOST_COLUMNS = 10
_MOST_CHARACTERS = 300
_SLOTS = ("obs", "var", "obsm", "varm", "layers", "obsp", "varp", "uns", "raw")
_UNREADABLE = (LindiBridgeError, KeyError, OSError, RuntimeError, TypeError, ValueError)


def run(options: argparse.Namespace) -> int:
    """Show the object at PATH."""
    import h5py

    with open_source(options) as file:
        obj = find(file, options)
        _row("Path", clean(obj.name or options.path))
        if isinstance(obj, h5py.Dataset):
            _show_dataset(obj)
            _show_attributes(obj)
            _show_values(obj, options.rows)
        elif isinstance(obj, h5py.Group):
            _row("Type", " ".join(["group", f"<{clean(encoding_of(obj))}>" if encoding_of(obj) else ""]).rstrip())
            if obj.name == "/" and "obs" in obj and "var" in obj:
                _show_anndata(obj)
            _show_attributes(obj)
            _show_children(obj)
        else:
            _row("Type", "datatype")
            _row("Dtype", clean(kind_of(obj.dtype)))
            _show_attributes(obj)
    return 0


def _row(label: str, value: str) -> None:
    write(f"{label + ':':<13}{value}")


def _show_dataset(dataset: Any) -> None:
    encoding = encoding_of(dataset)
    _row("Type", f"dataset <{clean(encoding)}>" if encoding else "dataset")
    _row("Shape", "empty" if dataset.shape is None else str(dataset.shape))
    _row("Dtype", clean(kind_of(dataset.dtype)))
    if dataset.shape is None:
        return
    if dataset.maxshape != dataset.shape:
        _row("Maxshape", str(dataset.maxshape))
    _row("Chunks", str(dataset.chunks) if dataset.chunks else "none (not chunked)")
    _row("Compression", _compression(dataset))
    if dataset.dtype.kind != "O":  # else the values lie elsewhere in the file, and HDF5 does not add them up
        _row("Size", f"{size(dataset.nbytes)}, stored in {size(dataset.id.get_storage_size())}")


def _compression(dataset: Any) -> str:
    create = dataset.id.get_create_plist()
    names = []
    for position in range(create.get_nfilters()):
        number, _, values, label = create.get_filter(position)
        known = {1: "gzip", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}
        name = known.get(number) or label.decode("utf-8", "replace") or "filter"
        name += f" ({number})" if number > 255 else ""
        names.append(clean(f"{name} level {values[0]}" if number == 1 and values else name))
    return ", ".join(names) or "none"


def _show_attributes(obj: Any) -> None:
    lines = []
    for name in obj.attrs:
        try:
            text = display(obj.attrs[name])
        except _UNREADABLE as error:
            text = f"(cannot be read: {clean(str(error))})"
        lines.append(f"    {clean(name)} = {_cut(text)}")
    if lines:
        write("Attributes:")
        for line in lines:
            write(line)


def _show_children(group: Any) -> None:
    import h5py

    names = list(group)
    write(f"Children ({len(names)}):" if names else "Children:    none")
    for name in names[:_MOST_CHILDREN]:
        try:
            target = link_target(group.get(name, getlink=True))
            if target is not None:
                write(f"    {clean(name)} -> {clean(target)}")
                continue
            child = group[name]
            parts = [clean(name) + ("/" if isinstance(child, h5py.Group) else "")]
            if encoding_of(child):
                parts.append(f"<{clean(encoding_of(child))}>")
            if isinstance(child, h5py.Dataset):
                parts += ["empty" if child.shape is None else str(child.shape), clean(kind_of(child.dtype))]
            write("    " + " ".join(parts))
        except _UNREADABLE as error:
            write(f"    {clean(name)} (cannot be read: {clean(str(error))})")
    if len(names) > _MOST_CHILDREN:
        write(f"    and {count(len(names) - _MOST_CHILDREN, 'more name')} (lindi-bridge ls lists all)")


def _show_anndata(root: Any) -> None:
    n_obs, n_var = _length(root, "obs", 0), _length(root, "var", 1)
    _row("AnnData", f"n_obs x n_var: {'?' if n_obs is None else n_obs} x {'?' if n_var is None else n_var}")
    for slot in _SLOTS:
        if slot in root and hasattr(root[slot], "keys"):
            index = root[slot].attrs.get("_index")
            names = [clean(name) for name in root[slot] if name != index and name != "__categories"]
            if names:
                write(f"    {slot + ':':<8} {_cut(', '.join(names))}")


def _length(root: Any, frame: str, axis: int) -> int | None:
    """Rows of ``obs`` or ``var``: of its index, else the extent of X."""
    import h5py

    try:
        table = root[frame]
        if isinstance(table, h5py.Dataset):  # anndata 0.6 wrote a compound dataset
            return int(table.shape[0])
        index = table[table.attrs["_index"]]
        if isinstance(index, h5py.Group):  # a nullable or categorical array
            index = index["values"] if "values" in index else index["codes"]
        return int(index.shape[0])
    except _UNREADABLE:
        pass  # an index of another kind: X tells as well
    try:
        matrix = root["X"]
        return int((matrix.shape if isinstance(matrix, h5py.Dataset) else matrix.attrs["shape"])[axis])
    except _UNREADABLE:
        return None


def _show_values(dataset: Any, rows: int) -> None:
    import h5py
    import numpy as np

    if not rows or dataset.shape is None or 0 in dataset.shape:
        return
    box = tuple(slice(0, min(n, _MOST_COLUMNS if axis else rows)) for axis, n in enumerate(dataset.shape))
    try:
        values = dataset[box]
    except _UNREADABLE as error:
        raise LindiBridgeError(f"{dataset.name}: its values cannot be read: {_reason(error)}") from error
    if not dataset.shape:
        write("Value:")
        write("    " + _cut(display(values)))
        return
    shown = [str(min(n, rows)) if axis == 0 else str(min(n, _MOST_COLUMNS)) for axis, n in enumerate(dataset.shape)]
    write(f"First values ({' x '.join(shown)} of {' x '.join(map(str, dataset.shape))}):")
    texts = dataset.dtype.kind not in "biufc" or h5py.check_enum_dtype(dataset.dtype) is not None
    if values.ndim == 1:
        for value in values:
            write("    " + _cut(display(value)))
    elif texts:
        for row in values.reshape(len(values), -1):
            write("    " + _cut(display(row)))
    else:
        for line in np.array2string(values, threshold=values.size, max_line_width=100).splitlines():
            write("    " + line)


def _reason(error: Exception) -> str:
    return clean(str(error.args[0] if isinstance(error, KeyError) and error.args else error))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
