"""All 143 features, collected from the modules that make them."""

from __future__ import annotations

from pathlib import Path

from builders import (
    attributes,
    bad,
    compounds,
    filters,
    layouts,
    links,
    names,
    references,
    registry,
    scalars,
    types,
)
from builders.registry import BAD, COMPANIONS, Maker, SkipFeature

__all__ = ["BAD", "COMPANIONS", "FEATURES", "SkipFeature", "make"]

_TOPICS = (scalars, links, references, compounds, types, layouts, filters, attributes, names, bad)

FEATURES: dict[str, Maker] = {
    name: maker for topic in _TOPICS for name, maker in registry.FEATURES.items() if maker.__module__ == topic.__name__
}
"""Name of the feature -> function that makes a file with it at the given path, topic by topic."""


def make(name: str, folder: Path) -> Path:
    """Make the file of one feature in `folder` and return its path; SkipFeature says why it cannot be made."""
    path = folder / f"{name}.h5"
    FEATURES[name](path)
    return path
