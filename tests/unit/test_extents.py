"""Pieces of a file in memory: found again wherever they are, and never wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lindi_bridge.hdf5.extents import ExtentCache, missing_ranges
from lindi_bridge.ranges import ByteRange

FILE = bytes(range(256)) * 4
pieces = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 120)), max_size=15)


@given(st.lists(pieces, max_size=4), st.integers(0, 1023))
def test_every_byte_that_was_added_is_found(batches, address):
    cache = ExtentCache()
    added = set()
    for batch in batches:
        cache.add((start, FILE[start : start + length]) for start, length in batch)
        added |= {k for start, length in batch for k in range(start, min(start + length, len(FILE)))}
    assert cache.nbytes == len(added)
    for k in range(len(FILE)):
        found = cache.find(k)
        assert (found is not None) == (k in added)
        if found is not None:
            assert bytes(found) == FILE[k : k + len(found)]
    following = cache.next_start(address)
    assert following is None or following in added


@given(st.lists(pieces, max_size=4), pieces)
def test_what_is_missing_is_what_none_holds(batches, wanted):
    caches = [ExtentCache() for _ in batches]
    held = set()
    for cache, batch in zip(caches, batches, strict=True):
        cache.add((start, FILE[start : start + length]) for start, length in batch)
        held |= {k for start, length in batch for k in range(start, min(start + length, len(FILE)))}
    missing = missing_ranges([ByteRange(*r) for r in wanted], caches)
    assert {k for r in missing for k in range(r.start, r.stop)} == {
        k for start, length in wanted for k in range(start, start + length)
    } - held


@given(pieces, st.integers(1, 400))
def test_the_limit_is_kept(batch, limit):
    cache = ExtentCache(limit)
    largest = max((length for _, length in batch), default=0)
    for start, length in batch:
        data = FILE[start : start + length]
        cache.add([(start, data)])
        assert cache.nbytes <= max(limit, largest)
        assert not data or any(cache.find(k) is not None for k in range(start, start + len(data)))


def test_the_least_recently_used_goes_first():
    cache = ExtentCache(30)
    for start in (0, 100, 200):
        cache.add([(start, FILE[start : start + 10])])
    for start in (100, 200, 0):
        assert cache.find(start) is not None
    cache.add([(300, FILE[300:310])])
    assert [k for k in (0, 100, 200, 300) if cache.find(k) is not None] == [0, 200, 300]


def test_what_was_not_read_yet_goes_last():
    cache = ExtentCache(30)
    for start in (0, 100, 200):
        cache.add([(start, FILE[start : start + 10])])
    assert cache.find(100) is not None
    cache.add([(300, FILE[300:310])])
    assert [k for k in (0, 100, 200, 300) if cache.find(k) is not None] == [0, 200, 300]


def test_what_nobody_has_read_for_long_goes_first():
    cache = ExtentCache(30)
    cache.add([(0, bytes(10))])
    for start in range(100, 150, 10):
        cache.add([(start, bytes(10))])
        assert cache.find(start) is not None
        assert cache.peek(0) is not None, "it may be read yet"
    cache.add([(200, bytes(10))])
    assert cache.peek(0) is None
    assert [cache.peek(start) is not None for start in (130, 140, 200)] == [True] * 3
