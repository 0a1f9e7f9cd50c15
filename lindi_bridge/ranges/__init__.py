"""Where bytes come from: readers of byte ranges of local and remote files.

Knows nothing of HDF5, Zarr or JSON. :func:`open_reader` makes the right :class:`RangeReader` for any source.
"""

from __future__ import annotations

from lindi_bridge.ranges.address import (
    check_redirect,
    is_local,
    is_private_host,
    join,
    same_origin,
    scheme_of,
    split,
    strip_secrets,
)
from lindi_bridge.ranges.cached_reader import CachedReader
from lindi_bridge.ranges.file_object import FileObjectReader
from lindi_bridge.ranges.filesystem import BytesReader, FsspecReader, LocalReader
from lindi_bridge.ranges.http import HttpReader
from lindi_bridge.ranges.identity import SourceIdentity
from lindi_bridge.ranges.lock import h5py_lock_is_held
from lindi_bridge.ranges.object_store import ObjectStoreReader
from lindi_bridge.ranges.open import open_reader
from lindi_bridge.ranges.reader import (
    ByteRange,
    PairReader,
    RangeReader,
    ReaderOptions,
    ReadStatistics,
    Renew,
    coalesce,
)

__all__ = [
    "ByteRange",
    "BytesReader",
    "CachedReader",
    "FileObjectReader",
    "FsspecReader",
    "HttpReader",
    "LocalReader",
    "ObjectStoreReader",
    "PairReader",
    "RangeReader",
    "ReadStatistics",
    "ReaderOptions",
    "Renew",
    "SourceIdentity",
    "check_redirect",
    "coalesce",
    "h5py_lock_is_held",
    "is_local",
    "is_private_host",
    "join",
    "open_reader",
    "same_origin",
    "scheme_of",
    "split",
    "strip_secrets",
]
