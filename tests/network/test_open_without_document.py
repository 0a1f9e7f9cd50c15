"""An HDF5 file on a server, opened by its own address: names and attributes in a few waves, and never again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb
from lindi_bridge.client import names, sources

GROUPS, DATASETS = 40, 30
BUDGET = 512 * 1024
"""Bytes: enough for what lies below one of the groups, not for all of them."""


@pytest.fixture(scope="module", params=["earliest", "latest"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Groups in old and new style, attributes in headers, in dense storage and in heaps, many chunks."""
    path = tmp_path_factory.mktemp("names") / f"{request.param}.h5"
    random = np.random.default_rng(1)
    with h5py.File(path, "w", libver=request.param) as file:
        for i in range(GROUPS):
            group = file.create_group(f"group {i:02d}/below/further")
            group.attrs["text"] = [f"a string of variable length {i}", "another"]
            group.attrs["values"] = np.arange(500.0) + i
            for k in range(DATASETS):
                dataset = group.create_dataset(f"values {k:02d}", data=random.integers(0, 9, 200), chunks=(10,))
                dataset.attrs["unit"] = f"unit {k}"
            file[f"group {i:02d}/soft"] = h5py.SoftLink(f"/group {i:02d}/below")
        for i in range(20):
            file["group 01"].attrs[f"attribute {i}"] = f"text {i}"
        file["group 02/reference"] = np.array([file["group 03"].ref, file["group 03"].ref], h5py.ref_dtype)
        file.create_dataset("large", data=random.random((2000, 500)), chunks=(10, 500))
    return path


@pytest.fixture
def server(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    """Serves the file, which is treated like a large one: it is not fetched whole."""
    monkeypatch.setattr(sources, "_WHOLE_FILE", 0)
    with RangeServer(latency=0.05) as server:
        server.url = server.add(path.name, path)  # type: ignore[attr-defined]
        yield server


def facts(obj: Any) -> list[Any]:
    """Name, attributes, and what the header of a dataset tells."""
    found = [type(obj).__name__, obj.name, {name: np.asarray(value).tolist() for name, value in obj.attrs.items()}]
    if isinstance(obj, h5py.Dataset):
        found += [obj.shape, obj.dtype, obj.chunks, obj.maxshape, obj.fillvalue]
    return found


def by_recursion(group: Any) -> list[Any]:
    found = [facts(group)]
    for name, child in group.items():
        found.append([name, repr(group.get(name, getlink=True))[:20]])
        found += by_recursion(child) if isinstance(child, h5py.Group) else [facts(child)]
    return found


def by_visiting(file: Any) -> list[Any]:
    found: list[Any] = []
    file.visititems(lambda name, obj: found.append([name, facts(obj)]))
    return found


def without_classes(found: list[Any]) -> str:
    return repr(found).replace("'File'", "'Group'")


def test_opening_takes_a_few_waves_and_looking_around_none(server: Any, path: Path) -> None:
    server.reset()
    with lb.open(server.url) as file, h5py.File(path) as local:
        assert file._file_object.reader.statistics.waves <= 12, "two or three for each of five levels"
        server.reset()
        assert without_classes(by_recursion(file)) == without_classes(by_recursion(local))
        assert by_visiting(file) == by_visiting(local)
        assert server.requests == 0
        assert file._file_object.misses == 0


def test_plain_h5py_over_the_file_object_looks_around_without_a_request(server: Any, path: Path) -> None:
    with h5py.File(lb.hdf5_file(server.url)) as file, h5py.File(path) as local:
        server.reset()
        assert by_recursion(file) == by_recursion(local)
        assert server.requests == 0


def test_the_data_are_not_fetched_with_the_names(server: Any, path: Path) -> None:
    server.reset()
    with lb.open(server.url) as file:
        assert server.nbytes < path.stat().st_size - 0.9 * file["large"].nbytes


@pytest.mark.parametrize("walk", [by_recursion, by_visiting])
def test_with_more_metadata_than_the_budget_groups_are_walked_as_they_are_opened(
    server: Any, path: Path, monkeypatch: pytest.MonkeyPatch, walk: Any
) -> None:
    monkeypatch.setattr(names, "_BUDGET", BUDGET)
    server.reset()
    with lb.open(server.url) as file, h5py.File(path) as local:
        assert server.nbytes <= BUDGET + sources.HEAD
        assert without_classes(walk(file)) == without_classes(walk(local))
        assert file._file_object.misses <= GROUPS // 10, "a header here and there that the budget left out"


def test_a_group_that_is_asked_for_is_fetched_with_all_below(
    server: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "_BUDGET", BUDGET)
    with lb.open(server.url) as file, h5py.File(path) as local:
        group = file["group 35"]
        server.reset()
        assert by_recursion(group) == by_recursion(local["group 35"])
        assert server.requests == 0


def test_values_are_right(server: Any, path: Path) -> None:
    with lb.open(server.url) as file, h5py.File(path) as local:
        server.reset()
        assert (file["large"][100:200] == local["large"][100:200]).all()
        assert server.waves() <= 4, "the levels of the index, then the chunks"
        assert (file["group 07/below/further/values 03"][()] == local["group 07/below/further/values 03"][()]).all()


def test_a_local_file_is_not_walked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_WHOLE_FILE", 0)
    with lb.open(path) as file:
        assert "walked" not in file._file_object.properties
        assert file._file_object.misses < 20, "h5py reads the superblock and the root group by itself"
