"""Reading into a type of the caller's: libhdf5 converts, as h5py has it, and never numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import lindi_bridge as lb

ENUM = h5py.enum_dtype({"a": 1, "b": 2}, "i4")
FIELDS = np.dtype([("a", "i4"), ("b", "f8")])
SWAPPED = np.dtype([("b", "f8"), ("a", "i4")])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("conversions") / "a.h5"
    random = np.random.default_rng(1)
    rows = np.empty((30, 20_000), FIELDS)
    rows["a"], rows["b"] = random.integers(-1000, 1000, rows.shape), random.normal(size=rows.shape)
    with h5py.File(path, "w") as file:
        file["integers"] = np.array([300, -5, 7], "i4")
        file["floats"] = np.array([1e30, -1e30, 2.7])
        file.create_dataset("enum", data=[1, 2], dtype=ENUM)
        file["rows"] = rows[0, :3]
        file["texts"] = ["a", "b"]
        file["scalar"] = 5.5
        file["empty"] = h5py.Empty("f4")
        file["none"] = np.empty((0, 3))
        file["arrays"] = np.zeros(3, np.dtype([("x", "f4", (2,))]))
        numbers = random.normal(0, 1000, (30, 20_000))
        file.create_dataset("large numbers", data=numbers, chunks=(30, 1000), compression="gzip")
        file.create_dataset("large rows", data=rows, chunks=(30, 1000), compression="gzip")
        layout = h5py.VirtualLayout((3,), "i4")
        layout[:] = h5py.VirtualSource(".", "integers", (3,))
        file.create_virtual_dataset("virtual", layout)
    return path


@pytest.fixture
def files(path: Path) -> Iterator[tuple[Any, h5py.File]]:
    """Ours, with a cache that makes slabs of the large ones, and h5py's."""
    with lb.open(path, cache_bytes=1 << 20) as ours, h5py.File(path) as expected:
        yield ours, expected


def outcome(work: Callable[[], Any]) -> Any:
    try:
        found = np.asarray(work())
    except Exception as error:  # noqa: BLE001 (which one is compared)
        return type(error)
    return found.dtype, found.shape, found.tolist() if found.dtype.hasobject else found.tobytes()


@pytest.mark.parametrize("dtype", [None, "u1", "i2", "f4", ">f8", "?", "O", "S4", FIELDS, SWAPPED], ids=str)
@pytest.mark.parametrize(
    "name", ["integers", "floats", "enum", "rows", "texts", "scalar", "empty", "none", "arrays", "virtual"]
)
def test_an_array_of_a_dataset(name: str, dtype: Any, files: tuple[Any, h5py.File]) -> None:
    ours, theirs = (outcome(lambda f=f: np.asarray(f[name], dtype=dtype)) for f in files)
    assert ours == theirs


DESTINATIONS: dict[str, Callable[[tuple[int, ...], np.dtype[Any]], Any]] = {
    "the same": lambda shape, dtype: np.zeros(shape, dtype),
    "narrow": lambda shape, dtype: np.zeros(shape, "i1"),
    "wide": lambda shape, dtype: np.zeros(shape, ">f8"),
    "other order of fields": lambda shape, dtype: np.zeros(shape, SWAPPED),
    "fewer fields": lambda shape, dtype: np.zeros(shape, [("b", "f4")]),
    "text": lambda shape, dtype: np.zeros(shape, "S8"),
    "objects": lambda shape, dtype: np.zeros(shape, "O"),
    "order of Fortran": lambda shape, dtype: np.zeros(shape, dtype, order="F"),
    "too small": lambda shape, dtype: np.zeros((shape[0], shape[1] - 1), dtype),
}


@pytest.mark.parametrize("selection", [None, np.s_[:, 5:19_990]], ids=str)
@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("name", ["large numbers", "large rows"])
def test_read_direct_in_slabs(name: str, destination: str, selection: Any, files: tuple[Any, h5py.File]) -> None:
    def read(file: Any) -> Any:
        shape = (30, 20_000) if selection is None else (30, 19_985)
        out = DESTINATIONS[destination](shape, file[name].dtype)
        file[name].read_direct(out, selection)
        return out

    ours, theirs = (outcome(lambda f=f: read(f)) for f in files)
    assert ours == theirs


def test_read_direct_of_values_that_lie_elsewhere(tmp_path: Path, path: Path) -> None:
    with h5py.File(tmp_path / "b.h5", "w") as file:
        layout = h5py.VirtualLayout((3,), "i4")
        layout[:] = h5py.VirtualSource(str(path), "integers", (3,))
        file.create_virtual_dataset("v", layout)
    with lb.open(tmp_path / "b.h5", allow_external=True) as ours, h5py.File(tmp_path / "b.h5") as expected:
        for dtype in ("i4", "u1", "f4"):
            found, wanted = np.zeros(3, dtype), np.zeros(3, dtype)
            ours["v"].read_direct(found)
            expected["v"].read_direct(wanted)
            assert found.tolist() == wanted.tolist()
        with pytest.raises(TypeError):
            expected["v"].read_direct(np.zeros(2, "i4"))
        with pytest.raises(TypeError):
            ours["v"].read_direct(np.zeros(2, "i4"))


def test_what_was_never_written_is_zeros_in_slabs_too(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        values = file.create_dataset("x", (200, 5000), "i4", chunks=(10, 5000), compression=1, fill_time="never")
        for first in range(0, 200, 20):
            values[first : first + 10] = np.random.default_rng(first).integers(0, 2**31, (10, 5000))
    with lb.open(tmp_path / "a.h5", cache_bytes=1 << 20) as ours, h5py.File(tmp_path / "a.h5") as expected:
        for _ in range(3):
            junk = [np.full((200, 5000), 0x5A5A5A5A, "i4") for _ in range(2)]
            del junk
            assert np.array_equal(ours["x"][...], expected["x"][...])
