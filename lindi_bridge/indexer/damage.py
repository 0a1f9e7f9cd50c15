"""What h5py raises for one object that is damaged or odd, and what h5py calls names that are no text."""

from __future__ import annotations

__all__ = ["DAMAGE", "text_name"]

DAMAGE = (KeyError, OSError, ValueError, RuntimeError, TypeError)
"""What h5py raises for something in the file that libhdf5 cannot make sense of, or numpy has no type for.

Errors of the source are among them: ``refuse_source_error`` comes first wherever these are caught.
"""


def text_name(name: str | bytes) -> str:
    """The name of a link, an attribute or an enum's member; h5py gives bytes where it is not UTF-8."""
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name
