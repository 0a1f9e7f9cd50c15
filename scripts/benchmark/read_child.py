"""Do one reading task with one tool: ``python -m benchmark.read_child TOOL TASK SOURCE``.

SOURCE is the tool's document, or the address or path of the file. Opening is a phase of its own.
"""

from __future__ import annotations

import sys
import tempfile
import urllib.request
from collections.abc import Callable
from typing import Any

from benchmark.dialog import Dialog
from benchmark.tasks import TASKS, Access, Ours, Zarr, digest

Opener = Callable[[], Any]


def lindi_bridge(source: str) -> tuple[Access, Opener]:
    """This package."""
    import anndata  # noqa: F401 (not in the measured time)

    from lindi_bridge import open as open_document

    return Ours(), lambda: open_document(source)


def lindi(source: str) -> tuple[Access, Opener]:
    """LINDI's client."""
    from lindi import LindiH5pyFile

    return Access(), lambda: LindiH5pyFile.from_lindi_file(source)


def kerchunk(source: str) -> tuple[Access, Opener]:
    """zarr 3 over fsspec's reference file system."""
    import fsspec
    import fsspec.implementations.http
    import zarr

    def opened() -> Any:
        files = fsspec.filesystem(
            "reference", fo=source, remote_protocol="http", asynchronous=True, remote_options={"asynchronous": True}
        )
        store = zarr.storage.FsspecStore(files, read_only=True, path="")
        return zarr.open_group(store, mode="r", zarr_format=2)

    return Zarr(), opened


def h5py_remfile(source: str) -> tuple[Access, Opener]:
    """h5py over remfile."""
    import h5py
    import remfile

    return Access(), lambda: h5py.File(remfile.File(source), "r")


def h5py_fsspec(source: str) -> tuple[Access, Opener]:
    """h5py over fsspec's file object, which reads ahead 5 MB."""
    import fsspec
    import fsspec.implementations.http
    import h5py

    return Access(), lambda: h5py.File(fsspec.filesystem("http").open(source), "r")


def download(source: str) -> tuple[Access, Opener]:
    """The whole file fetched first (that is its opening), then plain h5py."""
    import h5py

    def opened() -> Any:
        copy = tempfile.NamedTemporaryFile(suffix=".h5")  # noqa: SIM115 (lives as long as the process)
        with urllib.request.urlopen(source) as answer:
            while piece := answer.read(1 << 20):
                copy.write(piece)
        copy.flush()
        file = h5py.File(copy.name, "r")
        _HELD.append(copy)
        return file

    return Access(), opened


def h5py_local(source: str) -> tuple[Access, Opener]:
    """Plain h5py on the local file: the values that are right, and the time that decoding takes."""
    import h5py

    return Access(), lambda: h5py.File(source, "r")


_HELD: list[Any] = []

TOOLS = {
    "lindi_bridge": lindi_bridge,
    "lindi": lindi,
    "lindi-all": lindi,
    "kerchunk": kerchunk,
    "h5py-remfile": h5py_remfile,
    "h5py-fsspec": h5py_fsspec,
    "download": download,
    "h5py-local": h5py_local,
}


def main() -> None:
    """Command line; see the module's docstring."""
    tool, task, source = sys.argv[1:]
    dialog = Dialog()
    access, opener = TOOLS[tool](source)
    import pandas as pd  # noqa: F401 (not in the measured time)

    with dialog.phase("open"):
        file = opener()
        names = TASKS["open"].work(access, file)
    value, before = names, access.waves(file)
    if task != "open":
        with dialog.phase("task"):
            value = TASKS[task].work(access, file)
    after = access.waves(file)
    waves = None if before is None or after is None else after - before
    dialog.finish(digest=digest(value), waves=waves)


if __name__ == "__main__":
    main()
