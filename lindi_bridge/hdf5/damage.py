"""Errors while libhdf5 reads: of the source, or of a file that is damaged or odd."""

from __future__ import annotations

from lindi_bridge.errors import SourceError

__all__ = ["DAMAGE", "EndOfFileError", "refuse_source_error"]

DAMAGE = (KeyError, OSError, ValueError, RuntimeError, TypeError)
"""What h5py raises for something in the file that libhdf5 cannot make sense of, or numpy has no type for.

Errors of the source are among them: :func:`refuse_source_error` comes first wherever these are caught.
"""


class EndOfFileError(SourceError):
    """libhdf5 asked for bytes after the end of the file."""


def refuse_source_error(error: Exception) -> None:
    """Raise an error that is the source's and not the file's; what is damaged in a file costs only that object."""
    if isinstance(error, SourceError) and not isinstance(error, EndOfFileError):
        raise error
