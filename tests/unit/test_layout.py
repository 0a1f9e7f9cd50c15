"""How contiguous data are cut, so that no reference is short."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lindi_bridge.indexer.layout import contiguous_table, cut_contiguous
from lindi_bridge.indexer.pages import metadata_ranges, raw_stretches
from lindi_bridge.ranges import ByteRange

MIB = 1 << 20


@given(
    length=st.integers(1, 10_000_000),
    row=st.integers(1, 5 * MIB),
    offset=st.integers(0, 1 << 40),
    after=st.integers(0, 64 * MIB),
)
def test_pieces_cover_the_data_and_stay_in_the_file(length, row, offset, after):
    size = offset + length * row + after
    pieces = cut_contiguous(length, row, offset, size)
    assert pieces.rows * (pieces.count - 1) < length <= pieces.rows * pieces.count
    if pieces.count > 1:
        assert pieces.rows * row <= max(2 * 4 * MIB, row)
    if pieces.count > 4000:
        return  # the table is as large as it must be for a row size of this kind
    table = contiguous_table(pieces, 3, row, offset)
    assert table.grid == (pieces.count, 1, 1)
    assert (table.nbytes == pieces.rows * row).all()
    assert np.array_equal(table.offset, offset + np.arange(len(table)) * pieces.rows * row)
    assert len(table) == pieces.count - pieces.inline_last
    assert not len(table) or table.offset[-1] + table.nbytes[-1] <= size
    if not pieces.inline_last:
        assert table.offset[-1] + table.nbytes[-1] >= offset + length * row


def test_a_prime_length_at_the_end_of_the_file_has_a_small_inline_piece():
    pieces = cut_contiguous(3_000_017, 8, 2048, 2048 + 3_000_017 * 8)
    assert pieces.inline_last
    assert pieces.rows * 8 <= 64 * 1024 * 2


def test_a_prime_length_with_bytes_after_it_runs_on():
    assert not cut_contiguous(3_000_017, 8, 2048, 2048 + 3_000_017 * 8 + MIB).inline_last


ranges = st.lists(st.tuples(st.integers(0, 60_000), st.integers(1, 9000)), max_size=12)


@given(reads=ranges, data=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000)), max_size=12))
def test_embedded_ranges_hold_every_read_and_no_other_raw_data(reads, data):
    size = 70_000
    position, stretches = 0, []
    for gap, length in data:
        stretches.append((position + gap, length))
        position += gap + length
    offset = np.array([s for s, _ in stretches], np.int64)
    nbytes = np.array([n for _, n in stretches], np.int64)
    found = metadata_ranges(reads, raw_stretches(offset, nbytes), size)
    assert found == sorted(found)
    covered = {byte for start, length in found for byte in range(start, start + length)}
    assert sum(r.length for r in found) == len(covered)
    exact = {byte for start, length in reads for byte in range(start, start + length)}
    raw = {byte for start, length in stretches for byte in range(start, start + length)}
    assert exact <= covered
    assert not (covered - exact) & raw
    assert all(isinstance(r, ByteRange) and r.start >= 0 and r.stop <= size for r in found)
