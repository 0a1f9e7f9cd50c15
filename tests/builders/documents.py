"""Reference documents of test files."""

from __future__ import annotations

from pathlib import Path

import lindi_bridge as lb


def write_document(source: Path) -> Path:
    """Index a local HDF5 file and save the document beside it."""
    document = source.with_name(source.name + ".lindi.json")
    lb.index(str(source)).save(str(document))
    return document
