"""LINDI itself reads our documents, and we read those that it writes: M, N, a file of pynwb, every feature that it can.

Takes LINDI 0.4.6 in an environment of its own, made at its first use, and the files of ``scripts/bench``: long tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from builders.features import BAD, COMPANIONS, SkipFeature, make

import lindi_bridge as lb

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts" / "peers")]

from benchmark import data  # noqa: E402
from peers.environments import DEFAULT_FOLDER, interpreter  # noqa: E402
from values import compare_values  # noqa: E402

pytestmark = pytest.mark.full

BENCHMARK_FILES = Path("~/.cache/lindi_bridge/bench/data").expanduser()
CHILD = Path(__file__).with_name("lindi_child.py")
FILES = ["M", "N", "nwb"]


def of_lindi() -> list[str]:
    """Features of which LINDI's own document, read by LINDI, has the right values."""
    stored = json.loads((ROOT / "docs" / "peers_fidelity.json").read_text())["lindi"]["features"]
    return sorted(
        name
        for name, found in stored.items()
        if found["verdict"] in ("equal", "metadata") and name not in BAD | COMPANIONS
    )


@pytest.fixture(scope="session")
def lindi() -> Any:
    """Runs a task in LINDI's environment."""
    python = interpreter("lindi", DEFAULT_FOLDER)

    def run(*arguments: object) -> str:
        command = [str(python), "-W", "ignore", str(CHILD), *map(str, arguments)]
        # LINDI takes a relative address for one relative to where it runs; ours are relative to the document.
        folder = Path(str(arguments[-1])).parent
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, cwd=folder)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return run


def write_nwb(path: Path) -> None:
    """A small file by pynwb: time series, electrodes (compounds, references), units, links."""
    pynwb = pytest.importorskip("pynwb")
    random = np.random.default_rng(1)
    nwb = pynwb.NWBFile("a session", "identifier", datetime(2026, 1, 2, 3, 4, tzinfo=UTC))
    device = nwb.create_device("probe")
    group = nwb.create_electrode_group("shank", "a shank", "somewhere", device)
    for k in range(4):
        nwb.add_electrode(x=1.0 * k, y=0.0, z=0.0, imp=1.0, location="CA1", filtering="none", group=group)
    region = nwb.create_electrode_table_region([0, 2], "two of them")
    values = random.random((5000, 2))
    nwb.add_acquisition(pynwb.ecephys.ElectricalSeries("raw", values, region, rate=100.0))
    nwb.add_acquisition(pynwb.TimeSeries("trace", data=values[:, 0], unit="V", timestamps=np.arange(5000.0)))
    for k in range(3):
        nwb.add_unit(spike_times=np.sort(random.random(50 + k)), electrodes=[k])
    nwb.add_trial(start_time=0.0, stop_time=1.0)
    with pynwb.NWBHDF5IO(str(path), "w") as io:
        io.write(nwb)


@pytest.fixture(scope="session", params=FILES)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param != "nwb":
        return data.make(request.param, BENCHMARK_FILES)
    path = tmp_path_factory.mktemp("nwb") / "small.nwb"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_nwb(path)
    return path


def wrong_values(source: Path, document: Path) -> list[Any]:
    with h5py.File(source) as expected, lb.open(document) as actual:
        return [finding for finding in compare_values(expected, actual) if finding.kind != "metadata"]


@pytest.fixture(scope="session")
def beyond_lindi(source: Path, lindi: Any, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Paths that LINDI cannot read from its own document of the file either, as compounds of strings."""
    document = tmp_path_factory.mktemp("theirs") / "theirs.lindi.json"
    lindi("index", source, document)
    return {path for kind, path, _ in json.loads(lindi("compare", source, document)) if kind == "read"}


def wrong(found: str, beyond: set[str]) -> list[Any]:
    return [(kind, path, message) for kind, path, message in json.loads(found) if kind != "read" or path not in beyond]


def test_lindi_reads_our_document(source: Path, lindi: Any, beyond_lindi: set[str], tmp_path: Path) -> None:
    document = tmp_path / "ours.lindi.json"
    lb.index(source).save(document)
    assert wrong(lindi("compare", source, document), beyond_lindi) == []


def test_what_lindi_saved_again_is_still_the_file(
    source: Path, lindi: Any, beyond_lindi: set[str], tmp_path: Path
) -> None:
    ours, copy = tmp_path / "ours.lindi.json", tmp_path / "copy.lindi.json"
    lb.index(source).save(ours)
    lindi("resave", ours, copy)
    assert wrong(lindi("compare", source, copy), beyond_lindi) == []
    with h5py.File(source) as expected, lb.open(copy) as actual:
        assert "heaps" in actual._file_object.properties, "LINDI keeps what it is mounted by"
        assert sorted(expected) == sorted(actual)
    assert wrong_values(source, copy) == []


def test_we_read_the_document_of_lindi(source: Path, lindi: Any, tmp_path: Path) -> None:
    document = tmp_path / "theirs.lindi.json"
    lindi("index", source, document)
    assert wrong_values(source, document) == []


def test_pynwb_reads_a_document_that_lindi_wrote(lindi: Any, tmp_path: Path) -> None:
    pynwb = pytest.importorskip("pynwb")
    path, document = tmp_path / "small.nwb", tmp_path / "theirs.lindi.json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_nwb(path)
        lindi("index", path, document)
        with pynwb.NWBHDF5IO(str(path), "r") as local, pynwb.NWBHDF5IO(file=lb.open(document)) as remote:
            expected, actual = local.read(), remote.read()
            assert actual.identifier == expected.identifier
            for name in ("raw", "trace"):
                assert np.array_equal(actual.acquisition[name].data[:], expected.acquisition[name].data[:])
            assert np.array_equal(
                actual.acquisition["trace"].timestamps[:], expected.acquisition["trace"].timestamps[:]
            )
            assert list(actual.acquisition["raw"].electrodes.data[:]) == [0, 2]
            assert list(actual.electrodes["x"][:]) == [0, 1, 2, 3]
            assert [actual.electrodes["group"][k].name for k in range(4)] == ["shank"] * 4
            assert [list(actual.units["electrodes"][k]["x"]) for k in range(3)] == [[0], [1], [2]]
            for k in range(3):
                assert np.array_equal(actual.units["spike_times"][k], expected.units["spike_times"][k])
            assert actual.trials.to_dataframe().equals(expected.trials.to_dataframe())


@pytest.mark.parametrize("name", of_lindi())
def test_lindi_reads_our_document_of_every_feature_that_it_can(name: str, lindi: Any, tmp_path: Path) -> None:
    try:
        source = make(name, tmp_path)
    except SkipFeature as reason:
        pytest.skip(str(reason))
    document = tmp_path / "ours.lindi.json"
    lb.index(source).save(document)
    assert json.loads(lindi("compare", source, document)) == []
