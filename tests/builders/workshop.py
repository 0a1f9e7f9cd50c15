"""The features' files and documents, each made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.documents import write_document
from builders.features import BAD, FEATURES, SkipFeature, make

__all__ = ["READABLE", "Workshop"]

READABLE = sorted(set(FEATURES) - BAD)


class Workshop:
    """Makes each feature's file and document once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sources: dict[str, Path | SkipFeature] = {}
        self._documents: dict[str, Path] = {}

    def source(self, name: str) -> Path:
        """Path of the HDF5 file; skips the test where the feature cannot be made."""
        if name not in self._sources:
            try:
                self._sources[name] = make(name, self._folder)
            except SkipFeature as reason:
                self._sources[name] = reason
        source = self._sources[name]
        if isinstance(source, SkipFeature):
            pytest.skip(str(source))
        return source

    def document(self, name: str) -> Path:
        """Path of the file's document."""
        if name not in self._documents:
            self._documents[name] = write_document(self.source(name))
        return self._documents[name]
