"""Chunk indexes and small values stand apart in a document (docs/format.md, 5.5), and wait until values are read."""

from __future__ import annotations

import base64
import itertools
import json
import threading
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from servers.threads import in_threads

import lindi_bridge as lb

CHUNKS = 20_000
SMALL = np.random.default_rng(0).random(1000)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("values") / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("group/many", data=np.arange(CHUNKS), chunks=(1,), compression="gzip")
        file["group"].attrs["unit"] = ["a", "b"]
        for number in range(20):
            file[f"small/{number}"] = SMALL + number
    lb.index(path).save(path.with_suffix(".json"))
    return path


@pytest.fixture
def document(source: Path) -> Path:
    return source.with_suffix(".json")


def wait(file: Any) -> bool:
    """Whether the values are not decompressed yet."""
    return not file._metadata.is_complete


def test_both_are_bytes_of_the_source_and_share_none(source: Path, document: Path) -> None:
    section, data = json.loads(document.read_text())["hdf5"], source.read_bytes()
    ranges = []
    for part in (section["metadata"], section["values"]):
        held = zlib.decompress(base64.b64decode(part["zlib"]))
        assert held == b"".join(data[start : start + length] for start, length in part["ranges"])
        assert len(held) == part["nbytes"]
        assert part["ranges"] == sorted(part["ranges"])
        ranges += part["ranges"]
    ranges.sort()
    assert all(left[0] + left[1] <= right[0] for left, right in itertools.pairwise(ranges))
    assert section["values"]["nbytes"] >= 128 * 1024 > section["metadata"]["nbytes"]


def test_a_file_with_few_values_has_them_among_its_metadata(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("d", data=range(100), chunks=(10,))
    assert "values" not in json.loads(lb.index(tmp_path / "a.h5").to_json())["hdf5"]


@pytest.mark.parametrize("way", ["ours", "h5py's"])
def test_they_wait_until_values_are_read(source: Path, document: Path, way: str) -> None:
    below = lb.hdf5_file(document)
    with lb.open(document) if way == "ours" else h5py.File(below) as file, h5py.File(source) as oracle:
        held = file._file_object if way == "ours" else below
        assert list(file) == list(oracle)
        for name in ("group", "group/many", *(f"small/{number}" for number in range(20))):
            actual, expected = file[name], oracle[name]
            assert dict(actual.attrs).keys() == dict(expected.attrs).keys()
            if isinstance(expected, h5py.Dataset):
                for key in ("shape", "dtype", "maxshape", "chunks", "compression", "fillvalue", "nbytes"):
                    assert getattr(actual, key) == getattr(expected, key), key
        assert file["group"].attrs["unit"].tolist() == ["a", "b"]
        assert wait(held)
        requests = held.reader.statistics.requests
        assert np.array_equal(file["small/7"][:], SMALL + 7)
        assert held.reader.statistics.requests == requests, "small values are in the document"
        assert not wait(held)
        assert file["group/many"][CHUNKS - 1] == CHUNKS - 1
        found: list[str] = []
        file.visititems(lambda name, _: found.append(name))
        assert len(found) == 23


def test_many_threads_ask_for_them_at_the_same_time(document: Path) -> None:
    with lb.open(document) as file:
        start, wrong = threading.Barrier(8), []

        def read(number: int) -> None:
            start.wait()
            if not np.array_equal(file[f"small/{number}"][:], SMALL + number) or file["group/many"][number] != number:
                wrong.append(number)

        in_threads(read, range(8))
        assert wrong == []
        assert not wait(file._file_object)


def damaged(what: str, values: dict[str, Any]) -> Any:
    packed = zlib.compress(bytes(values["nbytes"] + 1))
    return {
        "no zlib": values | {"zlib": base64.b64encode(b"nothing").decode()},
        "no base64": values | {"zlib": "!"},
        "too long": values | {"zlib": base64.b64encode(packed).decode()},
        "ranges outside": values | {"ranges": [[1 << 50, values["nbytes"]]]},
        "ranges in disorder": values | {"ranges": values["ranges"][::-1]},
        "no ranges": {"zlib": values["zlib"]},
        "another type": 7,
    }[what]


@pytest.mark.parametrize(
    "what",
    ["no zlib", "no base64", "too long", "ranges outside", "ranges in disorder", "no ranges", "another type"],
)
@pytest.mark.parametrize("way", ["ours", "h5py's"])
def test_damaged_values_are_an_error_when_they_are_read(document: Path, tmp_path: Path, what: str, way: str) -> None:
    raw = json.loads(document.read_text())
    raw["hdf5"]["values"] = damaged(what, raw["hdf5"]["values"])
    broken = tmp_path / "b.json"
    broken.write_text(json.dumps(raw))
    (problem,) = [p for p in lb.check(broken) if p.kind == "document"]
    assert "damaged" in problem.message or "embedded metadata" in problem.message
    below = lb.hdf5_file(broken)
    with lb.open(broken) if way == "ours" else h5py.File(below) as file:
        assert list(file) == ["group", "small"]
        for name in ("small/7", "group/many"):
            with pytest.raises(lb.DocumentError, match=r"b\.json: the document's (hdf5 section|embedded metadata)"):
                file[name][:]
