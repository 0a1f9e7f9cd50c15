"""Every error that lindi_bridge raises on purpose.

::

    LindiBridgeError
    ├── SourceError (OSError)               the bytes of the source file cannot be had
    │   ├── SourceNotFoundError (FileNotFoundError)
    │   ├── SourcePermissionError (PermissionError)
    │   ├── SourceChangedError              it is another file than the one that was indexed
    │   ├── SourceProtocolError             the server answered something else than the asked range
    │   ├── SourceTimeoutError (TimeoutError)
    │   └── SourceLockError                 this source cannot be read while h5py's lock is held
    ├── NotHDF5Error (OSError)              not an HDF5 file, truncated, or left open by a writer
    ├── DocumentError (ValueError)          the reference document is broken or not usable this way
    ├── LeavesFileError (KeyError, OSError) the object lies in another file that may not be opened
    ├── ReadOnlyError (ValueError, OSError) a write was asked of a read-only file
    ├── UnsupportedSchemeError (ValueError) no reader for this kind of address
    ├── IndexingError (ValueError)          ``strict=True`` and objects that a document cannot express
    ├── ElementError (ValueError)           an element of an AnnData file is not what it says, or not the kind needed
    └── MissingDependencyError (ImportError)

Each class is also the builtin that users of h5py or zarr catch in the same place. Messages name the
object, the address without its query string (it may be signed), and the remedy.
"""

from __future__ import annotations

__all__ = [
    "DocumentError",
    "ElementError",
    "IndexingError",
    "LeavesFileError",
    "LindiBridgeError",
    "MissingDependencyError",
    "NotHDF5Error",
    "ReadOnlyError",
    "SourceChangedError",
    "SourceError",
    "SourceLockError",
    "SourceNotFoundError",
    "SourcePermissionError",
    "SourceProtocolError",
    "SourceTimeoutError",
    "UnsupportedSchemeError",
]


class LindiBridgeError(Exception):
    """Root of all errors of this package."""


class SourceError(LindiBridgeError, OSError):
    """The bytes of a source file cannot be had."""


class SourceNotFoundError(SourceError, FileNotFoundError):
    """There is no file at the address."""


class SourcePermissionError(SourceError, PermissionError):
    """The server or the file system refuses access."""


class SourceChangedError(SourceError):
    """The file at the address is not the one that was indexed."""


class SourceProtocolError(SourceError):
    """The server's answer is not the byte range that was asked for."""


class SourceTimeoutError(SourceError, TimeoutError):
    """The source did not answer in time."""


class SourceLockError(SourceError):
    """The source answers through another Python thread, which must not be waited for under h5py's lock."""


class NotHDF5Error(LindiBridgeError, OSError):
    """The bytes are not a complete, closed HDF5 file."""


class DocumentError(LindiBridgeError, ValueError):
    """A reference document is broken, hostile, or cannot be used in the way asked for.

    Attributes
    ----------
    faults : tuple of (str, str)
        Path of an object and what is wrong with it: all that the message names, and what it has no room for. Empty
        where the fault is none of single objects.
    """

    faults: tuple[tuple[str, str], ...] = ()


class LeavesFileError(LindiBridgeError, KeyError, OSError):
    """An object lies in another file (external link, virtual dataset, external storage) that may not be opened."""

    def __str__(self) -> str:  # KeyError shows the repr of its argument, which is unreadable for a sentence
        return Exception.__str__(self)


class ReadOnlyError(LindiBridgeError, ValueError, OSError):
    """A write was asked for; everything that lindi_bridge opens is read-only."""


class UnsupportedSchemeError(LindiBridgeError, ValueError):
    """No reader for this kind of address, or the kind is not allowed here."""


class IndexingError(LindiBridgeError, ValueError):
    """Objects that a reference document cannot express, all at once (``strict=True``)."""


class MissingDependencyError(LindiBridgeError, ImportError):
    """An optional package is needed; the message names the extra to install."""


class ElementError(LindiBridgeError, ValueError):
    """An element of an AnnData file contradicts itself, or is not of the kind that was needed."""
