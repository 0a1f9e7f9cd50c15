"""HDF5 filter pipelines as codecs of numcodecs, where the two agree byte for byte.

Filter numbers: HDF5 File Format Specification 3.0, section IV.A.2.l, and the registry of filter plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["codec_configs"]

_BLOSC_NAMES = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")

Config = Mapping[str, Any]


def _blosc(values: Sequence[int]) -> Config | None:
    if len(values) < 7 or values[6] >= len(_BLOSC_NAMES):
        return None
    return {
        "id": "blosc",
        "cname": _BLOSC_NAMES[values[6]],
        "clevel": int(values[4]),
        "shuffle": int(values[5]),
        "blocksize": 0,
    }


_CODECS: dict[int, Callable[[Sequence[int]], Config | None]] = {
    1: lambda values: {"id": "zlib", "level": int(values[0]) if values else 6},
    2: lambda values: {"id": "shuffle", "elementsize": int(values[0])} if values else None,
    3: lambda values: {"id": "fletcher32"},
    307: lambda values: {"id": "bz2", "level": int(values[0]) if values else 9},
    32001: _blosc,
    32015: lambda values: {"id": "zstd", "level": int(values[0]) if values else 3},
}


def codec_configs(pipeline: Sequence[tuple[int, tuple[int, ...]]], skipped: int = 0) -> tuple[Config, ...] | None:
    """Codec configurations in the order of encoding, or None where a filter has no equal codec.

    Parameters
    ----------
    pipeline : sequence of (int, tuple of int)
        Filter number and client values, in the order of writing.
    skipped : int
        Filter mask: bit k set leaves filter k out.
    """
    configs: list[Config] = []
    for position, (number, values) in enumerate(pipeline):
        if skipped >> position & 1:
            continue
        make = _CODECS.get(number)
        config = make(values) if make else None
        if config is None or (config["id"] == "shuffle" and any(c["id"] != "shuffle" for c in configs)):
            # HDF5 leaves odd bytes at the end of a buffer alone, numcodecs refuses them: shuffle must come first.
            return None
        configs.append(config)
    return tuple(configs)
