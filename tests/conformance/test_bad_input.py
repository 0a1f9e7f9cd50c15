"""What cannot be indexed: one plain line, exit status 1, and no file left behind."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb

_UNCLOSED = """
import os, sys, h5py
file = h5py.File(sys.argv[1], "w", libver="latest")
file.create_dataset("d", data=range(1000), chunks=(100,), maxshape=(None,))
file.swmr_mode = True
file.flush()
os._exit(0)
"""


def _hdf5(path):
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(50_000)


def _text(folder):
    (folder / "in.h5ad").write_bytes(b"this is not hdf5\n" * 100)


def _empty(folder):
    (folder / "in.h5ad").write_bytes(b"")


def _short(folder):
    (folder / "in.h5ad").write_bytes(b"\x89HDF")


def _truncated(folder):
    _hdf5(folder / "in.h5ad")
    os.truncate(folder / "in.h5ad", (folder / "in.h5ad").stat().st_size // 2)


def _damaged(folder):
    _hdf5(folder / "in.h5ad")
    with open(folder / "in.h5ad", "r+b") as file:
        file.seek(8)
        file.write(b"\xff" * 40)


def _directory(folder):
    (folder / "in.h5ad").mkdir()


def _nothing(folder):
    pass


def _unclosed(folder):
    subprocess.run([sys.executable, "-c", _UNCLOSED, str(folder / "in.h5ad")], check=True)


def _document(folder):
    (folder / "in.h5ad").write_text('{"version": 1, "refs": {}}')


LOCAL = {
    "text": (_text, "not an HDF5 file"),
    "empty": (_empty, "is empty"),
    "short": (_short, "not an HDF5 file"),
    "truncated": (_truncated, "is truncated"),
    "damaged": (_damaged, ""),
    "directory": (_directory, "folder"),
    "missing": (_nothing, "no such file"),
    "unclosed": (_unclosed, "writer"),
    "document": (_document, "a reference document is opened"),
}


def fails(folder, *arguments, says=""):
    """Run ``index`` in ``folder``, and hold it to its manners."""
    before = sorted(os.listdir(folder))
    process = subprocess.run(
        [sys.executable, "-m", "lindi_bridge", "index", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 1
    assert process.stdout == ""
    (line,) = process.stderr.splitlines()
    assert line.startswith("lindi-bridge: ")
    assert says in line
    assert sorted(os.listdir(folder)) == before
    return line


@pytest.mark.parametrize("kind", [*LOCAL])
def test_a_bad_file(tmp_path, kind):
    make, says = LOCAL[kind]
    make(tmp_path)
    assert "in.h5ad" in fails(tmp_path, "in.h5ad", says=says)


OTHERS = {
    "page.html": (b"\n<!DOCTYPE html><title>Not Found</title>", "web page"),
    "a.h5ad.gz": (gzip.compress(b"\x89HDF\r\n\x1a\n"), "gzip; decompress it"),
    "a.h5ad.zst": (b"\x28\xb5\x2f\xfd\x24\x00", "Zstandard; decompress it"),
    "a.zarr.zip": (b"PK\x03\x04\x14\x00", "ZIP archive; unpack it"),
    "a.nc": (b"CDF\x01\x00\x00", "convert it to netCDF-4"),
    "a.h5ad": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull"),
}


@pytest.mark.parametrize("name", [*OTHERS])
def test_what_is_taken_for_an_hdf5_file(tmp_path, name):
    data, says = OTHERS[name]
    (tmp_path / name).write_bytes(data)
    # A document may be compressed with Zstandard, and is looked for in such a file.
    for attempt in (lb.index,) if name.endswith(".zst") else (lb.index, lb.open):
        with pytest.raises(OSError, match=f"{name}: not an HDF5 file but .*{says}"):
            attempt(tmp_path / name)


@pytest.mark.parametrize("kind", ["text", "empty", "short", "truncated", "damaged", "unclosed", "document"])
def test_the_same_on_a_server(tmp_path, kind):
    make, says = LOCAL[kind]
    make(tmp_path)
    with RangeServer() as server:
        url = server.add("in.h5ad", tmp_path / "in.h5ad")
        line = fails(tmp_path, url + "?signature=secret", says=says)
        assert url in line
        assert "secret" not in line


@pytest.mark.parametrize(
    "fault",
    ["404", "403", "401", "no_range", "wrong_range", "redirect_loop"],
)
def test_a_bad_server(tmp_path, fault):
    with RangeServer() as server:
        fails(tmp_path, server.add("in.h5ad", b"\x89HDF\r\n\x1a\n" * 1_000_000, fault=fault), says="in.h5ad")


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:9/in.h5ad", "nope://host/in.h5ad", "http://host.invalid/in.h5ad"]
)
def test_a_bad_address(tmp_path, address):
    fails(tmp_path, address)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file, whatever its permissions")
def test_no_permission(tmp_path):
    _hdf5(tmp_path / "in.h5ad")
    (tmp_path / "in.h5ad").chmod(0)
    fails(tmp_path, "in.h5ad", says="permission")


@pytest.mark.parametrize(
    ("output", "says"), [("missing/out.json", "no folder"), ("folder", "is a folder"), ("in.h5ad", "not overwritten")]
)
def test_a_bad_output(tmp_path, output, says):
    _hdf5(tmp_path / "in.h5ad")
    (tmp_path / "folder").mkdir()
    fails(tmp_path, "in.h5ad", "-o", output, says=says)


def test_a_bad_file_leaves_an_older_document_alone(tmp_path):
    _text(tmp_path)
    (tmp_path / "out.json").write_text("older")
    fails(tmp_path, "in.h5ad", "-o", "out.json")
    assert (tmp_path / "out.json").read_text() == "older"
