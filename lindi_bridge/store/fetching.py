"""What chunks are fetched together: at most a quarter of the cache of each file in one wave."""

from __future__ import annotations

from collections.abc import Sequence

from lindi_bridge.errors import LindiBridgeError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.ranges import ByteRange
from lindi_bridge.store.chunks import ChunkSource, Coordinates
from lindi_bridge.store.keys import chunk_coordinates

__all__ = ["FetchPlan"]


class FetchPlan:
    """Ranges of one wave, by file: links may lead to chunks of other files."""

    def __init__(self) -> None:
        self._ranges: dict[int, tuple[HDF5File, list[ByteRange]]] = {}
        self._room: dict[int, int] = {}
        self._seen: set[tuple[int, Coordinates]] = set()

    def add(self, source: ChunkSource, coordinates: Coordinates, *, always: bool = False) -> bool:
        """Add a chunk, and tell whether there was room for it.

        Parameters
        ----------
        source : ChunkSource
            Of the array.
        coordinates : tuple of int
            Of the chunk.
        always : bool
            Add it even if there is no room.
        """
        if (id(source), coordinates) in self._seen:
            return True
        file = source.file_object
        ranges = source.ranges(coordinates)
        nbytes = sum(r.length for r in ranges)
        room = self._room.setdefault(id(file), file.cache_bytes // 4)
        if nbytes > room and not always:
            return False
        self._seen.add((id(source), coordinates))
        self._room[id(file)] = room - nbytes
        self._ranges.setdefault(id(file), (file, []))[1].extend(ranges)
        return True

    def add_following(self, source: ChunkSource, keys: Sequence[str]) -> int:
        """Add chunks that will be asked for next, as long as there is room; how many.

        What is wrong with one is said when it is asked for.
        """
        try:
            for count, key in enumerate(keys):
                if not self.add(source, chunk_coordinates(key)):
                    return count
        except (LindiBridgeError, KeyError, OSError, ValueError, RuntimeError):
            return 0
        return len(keys)

    def fetch(self) -> None:
        """Fetch what is not in memory."""
        for file, ranges in self._ranges.values():
            file.ensure(ranges)
