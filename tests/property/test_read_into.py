"""Bytes that are on this machine, put where they are wanted: what the disk cache has, and local files."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lindi_bridge.errors import SourceError
from lindi_bridge.ranges import ByteRange, LocalReader
from lindi_bridge.ranges.cache_segment import PAGE
from lindi_bridge.ranges.disk_cache import DiskCache

SIZE = 4 * PAGE
DATA = bytes(os.urandom(SIZE))


@st.composite
def ranges(draw):
    """A few ranges of the file, most with an edge at or near the border of a page."""
    near = st.integers(0, 4).flatmap(lambda page: st.integers(-2, 2).map(lambda by: page * PAGE + by))
    edges = sorted(min(max(draw(near | st.integers(0, SIZE)), 0), SIZE) for _ in range(2))
    return ByteRange(edges[0], edges[1] - edges[0])


def read(entry, wanted):
    """What a read puts into buffers, or None if it says that it cannot."""
    buffers = [bytearray(b"\xaa" * r.length) for r in wanted]
    done = entry.read_into([(r.start, memoryview(b)) for r, b in zip(wanted, buffers, strict=True)])
    return buffers if done else None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(written=st.lists(st.lists(ranges(), min_size=1, max_size=3), max_size=4), wanted=st.lists(ranges(), max_size=3))
def test_what_the_disk_has_is_what_was_written(tmp_path_factory, written, wanted):
    cache = DiskCache(str(tmp_path_factory.mktemp("cache")), 1 << 30)
    entry = cache.entry("address", "state")
    for batch in written:
        cache.write(entry, [(r.start, DATA[r.start : r.stop]) for r in batch if r.length])
    for _ in range(2):  # the second time pieces are known to be sound
        found = read(entry, wanted)
        if found is not None:
            assert found == [DATA[r.start : r.stop] for r in wanted]
        else:
            parts = [part for found in entry.read(wanted) for part in found]
            assert any(part.data is None for part in parts), "all of it is there"


@pytest.mark.parametrize("part", [False, True])
def test_damaged_bytes_are_not_given(tmp_path, part):
    cache = DiskCache(str(tmp_path), 1 << 30)
    entry = cache.entry("address", "state")
    cache.write(entry, [(0, DATA)])
    (segment,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    wanted = [ByteRange(SIZE - 1000, 500)] if part else [ByteRange(0, SIZE)]
    assert read(entry, wanted) is None
    assert not segment.exists(), "it is written again"


def test_a_deleted_segment_is_not_there(tmp_path):
    cache = DiskCache(str(tmp_path), 1 << 30)
    entry = cache.entry("address", "state")
    cache.write(entry, [(0, DATA)])
    assert read(entry, [ByteRange(5, 70)]) == [DATA[5:75]]
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.unlink()
    assert read(entry, [ByteRange(5, 70)]) is None
    assert read(entry, [ByteRange(0, SIZE)]) is None


def test_local_files(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(DATA)
    reader = LocalReader(path)
    assert read(reader, [ByteRange(3, 100_000), ByteRange(0, 0), ByteRange(SIZE - 1, 1)]) == [
        DATA[3:100_003],
        b"",
        DATA[-1:],
    ]
    assert (reader.statistics.requests, reader.statistics.nbytes) == (3, 100_001)
    with pytest.raises(SourceError, match="truncated"):
        read(reader, [ByteRange(SIZE - 1, 2)])
    os.truncate(path, 10)
    with pytest.raises(SourceError, match="truncated"):
        read(reader, [ByteRange(5, 20)])
    reader.close()
    with pytest.raises(SourceError, match="closed"):
        read(reader, [ByteRange(0, 1)])
