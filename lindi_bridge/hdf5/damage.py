"""Errors while libhdf5 reads: of the source, or of a file that is damaged."""

from __future__ import annotations

from lindi_bridge.errors import SourceError

__all__ = ["EndOfFileError", "refuse_source_error"]


class EndOfFileError(SourceError):
    """libhdf5 asked for bytes after the end of the file."""


def refuse_source_error(error: Exception) -> None:
    """Raise an error that is the source's and not the file's; what is damaged in a file costs only that object."""
    if isinstance(error, SourceError) and not isinstance(error, EndOfFileError):
        raise error
