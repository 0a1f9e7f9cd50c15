"""The command line: what it prints where, and its exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import anndata
import h5py
import numpy as np
import pytest
import scipy.sparse
from servers.range_server import RangeServer

from lindi_bridge.cli import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cells(here):
    """A small .h5ad in the current folder."""
    counts = scipy.sparse.random(40, 12, 0.3, format="csr", dtype="f4", random_state=0)
    adata = anndata.AnnData(counts)
    adata.obs_names = [f"cell{n}" for n in range(40)]
    adata.var_names = [f"gene{n}" for n in range(12)]
    adata.obs["kind"] = np.array(["b", "t"] * 20)
    adata.strings_to_categoricals()
    adata.obsm["X_umap"] = np.arange(80.0).reshape(40, 2)
    with warnings.catch_warnings(action="ignore"):  # what anndata says of pandas is not what is tested
        adata.write_h5ad("cells.h5ad", compression="gzip")
    return here / "cells.h5ad"


@pytest.fixture
def odd(here):
    """A file of links, a loop, and things that a document cannot express."""
    with h5py.File("odd.h5", "w") as file:
        file["group/data"] = np.arange(10, dtype="i2")
        file["group/loop"] = file["group"]
        file["soft"] = h5py.SoftLink("/group/data")
        file["nowhere"] = h5py.SoftLink("/not/there")
        file["outside"] = h5py.ExternalLink("gone.h5", "/x")
        file["type"] = np.dtype("f4")
        file["bell\x1b[2J"] = 1
        file["nothing"] = h5py.Empty("f4")
        file["words"] = ["one", "two"]
        file["rows"] = np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])
    return here / "odd.h5"


def run(capsys, *arguments):
    """Exit status, output, and status text."""
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as end:
        status = end.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


# -- index ------------------------------------------------------------------------------------------------------------


def test_index_writes_the_document_beside_nothing_else(cells, capsys):
    status, out, err = run(capsys, "index", cells)
    assert (status, out) == (0, "cells.h5ad.lindi.json\n")
    assert "groups" in err
    assert "datasets" in err
    assert sorted(os.listdir()) == ["cells.h5ad", "cells.h5ad.lindi.json"]


def test_index_replaces_an_older_document_and_compresses(cells, capsys):
    Path("out.json.zst").write_text("old")
    assert run(capsys, "index", cells, "-o", "out.json.zst")[0] == 0
    assert Path("out.json.zst").read_bytes().startswith(b"\x28\xb5\x2f\xfd")
    assert run(capsys, "check", "out.json.zst")[0] == 0


def test_index_writes_the_public_address(cells, capsys):
    assert run(capsys, "index", cells, "-o", "x.json", "--url", "https://host/cells.h5ad")[0] == 0
    assert json.loads(Path("x.json").read_text())["templates"] == {"u": "https://host/cells.h5ad"}


def test_index_names_the_document_after_an_address_without_its_signature(cells, capsys):
    with RangeServer() as server:
        url = server.add("my cells.h5ad", cells, require={"X-Key": "k"})
        status, out, err = run(capsys, "index", url + "?sig=secret", "--header", "X-Key: k")
        assert (status, out) == (0, "my cells.h5ad.lindi.json\n")
        assert "secret" not in err + Path("my cells.h5ad.lindi.json").read_text()
        assert run(capsys, "check", "my cells.h5ad.lindi.json")[0] == 1  # no key
        assert run(capsys, "check", "my cells.h5ad.lindi.json", "--header", "X-Key:k", "--source", url)[0] == 0


@pytest.mark.parametrize("output", ["cells.h5ad", "other.h5", "link.h5ad"])
def test_index_never_overwrites_an_hdf5_file(cells, capsys, output):
    Path("other.h5").write_bytes(cells.read_bytes())
    Path("link.h5ad").symlink_to(cells)
    before = cells.read_bytes()
    status, out, err = run(capsys, "index", cells, "-o", output)
    assert (status, out) == (1, "")
    assert "not overwritten" in err
    assert cells.read_bytes() == before == Path("other.h5").read_bytes()


def test_index_lists_the_first_twenty_problems(here, capsys):
    with h5py.File("many.h5", "w") as file:
        for n in range(25):
            file[f"out{n:02}"] = h5py.ExternalLink("gone.h5", "/x")
    status, _, err = run(capsys, "index", "many.h5")
    assert status == 0
    assert err.count("external_link") == 20
    assert "and 5 more" in err


def test_strict_refuses_and_leaves_nothing(odd, capsys):
    status, out, err = run(capsys, "index", odd, "--strict")
    assert (status, out) == (1, "")
    assert "/outside" in err
    assert os.listdir() == ["odd.h5"]


# -- ls ---------------------------------------------------------------------------------------------------------------


def test_ls_draws_a_tree(odd, capsys):
    assert run(capsys, "ls", odd, "-d", 2)[1].splitlines() == [
        str(odd),
        r"├── bell\x1b[2J",
        "├── group/",
        "│   ├── data",
        "│   └── loop -> /group",
        "├── nothing",
        "├── nowhere -> /not/there",
        "├── outside -> gone.h5:/x",
        "├── rows",
        "├── soft -> /group/data",
        "├── type",
        "└── words",
    ]


def test_ls_says_the_same_of_a_document_a_path_and_an_address(cells, capsys):
    run(capsys, "index", cells, "-o", "x.json")
    with RangeServer() as server:
        places = ["x.json", cells, server.add("cells.h5ad", cells)]
        answers = [run(capsys, "ls", "-l", place)[1].splitlines()[1:] for place in places]
    assert answers[0] == answers[1] == answers[2]
    assert "├── X/ <csr_matrix>" in answers[0]
    assert "│   └── X_umap <array> (40, 2) float64" in answers[0]


def test_ls_depth_and_plain(cells, capsys):
    assert run(capsys, "ls", cells, "--plain", "--depth", 1, "obs")[1].splitlines() == ["/obs/_index", "/obs/kind"]
    assert run(capsys, "ls", cells, "-1", "-l", "obsm/X_umap")[1] == (
        "/obsm/X_umap\tdataset\t(40, 2)\tfloat64\tarray\t\n"
    )
    assert run(capsys, "ls", cells, "-1", "-d", 0)[1] == ""


def test_ls_shows_links_and_ends_in_loops(odd, capsys):
    lines = run(capsys, "ls", "-l", odd)[1].splitlines()
    assert "│   └── loop -> /group" in lines
    assert "├── soft -> /group/data" in lines
    assert "├── outside -> gone.h5:/x" in lines
    assert "├── nothing empty float32" in lines
    assert "├── rows (1,) compound(a: int32, b: float64)" in lines
    assert "├── type datatype float32" in lines


def test_names_cannot_command_the_terminal(odd, capsys):
    out = run(capsys, "ls", odd)[1] + run(capsys, "view", odd)[1]
    assert "\x1b" not in out
    assert r"bell\x1b[2J" in out


# -- view -------------------------------------------------------------------------------------------------------------


def test_view_of_a_dataset(cells, capsys):
    out = run(capsys, "view", cells, "obsm/X_umap", "--rows", 2)[1]
    for line in (
        "Shape:       (40, 2)",
        "Dtype:       float64",
        "Compression: gzip level 4",
        "    [[0. 1.]",
        "     [2. 3.]]",
    ):
        assert line in out.splitlines()
    assert "encoding-type = array" in out


def test_view_of_strings_scalars_compounds_and_nothing(odd, capsys):
    assert "    two" in run(capsys, "view", odd, "words")[1].splitlines()
    assert "    (a: 1, b: 2.5)" in run(capsys, "view", odd, "rows")[1].splitlines()
    assert "Shape:       empty" in run(capsys, "view", odd, "nothing")[1].splitlines()
    assert "Dtype:       float32" in run(capsys, "view", odd, "type")[1].splitlines()


def test_view_of_an_anndata_root(cells, capsys):
    out = run(capsys, "view", cells)[1]
    assert "AnnData:     n_obs x n_var: 40 x 12" in out
    assert "    obs:     kind" in out
    assert "    obs/ <dataframe>" in out


def test_view_reads_only_the_first_rows(here, capsys):
    with h5py.File("long.h5", "w") as file:
        file.create_dataset("d", data=np.random.default_rng(0).random(4_000_000), chunks=(10_000,))
    run(capsys, "index", "long.h5", "-o", "long.json")
    with RangeServer() as server:
        url = server.add("long.h5", here / "long.h5")
        assert run(capsys, "view", "long.json", "d", "--source", url)[0] == 0
        assert server.nbytes < 300_000


def test_view_of_what_is_not_there(cells, capsys):
    status, out, err = run(capsys, "view", cells, "nope")
    assert (status, out) == (1, "")
    assert err == f"lindi-bridge: {cells}: there is no 'nope' in it; lindi-bridge ls lists what there is\n"


# -- check ------------------------------------------------------------------------------------------------------------


def test_check_of_a_sound_document(cells, capsys):
    run(capsys, "index", cells, "-o", "x.json")
    status, out, err = run(capsys, "check", "--data", "x.json")
    assert (status, out) == (0, "")
    assert err.endswith("0 faults, 0 notes\n")


def test_check_notes_what_the_document_cannot_express_and_finds_the_missing_file(odd, capsys):
    run(capsys, "index", odd, "-o", "x.json")
    for source in ("x.json", odd):
        status, out, _ = run(capsys, "check", "--data", source)
        lines = [line.split("\t") for line in out.splitlines()]
        assert status == 1
        assert ["note", "/type"] in [line[:2] for line in lines]
        assert [line[1] for line in lines if line[0] == "fault"] == ["/outside"]


def test_check_finds_a_source_that_is_gone_or_another(cells, capsys):
    run(capsys, "index", cells, "-o", "x.json")
    data = bytearray(cells.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    cells.write_bytes(data)
    status, out, _ = run(capsys, "check", "x.json")
    assert status == 1
    assert out.startswith("fault\t/\t")
    cells.write_bytes(data[:-1])
    assert run(capsys, "check", "x.json")[0] == 1
    cells.unlink()
    status, _, err = run(capsys, "check", "x.json")
    assert status == 1
    assert "Traceback" not in err


def test_check_lists_every_chunk_that_cannot_be_decoded(here, capsys):
    with h5py.File("broken.h5", "w") as file:
        for name in ("a", "b"):
            data = np.random.default_rng(0).integers(0, 9, 200_000)
            dataset = file.create_dataset(name, data=data, chunks=(50_000,), compression="gzip")
            where = [dataset.id.get_chunk_info(n) for n in (0, 3)]
            file.flush()
            with open("broken.h5", "r+b") as raw:
                for chunk in where:
                    raw.seek(chunk.byte_offset)
                    raw.write(bytes(chunk.size))
    assert run(capsys, "check", "broken.h5")[0] == 0
    status, out, _ = run(capsys, "check", "--data", "broken.h5")
    assert status == 1
    assert [line.split("\t")[:2] for line in out.splitlines()] == [["fault", "/a"], ["fault", "/b"]]


# -- the program ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [[], ["nope"], ["ls"], ["index", "a", "--header", "x"], ["view", "a", "--rows", "-1"], ["ls", "a", "-d", "x"]],
)
def test_wrong_usage(capsys, arguments):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("usage: lindi-bridge")


def test_a_header_is_not_repeated_in_the_message(capsys):
    assert "s3cret" not in run(capsys, "index", "a", "--header", "s3cret")[2]


def program(*arguments, **options):
    return subprocess.Popen([sys.executable, "-m", "lindi_bridge", *map(str, arguments)], text=True, **options)


def test_a_broken_pipe_ends_quietly(here):
    with h5py.File("wide.h5", "w") as file:
        for n in range(3000):
            file.create_group(f"group number {n:050}")
    with program("ls", "wide.h5", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 130


def test_an_interrupt_ends_quietly_and_leaves_nothing(here):
    with h5py.File("far.h5", "w") as file:
        for n in range(300):
            file[f"{n}/d"] = np.arange(8000.0)
    with RangeServer(latency=3) as server:
        url = server.add("far.h5", here / "far.h5")
        # Whoever runs the tests in the background ignores the signal, and so would the program.
        heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
        with program("index", url, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **heard) as process:
            end = time.monotonic() + 30
            while server.in_flight < 3 and time.monotonic() < end:
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")
    assert os.listdir() == ["far.h5"]


def test_help_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys, lindi_bridge.cli; print([m for m in ('h5py', 'numpy', 'requests', 'fsspec') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
