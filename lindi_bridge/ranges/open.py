"""The reader for any kind of source."""

from __future__ import annotations

import os
from typing import Any

from lindi_bridge.errors import UnsupportedSchemeError
from lindi_bridge.ranges.address import (
    HTTP_SCHEMES,
    OBJECT_STORE_SCHEMES,
    is_local,
    local_path,
    scheme_of,
    strip_secrets,
)
from lindi_bridge.ranges.cache_key import address_digest
from lindi_bridge.ranges.cached_reader import CachedReader
from lindi_bridge.ranges.disk_cache import disk_cache
from lindi_bridge.ranges.file_object import FileObjectReader
from lindi_bridge.ranges.filesystem import BytesReader, FsspecReader, LocalReader, check_expected
from lindi_bridge.ranges.http import HttpReader
from lindi_bridge.ranges.identity import SourceIdentity
from lindi_bridge.ranges.object_store import ObjectStoreReader
from lindi_bridge.ranges.reader import RangeReader, ReaderOptions

__all__ = ["open_reader"]


def open_reader(
    source: Any, options: ReaderOptions | None = None, expected: SourceIdentity | None = None
) -> RangeReader:
    """Make the reader for a source. Asks remote sources nothing yet.

    Parameters
    ----------
    source : str, os.PathLike, bytes, file object, or fsspec ``OpenFile``
        A URL (http, https, s3, gs, az, abfs, file, or any that fsspec knows), a path, the bytes of a file, or an open
        binary file object.
    options : ReaderOptions, optional
        How to reach it.
    expected : SourceIdentity, optional
        The file that it must be; another one is an error, here or at the first read.

    Raises
    ------
    UnsupportedSchemeError
        No reader for this scheme, or not for a document that came over the network.
    """
    options = options or ReaderOptions()
    if isinstance(source, bytes | bytearray | memoryview):
        reader = BytesReader(source)
        check_expected(expected, reader.identity(), "bytes in memory")
        return reader
    if isinstance(source, os.PathLike):
        # pathlib, and path objects of remote file systems that give their URL
        source = os.fspath(source)
    if not isinstance(source, str):
        return FileObjectReader(source, expected=expected)
    scheme = scheme_of(source)
    if scheme in HTTP_SCHEMES:
        return _cached(HttpReader(source, options, expected), address_digest(source), options, expected)
    if scheme in OBJECT_STORE_SCHEMES:
        store = ObjectStoreReader(source, options, expected)
        return _cached(store, address_digest(source, store.place), options, expected)
    if options.restricted:
        raise UnsupportedSchemeError(
            f"{strip_secrets(source)}: a document that came over the network may name only http(s), s3, gs and az "
            "addresses; download the document first if you trust it"
        )
    if is_local(source):
        return LocalReader(local_path(source), expected)
    return FsspecReader(source, options, expected)


def _cached(reader: RangeReader, address: str, options: ReaderOptions, expected: SourceIdentity | None) -> RangeReader:
    """The reader over the disk cache, if there is to be one."""
    if not options.cache_dir:
        return reader
    cache = disk_cache(options.cache_dir, options.cache_dir_bytes)
    return CachedReader(reader, cache, address, expected)
