"""The disk cache below h5py: whatever happens to its folder, every byte is right."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers.threads import in_threads

from lindi_bridge.errors import SourceChangedError, SourceError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.ranges import (
    ByteRange,
    BytesReader,
    CachedReader,
    ObjectStoreReader,
    RangeReader,
    ReaderOptions,
    SourceIdentity,
    cache_reading,
    cache_segment,
)
from lindi_bridge.ranges.cache_folder import cached_files
from lindi_bridge.ranges.cache_key import address_digest, state_digest, without_signature
from lindi_bridge.ranges.cache_segment import PART, checksum_of
from lindi_bridge.ranges.disk_cache import DiskCache, disk_cache
from lindi_bridge.ranges.file_bytes import read_into

DATA = random.Random(3).randbytes(1_000_003)
ADDRESS = "ab" * 16
TAG = '"a-tag"'
OLD = "Wed, 01 Jan 2025 00:00:00 GMT"


class Remote(BytesReader):
    """Bytes in memory that say which file they are, count what is asked, and may be away."""

    def __init__(self, data: bytes = DATA, etag: str | None = TAG, last_modified: str | None = None) -> None:
        super().__init__(data, "https://host/a.bin")
        self.told = SourceIdentity(len(data), etag, last_modified)
        self.asked: list[ByteRange] = []
        self.away = False

    def identity(self) -> SourceIdentity:
        self._answer([])
        return self.told

    def read_ranges(self, ranges: list[ByteRange]) -> list[bytes]:
        self._answer(ranges)
        return super().read_ranges(ranges)

    def read_locked(self, start: int, length: int) -> bytes:
        self._answer([ByteRange(start, length)])
        return super().read_locked(start, length)

    def _answer(self, ranges: list[ByteRange]) -> None:
        if self.away:
            raise SourceError("nobody there")
        self.asked += ranges


def reader(folder: Path, remote: Remote, limit: int = 1 << 30, **more: object) -> CachedReader:
    return CachedReader(remote, DiskCache(str(folder), limit), ADDRESS, **more)  # type: ignore[arg-type]


def right(reader: CachedReader, *ranges: tuple[int, int]) -> bool:
    wanted = [ByteRange(*r) for r in ranges]
    return reader.read_ranges(wanted) == [DATA[r.start : r.stop] for r in wanted]


def fill(folder: Path, step: int = 100_000) -> None:
    """Put all of the file there, some of it in several pieces and by both ways."""
    filled = reader(folder, Remote())
    assert right(filled, *((start, min(step, len(DATA) - start)) for start in range(0, len(DATA), step)))
    assert filled.read_locked(50_000, 1000) == DATA[50_000:51_000]
    filled.close()


def segments(folder: Path) -> list[Path]:
    return sorted(Path(file.path) for file in cached_files(str(folder / "ranges-2")))


def held(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# -- what is asked ----------------------------------------------------------------------------------------------------


def test_it_is_a_reader(tmp_path: Path) -> None:
    made = reader(tmp_path, Remote())
    assert isinstance(made, RangeReader)
    assert made.url == "https://host/a.bin"
    assert made.identity() == SourceIdentity(len(DATA), TAG)
    assert made.read_head(10) == DATA[:10]
    assert made.read_head(10**7) == DATA
    assert right(made, (5, 0), (7, 3))
    assert made.read_locked(9, 0) == b""
    with made.lock_safe():
        assert made.read_locked(9, 1) == DATA[9:10]
    made.close()
    made.close()


def test_only_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    fill_reader = reader(tmp_path, Remote())
    assert right(fill_reader, (10_000, 5000), (100_000, 200_000))
    fill_reader.close()
    remote = Remote()
    again = reader(tmp_path, remote)
    assert right(again, (10_000, 5000), (150_000, 20), (299_999, 1))
    assert remote.asked == []
    assert right(again, (9_000, 7000), (50, 10), (90_000, 250_000), (150_000, 1000))
    assert remote.asked == [(9_000, 1000), (15_000, 1000), (50, 10), (90_000, 10_000), (300_000, 40_000)]
    assert remote.statistics.waves == 1
    remote.asked.clear()
    assert right(again, (9_000, 7000), (50, 10), (90_000, 250_000))
    assert remote.asked == []
    # Under h5py's lock one request, from the first hole to the last.
    assert again.read_locked(85_000, 300_000) == DATA[85_000:385_000]
    assert remote.asked == [(85_000, 300_000)]
    again.close()


def test_single_reads_are_collected_into_few_files(tmp_path: Path) -> None:
    made = reader(tmp_path, Remote())
    for start in range(0, 400_000, 4000):
        assert made.read_locked(start, 4000) == DATA[start : start + 4000]
    assert segments(tmp_path) == []
    made.close()
    assert len(segments(tmp_path)) == 1
    remote = Remote()
    assert reader(tmp_path, remote).read_locked(1000, 399_000) == DATA[1000:400_000]
    assert remote.asked == []


def test_a_read_past_the_end_is_the_sources_error(tmp_path: Path) -> None:
    fill(tmp_path)
    made = reader(tmp_path, Remote())
    with pytest.raises(SourceError, match="were asked for"):
        made.read_ranges([ByteRange(len(DATA) - 10, 11)])
    with pytest.raises(SourceError, match="were asked for"):
        made.read_locked(len(DATA) - 10, 11)
    for read in (lambda: made.read_ranges([ByteRange(-1, 1)]), lambda: made.read_locked(5, -1)):
        with pytest.raises(ValueError, match="no byte range"):
            read()


@given(
    st.lists(st.tuples(st.sampled_from("wlr"), st.lists(st.tuples(st.integers(0, 299_999), st.integers(0, 80_000)))))
)
def test_any_ranges_in_any_order(steps: list[tuple[str, list[tuple[int, int]]]]) -> None:
    data = DATA[:300_000]
    with tempfile.TemporaryDirectory() as folder:
        remote = Remote(data)
        made = reader(Path(folder), remote, limit=600_000)
        asked: set[int] = set()
        for kind, pairs in steps:
            ranges = [ByteRange(start, min(length, len(data) - start)) for start, length in pairs]
            if kind == "r":
                made.close()
                made = reader(Path(folder), remote, limit=600_000)
            if kind == "l":
                assert [made.read_locked(*r) for r in ranges] == [data[r.start : r.stop] for r in ranges]
            else:
                assert made.read_ranges(ranges) == [data[r.start : r.stop] for r in ranges]
            asked.update(r.start for r in ranges if r.length)
            assert held(Path(folder)) <= 600_000
        made.close()
        assert not asked or remote.asked


# -- which file it is -------------------------------------------------------------------------------------------------


def test_what_is_held_is_told_of_any_range_at_once(tmp_path: Path) -> None:
    fill(tmp_path)
    made = reader(tmp_path, Remote())
    assert made.holds(ByteRange(0, len(DATA)))
    assert made.holds(ByteRange(5, 0))
    assert not made.holds(ByteRange(0, len(DATA) + 1))
    assert not made.holds(ByteRange(17, 1 << 62)), "the length of a chunk of a damaged file"


def test_the_end_of_a_long_piece_is_taken_from_the_disk(tmp_path: Path) -> None:
    remote = Remote()
    made = reader(tmp_path, remote)
    assert right(made, (100_000, 80_000))
    file = HDF5File(made, address="a")
    file.seek(100_000)
    assert file.read(10) == DATA[100_000:100_010], "and what is around is in memory now"
    remote.asked.clear()
    file.seek(100_000)
    assert file.read(80_000) == DATA[100_000:180_000]
    assert remote.asked == []


def test_a_recorded_tag_needs_no_answer(tmp_path: Path) -> None:
    fill(tmp_path)
    remote = Remote()
    remote.away = True
    recorded = SourceIdentity(len(DATA), TAG)
    made = reader(tmp_path, remote, expected=recorded)
    assert made.identity() == recorded
    assert made.read_head(1000) == DATA[:1000]
    assert right(made, (0, len(DATA)), (17, 4))
    for other in (SourceIdentity(len(DATA), '"another"'), SourceIdentity(len(DATA) - 1, TAG)):
        with pytest.raises(SourceError, match="nobody"):
            reader(tmp_path, remote, expected=other).read_ranges([ByteRange(0, 10)])


@pytest.mark.parametrize(
    ("told", "later"),
    [
        ((TAG, None), ('"another"', None)),
        ((TAG, OLD), ('"another"', OLD)),
        ((None, OLD), (None, "Thu, 02 Jan 2025 00:00:00 GMT")),
        ((None, OLD), (TAG, OLD)),
        (('W/"weak"', OLD), ('W/"weaker"', OLD)),
        (('W/"weak"', OLD), ('W/"weak"', "Thu, 02 Jan 2025 00:00:00 GMT")),
    ],
)
def test_another_state_is_another_file(
    told: tuple[str | None, str | None], later: tuple[str | None, str | None], tmp_path: Path
) -> None:
    first = Remote(DATA, *told)
    made = reader(tmp_path, first)
    assert right(made, (0, 200_000))
    made.close()
    other = DATA[::-1]
    replaced = Remote(other, *later)
    made = reader(tmp_path, replaced)
    assert made.read_ranges([ByteRange(0, 200_000)]) == [other[:200_000]]
    made.close()
    for data, remote in ((DATA, Remote(DATA, *told)), (other, Remote(other, *later))):
        made = reader(tmp_path, remote)
        assert made.read_ranges([ByteRange(0, 200_000)]) == [data[:200_000]]
        assert made.read_locked(5, 5) == data[5:10]
        assert remote.asked == []


def test_the_same_tag_and_another_size_is_another_file(tmp_path: Path) -> None:
    fill(tmp_path)
    other = bytes(500_000)
    made = reader(tmp_path, Remote(other))
    assert made.read_ranges([ByteRange(0, 200_000)]) == [other[:200_000]]


@pytest.mark.parametrize(
    ("etag", "last_modified"),
    [
        (None, None),
        ('W/"weak"', None),
        (None, "yesterday"),
        (None, "Mon, 01 Jan 2125 00:00:00 GMT"),
        (None, "now"),
    ],
)
def test_without_something_to_tell_states_apart_nothing_is_kept(
    etag: str | None, last_modified: str | None, tmp_path: Path
) -> None:
    if last_modified == "now":
        last_modified = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    remote = Remote(DATA, etag, last_modified)
    for _ in range(2):
        made = reader(tmp_path, remote)
        assert right(made, (0, 200_000))
        assert made.read_locked(7, 7) == DATA[7:14]
        made.close()
    assert remote.asked == [(0, 200_000), (7, 7)] * 2
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_contradicts_the_document_adds_nothing(tmp_path: Path) -> None:
    """It sends no tag any more: what it sends is not known to be the recorded state."""
    remote = Remote(DATA, None, OLD)
    recorded = SourceIdentity(len(DATA), TAG)
    made = reader(tmp_path, remote, expected=recorded)
    assert right(made, (0, 200_000))
    made.close()
    assert list(tmp_path.iterdir()) == []
    true = reader(tmp_path, Remote())
    assert right(true, (300_000, 100_000))
    made = reader(tmp_path, remote, expected=recorded)
    assert right(made, (300_000, 100_000), (0, 200_000))
    made.close()
    assert held(tmp_path) < 101_000


def test_samples_come_from_the_source(tmp_path: Path) -> None:
    fill(tmp_path)
    remote = Remote()
    made = reader(tmp_path, remote)
    assert made.read_source([ByteRange(3, 4)]) == [DATA[3:7]]
    assert remote.asked == [(3, 4)]


def test_digests_of_addresses() -> None:
    base = address_digest("https://host/a.h5")
    assert base == address_digest("HTTPS://user:password@HOST/a.h5#part")
    assert base == address_digest("https://host/a.h5?X-Amz-Signature=1&X-Amz-Date=2&X-Amz-Expires=3&X-Amz-Credential=4")
    different = [
        base,
        address_digest("http://host/a.h5"),
        address_digest("https://host:8443/a.h5"),
        address_digest("https://host/b.h5"),
        address_digest("https://host/a.h5?file=1"),
        address_digest("https://host/a.h5?file=2"),
        address_digest("https://host/a.h5?versionId=7&X-Amz-Signature=1"),
    ]
    assert len(set(different)) == len(different)


def test_digests_of_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv("HOME", "/nowhere")

    def digest(address: str, **storage: object) -> str:
        return address_digest(address, ObjectStoreReader(address, ReaderOptions(storage_options=storage)).place)

    base = digest("s3://bucket/a.h5")
    different = [
        base,
        digest("s3://bucket/b.h5"),
        digest("gs://bucket/a.h5"),
        digest("s3://bucket/a.h5", endpoint_url="http://127.0.0.1:9000"),
        digest("s3://bucket/a.h5", client_kwargs={"endpoint_url": "http://127.0.0.1:9001"}),
        digest("az://container/a.h5", account_name="one"),
        digest("az://container/a.h5", account_name="two"),
    ]
    assert len(set(different)) == len(different)
    assert digest("s3://bucket/a.h5", key="k", secret="one") == base
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "one")
    assert digest("s3://bucket/a.h5") == base
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    assert digest("s3://bucket/a.h5") != base


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("", ""),
        ("file=a&part=2", "file=a&part=2"),
        ("Expires=5&Signature=6", "Expires=5&Signature=6"),  # of nobody that is known
        ("AWSAccessKeyId=1&Signature=2&Expires=3&versionId=4", "versionId=4"),
        ("b=1&x-goog-signature=2&X-Goog-Algorithm=3&a=4", "b=1&a=4"),
        ("GoogleAccessId=1&Expires=2&Signature=3", ""),
        ("Policy=1&Signature=2&Key-Pair-Id=3", ""),
        ("sv=2024-11-04&se=1&sr=b&sp=r&sig=2&snapshot=3", "snapshot=3"),
        ("sig=1&se=2", "sig=1&se=2"),
        ("X%2DAmz%2DSignature=1&X-Amz-Date=2", ""),
        ("OSSAccessKeyId=1&Expires=2&Signature=3", ""),
    ],
)
def test_signatures_are_left_out_of_addresses(query: str, left: str) -> None:
    assert without_signature(query) == left


def test_states() -> None:
    known = [SourceIdentity(5, TAG), SourceIdentity(6, TAG), SourceIdentity(5, None, OLD), SourceIdentity(6, None, OLD)]
    assert len({state_digest(identity) for identity in known}) == 4
    assert state_digest(SourceIdentity(5, TAG, OLD)) == state_digest(SourceIdentity(5, TAG))
    assert state_digest(SourceIdentity(5, None, "2025-01-01T00:00:00+00:00")) is not None
    assert state_digest(SourceIdentity(5)) is None


# -- damage -----------------------------------------------------------------------------------------------------------


def _flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def _cut_off(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size))


def _zeros(path: Path, chance: random.Random) -> None:
    """What a file system may leave after a crash of the machine."""
    size = path.stat().st_size
    keep = chance.randrange(size)
    os.truncate(path, keep)
    os.truncate(path, size)


def _longer(path: Path, chance: random.Random) -> None:
    with open(path, "ab") as file:
        file.write(b"x")


def _empty(path: Path, chance: random.Random) -> None:
    os.truncate(path, 0)


class Machine:
    """One that is started anew: what has not come to the disk is lost, and no file looks as if it had been changed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def start(self, run: bytes) -> None:
        self._monkeypatch.setattr(cache_segment, "_run_of_the_machine", lambda: run)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def _times(folder: Path) -> dict[Path, int]:
    """When each file was changed last."""
    return {path: path.stat().st_mtime_ns for path in segments(folder)}


def _seal(times: dict[Path, int]) -> None:
    for path, changed in times.items():
        os.utime(path, ns=(time.time_ns(), changed))


@pytest.mark.parametrize("by", ["a program", "a crash", "a crash of a system that counts no starts"])
@pytest.mark.parametrize("damage", [_flip, _cut_off, _zeros, _longer, _empty])
def test_damaged_files_are_never_used(
    damage: Callable[[Path, random.Random], None], by: str, tmp_path: Path, machine: Machine
) -> None:
    chance = random.Random(4)
    if by == "a crash of a system that counts no starts":
        machine.start(bytes(16))
    fill(tmp_path)
    for number in range(20):
        times = _times(tmp_path)
        for path in segments(tmp_path):
            damage(path, chance)
        if by != "a program":
            _seal(times)
        if by == "a crash":
            machine.start(b"run %012d" % number)
        before = {path: hashlib.sha256(path.read_bytes()).digest() for path in segments(tmp_path)}
        remote = Remote()
        made = reader(tmp_path, remote)
        assert right(made, *((start, 30_000) for start in range(0, 960_000, 30_000)))
        assert right(made, (0, len(DATA)))
        made.close()
        assert remote.asked
        after = {path: hashlib.sha256(path.read_bytes()).digest() for path in segments(tmp_path)}
        assert not set(before.items()) & set(after.items()), "a damaged file was not deleted"
        # What was read of a file before the damage in it was met went with it; that is fetched once more.
        assert right(reader(tmp_path, Remote()), (0, len(DATA)))
        remote = Remote()
        assert right(reader(tmp_path, remote), (0, len(DATA)))
        assert remote.asked == []


def test_damage_while_the_file_is_in_use(tmp_path: Path) -> None:
    fill(tmp_path)
    remote = Remote()
    made = reader(tmp_path, remote)
    assert right(made, (0, len(DATA)))
    assert remote.asked == []
    for path in segments(tmp_path):
        _flip(path, random.Random(5))
    assert right(made, (0, len(DATA)))
    assert right(made, (10, len(DATA) - 20))


def test_what_nobody_has_changed_is_compared_once_and_only_after_a_start_of_the_machine(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []

    def note(data: memoryview) -> int:
        compared.append(len(data))
        return checksum_of(data)

    monkeypatch.setattr(cache_segment, "checksum_of", note)
    fill(tmp_path)
    compared.clear()
    remote = Remote()
    made, buffer = reader(tmp_path, remote), bytearray(len(DATA))
    for _ in range(2):
        assert right(made, (10, 20), (90_000, 30_000))
        assert made.read_into([(5, memoryview(buffer)[:1000]), (0, memoryview(buffer))])
        assert buffer == DATA
    assert compared == []

    machine.start(b"the next run " + bytes(3))
    again = reader(tmp_path, remote)
    for _ in range(2):
        assert right(again, (10, 20), (90_000, 30_000))
        assert again.read_into([(5, memoryview(buffer)[:1000]), (0, memoryview(buffer))])
    assert sum(compared) == len(DATA)
    assert remote.asked == []


def test_changed_between_the_look_at_it_and_the_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_changed(descriptor: int, view: memoryview, position: int) -> int:
        for path in segments(tmp_path):
            _zeros(path, random.Random(4))
        return read_into(descriptor, view, position)

    def read_exactly_changed(descriptor: int, length: int, offset: int) -> bytes:
        data = bytearray(length)
        read_changed(descriptor, memoryview(data), offset)
        return bytes(data)

    fill(tmp_path)
    remote = Remote()
    made, buffer = reader(tmp_path, remote), bytearray(len(DATA))
    assert made.read_into([(0, memoryview(buffer))]), "the tables are known"
    monkeypatch.setattr(cache_reading, "read_into", read_changed)
    assert not made.read_into([(0, memoryview(buffer))])
    monkeypatch.undo()
    assert right(made, (0, len(DATA)))
    assert made.read_into([(0, memoryview(buffer))])
    monkeypatch.setattr(cache_reading, "read_exactly", read_exactly_changed)
    assert right(made, (0, len(DATA)))


def test_lost_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    made, stat = reader(tmp_path, Remote()), os.fstat
    assert right(made, (0, 10))
    calls = []

    def lost(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        if len(calls) > 1:
            raise OSError(errno.ESTALE, "stale file handle")
        return stat(descriptor)

    before = len(os.listdir("/dev/fd"))
    monkeypatch.setattr(cache_reading.os, "fstat", lost)
    assert right(made, (0, 10))
    monkeypatch.undo()
    assert len(calls) > 1
    assert len(os.listdir("/dev/fd")) == before


def test_use_is_noted_and_changes_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path)
    times = _times(tmp_path)
    began = time.time()
    assert all(changed < began * 1e9 for changed in times.values()), "before it was written, so that a change shows"
    for path, changed in times.items():
        os.utime(path, ns=(int((began - 3600) * 1e9), changed))
    assert right(reader(tmp_path, Remote()), (0, 10))
    used = [file for file in cached_files(str(tmp_path / "ranges-2")) if file.used >= began - 1]
    assert len(used) == 1
    assert _times(tmp_path) == times


def test_foreign_things_in_the_folder_are_ignored(tmp_path: Path) -> None:
    fill(tmp_path)
    (entry,) = {path.parent for path in segments(tmp_path)}
    (entry / "a folder").mkdir()
    (entry / "notes.txt").write_text("hello")
    (entry / f"0123{PART}").write_bytes(b"half of it")
    (entry.parent / "file").write_text("x")
    (entry.parent.parent / "file").write_text("x")
    (tmp_path / "mine.txt").write_text("hello")
    remote = Remote()
    made = reader(tmp_path, remote, limit=400_000)
    assert right(made, (0, len(DATA)))
    assert remote.asked == []
    assert made.read_ranges([ByteRange(0, 5)])
    assert right(reader(tmp_path, Remote(DATA, '"other"'), limit=400_000), (0, 100_000))
    assert (tmp_path / "mine.txt").read_text() == "hello"


def test_a_segment_of_something_else_is_not_used(tmp_path: Path) -> None:
    fill(tmp_path)
    other = Remote(bytes(len(DATA)), '"zeros"')
    made = reader(tmp_path, other)
    assert made.read_ranges([ByteRange(0, 100_000)]) == [bytes(100_000)]
    folders = {path.parent for path in segments(tmp_path)}
    assert len(folders) == 2
    zeros = next(path for path in segments(tmp_path) if path.stat().st_size < 200_000 and path.read_bytes()[-1] == 0)
    (wrong,) = folders - {zeros.parent}
    for path in segments(tmp_path):
        if path.parent == wrong:
            path.unlink()
    shutil.copy(zeros, wrong / zeros.name)
    assert right(reader(tmp_path, Remote()), (0, 100_000))


# -- the bound --------------------------------------------------------------------------------------------------------


def test_the_bound_is_kept_and_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    limit = 300_000
    made = reader(tmp_path, Remote(), limit)
    assert right(made, (0, 100_000))
    assert right(made, (100_000, 100_000))
    for path in segments(tmp_path):  # an hour ago
        os.utime(path, (time.time() - 3600, time.time() - 3600))
    remote = Remote()
    again = reader(tmp_path, remote, limit)
    assert right(again, (100_000, 100_000))
    assert remote.asked == []
    for start in range(200_000, 300_000, 20_000):
        assert right(again, (start, 20_000))
        assert held(tmp_path) <= limit
    remote.asked.clear()
    assert right(again, (100_000, 100_000))
    assert remote.asked == [], "what was used last was deleted"
    assert right(again, (0, 100_000))
    assert remote.asked
    assert held(tmp_path) <= limit


def test_the_bound_is_for_all_processes_together(tmp_path: Path) -> None:
    limit = 400_000
    writers = [reader(tmp_path, Remote(DATA, f'"{number}"'), limit) for number in range(2)]
    for start in range(0, 800_000, 10_000):
        for writer in writers:
            assert right(writer, (start, 10_000))
        assert held(tmp_path) <= limit + 2 * (limit // 16 + 10_100)


def test_what_is_larger_than_the_bound_is_not_kept(tmp_path: Path) -> None:
    made = reader(tmp_path, Remote(), 50_000)
    assert right(made, (600_000, 10))
    assert right(made, (0, 500_000))
    remote = Remote()
    assert right(reader(tmp_path, remote, 50_000), (600_000, 10))
    assert remote.asked == [], "nothing was deleted for what does not fit in any case"
    assert held(tmp_path) <= 50_000


def test_the_rest_of_killed_processes_is_deleted(tmp_path: Path) -> None:
    fill(tmp_path)
    entry = segments(tmp_path)[0].parent
    old, new = entry / f"aa{PART}", entry / f"bb{PART}"
    for path in (old, new):
        path.write_bytes(b"half of it")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    assert right(reader(tmp_path, Remote(DATA, '"other"')), (0, 10))
    assert not old.exists()
    assert new.exists()


def test_another_process_may_delete_at_any_time(tmp_path: Path) -> None:
    fill(tmp_path)
    remote = Remote()
    made = reader(tmp_path, remote)
    assert right(made, (0, 1000))
    for path in segments(tmp_path)[::2]:
        path.unlink()
    assert right(made, (0, len(DATA)))
    shutil.rmtree(tmp_path / "ranges-2")
    assert right(made, (0, len(DATA)))
    remote.asked.clear()
    assert right(made, (0, len(DATA)))
    assert remote.asked == []


def test_what_was_deleted_takes_no_memory(tmp_path: Path) -> None:
    made = reader(tmp_path, Remote(), 300_000)
    for _ in range(5):
        for start in range(0, 1_000_000, 10_000):
            assert right(made, (start, 10_000))
    entry = made._entry
    assert entry is not None
    pieces = sum(len(found) for found in entry._pages.values())
    assert 20 < len(segments(tmp_path)) <= 30
    assert len(entry._segments) <= 30
    assert pieces <= 70


def test_what_another_process_writes_is_found(tmp_path: Path) -> None:
    remote = Remote()
    made = reader(tmp_path, remote)
    assert right(made, (0, 1000))
    other = reader(tmp_path, Remote())
    assert right(other, (5000, 200_000))
    entry = segments(tmp_path)[0].parent
    os.utime(entry)  # as if it had been later than the last tick of the file system's clock
    remote.asked.clear()
    assert right(made, (5000, 200_000))
    assert remote.asked == []


def test_many_threads_and_a_small_bound(tmp_path: Path) -> None:
    made = reader(tmp_path, Remote(), 300_000)
    wrong: list[ByteRange] = []

    def read(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(100):
            wanted = ByteRange(start := chance.randrange(len(DATA)), min(chance.randrange(60_000), len(DATA) - start))
            found = made.read_locked(*wanted) if chance.random() < 0.5 else made.read_ranges([wanted])[0]
            if found != DATA[wanted.start : wanted.stop]:
                wrong.append(wanted)

    in_threads(read, range(8))
    assert wrong == []
    made.close()
    # Eight threads may each find room for the same bytes.
    assert held(tmp_path) <= 300_000 + 8 * 262_144


class Beside(Remote):
    """One that may be asked for several ranges at one time, and has not always all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.chance = random.Random(8)

    def read_locked_beside(self, wanted: ByteRange, hints: Sequence[ByteRange]) -> tuple[bytes, list[bytes | None]]:
        self._answer([wanted, *hints])
        found = [self.chance.choice([DATA[r.start : r.stop], None, b""]) for r in hints]
        return DATA[wanted.start : wanted.stop], found


def test_ranges_beside_others(tmp_path: Path) -> None:
    """What the disk has is not asked for, and what comes along is kept."""
    chance, remote = random.Random(7), Beside()
    made = reader(tmp_path, remote)
    known = bytearray(len(DATA))
    for _ in range(300):
        ranges = [ByteRange(chance.randrange(len(DATA) - 30_000), chance.randrange(1, 30_000)) for _ in range(3)]
        remote.asked.clear()
        data, along = made.read_locked_beside(ranges[0], ranges[1:])
        assert data == DATA[ranges[0].start : ranges[0].stop]
        assert remote.asked or all(known[ranges[0].start : ranges[0].stop])
        assert all(not all(known[start : start + length]) for start, length in remote.asked)
        for (start, length), found in zip(ranges, [data, *along], strict=True):
            assert found in (None, b"", DATA[start : start + length])
            assert found or not all(known[start : start + length]), "what is on the disk comes from there"
        made.flush()
        for (start, length), found in zip(ranges, [data, *along], strict=True):
            if found:
                known[start : start + length] = b"\1" * length
    assert len(remote.asked) < 3, "most of it is on the disk by now"


def test_a_source_that_is_asked_for_one_range_at_a_time(tmp_path: Path) -> None:
    made = reader(tmp_path, Remote())
    assert made.read_locked_beside(ByteRange(5, 10), [ByteRange(100, 10)]) == (DATA[5:15], [b""])
    made.flush()
    assert right(made, (100, 10))
    assert made.read_locked_beside(ByteRange(5, 10), [ByteRange(100, 10)]) == (DATA[5:15], [DATA[100:110]])
    assert made.read_locked_beside(ByteRange(5, 0), [ByteRange(100, 10)]) == (b"", [b""])
    with pytest.raises(SourceError):
        made.read_locked_beside(ByteRange(len(DATA), 10), [])


# -- several processes ------------------------------------------------------------------------------------------------

_WORK = f"""
import atexit, os, random, sys
from lindi_bridge.ranges import ByteRange, BytesReader, CachedReader, SourceIdentity
from lindi_bridge.ranges.disk_cache import DiskCache

folder, limit, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
data = random.Random(3).randbytes({len(DATA)})


class Remote(BytesReader):
    def identity(self):
        return SourceIdentity(len(data), {TAG!r})


reader = CachedReader(Remote(data), DiskCache(folder, limit), {ADDRESS!r})
if not steps:
    reader.read_locked(5000, 100)
    atexit._run_exitfuncs()
    os._exit(0)  # what is freed later, or never, is not relied on
chance = random.Random(seed)
import numpy  # which the first write would import
print("ready", flush=True)
for step in range(steps):
    ranges = []
    for _ in range(chance.randrange(1, 6)):
        start = chance.randrange(len(data))
        ranges.append(ByteRange(start, min(chance.randrange(150_000), len(data) - start)))
    if chance.random() < 0.5:
        found = [reader.read_locked(*r) for r in ranges]
    else:
        found = reader.read_ranges(ranges)
    assert found == [data[r.start : r.stop] for r in ranges], ranges
reader.close()
print("done", flush=True)
"""


def start(folder: Path, limit: int, seed: int, steps: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WORK, folder, limit, seed, steps]
    return subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_processes_share_the_folder(tmp_path: Path) -> None:
    limit = 2_000_000
    children = [start(tmp_path, limit, seed, 60) for seed in range(3)]
    for child in children:
        out, problem = child.communicate(timeout=60)
        assert (child.returncode, out.split(), problem) == (0, ["ready", "done"], "")
    # Each counts the folder again after a sixteenth of the bound.
    assert held(tmp_path) <= limit + 3 * limit // 8
    remote = Remote()
    assert right(reader(tmp_path, remote), (0, len(DATA)))
    assert sum(r.length for r in remote.asked) < len(DATA) // 2


def test_what_was_collected_is_written_at_the_end(tmp_path: Path) -> None:
    assert start(tmp_path, 1 << 30, 0, 0).communicate(timeout=60) == ("", "")
    remote = Remote()
    assert right(reader(tmp_path, remote), (5000, 100))
    assert remote.asked == []


def _kill_and_look(folder: Path, times: int) -> int:
    """Kill a process that keeps writing and deleting, and read everything; the number of files it left incomplete."""
    chance = random.Random(6)
    incomplete: set[Path] = set()
    limit = 500_000  # half of the file, so that something is always missing
    for number in range(times):
        child = start(folder, limit, number, 1_000_000)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(chance.random() * 0.03)
        child.kill()
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        incomplete.update(path for path in segments(folder) if path.name.endswith(PART))
        found = reader(folder, Remote(), limit)
        assert right(found, *((start, 50_000) for start in range(0, 950_000, 50_000)))
        assert right(found, (0, len(DATA)))
    return len(incomplete)


def test_killed_in_the_middle_of_writing(tmp_path: Path) -> None:
    _kill_and_look(tmp_path, 8)


@pytest.mark.full
def test_killed_in_the_middle_of_writing_a_hundred_times(tmp_path: Path) -> None:
    assert _kill_and_look(tmp_path, 100) > 0, "no process was killed while it wrote"


# -- a folder that cannot be used -------------------------------------------------------------------------------------


@pytest.fixture
def limited_file_size() -> Iterator[Callable[[int], None]]:
    """The system's own refusal to write: no file of this process may grow beyond so many bytes."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda nbytes: resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_ends_the_writing_with_one_warning(
    tmp_path: Path, limited_file_size: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "lindi_bridge")
    remote = Remote()
    made = reader(tmp_path, remote)
    assert right(made, (0, 10_000))
    limited_file_size(50_000)
    assert right(made, (20_000, 100_000))
    assert right(made, (200_000, 100_000), (0, 10_000))
    made.close()
    limited_file_size(1 << 40)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "is not written to any more in this session: File too large" in caplog.text
    assert str(tmp_path) in caplog.text
    assert remote.asked == [(0, 10_000), (20_000, 100_000), (200_000, 100_000)]
    assert not [path for path in segments(tmp_path) if path.name.endswith(PART)]
    assert len(segments(tmp_path)) == 1


def test_nothing_is_said_under_the_lock(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    phil = pytest.importorskip("h5py._objects").phil
    blocked = tmp_path / "file"
    blocked.write_text("x")
    made = reader(blocked, Remote())
    with phil:
        assert made.read_locked(0, 10) == DATA[:10]
        made.close()
    assert caplog.records == []
    made.close()
    assert len(caplog.records) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO])
def test_whatever_the_system_says(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("lindi_bridge.ranges.cache_segment.os.rename", refuse)
    remote = Remote()
    made = reader(tmp_path, remote)
    assert right(made, (0, 10_000))
    assert made.read_locked(0, 10_000) == DATA[:10_000]
    made.close()
    assert segments(tmp_path) == []
    assert remote.asked == [(0, 10_000)] * 2


@pytest.mark.parametrize("kind", ["a file", "below a file", "open to others", "somebody else's"])
def test_a_folder_that_is_none_of_ours(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "cache")
    folder = tmp_path / "cache"
    if kind == "a file":
        folder = tmp_path / "file"
        folder.write_text("x")
    elif kind == "below a file":
        (tmp_path / "file").write_text("x")
        folder = tmp_path / "file" / "cache"
    elif kind == "open to others":
        (folder / "ranges-2").chmod(0o777)
    else:
        monkeypatch.setattr("lindi_bridge.ranges.cache_folder.os.geteuid", lambda: os.getuid() + 1)
    remote = Remote()
    made = reader(folder, remote)
    assert right(made, (0, 10_000))
    assert right(made, (0, 10_000))
    made.close()
    assert remote.asked == [(0, 10_000)] * 2
    (message,) = [record.getMessage() for record in caplog.records]
    assert "is not used in this session" in message
    assert "cache_dir" in message


@pytest.fixture
def plain_user() -> Iterator[Path]:
    """A folder of a user who may not write anywhere: the superuser becomes nobody for a while."""
    nobody = 65534
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        if is_root:
            os.chown(name, nobody, nobody)
            os.seteuid(nobody)
        try:
            yield Path(name)
        finally:
            if is_root:
                os.seteuid(0)


def test_a_read_only_folder_is_read(plain_user: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = reader(plain_user, Remote())
    assert right(made, (0, 10_000))
    folders = [path for path in plain_user.rglob("*") if path.is_dir()]
    for path in folders:
        path.chmod(0o500)
    remote = Remote()
    again = reader(plain_user, remote)
    assert right(again, (0, 10_000), (50_000, 10))
    assert right(again, (0, 10_000), (70_000, 10))
    again.close()
    for path in folders:
        path.chmod(0o700)
    assert remote.asked == [(50_000, 10), (70_000, 10)]
    assert [
        "is not written to any more in this session: Permission denied" in r.getMessage() for r in caplog.records
    ] == [True]


def test_a_folder_that_is_taken_away(plain_user: Path, caplog: pytest.LogCaptureFixture) -> None:
    remote = Remote()
    made = reader(plain_user, remote)
    assert right(made, (0, 10_000))
    entry = segments(plain_user)[0].parent
    for folder in (entry, entry.parent, plain_user / "ranges-2"):
        folder.chmod(0)
        assert right(made, (0, 10_000), (20_000, 10))
        assert made.read_locked(0, 10_000) == DATA[:10_000]
        assert right(reader(plain_user, remote), (0, 10_000))
        folder.chmod(0o700)
    made.close()
    assert "is not written to any more" in caplog.text


def test_a_folder_that_may_not_be_made(plain_user: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain_user.chmod(0o500)
    remote = Remote()
    made = reader(plain_user / "cache", remote)
    for _ in range(2):
        assert right(made, (0, 10_000))
    made.close()
    plain_user.chmod(0o700)
    assert remote.asked == [(0, 10_000)] * 2
    assert len(caplog.records) == 1


def test_nothing_is_for_others_to_see(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"
    fill(folder)
    for path in [folder, *folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_one_cache_for_each_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert disk_cache("~/c", 5) is disk_cache(tmp_path / "c", 5)
    assert disk_cache("~/c", 5) is not disk_cache("~/c", 6)
    assert repr(disk_cache("~/c", 5)) == f"<DiskCache {tmp_path / 'c'}, 5 bytes at the most>"


def test_a_changed_source_is_still_an_error(tmp_path: Path) -> None:
    fill(tmp_path)

    class Changed(Remote):
        def read_ranges(self, ranges: list[ByteRange]) -> list[bytes]:
            raise SourceChangedError("another file")

    made = reader(tmp_path, Changed(), expected=SourceIdentity(len(DATA), TAG))
    assert right(made, (0, 1000))
    with pytest.raises(SourceChangedError):
        made.read_ranges([ByteRange(len(DATA), 1)])


@given(st.binary(max_size=20_000), st.data())
def test_a_checksum_tells_what_was_changed(data: bytes, draw: st.DataObject) -> None:
    expected = checksum_of(memoryview(data))
    assert 0 <= expected < 1 << 32
    if data:
        position = draw.draw(st.integers(0, len(data) - 1))
        other = bytearray(data)
        other[position] ^= draw.draw(st.integers(1, 255))
        assert checksum_of(memoryview(other)) != expected


def test_a_checksum_tells_pages_that_are_missing_or_elsewhere() -> None:
    data = random.Random(4).randbytes(64 * 4096 + 100)
    expected = checksum_of(memoryview(data))
    page = slice(4096 * 7, 4096 * 8)
    lost, stale, moved = bytearray(data), bytearray(data), bytearray(data)
    lost[page] = bytes(4096)
    stale[page] = data[:4096]
    moved[page], moved[:4096] = data[:4096], data[page]
    assert len({expected, *(checksum_of(memoryview(other)) for other in (lost, stale, moved, data[:-1]))}) == 5
