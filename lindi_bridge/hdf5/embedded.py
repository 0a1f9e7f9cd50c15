"""The bytes of a file that are known already: from a document, and in memory as long as the file is open."""

from __future__ import annotations

from collections.abc import Iterable

from lindi_bridge.errors import DocumentError
from lindi_bridge.hdf5.extents import ExtentCache

__all__ = ["EmbeddedBytes"]


class EmbeddedBytes:
    """Pieces of a file by address.

    Parameters
    ----------
    metadata : iterable of (int, bytes)
        Address and content of each piece.
    values : iterable of (int, bytes), optional
        The same, but asked for only when something is looked for that is not among ``metadata``. May be iterated over
        in any thread, and under h5py's lock.
    name : str
        The file, for errors.
    """

    def __init__(
        self,
        metadata: Iterable[tuple[int, bytes | memoryview]],
        values: Iterable[tuple[int, bytes | memoryview]] | None,
        name: str,
    ) -> None:
        self._metadata = tuple(metadata)
        self._values = values
        self._name = name
        self._pieces = ExtentCache()
        self._pieces.add(self._metadata)

    @property
    def is_complete(self) -> bool:
        """Whether the values were asked for, or there are none."""
        return self._values is None

    def find(self, address: int) -> memoryview | None:
        """The bytes from ``address`` on, to the end of their piece, or None."""
        found = self._pieces.find(address)
        if found is None and self._values is not None:
            self._take_values()
            found = self._pieces.find(address)
        return found

    peek = find

    def next_start(self, address: int) -> int | None:
        """Address of the first piece that begins after ``address``."""
        self._take_values()
        return self._pieces.next_start(address)

    def _take_values(self) -> None:
        # Without a lock: two threads that come here at the same time put the same in place.
        values = self._values
        if values is None:
            return
        pieces = ExtentCache()
        try:
            pieces.add([*self._metadata, *values])
        except DocumentError as error:
            raise DocumentError(f"{self._name}: {error}") from None
        self._pieces = pieces
        self._values = None
