"""The comparator itself: equal files have no differences, and each small change is noticed and named."""

from __future__ import annotations

import io
from collections.abc import Callable

import h5py
import numpy as np
import pytest
from builders.compare import compare_files
from builders.features import BAD, COMPANIONS, FEATURES, SkipFeature, make


@pytest.mark.parametrize("name", sorted(set(FEATURES) - BAD - COMPANIONS))
def test_a_file_equals_its_own_bytes(name, tmp_path):
    try:
        path = make(name, tmp_path)
    except SkipFeature as reason:
        pytest.skip(str(reason))
    with h5py.File(path) as expected, h5py.File(io.BytesIO(path.read_bytes())) as actual:
        assert compare_files(expected, actual) == []


def _original(file: h5py.File) -> None:
    """A little of everything."""
    file["d"] = np.arange(6, dtype="i4")
    file["g/s"] = np.array(["a", "b"], dtype=h5py.string_dtype())
    file["g/n"] = np.array([1.0, np.nan])
    file["c"] = np.array([(1, 2.0), (3, 4.0)], dtype=[("x", "i4"), ("y", "f8")])
    file.create_dataset("z", data=np.arange(100), chunks=(10,), compression="gzip", fillvalue=3)
    file["soft"] = h5py.SoftLink("/d")
    file["hard"] = file["d"]
    file["away"] = h5py.ExternalLink("nowhere.h5", "/x")
    file["t"] = np.dtype("f8")
    file.create_dataset("r", data=[file["d"].ref, file["g"].ref], dtype=h5py.ref_dtype)
    file.create_dataset("rr", data=[file["d"].regionref[1:3]], dtype=h5py.regionref_dtype)
    file["d"].make_scale("steps")
    file["n6"] = np.ones(6)
    file["n6"].dims[0].attach_scale(file["d"])
    file.attrs["i"] = np.int64(1)
    file.attrs["s"] = "text"


def _replace(name: str, **keywords) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file.create_dataset(name, **keywords)

    return change


def _relink(name: str, target: object) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = file[target] if isinstance(target, str) else target

    return change


def _attribute(name: str, value: object, **keywords) -> Callable[[h5py.File], None]:
    return lambda file: file.attrs.create(name, value, **keywords)


def _assign(name: str, where: object, value: Callable[[h5py.File], object]) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        file[name][where] = value(file)

    return change


_numbers = np.arange(100)

CHANGES: dict[str, tuple[str, Callable[[h5py.File], None]]] = {
    "a value": ("value", _assign("d", 5, lambda file: 7)),
    "the last of many values": ("value", _assign("z", 99, lambda file: 0)),
    "NaN into zero": ("value", _assign("g/n", 1, lambda file: 0)),
    "a string": ("value", _assign("g/s", 1, lambda file: "B")),
    "a field": ("value", _assign("c", (1, "y"), lambda file: 5.0)),
    "a reference's object": ("value", _assign("r", 1, lambda file: file["d"].ref)),
    "a region's points": ("value", _assign("rr", 0, lambda file: file["d"].regionref[1:4])),
    "integer width": ("metadata", _replace("z", data=_numbers.astype("i4"), chunks=(10,), compression="gzip")),
    "byte order": ("metadata", _replace("g/n", data=np.array([1.0, np.nan], ">f8"))),
    "string encoding": ("metadata", _replace("g/s", data=["a", "b"], dtype=h5py.string_dtype("ascii"))),
    "string length": ("value", _replace("g/s", data=np.array([b"a", b"b"]))),
    "enum mapping": ("metadata", _replace("d", data=np.arange(6), dtype=h5py.enum_dtype({"A": 0}, basetype="i4"))),
    "chunk shape": ("metadata", _replace("z", data=_numbers, chunks=(20,), compression="gzip", fillvalue=3)),
    "compression level": (
        "metadata",
        _replace("z", data=_numbers, chunks=(10,), compression="gzip", compression_opts=9, fillvalue=3),
    ),
    "shuffle": (
        "metadata",
        _replace("z", data=_numbers, chunks=(10,), compression="gzip", shuffle=True, fillvalue=3),
    ),
    "fill value": ("metadata", _replace("z", data=_numbers, chunks=(10,), compression="gzip", fillvalue=4)),
    "maxshape": (
        "metadata",
        _replace("z", data=_numbers, chunks=(10,), compression="gzip", fillvalue=3, maxshape=(None,)),
    ),
    "shape": ("value", _replace("g/n", data=np.array([[1.0, np.nan]]))),
    "scalar for array of one": ("value", _attribute("i", [1], dtype="i8")),
    "attribute value": ("value", _attribute("i", 2, dtype="i8")),
    "attribute width": ("value", _attribute("i", 1, dtype="i4")),
    "attribute bytes for str": ("value", _attribute("s", np.bytes_(b"text"))),
    "attribute missing": ("missing", lambda file: file.attrs.__delitem__("s")),
    "attribute too many": ("extra", _attribute("more", 1)),
    "object missing": ("missing", lambda file: file.__delitem__("g/n")),
    "object too many": ("extra", lambda file: file.create_group("more")),
    "hard link for soft link": ("link", _relink("soft", "d")),
    "soft link's target": ("link", _relink("soft", h5py.SoftLink("d"))),
    "external link's file": ("link", _relink("away", h5py.ExternalLink("elsewhere.h5", "/x"))),
    "copy for hard link": ("link", lambda file: (file.__delitem__("hard"), file.copy("d", "hard"))[0]),
    "group for dataset": ("value", lambda file: (file.__delitem__("d"), file.create_group("d"))[0]),
    "committed type": ("metadata", lambda file: (file.__delitem__("t"), file.__setitem__("t", np.dtype("f4")))[0]),
    "dimension label": ("metadata", lambda file: setattr(file["n6"].dims[0], "label", "steps")),
    "dangling for good": ("error", lambda file: file.move("d", "elsewhere")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_noticed(change, tmp_path):
    for name in ("original.h5", "changed.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            _original(file)
    kind, edit = CHANGES[change]
    with h5py.File(tmp_path / "changed.h5", "r+") as file:
        edit(file)
    with h5py.File(tmp_path / "original.h5") as expected, h5py.File(tmp_path / "changed.h5") as actual:
        differences = compare_files(expected, actual, storage=False)
    assert kind in {difference.kind for difference in differences}
