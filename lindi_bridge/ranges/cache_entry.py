"""What the disk cache holds of one state of one remote file, found without taking a lock."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lindi_bridge.ranges.cache_segment import (
    PAGE,
    PART,
    SEALED,
    DamagedSegmentError,
    Piece,
    Segment,
    compare,
    read_exactly,
)
from lindi_bridge.ranges.file_bytes import read_into
from lindi_bridge.ranges.reader import ByteRange

__all__ = ["CacheEntry", "Part"]

_NOTE_EVERY = 300.0
"""Seconds between two notes on the disk that a segment is in use."""


class Part(NamedTuple):
    """A part of a range that was looked for: its bytes, or None where the disk has none."""

    start: int
    stop: int
    data: bytes | None


class CacheEntry:
    """The folder of one state of one file, and in memory where in it each piece lies.

    Readers may be in any thread, also under h5py's lock: the table only ever grows, by single operations that are
    atomic, and what a reader does not see yet is fetched again. Other processes add and delete segments at any time.

    Parameters
    ----------
    folder : str
        Where the segments are.
    key : bytes
        What they must say that they hold.
    """

    def __init__(self, folder: str, key: bytes) -> None:
        self.folder = folder
        self.key = key
        self._listed = -1
        self._dropped = 0
        self._segments: dict[str, Segment] = {}
        self._pages: dict[int, list[Piece]] = {}

    def read(self, ranges: Sequence[ByteRange]) -> list[list[Part]]:
        """Look for ranges.

        Parameters
        ----------
        ranges : sequence of ByteRange
            Not negative.

        Returns
        -------
        list of list of Part
            The parts of each range, in order and without a gap; no two that the disk does not have follow each other.
        """
        self._refresh()
        opened = _OpenSegment()
        try:
            found = [self._read(wanted, opened) for wanted in ranges]
        finally:
            opened.close()
        return self.read(ranges) if opened.has_changed else found  # now its bytes are compared

    def read_into(self, runs: Sequence[tuple[int, memoryview]]) -> bool:
        """Read ranges to where they are wanted, if the disk has all of them.

        Parameters
        ----------
        runs : sequence of (int, memoryview)
            Addresses, and writable buffers of bytes.

        Returns
        -------
        bool
            False if anything is missing; then the buffers hold anything.
        """
        return self._read_all(runs) or (self._refresh() and self._read_all(runs))

    def holds(self, wanted: ByteRange) -> bool:
        """Whether there is all of a range; does not look at the bytes."""
        return self._has(wanted) or (self._refresh() and self._has(wanted))

    def _has(self, wanted: ByteRange) -> bool:
        # From byte to byte, because a damaged file may say that a chunk has any length.
        position = wanted.start
        while position < wanted.stop:
            piece = next(self._pieces(ByteRange(position, 1)), None)
            if piece is None:
                return False
            position = piece.stop
        return True

    def _read_all(self, runs: Sequence[tuple[int, memoryview]]) -> bool:
        opened = _OpenSegment()
        try:
            done = all(self._read_into(start, view, opened) for start, view in runs)
        finally:
            opened.close()
        return done and not opened.has_changed

    def _read_into(self, start: int, view: memoryview, opened: _OpenSegment) -> bool:
        position, stop = start, start + len(view)
        for piece in self._pages.get(start // PAGE, ()):  # what is short lies in one
            if piece.start <= start and stop <= piece.stop and not piece.segment.gone:
                return opened.read_into([piece], start, view)
        for run in _runs(self._pieces(ByteRange(start, len(view)))):
            end = min(run[-1].stop, stop)
            if run[0].start > position or not opened.read_into(run, position, view[position - start : end - start]):
                return False
            position = end
        return position == stop

    def _read(self, wanted: ByteRange, opened: _OpenSegment) -> list[Part]:
        parts: list[Part] = []
        position = wanted.start
        for run in _runs(self._pieces(wanted)):
            start, stop = max(run[0].start, position), min(run[-1].stop, wanted.stop)
            data = opened.read(run, start, stop)
            if data is None:
                continue  # what it held is missing, together with what is missing around it
            if start > position:
                parts.append(Part(position, start, None))
            parts.append(Part(start, stop, data))
            position = stop
        if position < wanted.stop:
            parts.append(Part(position, wanted.stop, None))
        return parts

    def _pieces(self, wanted: ByteRange) -> Iterator[Piece]:
        """The pieces that hold a range, as far as there are any, by ascending address."""
        position = wanted.start
        while position < wanted.stop:
            page = position // PAGE
            here = [p for p in self._pages.get(page, ()) if p.stop > position and not p.segment.gone]
            holding = [p for p in here if p.start <= position]
            if holding:
                best = max(holding, key=lambda piece: piece.stop)
                yield best
                position = best.stop
            else:
                position = min([(page + 1) * PAGE, *(p.start for p in here)])

    def _refresh(self) -> bool:
        """Take in what this and other processes have written since the last time; whether there may be anything."""
        try:
            changed = os.stat(self.folder).st_mtime_ns
            if changed == self._listed:
                return False
            names = os.listdir(self.folder)
        except OSError:  # not there yet, deleted, or taken away
            names, changed = [], -1
        self._drop(set(self._segments).difference(names))
        for name in names:
            if name.endswith(PART):
                continue
            segment = Segment(os.path.join(self.folder, name))
            if self._segments.setdefault(name, segment) is not segment:
                continue
            try:
                pieces = segment.pieces(self.key)
            except (DamagedSegmentError, OSError) as problem:
                _forget(segment, problem)
                continue
            for piece in pieces:
                self._pages.setdefault(piece.start // PAGE, []).append(piece)
        self._listed = changed
        return True

    def _drop(self, names: set[str]) -> None:
        """Forget segments that were deleted; their pieces all at once, when they have become the most."""
        for name in names:
            segment = self._segments.pop(name, None)
            if segment is not None:
                segment.gone = True
                self._dropped += 1
        if self._dropped > len(self._segments):
            live = {page: [p for p in pieces if not p.segment.gone] for page, pieces in list(self._pages.items())}
            self._pages = {page: pieces for page, pieces in live.items() if pieces}
            self._dropped = 0


class _OpenSegment:
    """The segment that was read last, kept open for the next run of the same wave.

    Where bytes have to be compared with checksums, the last run is kept as well: small ranges of a wave lie side by
    side, many in one piece.
    """

    def __init__(self) -> None:
        self.has_changed = False
        """Whether anybody has changed a segment while its bytes were read and not compared."""
        self._segment: Segment | None = None
        self._descriptor = -1
        self._size = -1
        self._checked: set[int] | None = None
        self._run: Sequence[Piece] = ()
        self._data = b""

    def read(self, run: Sequence[Piece], start: int, stop: int) -> bytes | None:
        """Read bytes of pieces that lie one after the other; None if the segment is gone or damaged.

        Parameters
        ----------
        run : sequence of Piece
            All of them are wanted, but for the beginning of the first and the end of the last.
        start, stop : int
            Addresses of the first byte and of the one after the last.
        """
        first = run[0]
        try:
            self._open(first.segment)
            if self._checked is None:
                return read_exactly(self._descriptor, stop - start, first.offset + start - first.start)
            if run != self._run:
                data = read_exactly(self._descriptor, run[-1].stop - first.start, first.offset)
                compare(run, memoryview(data), self._checked)
                self._run, self._data = run, data
            return self._data[start - first.start : stop - first.start]
        except (DamagedSegmentError, OSError) as problem:
            self.close()
            _forget(first.segment, problem)
            return None

    def read_into(self, run: Sequence[Piece], start: int, view: memoryview) -> bool:
        """Read bytes of pieces that lie one after the other into a buffer; False if that is not possible.

        Parameters
        ----------
        run : sequence of Piece
            All of them are wanted, but for the beginning of the first and the end of the last.
        start : int
            Address of the first byte that is wanted.
        view : memoryview
            Where the bytes go.
        """
        segment = run[0].segment
        try:
            self._open(segment)
            if self._checked is None:
                return self._read_part(run[0], start, view)
            for part in _cut_at(run, start, start + len(view)):
                begin = max(part[0].start, start)
                if not self._read_checked(part, begin, view[begin - start : part[-1].stop - start], self._checked):
                    return False
        except (DamagedSegmentError, OSError) as problem:
            self.close()
            _forget(segment, problem)
            return False
        return True

    def _read_checked(self, run: Sequence[Piece], start: int, view: memoryview, checked: set[int]) -> bool:
        """Read all of some pieces, or a part of one, and compare what was not compared yet."""
        is_whole = len(view) == run[-1].stop - run[0].start
        if is_whole or run[0].offset in checked:
            self._read_part(run[0], start, view)
            if is_whole:
                compare(run, view, checked)
            return True
        data = self.read(run, start, start + len(view))  # a part can be trusted if the whole can be
        if data is not None:
            view[:] = data
        return data is not None

    def _read_part(self, first: Piece, start: int, view: memoryview) -> bool:
        if read_into(self._descriptor, view, first.offset + start - first.start) != len(view):
            raise DamagedSegmentError
        return True

    def _open(self, segment: Segment) -> None:
        if self._segment is not segment:
            self.close()
            self._descriptor = segment.open()
            self._segment = segment
            status = os.fstat(self._descriptor)
            self._size = status.st_size
            self._checked = segment.checked(status)
            _note_use(segment, status)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        segment, self._segment = self._segment, None
        if descriptor < 0 or segment is None:
            return
        try:
            if self._checked is None:  # a change shows before its bytes do
                status = os.fstat(descriptor)
                self.has_changed |= status.st_mtime_ns != SEALED or status.st_size != self._size
        except OSError as problem:  # a network's file system may have lost it
            self.has_changed = True
            _forget(segment, problem)
        finally:
            os.close(descriptor)


def _runs(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    """Pieces that follow each other both in the remote file and in one segment."""
    run: list[Piece] = []
    for piece in pieces:
        if run and not (
            piece.segment is run[-1].segment
            and piece.start == run[-1].stop
            and piece.offset == run[-1].offset + run[-1].stop - run[-1].start
        ):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _cut_at(run: Sequence[Piece], start: int, stop: int) -> Iterator[Sequence[Piece]]:
    """The first and the last piece of a run apart, where only a part of them is wanted."""
    first = 1 if run[0].start < start else 0
    last = len(run) - 1 if run[-1].stop > stop else len(run)
    for part in (run[:first], run[first:last], run[max(first, last) :]):
        if part:
            yield part


def _forget(segment: Segment, problem: Exception) -> None:
    """Use a segment no more; one that is damaged is deleted, so that its ranges are written again."""
    segment.gone = True
    if isinstance(problem, DamagedSegmentError):
        try:
            os.unlink(segment.path)
        except OSError:
            pass  # deleted meanwhile, or the folder is read-only: it is not used in any case


def _note_use(segment: Segment, status: os.stat_result) -> None:
    """Say on the disk that a segment is in use, so that others are evicted first."""
    now = time.time()
    if now - max(segment.used, status.st_atime) > _NOTE_EVERY:
        segment.used = now
        try:
            os.utime(segment.path, ns=(int(now * 1e9), status.st_mtime_ns))
        except OSError:
            pass  # deleted meanwhile, or a read-only folder, where nothing is evicted
