"""The public functions: wiring, no algorithm."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import h5py

from lindi_bridge import __version__
from lindi_bridge.client.file import File
from lindi_bridge.client.mount import HEAD, AccessOptions, open_file_object, open_source
from lindi_bridge.client.plan import read_plan
from lindi_bridge.client.rebuild import finish
from lindi_bridge.client.verify import fingerprint
from lindi_bridge.document.document import dump_document
from lindi_bridge.errors import DocumentError, IndexingError, LeavesFileError
from lindi_bridge.hdf5.departures import find_departures
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.open import open_file_id
from lindi_bridge.indexer.index import Progress, index_file
from lindi_bridge.model.nodes import Problem, ReferenceTree
from lindi_bridge.model.snapshot import Snapshot
from lindi_bridge.ranges import ByteRange, ReadStatistics, is_local, open_reader, strip_secrets

__all__ = ["Index", "hdf5_file", "index", "open", "prefetch"]


class Index:
    """The index of one HDF5 file, in memory.

    Made by :func:`index`. :func:`open` takes it as it takes an address.
    """

    def __init__(self, tree: ReferenceTree, snapshot: Snapshot, statistics: ReadStatistics) -> None:
        self._tree = tree
        self._snapshot = snapshot
        self.statistics = statistics
        """What indexing asked of the source: requests, waves, bytes."""
        self._generation_metadata = {
            "generator": "lindi_bridge",
            "version": __version__,
            "hdf5_version": h5py.version.hdf5_version,
            "generated": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    @property
    def problems(self) -> list[Problem]:
        """What the document cannot express, object by object."""
        return list(self._tree.problems)

    @property
    def url(self) -> str:
        """Address of the source that the document names."""
        return self._snapshot.url

    @property
    def size(self) -> int:
        """Bytes of the source."""
        return self._snapshot.identity.size

    @property
    def paths(self) -> list[str]:
        """Every object and link that the document expresses, by absolute path."""
        return list(self._tree.nodes)

    def to_json(self, url: str | None = None) -> str:
        """The document as JSON text.

        Parameters
        ----------
        url : str, optional
            Another address to name as the source.
        """
        if not (url or self.url):
            raise DocumentError("the index was made of an open file without an address; pass url= to index()")
        return self._text(url or self.url)

    def _text(self, url: str) -> str:
        return dump_document(self._tree, replace(self._snapshot, url=url), self._generation_metadata)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the document, whole or not at all.

        Parameters
        ----------
        path : str or os.PathLike
            A local path; ``.json``, or ``.json.zst`` for Zstandard compression. A source in the same folder or below
            is named relative to it, so that the two can be moved together.
        """
        path = os.fspath(path)
        folder = os.path.dirname(os.path.abspath(path))
        url = self.url
        if url and is_local(url) and os.path.isabs(url) and _is_below(url, folder):
            url = os.path.relpath(url, folder).replace(os.sep, "/")
        data = self.to_json(url).encode("utf-8")
        if path.endswith(".zst"):
            from numcodecs import Zstd

            data = bytes(Zstd(level=12).encode(data))
        _write_atomically(path, data)

    def __repr__(self) -> str:
        return f"<Index of {self.url or 'an open file'}: {len(self.paths)} objects, {len(self.problems)} problems>"


def _is_below(path: str, folder: str) -> bool:
    return os.path.commonpath([os.path.realpath(path), os.path.realpath(folder)]) == os.path.realpath(folder)


def _write_atomically(path: str, data: bytes) -> None:
    folder, name = os.path.split(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def index(
    source: Any,
    *,
    url: str | None = None,
    headers: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    strict: bool = False,
    progress: Progress | None = None,
    **timeouts: Any,
) -> Index:
    """Walk an HDF5 file and learn where everything in it lies.

    Parameters
    ----------
    source : str, os.PathLike, or file object
        A path, a URL (``https://``, ``s3://``, ``gs://``, ``az://``, or any that fsspec knows), or an open binary file
        (remfile.File, fsspec's, BytesIO).
    url : str, optional
        The address to write into the document, where ``source`` is a copy of what lies there. Query strings are left
        out of addresses by themselves, as they may be signatures; what is given here is written as it is.
    headers : mapping, optional
        HTTP headers for the source.
    storage_options : mapping, optional
        For s3, gs, az and fsspec.
    strict : bool
        Raise if there is anything that the document cannot express.
    progress : callable, optional
        Called with the name of a stage and the number of objects done since.
    **timeouts : float
        ``connect_timeout``, ``read_timeout``, ``total_timeout`` of one request, in seconds.

    Returns
    -------
    Index
        With ``save``, ``problems`` and more.

    Raises
    ------
    NotHDF5Error
        Not a complete HDF5 file.
    SourceError
        The source cannot be read.
    IndexingError
        ``strict`` and there are problems; all of them are in the message.
    """
    access = AccessOptions(headers=headers or {}, storage_options=storage_options or {}, **timeouts)
    source = os.fspath(source) if isinstance(source, os.PathLike) else source
    reader = open_reader(source, access.reader_options(source if isinstance(source, str) else "", None))
    try:
        head = reader.read_head(HEAD)
        with reader.lock_safe():
            file = open_source(reader, head, access.cache_bytes)
            address = url if url is not None else _written_address(reader.url)
            tree, snapshot = index_file(file, address, fingerprint, progress=progress)
    finally:
        reader.close()
    if strict and tree.problems:
        listed = "\n".join(f"  {p.path}: {p.message}" for p in tree.problems)
        raise IndexingError(f"{reader.url}: {len(tree.problems)} objects cannot be expressed:\n{listed}")
    return Index(tree, snapshot, reader.statistics)


def _written_address(url: str) -> str:
    return os.path.abspath(url) if url and is_local(url) else strip_secrets(url)


def open(name: Any, mode: str = "r", **options: Any) -> File:
    """Open a reference document, or an HDF5 file anywhere, as an :class:`h5py.File`.

    Parameters
    ----------
    name : str, os.PathLike, file object, or Index
        Path or URL of a document or of an HDF5 file.
    mode : str
        Only ``"r"``.
    **options
        ``source``: where the bytes are now, if not at the address in the document. ``headers``,
        ``storage_options``, ``credentials_for``: how to get access. ``cache_bytes``: bytes held in memory.
        ``allow_external``: open companion files outside the folder of a local source. ``prefer="annotations"``: build
        the file anew from the document's metadata, although it carries what opens it as it is. Chunk cache options of
        :class:`h5py.File`.

    Returns
    -------
    File
        A subclass of :class:`h5py.File`.
    """
    if isinstance(name, Index):
        name = name._text(name.url).encode("utf-8")
    return File(name, mode, **options)


def hdf5_file(name: Any, *, allow_external: bool = False, **options: Any) -> HDF5File:
    """Open a document as a file object, for ``h5py.File(...)`` and every library that takes one.

    Parameters
    ----------
    name : str, os.PathLike, file object, or Index
        A document; an HDF5 file is indexed first.
    allow_external : bool
        Open also a file with external links, virtual datasets over other files, or external storage. Whoever reads
        those through plain h5py gets wrong values or local files; everything else is right.
    **options
        As for :func:`open`.

    Raises
    ------
    LeavesFileError
        Something in the file lies in other files.
    """
    if isinstance(name, Index):
        name = name._text(name.url).encode("utf-8")
    file = open_file_object(name, AccessOptions(**options))
    try:
        finish(file)
        if not allow_external:
            _refuse_departures(file)
    except BaseException:
        file.close()
        raise
    return file


def _refuse_departures(file: HDF5File) -> None:
    # Looked up in the file itself: the list in a document was written by whoever made the document.
    file_id = open_file_id(file)
    try:
        departures = find_departures(file_id)
    finally:
        h5py.File(file_id).close()
    file.seek(0)
    if departures:
        listed = "; ".join(f"{d.path} ({d.kind.replace('_', ' ')} to {', '.join(d.files)})" for d in departures[:5])
        more = f" and {len(departures) - 5} more" if len(departures) > 5 else ""
        raise LeavesFileError(
            f"{file.address}: {len(departures)} objects lie in other files, where plain h5py over a file object gets "
            f"wrong values: {listed}{more}; use lindi_bridge.open, or pass allow_external=True if you do not read them"
        )


def prefetch(obj: Any) -> int:
    """Fetch the data of a dataset, or of everything below a group, in one concurrent wave.

    Parameters
    ----------
    obj : Dataset or Group
        From a file opened with :func:`open`.

    Returns
    -------
    int
        Bytes that were wanted. At most half of the cache is filled: datasets that do not fit any more are left
        out, and fetched when they are read.
    """
    if not hasattr(obj, "_file_object"):
        raise TypeError(f"{type(obj).__name__}: prefetch takes a dataset or group of a file from lindi_bridge.open")
    datasets: list[Any] = []
    if isinstance(obj, h5py.Dataset):
        datasets.append(obj)
    else:
        obj.visititems(lambda name, child: datasets.append(child) if isinstance(child, h5py.Dataset) else None)
    file = obj._file_object
    wanted: list[ByteRange] = []
    room = file.cache_bytes // 2
    for dataset in datasets:
        ranges = read_plan(dataset.id, file).everything()
        nbytes = sum(r.length for r in ranges)
        if nbytes <= room:
            wanted += ranges
            room -= nbytes
    file.ensure(wanted)
    return sum(r.length for r in wanted)
