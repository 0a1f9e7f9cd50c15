"""The two array indexes of chunks: elements by the linear number of a chunk.

HDF5 File Format Specification 3.0, sections VII.C "The Fixed Array Index" and VII.D "The Extensible Array Index".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lindi_bridge.hdf5.fields import UNDEFINED, ByteRows, Cursor, NoHintError, byte_rows
from lindi_bridge.hdf5.waves import Visit, read
from lindi_bridge.ranges import ByteRange

__all__ = ["Elements", "read_extensible_array", "read_fixed_array"]

_CHECKSUM = 4
_PREFIX = 14
"""Bytes of signature, version, client and header address, with which every block begins."""
_FIXED_HEADER = 28
_EXTENSIBLE_HEADER = 72
_ELEMENT_SIZES = range(8, 21)
"""An address; with filters also a size of up to 8 bytes and a filter mask of 4."""
_MOST_BITS = 62

Bits = npt.NDArray[np.bool_]


class Elements(NamedTuple):
    """Array elements as they are stored, one a row, and their linear numbers."""

    number: npt.NDArray[np.int64]
    rows: ByteRows


class _Piece(NamedTuple):
    """A page, or a data block without pages: ``length`` elements from ``first`` on, after ``lead`` other bytes."""

    address: int
    lead: int
    first: int
    length: int


def read_fixed_array(address: int) -> Visit[Elements]:
    """All initialised elements of a fixed array."""
    cursor = Cursor((yield from read(address, _FIXED_HEADER)))
    cursor.expect(b"FAHD\x00")
    cursor.skip(1)  # client
    size, page_bits, count, block = cursor.uint(1), cursor.uint(1), cursor.uint(8), cursor.address()
    _check(size, page_bits)
    if block == UNDEFINED:
        return _join([], [], size)
    page = 1 << page_bits
    if count <= page:
        data = Cursor((yield from read(block, _PREFIX + count * size + _CHECKSUM)))
        data.expect(b"FADB\x00")
        data.skip(_PREFIX - 5)
        return Elements(np.arange(count), byte_rows([data.take(count * size)], count * size).reshape(count, size))
    pages = -(-count // page)
    bitmap = (pages + 7) // 8
    prefix = Cursor((yield from read(block, _PREFIX + bitmap + _CHECKSUM)))
    prefix.expect(b"FADB\x00")
    prefix.skip(_PREFIX - 5)
    initialised = _bits(prefix.take(bitmap))[:pages]
    first = block + _PREFIX + bitmap + _CHECKSUM
    return (yield from _read_pieces(_pages(first, 0, count, page, size, initialised), size))


class _ExtensibleArray(NamedTuple):
    """The sizes of an extensible array."""

    element: int
    index_block_elements: int
    smallest_block: int
    block_pointers: int
    index_block_levels: int
    levels: int
    page: int
    number_width: int

    def block_elements(self, level: int) -> int:
        """Elements of each data block of a level (super block)."""
        return self.smallest_block << ((level + 1) // 2)

    def blocks(self, level: int) -> int:
        """Data blocks of a level."""
        return 1 << (level // 2)

    def pages(self, level: int) -> int:
        """Pages of each data block of a level; 0 if its blocks have none."""
        elements = self.block_elements(level)
        return elements // self.page if elements > self.page else 0

    def data(self, address: int, first: int, level: int, initialised: Bits | None) -> list[_Piece]:
        """Where the elements of a data block lie."""
        elements = self.block_elements(level)
        lead = _PREFIX + self.number_width
        if not self.pages(level):
            return [_Piece(address, lead, first, elements)]
        if initialised is None:
            raise NoHintError("pages of which nothing tells whether they are there")
        pages = _pages(address + lead + _CHECKSUM, first, elements, self.page, self.element, initialised)
        return [_Piece(address, lead, first, 0), *pages]


def read_extensible_array(address: int) -> Visit[Elements]:
    """All elements of an extensible array that were ever set."""
    cursor = Cursor((yield from read(address, _EXTENSIBLE_HEADER)))
    cursor.expect(b"EAHD\x00")
    cursor.skip(1)  # client
    size, bits, in_index, smallest, pointers, page_bits = (cursor.uint(1) for _ in range(6))
    cursor.skip(4 * 8)  # statistics
    used = cursor.uint(8)
    cursor.skip(8)  # elements realised
    index_block = cursor.address()
    _check(size, page_bits, bits)
    if any(n < 1 or n & (n - 1) for n in (smallest, pointers)) or bits < smallest.bit_length():
        raise NoHintError("an extensible array of impossible size")
    if index_block == UNDEFINED:
        return _join([], [], size)
    array = _ExtensibleArray(
        element=size,
        index_block_elements=in_index,
        smallest_block=smallest,
        block_pointers=2 * (pointers - 1),
        index_block_levels=2 * (pointers.bit_length() - 1),
        levels=1 + bits - (smallest.bit_length() - 1),
        page=1 << page_bits,
        number_width=(bits + 7) // 8,
    )
    super_blocks = max(0, array.levels - array.index_block_levels)
    length = _PREFIX + in_index * size + 8 * (array.block_pointers + super_blocks) + _CHECKSUM
    block = Cursor((yield from read(index_block, length)))
    block.expect(b"EAIB\x00")
    block.skip(_PREFIX - 5)
    numbers = [np.arange(in_index)]
    rows = [byte_rows([block.take(in_index * size)], in_index * size).reshape(in_index, size)]
    pieces: list[_Piece] = []
    supers: list[tuple[int, int, int]] = []  # address, first element, level
    first = in_index
    for level in range(array.levels):
        blocks, elements = array.blocks(level), array.block_elements(level)
        if level < array.index_block_levels:
            for number in range(blocks):
                if (data := block.address()) != UNDEFINED:
                    pieces += array.data(data, first + number * elements, level, None)
        elif (super_block := block.address()) != UNDEFINED:
            supers.append((super_block, first, level))
        first += blocks * elements
    pieces += yield from _read_super_blocks(array, supers)
    found = yield from _read_pieces(pieces, size)
    joined = _join([*numbers, found.number], [*rows, found.rows], size)
    # libhdf5 reads no element after the last one that was set.
    inside = joined.number < used
    return Elements(joined.number[inside], joined.rows[inside])


def _read_super_blocks(array: _ExtensibleArray, supers: Sequence[tuple[int, int, int]]) -> Visit[list[_Piece]]:
    """Where the elements lie that super blocks (address, first element, level) point to."""
    lengths = []
    for _, _, level in supers:
        bitmap = array.blocks(level) * ((array.pages(level) + 7) // 8)
        lengths.append((_PREFIX + array.number_width, bitmap, 8 * array.blocks(level)))
    answers = yield [ByteRange(s[0], sum(n) + _CHECKSUM) for s, n in zip(supers, lengths, strict=True)]
    pieces: list[_Piece] = []
    for (_, first, level), (prefix, bitmap, _), answer in zip(supers, lengths, answers, strict=True):
        block = Cursor(answer)
        block.expect(b"EASB\x00")
        block.skip(prefix - 5)
        # The bits of all blocks follow each other, although there is room for whole bytes for each.
        initialised, pages = _bits(block.take(bitmap)), array.pages(level)
        for number in range(array.blocks(level)):
            if (data := block.address()) != UNDEFINED:
                its_pages = initialised[number * pages : (number + 1) * pages]
                pieces += array.data(data, first + number * array.block_elements(level), level, its_pages)
    return pieces


def _check(element: int, page_bits: int, bits: int = 0) -> None:
    if element not in _ELEMENT_SIZES or page_bits > _MOST_BITS or bits > _MOST_BITS:
        raise NoHintError("a chunk array of impossible size")


def _bits(data: bytes) -> Bits:
    return np.unpackbits(np.frombuffer(data, np.uint8)).astype(np.bool_)


def _pages(address: int, first: int, count: int, page: int, size: int, initialised: Bits) -> list[_Piece]:
    """The pages of a data block that were written; each ends with a checksum, the last one may be shorter."""
    return [
        _Piece(address + k * (page * size + _CHECKSUM), 0, first + k * page, min(page, count - k * page))
        for k in np.flatnonzero(initialised).tolist()
    ]


def _read_pieces(pieces: Sequence[_Piece], size: int) -> Visit[Elements]:
    """Read elements, all pieces in one wave."""
    answers = yield [ByteRange(piece.address, piece.lead + piece.length * size + _CHECKSUM) for piece in pieces]
    if any(len(answer) < piece.lead + piece.length * size for answer, piece in zip(answers, pieces, strict=True)):
        raise NoHintError("a structure is cut off")
    return _join(
        [np.arange(piece.first, piece.first + piece.length) for piece in pieces],
        [
            np.frombuffer(answer, np.uint8, piece.length * size, piece.lead).reshape(-1, size)
            for answer, piece in zip(answers, pieces, strict=True)
        ],
        size,
    )


def _join(numbers: Sequence[npt.NDArray[np.int64]], rows: Sequence[ByteRows], size: int) -> Elements:
    return Elements(
        np.concatenate([np.empty(0, np.int64), *numbers]),
        np.concatenate([np.empty((0, size), np.uint8), *rows]),
    )
