"""What h5py raises for one object that is damaged or odd."""

from __future__ import annotations

__all__ = ["DAMAGE"]

DAMAGE = (KeyError, OSError, ValueError, RuntimeError, TypeError)
"""What h5py raises for something in the file that libhdf5 cannot make sense of, or numpy has no type for.

Errors of the source are among them: ``refuse_source_error`` comes first wherever these are caught.
"""
