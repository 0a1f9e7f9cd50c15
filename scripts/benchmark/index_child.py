"""Index one file with one tool: ``python -m benchmark.index_child TOOL SOURCE OUTPUT URL [no-gc]``.

SOURCE is a path or an address, URL the address to write into the document. Imports are made before the clock starts.

kerchunk with zarr 3 can wait for ever: inside a callback of h5py, which holds h5py's lock, it waits for zarr's thread,
where garbage collection may free an object of h5py and want the same lock. Whether it does depends on when garbage is
collected. Where the document is wanted and not the time, ``no-gc`` switches the collection off.
"""

from __future__ import annotations

import base64
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmark.dialog import Dialog

Work = Callable[[], None]

OPENED: list[Any] = []
"""File objects of this package that were made; each counts what libhdf5 asked for and the walk had not read."""


def lindi_bridge(source: str, output: str, url: str) -> Work:
    """This package."""
    from lindi_bridge import index
    from lindi_bridge.hdf5.file import HDF5File

    made = HDF5File.__init__

    def counted(self: HDF5File, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        OPENED.append(self)

    HDF5File.__init__ = counted  # type: ignore[method-assign]
    return lambda: index(source, url=url).save(output)


def lindi(source: str, output: str, url: str) -> Work:
    """LINDI as it comes: datasets of more than 1,000 chunks are left to its own reader of HDF5."""
    from lindi import LindiH5pyFile

    return lambda: LindiH5pyFile.from_hdf5_file(source, url=url).write_lindi_file(output)


def lindi_all(source: str, output: str, url: str) -> Work:
    """LINDI told to index every chunk."""
    from lindi import LindiH5pyFile
    from lindi.LindiH5ZarrStore.LindiH5ZarrStoreOpts import LindiH5ZarrStoreOpts

    options = LindiH5ZarrStoreOpts(num_dataset_chunks_threshold=None)
    return lambda: LindiH5pyFile.from_hdf5_file(source, zarr_store_opts=options, url=url).write_lindi_file(output)


def kerchunk(source: str, output: str, url: str) -> Work:
    """kerchunk as it comes."""
    if source == url:
        import fsspec.implementations.http  # noqa: F401 (kerchunk would import it in the measured time)
    from kerchunk.hdf import SingleHdf5ToZarr

    def work() -> None:
        if source == url:
            document = SingleHdf5ToZarr(source).translate()
        else:
            with open(source, "rb") as file:  # given a path, kerchunk writes the path and not the address
                document = SingleHdf5ToZarr(file, url=url).translate()
        with open(output, "w") as out:
            json.dump(document, out)

    return work


def virtualizarr(source: str, output: str, url: str) -> Work:
    """VirtualiZarr's parser.

    Its writer takes one flat dataset; the same is done here for the whole tree, with metadata of Zarr v3. The option
    for links and references is given where the file has any (it refuses such a file otherwise).
    """
    import obstore.store
    from obspec_utils.registry import ObjectStoreRegistry
    from virtualizarr.manifests import ManifestArray
    from virtualizarr.parsers import HDFParser

    parser = HDFParser(links_and_references=True) if Path(url).suffix == ".h5" else HDFParser()
    if source == url:
        base = url.rpartition("/")[0]
        store = obstore.store.HTTPStore.from_url(base, client_options={"allow_http": True})
        registry, address = ObjectStoreRegistry({base: store}), url
    else:
        registry = ObjectStoreRegistry({"file://": obstore.store.LocalStore()})
        address = "file://" + str(Path(source).absolute())

    def entry(chunk: Any) -> object:
        if "data" in chunk:
            return "base64:" + base64.b64encode(chunk["data"]).decode()
        return [chunk["path"], chunk["offset"], chunk["length"]]

    def serialise(group: Any, prefix: str, refs: dict[str, object]) -> None:
        attributes = json.loads(json.dumps(group.metadata.attributes, default=str))
        refs[prefix + "zarr.json"] = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes})
        for name, member in group._members.items():
            if not isinstance(member, ManifestArray):
                serialise(member, f"{prefix}{name}/", refs)
                continue
            refs[f"{prefix}{name}/zarr.json"] = json.dumps(member.metadata.to_dict(), default=str)
            for key, chunk in member.manifest.dict().items():
                place = tuple(int(k) for k in key.split(".")) if member.ndim else ()
                refs[f"{prefix}{name}/{member.metadata.encode_chunk_key(place)}"] = entry(chunk)

    def work() -> None:
        refs: dict[str, object] = {}
        serialise(parser(address, registry)._group, "", refs)
        with open(output, "w") as out:
            json.dump({"version": 1, "refs": refs}, out)

    return work


def h5py_remfile(source: str, output: str, url: str) -> Work:
    """h5py over remfile (over the path, locally): visits all that an index holds, and writes nothing."""
    import h5py
    import remfile

    def visit(group: Any) -> None:
        dict(group.attrs)
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            member = group[name]
            if isinstance(member, h5py.Group):
                visit(member)
                continue
            dict(member.attrs)
            if member.chunks:
                chunks: list[Any] = []
                member.id.chunk_iter(chunks.append)
            elif not member.shape or member.nbytes <= 1024:
                member[()]

    def work() -> None:
        with h5py.File(remfile.File(url) if source == url else source, "r") as file:
            visit(file)

    return work


TOOLS = {
    "lindi_bridge": lindi_bridge,
    "lindi": lindi,
    "lindi-all": lindi_all,
    "kerchunk": kerchunk,
    "virtualizarr": virtualizarr,
    "h5py-remfile": h5py_remfile,
}


def main() -> None:
    """Command line; see the module's docstring."""
    tool, source, output, url, *options = sys.argv[1:]
    if "no-gc" in options:
        gc.disable()
    dialog = Dialog()
    work = TOOLS[tool](source, output, url)
    with dialog.phase("index"):
        work()
    dialog.finish(misses=sum(file.misses for file in OPENED))


if __name__ == "__main__":
    main()
