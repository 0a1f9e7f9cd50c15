"""The registry in which every module of features enters its makers.

A *feature* is one thing that HDF5 files do (a soft link, a filter, an empty attribute), as a function that makes
a file with it. Its docstring is the description that docs/fidelity.md shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

Maker = Callable[[Path], None]

FEATURES: dict[str, Maker] = {}
"""Name of the feature -> function that makes a file with it at the given path."""

COMPANIONS: set[str] = set()
"""Features whose data lie partly in other files, made beside the first one."""

BAD: set[str] = set()
"""Features that are not readable HDF5 files: opening them has to fail."""


class SkipFeature(Exception):
    """The feature cannot be made here; the argument says why."""


def feature(maker: Maker) -> Maker:
    """Register a maker under its function's name."""
    if maker.__name__ in FEATURES:
        raise ValueError(f"two features are named {maker.__name__}")
    if not maker.__doc__:
        raise ValueError(f"feature {maker.__name__} has no docstring")
    FEATURES[maker.__name__] = maker
    return maker


def companion_feature(maker: Maker) -> Maker:
    """Register a maker whose file takes data from companion files."""
    COMPANIONS.add(maker.__name__)
    return feature(maker)


def bad_feature(maker: Maker) -> Maker:
    """Register a maker of something that is not a readable HDF5 file."""
    BAD.add(maker.__name__)
    return feature(maker)


def random_numbers() -> np.random.Generator:
    """The same pseudo-random numbers in every feature and every run."""
    return np.random.default_rng(20_240_517)


def slowly_rising(shape: tuple[int, int] = (60, 100)) -> np.ndarray:
    """Compressible 32-bit integers without repeated rows, for everything that has chunks and filters."""
    steps = random_numbers().integers(0, 3, shape[0] * shape[1])
    return np.cumsum(steps).astype("i4").reshape(shape)
