"""Virtual datasets over companion files in all shapes of mappings, and links that lead on, back, or round.

The main file holds decoys: objects with the companion's names, and other values.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from builders.compare import Raised, attempt
from builders.documents import write_document
from builders.exact import value_difference

import lindi_bridge as lb

N = 12
TEXT = h5py.string_dtype()
ENUM = h5py.enum_dtype({"A": 0, "B": 1}, basetype="i1")

COMPANION: dict[str, dict[str, Any]] = {
    "x": {"data": np.arange(N, dtype="i4") + 200},
    "text": {"data": [f"a{i}" for i in range(N)], "dtype": TEXT},
    "fixed": {"data": np.array([b"ab"] * N)},
    "enum": {"data": np.arange(N) % 2, "dtype": ENUM},
    "complex": {"data": np.arange(N) * (1 + 1j)},
    "big": {"data": np.arange(N, dtype=">f8")},
    "table": {"data": np.arange(24).reshape(4, 6) + 1000},
    "packed": {"data": np.arange(24).reshape(4, 6) + 5000, "chunks": (2, 4), "compression": "gzip"},
    "short": {"data": np.arange(5)},
    "fraction": {"data": np.arange(N) + 0.75},
}


def _source(name: str, filename: str = "other.h5", length: int = N, dtype: Any = "i4") -> h5py.VirtualSource:
    shape = (4, 6) if name in ("table", "packed") else (length,)
    return h5py.VirtualSource(filename, name, shape, dtype=dtype)


def _layout(shape: tuple[int, ...], dtype: Any, *parts: tuple[Any, Any]) -> h5py.VirtualLayout:
    layout = h5py.VirtualLayout(shape, dtype)
    for place, source in parts:
        layout[place] = source
    return layout


def _columns() -> list[tuple[Any, Any]]:
    return [(np.s_[:, i], _source("table", dtype="i8")[i, :]) for i in range(4)]


LAYOUTS: dict[str, h5py.VirtualLayout] = {
    "plain": _layout((4, 6), "i8", (np.s_[...], _source("table", dtype="i8"))),
    "converted": _layout((N,), "f8", (np.s_[:], _source("x"))),
    "partly filled": _layout((2 * N,), "i4", (np.s_[3 : 3 + N], _source("x"))),
    "interleaved": _layout((2 * N,), "i4", (np.s_[::2], _source("x")), (np.s_[1::2], _source("x"))),
    "transposed": _layout((6, 4), "i8", *_columns()),
    "window": _layout((4, 6), "i8", (np.s_[1:3, 2:5], _source("packed", dtype="i8")[0:2, 1:4])),
    "text": _layout((N,), TEXT, (np.s_[:], _source("text", dtype=TEXT))),
    "fixed text": _layout((N,), "S2", (np.s_[:], _source("fixed", dtype="S2"))),
    "enum": _layout((N,), ENUM, (np.s_[:], _source("enum", dtype=ENUM))),
    "complex": _layout((N,), "c16", (np.s_[:], _source("complex", dtype="c16"))),
    "big-endian": _layout((N,), ">f8", (np.s_[:], _source("big", dtype=">f8"))),
    "own file by dot": _layout((N,), "i4", (np.s_[0:6], _source("local", ".", 6))),
    "own file by name": _layout((N,), "i4", (np.s_[0:6], _source("local", "main.h5", 6))),
    "both files": _layout((N,), "i4", (np.s_[:6], _source("local", ".", 6)), (np.s_[6:], _source("x")[6:])),
    "truncating": _layout((2 * N,), "i4", (np.s_[3 : 3 + N], _source("fraction", dtype="f8"))),
    "overlapping": _layout((N,), "i4", (np.s_[:], _source("x")), (np.s_[2:4], _source("local", ".", 6)[0:2])),
}
BROKEN: dict[str, h5py.VirtualLayout] = {
    "no such dataset": _layout((N,), "i4", (np.s_[:], _source("nope"))),
    "shorter than mapped": _layout((N,), "i8", (np.s_[:], _source("short", dtype="i8"))),
}
SELECTIONS: dict[str, Any] = {
    "()": (),
    "...": Ellipsis,
    "first": 0,
    "last": -1,
    "slice": slice(1, 3),
    "stride": slice(None, None, 3),
    "list": [0, 2],
    "nothing": slice(0, 0),
    "last axis": (Ellipsis, slice(1, None)),
    "mask": np.array([True, False, True, False]),
    "blocks": h5py.MultiBlockSlice(start=0, count=2, stride=2, block=1),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, Path]:
    """Main file and document; the companion lies beside."""
    folder = tmp_path_factory.mktemp("mappings")
    with h5py.File(folder / "other.h5", "w") as file:
        for name, keywords in COMPANION.items():
            file.create_dataset(name, **keywords)
        file["back"] = h5py.ExternalLink("main.h5", "/local")
        file["to itself"] = h5py.ExternalLink("other.h5", "/x")
    with h5py.File(folder / "main.h5", "w", libver="latest") as file:
        file["local"] = np.arange(6, dtype="i4") + 50
        for name in COMPANION:
            file[name] = np.zeros(N)
        for name, layout in {**LAYOUTS, **BROKEN}.items():
            fill = -7 if np.dtype(layout.dtype).kind in "iu" else None
            file.create_virtual_dataset(f"v {name}", layout, fillvalue=fill)
        file["itself"] = h5py.ExternalLink("main.h5", "/local")
        file["twice"] = h5py.ExternalLink("main.h5", "/itself")
        file["round"] = h5py.ExternalLink("main.h5", "/round")
        file["there and back"] = h5py.ExternalLink("other.h5", "/back")
        file["root"] = h5py.ExternalLink("other.h5", "/")
        file["local target"] = h5py.ExternalLink("other.h5", "x")
        file["no target"] = h5py.ExternalLink("other.h5", "/nope")
        file["pointers"] = np.array([file["v plain"].ref], dtype=h5py.ref_dtype)
        file.attrs["region"] = file["v plain"].regionref[1:3, 2:4]
    return folder / "main.h5", write_document(folder / "main.h5")


def _read_direct(dataset: h5py.Dataset, dtype: Any = None, order: str = "C") -> np.ndarray:
    array = np.zeros(dataset.shape, dataset.dtype if dtype is None else dtype, order)
    dataset.read_direct(array)
    return array


def _read_some(dataset: h5py.Dataset) -> np.ndarray:
    array = np.full((dataset.shape[0] + 2, *dataset.shape[1:]), 9, dataset.dtype)
    dataset.read_direct(array, np.s_[1:4], np.s_[2:5])
    return array


def _readings(dataset: h5py.Dataset) -> dict[str, Any]:
    """All that can be read of a dataset: values, or what was raised."""
    ways: dict[str, Callable[[Any], Any]] = {
        text: lambda thing, way=way: thing[way]
        for text, way in SELECTIONS.items()
        if not (text == "mask" and dataset.shape[0] != len(way))
    }
    ways |= {"asarray": np.asarray, "read_direct": _read_direct, "iteration": list, "read_direct, some": _read_some}
    for dtype in ("f8", ">i2", "S3", "U3", "i1", [("a", "f8")]):
        ways[f"astype {dtype}"] = lambda thing, dtype=dtype: thing.astype(dtype)[1:]
        ways[f"read_direct {dtype}"] = lambda thing, dtype=dtype: _read_direct(thing, dtype)
    ways["in Fortran's order"] = lambda thing: _read_direct(thing, order="F")
    ways["as f8"] = lambda thing: np.asarray(thing, "f8")
    ways["out of range"] = lambda thing: thing[len(thing)]
    ways["list out of range"] = lambda thing: thing[[0, len(thing)]]
    ways["read_direct, field"] = lambda thing: thing.read_direct(np.zeros(thing.shape, thing.dtype), "field")
    if h5py.check_string_dtype(dataset.dtype):
        ways["asstr"] = lambda thing: thing.asstr()[2:4]
    return {text: attempt(way, dataset) for text, way in ways.items()}


@pytest.mark.parametrize("kind", ["document", "hdf5"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_mapping_gives_what_h5py_gives(name, kind, files):
    with h5py.File(files[0]) as expected, lb.open(str(files[kind == "document"])) as actual:
        wanted, found = _readings(expected[f"v {name}"]), _readings(actual[f"v {name}"])
        for way, value in wanted.items():
            if isinstance(value, Raised):
                assert isinstance(found[way], Raised), way
                assert isinstance(found[way].error, type(value.error)), (way, found[way])
            else:
                assert value_difference(value, found[way], expected, actual) is None, way


@pytest.mark.parametrize("name", BROKEN)
def test_a_mapping_without_its_source_is_a_named_error(name, files):
    """h5py reads fill values, or some of the values; we may say so instead, but nothing else."""
    with h5py.File(files[0]) as expected, lb.open(str(files[1])) as actual:
        wanted, found = _readings(expected[f"v {name}"]), _readings(actual[f"v {name}"])
    for way, value in wanted.items():
        if isinstance(value, Raised):
            assert isinstance(found[way], Raised), way
            assert isinstance(found[way].error, (type(value.error), lb.LeavesFileError)), (way, found[way])
        elif isinstance(found[way], Raised):
            assert isinstance(found[way].error, lb.LeavesFileError), (way, found[way])
            assert f"/v {name}" in str(found[way].error)
            assert "other.h5" in str(found[way].error)
        else:
            assert repr(found[way]) == repr(value), way


@pytest.mark.parametrize("selection", [np.s_[0:0], np.s_[5:2], 1 << 50, np.s_[:, 2], [3, 1], None, "field"], ids=str)
def test_what_selects_nothing_needs_no_source(selection, tmp_path):
    """Neither for a selection without values nor for a wrong one all of a large dataset is read."""
    path = tmp_path / "main.h5"
    with h5py.File(path, "w", libver="latest") as file:
        source = h5py.VirtualSource("gone.h5", "x", (1 << 40,), dtype="i4")
        file.create_virtual_dataset("v", _layout((1 << 40,), "i4", (np.s_[:], source)))
        file.create_dataset("e", (1 << 28,), "i4", external=[("gone.bin", 0, 1 << 30)])
    with h5py.File(path) as expected, lb.open(path) as actual:
        for name in "ve":
            wanted, found = (attempt(lambda dataset: dataset[selection], file[name]) for file in (expected, actual))
            if isinstance(wanted, Raised):
                assert isinstance(found, Raised)
                assert isinstance(found.error, type(wanted.error)), found
            else:
                assert value_difference(wanted, found, expected, actual) is None


QUESTIONS: dict[str, Callable[[h5py.File], Any]] = {
    "itself": lambda file: file["itself"][()],
    "twice": lambda file: file["twice"][()],
    "round": lambda file: file["round"],
    "there and back": lambda file: file["there and back"][()],
    "root": lambda file: [file["root"].name, list(file["root"]), type(file["root/x"][0])],
    "through the root": lambda file: file["root/x"][2:5],
    "to itself, there": lambda file: file["root/to itself"][2:5],
    "back, by the root": lambda file: file["root/back"][()],
    "a relative target": lambda file: file["local target"][()],
    "no target": lambda file: file["no target"],
    "no target, get": lambda file: file.get("no target"),
    "nothing there": lambda file: file["root/nope"],
    "equal": lambda file: file["local target"] == file["root/x"],
    "region, read": lambda file: file["v plain"][file.attrs["region"]],
    "region, object": lambda file: file[file.attrs["region"]][1:2],
    "reference": lambda file: file[file["pointers"][0]][3],
    "mask of rank 2": lambda file: file["v plain"][file["v plain"][()] % 2 == 0],
    "list of columns": lambda file: file["v plain"][:, [1, 4]],
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_links_lead_where_h5py_goes(question, files):
    with h5py.File(files[0]) as expected, lb.open(str(files[1])) as actual:
        wanted, found = attempt(QUESTIONS[question], expected), attempt(QUESTIONS[question], actual)
        if isinstance(wanted, Raised):
            assert isinstance(found, Raised)
            assert isinstance(found.error, type(wanted.error)), found
        else:
            assert value_difference(wanted, found, expected, actual) is None
