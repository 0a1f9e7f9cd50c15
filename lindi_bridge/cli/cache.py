"""``lindi-bridge cache``."""

from __future__ import annotations

import argparse

from lindi_bridge.cli.text import clean, count, size, write
from lindi_bridge.errors import LindiBridgeError

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Tell what the cache on the disk holds, or empty it."""
    from lindi_bridge.client.access import AccessOptions
    from lindi_bridge.ranges.cache_folder import cached_files, evict
    from lindi_bridge.ranges.disk_cache import disk_cache

    chosen = AccessOptions(cache_dir=options.dir).reader_options("", None)
    if not chosen.cache_dir:
        raise LindiBridgeError("no cache: name its folder, here or in the environment variable LINDI_BRIDGE_CACHE")
    cache = disk_cache(chosen.cache_dir, chosen.cache_dir_bytes)
    if options.clear:
        evict(cache.root, 0, 0)
    files = list(cached_files(cache.root))
    held = sum(file.nbytes for file in files)
    write(f"{clean(cache.folder)}\t{count(len(files), 'file')}\t{size(held)} of {size(cache.limit)}")
    return 0
