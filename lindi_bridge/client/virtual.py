"""An HDF5 file that is written in memory, and whose chunks lie in other files.

libhdf5 writes it through :class:`MemoryWriter`. Everything goes to :class:`VirtualMemory`, except the payloads of
chunks, which are only announced: their place in the virtual file is mapped to a range of a source. libhdf5 writes
each payload in exactly one piece and never reads or moves it; metadata come through the same callback, so a payload
is recognised by the address and length of its buffer.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lindi_bridge.errors import DocumentError

__all__ = ["MemoryWriter", "Segments", "VirtualMemory", "VirtualRange"]

_PAGE = 16 * 1024
_FOREVER = 1 << 61

Int64Array = npt.NDArray[np.int64]


class VirtualRange(NamedTuple):
    """Bytes of the virtual file, and where they are: in a source, in memory (-1), or nowhere (less than -1)."""

    start: int
    length: int
    source: int
    offset: int


class Segments(NamedTuple):
    """Mapped ranges as columns, by ascending and disjoint ``start``."""

    start: Int64Array
    length: Int64Array
    source: Int64Array
    offset: Int64Array

    def row(self, row: int) -> VirtualRange:
        """One of them."""
        return VirtualRange(*(int(column[row]) for column in self))


class VirtualMemory:
    """The virtual file: what is in memory, and what is mapped.

    Readers run under h5py's lock and take none of their own: pages are only ever added or changed by libhdf5
    itself, and the tables of segments are replaced as a whole.
    """

    def __init__(self) -> None:
        self.size = 0
        self.changes = 0
        """How often something was written or mapped: what was found before may be other bytes now."""
        self.closed_addresses: dict[int, str] = {}
        """Addresses that must not be read, and why: the chunk index of a dataset whose chunks are not in it."""
        self._pages: dict[int, bytearray] = {}
        self._tables: tuple[Segments, ...] = ()

    def write(self, start: int, data: bytes | memoryview) -> None:
        """Put bytes into memory."""
        self.changes += 1
        self.size = max(self.size, start + len(data))
        done = 0
        while done < len(data):
            number, inside = divmod(start + done, _PAGE)
            length = min(_PAGE - inside, len(data) - done)
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = bytearray(_PAGE)
            page[inside : inside + length] = data[done : done + length]
            done += length

    def read(self, start: int, length: int) -> bytes:
        """Bytes in memory; what was never written, or is mapped, is zero."""
        out = bytearray(length)
        done = 0
        while done < length:
            number, inside = divmod(start + done, _PAGE)
            count = min(_PAGE - inside, length - done)
            page = self._pages.get(number)
            if page is not None:
                out[done : done + count] = page[inside : inside + count]
            done += count
        return bytes(out)

    def map(self, segments: Segments) -> None:
        """Map further ranges, which nothing else has."""
        if not len(segments.start):
            return
        self.changes += 1
        order = np.argsort(segments.start, kind="stable")
        tables = [*self._tables, Segments(*(column[order] for column in segments))]
        # As in a binary counter, so that every row is merged a logarithmic number of times at the most.
        while len(tables) > 1 and len(tables[-2].start) <= 2 * len(tables[-1].start):
            last, before = tables.pop(), tables.pop()
            columns = [np.concatenate(pair) for pair in zip(before, last, strict=True)]
            order = np.argsort(columns[0], kind="stable")
            tables.append(Segments(*(column[order] for column in columns)))
        self._tables = tuple(tables)

    def segment(self, address: int) -> VirtualRange | None:
        """The mapped range that holds an address, or None."""
        for table in self._tables:
            row = int(table.start.searchsorted(address, "right")) - 1
            if row >= 0 and address < table.start[row] + table.length[row]:
                return table.row(row)
        return None

    def next_start(self, address: int) -> int | None:
        """The first address after ``address`` where another piece begins, mapped or in memory."""
        here = self.segment(address)
        if here is not None:
            return here.start + here.length
        following = []
        for table in self._tables:
            row = int(table.start.searchsorted(address, "right"))
            if row < len(table.start):
                following.append(int(table.start[row]))
        return min(following, default=None)

    def find(self, address: int) -> memoryview | None:
        """Bytes in memory from ``address`` on, or None where a source has them. Part of the protocol of a cache."""
        segment = self.segment(address)
        if segment is not None and segment.source != -1:
            return None
        number, inside = divmod(address, _PAGE)
        stop = min(_PAGE, (self.next_start(address) or _FOREVER) - address + inside)
        page = self._pages.get(number)
        return memoryview(bytes(stop - inside) if page is None else page[inside:stop])

    def pieces(self, start: int, length: int) -> Iterator[VirtualRange]:
        """Cut a range into mapped pieces and pieces in memory."""
        stop = start + length
        while start < stop:
            segment = self.segment(start)
            end = min(stop, self.next_start(start) or stop)
            if segment is None:
                yield VirtualRange(start, end - start, -1, 0)
            else:
                offset = segment.offset + start - segment.start
                yield VirtualRange(start, end - start, segment.source, offset)
            start = end

    def refuse_closed(self, address: int) -> None:
        """Raise if ``address`` must not be read.

        Raises
        ------
        DocumentError
            With the reason.
        """
        reason = self.closed_addresses.get(address)
        if reason is not None:
            raise DocumentError(reason)


class MemoryWriter(io.RawIOBase):
    """What libhdf5 writes a virtual file through.

    Parameters
    ----------
    memory : VirtualMemory
        Where it goes.
    """

    def __init__(self, memory: VirtualMemory) -> None:
        super().__init__()
        self._memory = memory
        self._position = 0
        self._zeros: mmap.mmap | None = None
        self._zeros_address = -1
        self._expected = -1
        self._place = -1
        self.index_roots: dict[int, int] = {}
        """Address of every chunk B-tree of one node by the address of its first chunk (absolute both)."""
        self.base = 0

    # -- payloads -------------------------------------------------------------------------------------------------

    def payload(self, length: int) -> memoryview:
        """A buffer of ``length`` bytes to pass to libhdf5 as a chunk: the next write of it only tells its place."""
        if self._zeros is None or len(self._zeros) < length:
            # Anonymous memory that nobody writes or reads takes no room.
            self._zeros = mmap.mmap(-1, max(length, 1 << 20))
            self._zeros_address = np.frombuffer(self._zeros, np.uint8).__array_interface__["data"][0]
        self._expected, self._place = length, -1
        return memoryview(self._zeros)[:length]

    def place(self) -> int:
        """Where libhdf5 put the payload.

        Raises
        ------
        RuntimeError
            It was not written in one piece: this libhdf5 does not work as all known ones do.
        """
        if self._place < 0:
            raise RuntimeError("libhdf5 did not write a chunk in one piece")
        return self._place

    # -- the file protocol ----------------------------------------------------------------------------------------

    def readable(self) -> bool:
        """Always true."""
        return True

    def writable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position."""
        self._position = offset + (0, self._position, self._memory.size)[whence]
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def truncate(self, size: int | None = None, /) -> int:
        """Set the size."""
        size = self._position if size is None else size
        self._memory.size = max(self._memory.size, size)
        return size

    def write(self, data: Any, /) -> int:
        """Take what libhdf5 writes."""
        start, length = self._position, len(data)
        self._position = start + length
        if length == self._expected and self._address_of(data) == self._zeros_address:
            self._expected, self._place = -1, start
            self._memory.size = max(self._memory.size, start + length)
            return length
        if bytes(data[:6]) == b"TREE\x01\x00":
            self._note_index(start, data)
        self._memory.write(start, data)
        return length

    def readinto(self, buffer: Any, /) -> int:
        """Give back what was written."""
        buffer[:] = self._memory.read(self._position, len(buffer))
        self._position += len(buffer)
        return len(buffer)

    def _note_index(self, start: int, node: Any) -> None:
        """Remember a leaf of a chunk B-tree (HDF5 File Format Specification 3.0, section III.A.1) by its first chunk.

        Signature 4, type 1, level 1, entries 2, siblings 2 x 8; then a key: size 4, mask 4, and 8 for each axis and
        one more; then the address of the chunk. The size of a key follows from the size of the node.
        """
        if bytes(node[8:24]) != b"\xff" * 16:
            return  # it has siblings, so it is not a root
        ranks = range(1, 34)
        for rank in ranks:
            key = 8 + 8 * (rank + 1)
            if 24 + 64 * 8 + 65 * key == len(node):
                at = 24 + key
                child = int.from_bytes(bytes(node[at : at + 8]), "little")
                self.index_roots[child + self.base] = start

    @staticmethod
    def _address_of(data: Any) -> int:
        address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
        return address
