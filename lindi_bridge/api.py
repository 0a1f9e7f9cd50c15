"""The public functions: wiring, no algorithm."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import h5py

from lindi_bridge import __version__
from lindi_bridge.client.file import File
from lindi_bridge.client.mount import HEAD, AccessOptions, open_file_object, open_source
from lindi_bridge.client.prefetch import prefetch as fetch_ahead
from lindi_bridge.client.rebuild import finish
from lindi_bridge.client.verify import fingerprint
from lindi_bridge.client.wrapping import is_ours
from lindi_bridge.document.document import dump_document
from lindi_bridge.document.document_file import address_beside, write_document_file
from lindi_bridge.elements import registration  # noqa: F401 (anndata is told of our classes when it is there)
from lindi_bridge.elements.sparse import fetch_slices
from lindi_bridge.errors import DocumentError, IndexingError, LeavesFileError, MissingDependencyError
from lindi_bridge.hdf5.departures import find_departures
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.hdf5.open import open_file_id
from lindi_bridge.indexer.index import Progress, index_file
from lindi_bridge.indexer.profile import PROFILES
from lindi_bridge.model.nodes import Problem, ReferenceTree
from lindi_bridge.model.snapshot import Snapshot
from lindi_bridge.ranges import ReadStatistics, is_local, open_reader, strip_secrets
from lindi_bridge.store.origin import hdf5_object

if TYPE_CHECKING:
    from anndata import AnnData
    from zarr import Group

__all__ = ["Index", "hdf5_file", "index", "open", "open_zarr", "prefetch", "read_lazy"]


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
        if tree.profile != "lindi":
            self._generation_metadata["profile"] = tree.profile

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
            is named relative to it, so that the two can be moved together; but not in the profile ``zarr``.
        """
        path = os.fspath(path)
        # Readers that are not ours take a relative address for one relative to where they run.
        is_ours = self._tree.profile == "lindi"
        write_document_file(path, self.to_json(address_beside(self.url, path) if is_ours else self.url))

    def __repr__(self) -> str:
        return f"<Index of {self.url or 'an open file'}: {len(self.paths)} objects, {len(self.problems)} problems>"


def index(
    source: Any,
    *,
    url: str | None = None,
    headers: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    strict: bool = False,
    profile: str = "lindi",
    link_above: int | None = None,
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
    profile : str
        Whom the references are written for. ``"lindi"``: for readers of LINDI's format, as complete as may be.
        ``"zarr"``: for zarr, xarray, anndata and zarrita without this package; links become copies, and what plain Zarr
        does not have is left out and listed. Both open alike with :func:`open`.
    link_above : int, optional
        Datasets of more chunks than this are not referred to chunk by chunk, but written as external array links, which
        keeps the document small. :func:`open` reads them all the same, and so does LINDI. Not in the profile ``zarr``.
    progress : callable, optional
        Called with the name of a stage and the number of objects done since.
    **timeouts : float
        ``connect_timeout``, ``read_timeout``, ``total_timeout`` of one request, in seconds; also ``retries``,
        ``concurrency``, ``renew``, ``cache_dir`` and ``cache_dir_bytes``, as for :func:`open`.

    Returns
    -------
    Index
        With ``save``, ``problems`` and more.

    Raises
    ------
    ValueError
        There is no such profile, or it has no links.
    NotHDF5Error
        Not a complete HDF5 file.
    SourceError
        The source cannot be read.
    IndexingError
        ``strict`` and there are problems; all of them are in the message.
    """
    if profile not in PROFILES:
        raise ValueError(f"profile={profile!r}: there are {', '.join(map(repr, PROFILES))}")
    if link_above is not None and profile != "lindi":
        raise ValueError(f"link_above={link_above}: the profile {profile!r} has no external array links")
    inline = replace(PROFILES[profile].inline, most_chunks=link_above)
    access = AccessOptions(headers=headers or {}, storage_options=storage_options or {}, **timeouts)
    source = os.fspath(source) if isinstance(source, os.PathLike) else source
    reader = open_reader(source, access.reader_options(source if isinstance(source, str) else "", None))
    try:
        head = reader.read_head(HEAD)
        with reader.lock_safe():
            file = open_source(reader, head, access.cache_bytes)
            address = url if url is not None else _written_address(reader.url)
            tree, snapshot = index_file(
                file, address, fingerprint, inline=inline, progress=progress, profile=PROFILES[profile]
            )
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
        ``storage_options``, ``credentials_for``: how to get access. ``renew``: a function that gives a fresh address
        when the server says that the old one has expired. ``connect_timeout``, ``read_timeout``, ``total_timeout``
        (seconds), ``retries``, ``concurrency``: of reads. ``cache_bytes``: bytes held in memory.
        ``cache_dir``: a folder in which fetched bytes are kept for the next session, ``cache_dir_bytes`` of them at the
        most. ``allow_external``: open companion files outside the folder of a local source.
        ``prefer="annotations"``: build the file anew from the document's metadata, although it carries what opens it
        as it is. Chunk cache options of :class:`h5py.File`.

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


def prefetch(obj: Any, rows: Any = None) -> int:
    """Fetch the data of a dataset, or of everything below a group, before it is read.

    In one concurrent wave; in a file without a document one or two more for strings, where their places have to be read
    first. What is in memory already is not fetched again.

    Parameters
    ----------
    obj : Dataset or Group
        From a file opened with :func:`open`; or a Zarr array or group from :func:`open_zarr`.
    rows : int, slice, list, integer or boolean array, optional
        Of a group that is a sparse matrix: only these rows (CSR) or columns (CSC).

    Returns
    -------
    int
        Bytes that were wanted. At most half of the cache is filled, with the smallest datasets first; those that do not
        fit any more are left out, and fetched when they are read.

    Raises
    ------
    TypeError
        Not a dataset or group of a file from :func:`open`.
    """
    obj = hdf5_object(obj)
    if not is_ours(obj):
        raise TypeError(f"{type(obj).__name__}: prefetch takes a dataset or group of a file from lindi_bridge.open")
    return fetch_ahead([obj]) if rows is None else fetch_slices(obj, rows)[0]


def open_zarr(name: Any, **options: Any) -> Group:
    """Open a document, or an HDF5 file anywhere, as a :class:`zarr.Group`, for xarray, dask, anndata and zarr itself.

    Parameters
    ----------
    name : str, os.PathLike, bytes, file object, Index, or File
        Path or URL of a document or of an HDF5 file; or a file from :func:`open`, which stays open.
    **options
        As for :func:`open`.

    Returns
    -------
    zarr.Group
        Read-only, of Zarr format 3. All metadata are in memory: listing asks the source nothing. ``group.store`` is
        closed with ``group.store.close()``; its ``problems`` list what Zarr has no place for.

    Warns
    -----
    IncompleteWarning
        Something is left out.

    Raises
    ------
    SourceError, NotHDF5Error, DocumentError
        It cannot be opened.
    MissingDependencyError
        zarr is not installed.
    """
    _need_zarr()
    from lindi_bridge.store.group import open_group

    return open_group(_content(name), stacklevel=2, **options)


def read_lazy(name: Any, *, load_annotation_index: bool = True, **options: Any) -> AnnData:
    """Read an AnnData file lazily, as :func:`anndata.experimental.read_lazy` does, from wherever it lies.

    Arrays are dask arrays and columns are read when they are needed; their tasks run in threads, in processes and with
    ``dask.distributed``. What travels to other processes is the address, no secrets.

    Parameters
    ----------
    name, **options
        As for :func:`open_zarr`.
    load_annotation_index : bool
        Whether to read ``obs_names`` and ``var_names`` at once.

    Returns
    -------
    anndata.AnnData

    Raises
    ------
    SourceError, NotHDF5Error, DocumentError
        It cannot be opened.
    MissingDependencyError
        zarr, anndata, dask or xarray is not installed.
    """
    _need_zarr()
    from lindi_bridge.elements.lazy import read_lazily

    return read_lazily(_content(name), load_annotation_index=load_annotation_index, stacklevel=2, **options)


def _need_zarr() -> None:
    if importlib.util.find_spec("zarr") is None:
        raise MissingDependencyError("a Zarr group needs zarr: pip install 'lindi_bridge[zarr]'")


def _content(name: Any) -> Any:
    """What a document's text is opened from: an index in memory is its own text."""
    return name._text(name.url).encode("utf-8") if isinstance(name, Index) else name
