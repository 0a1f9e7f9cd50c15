"""Random HDF5 files: trees of groups, datasets and attributes of every type, links of every kind, references."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from hypothesis import strategies as st

__all__ = ["random_trees", "write_tree"]

Random = np.random.Generator
Step = tuple[str, str, str, Any]
"""What is made, the name, the group or object it is made in (by number, as text), and how."""

_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=6).filter(
    lambda name: name not in (".", "..")
)
_NUMBERS = st.sampled_from(
    [f"{order}{kind}" for order in "<>" for kind in ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")]
    + ["|i1", "|u1", "?"]
).map(np.dtype)
_PLAIN = st.one_of(
    _NUMBERS,
    st.sampled_from(["M8[ns]", "M8[D]", "m8[s]"]).map(h5py.opaque_dtype),
    st.integers(1, 9).map(lambda n: np.dtype(f"V{n}")),
    st.sampled_from(["i1", "<u2", ">i4"]).map(lambda base: h5py.enum_dtype({"RED": 0, "GRÜN": 1, "x": 100}, base)),
    st.builds(h5py.string_dtype, st.sampled_from(["utf-8", "ascii"]), st.integers(1, 9)),
)
_POINTING = st.one_of(
    st.sampled_from(["utf-8", "ascii"]).map(h5py.string_dtype),
    st.sampled_from([h5py.ref_dtype, h5py.regionref_dtype]),
    _NUMBERS.map(h5py.vlen_dtype),
)


def _compound(members: st.SearchStrategy[np.dtype[Any]]) -> st.SearchStrategy[np.dtype[Any]]:
    named = st.dictionaries(_NAMES, members, min_size=1, max_size=3)
    return st.builds(lambda fields, align: np.dtype(list(fields.items()), align=align), named, st.booleans())


def _array(base: np.dtype[Any], shape: list[int]) -> np.dtype[Any]:
    if base.subdtype is not None:  # numpy has no arrays of arrays but by their axes
        base, shape = base.subdtype[0], [*shape, *base.subdtype[1]]
    return np.dtype((base, tuple(shape)))


def _has_hdf5(dtype: np.dtype[Any]) -> bool:
    """Whether HDF5 has such a type, and h5py reads it again."""
    try:
        return h5py.h5t.py_create(dtype, logical=True).dtype is not None
    except (TypeError, ValueError):
        return False


_TYPES = st.recursive(
    _PLAIN | _POINTING,
    lambda inner: _compound(inner) | st.builds(_array, inner, st.lists(st.integers(1, 3), min_size=1, max_size=2)),
    max_leaves=4,
).filter(_has_hdf5)
_SHAPES = st.none() | st.lists(st.integers(0, 5), max_size=3).map(tuple)


@st.composite
def _dataset(draw: st.DrawFn) -> dict[str, Any]:
    shape, dtype = draw(_SHAPES), draw(_TYPES)
    options: dict[str, Any] = {}
    if shape and all(shape) and draw(st.booleans()):
        options["chunks"] = tuple(draw(st.integers(1, n)) for n in shape)
        options["maxshape"] = draw(st.sampled_from([None, shape, (None,) * len(shape)]))
        options["compression"] = draw(st.sampled_from([None, "gzip", "lzf"]))
        options["shuffle"] = draw(st.booleans())
        options["fletcher32"] = draw(st.booleans()) and not dtype.hasobject
    return {"shape": shape, "dtype": dtype, "written": draw(st.booleans()), "options": options}


@st.composite
def _attribute(draw: st.DrawFn) -> dict[str, Any]:
    return {"shape": draw(_SHAPES), "dtype": draw(_TYPES)}


_HOW = {
    "group": st.booleans(),
    "dataset": _dataset(),
    "attribute": _attribute(),
    "soft": st.booleans(),
    "dangling": st.none(),
    "hard": st.none(),
    "type": _PLAIN,
}


@st.composite
def random_trees(draw: st.DrawFn) -> tuple[list[Any], int]:
    """Steps to make a file by, and the seed of its values."""
    kinds = draw(st.lists(st.sampled_from([*_HOW, "attribute", "dataset"]), max_size=14))
    number = st.integers(0, 99)
    steps = [(kind, draw(_NAMES), draw(number), draw(number), draw(_HOW[kind])) for kind in kinds]
    return steps, draw(st.integers(0, 1 << 32))


def write_tree(tree: tuple[list[Any], int], path: Path) -> None:
    """Make the file. Names that are taken, and what HDF5 does not have, are left out."""
    steps, seed = tree
    random = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        groups, objects = [file["/"]], [file["/"]]
        file.create_dataset("target", data=np.arange(12).reshape(3, 4))
        objects.append(file["target"])
        later: list[Callable[[], None]] = []
        for kind, name, first, second, how in steps:
            group, thing = groups[first % len(groups)], objects[second % len(objects)]
            if kind == "attribute":
                later.append(lambda thing=thing, name=name, how=how: _write_attribute(thing, name, how, file, random))
                continue
            if group.get(name, getlink=True) is not None:
                continue
            if kind == "group":
                groups.append(group.create_group(name, track_order=how))
                objects.append(groups[-1])
            elif kind == "dataset":
                made = _create_dataset(group, name, how)
                objects.append(made)
                if how["written"] and made.shape is not None:
                    later.append(lambda made=made: _write(made, file, random))
            elif kind == "hard":
                group[name] = thing
            elif kind == "type":
                group[name] = how
            else:
                target = thing.name if kind == "soft" else "/nowhere/at all"
                relative = kind == "soft" and how
                group[name] = h5py.SoftLink(posixpath.relpath(target, group.name) if relative else target)
        for act in later:
            act()


def _create_dataset(group: h5py.Group, name: str, how: dict[str, Any]) -> h5py.Dataset:
    dtype, shape = how["dtype"], how["shape"]
    if shape is None:
        return group.create_dataset(name, data=h5py.Empty(dtype))
    return group.create_dataset(name, shape, dtype, **how["options"])


def _write(dataset: h5py.Dataset, file: h5py.File, random: Random) -> None:
    type_id = dataset.id.get_type()
    values = _values(dataset.shape, type_id.dtype, file, random)
    if values.size:
        dataset.id.write(h5py.h5s.ALL, h5py.h5s.ALL, values, h5py.h5t.py_create(type_id.dtype))


def _write_attribute(thing: Any, name: str, how: dict[str, Any], file: h5py.File, random: Random) -> None:
    dtype, shape = how["dtype"], how["shape"]
    if name in thing.attrs:
        return
    type_id = h5py.h5t.py_create(dtype, logical=True)
    if shape is None:
        h5py.h5a.create(thing.id, name.encode(), type_id, h5py.h5s.create(h5py.h5s.NULL))
        return
    space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    made = h5py.h5a.create(thing.id, name.encode(), type_id, space)
    values = _values(shape, dtype, file, random)
    if values.size:
        made.write(values, h5py.h5t.py_create(dtype))


def _values(shape: tuple[int, ...], dtype: np.dtype[Any], file: h5py.File, random: Random) -> np.ndarray[Any, Any]:
    base, inner = dtype.subdtype or (dtype, ())
    flat = np.zeros((math.prod(shape), *inner), base)
    for position in range(len(flat)):
        flat[position] = _element(dtype, file, random)
    return flat.reshape((*shape, *inner))


def _element(dtype: np.dtype[Any], file: h5py.File, random: Random) -> Any:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return _values(shape, base, file, random)
    if dtype.names:
        return tuple(_element(dtype[name], file, random) for name in dtype.names)
    kind = h5py.check_ref_dtype(dtype)
    if kind is not None:
        return _reference(kind, file, random)
    string = h5py.check_string_dtype(dtype)
    if string is not None:
        text = random.choice(["", "a", "word", "NaN", "ß€", "two words", "\n{{u}}"])
        data = str(text).encode("ascii" if string.encoding == "ascii" else "utf-8", "ignore")
        return data if string.length is None else data[: string.length].decode("utf-8", "ignore").encode()
    vlen = h5py.check_vlen_dtype(dtype)
    if vlen is not None:
        return _values((int(random.integers(0, 4)),), np.dtype(vlen), file, random)
    enum = h5py.check_enum_dtype(dtype)
    if enum is not None:
        return random.choice(list(enum.values()))
    if dtype.kind == "V":
        return np.void(random.bytes(dtype.itemsize))
    if dtype.kind in "mM":
        return np.frombuffer(random.bytes(8), dtype)[0]
    if dtype.kind == "b":
        return bool(random.integers(0, 2))
    if dtype.kind in "iu":
        return np.frombuffer(random.bytes(dtype.itemsize), dtype)[0]
    parts = random.choice([0.0, -0.0, 1.5, -2.0, math.nan, math.inf, -math.inf, 6e-8, 60000.0], 2)
    return complex(*parts) if dtype.kind == "c" else parts[0]


def _reference(kind: type, file: h5py.File, random: Random) -> Any:
    choice = int(random.integers(0, 4))
    if kind is h5py.RegionReference:
        target = file["target"]
        if choice == 0 or not _has_one_name(target):
            return h5py.h5r.RegionReference()
        return target.regionref[[(), (slice(1, 2), slice(0, 3)), (slice(None), [0, 2])][choice - 1]]
    if choice == 0:
        return h5py.h5r.Reference()
    hard = [name for name in file if isinstance(file.get(name, getlink=True), h5py.HardLink)]
    names = [name for name in hard if _has_one_name(file[name])]
    return file[str(random.choice(names))].ref if names else h5py.h5r.Reference()


def _has_one_name(thing: Any) -> bool:
    """By which of several names an object is called is up to libhdf5, and changes with the order of creation."""
    return bool(h5py.h5o.get_info(thing.id).rc == 1)
