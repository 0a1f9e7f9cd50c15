"""Bytes out of the files of the disk cache, compared with their checksums where that is needed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from lindi_bridge.ranges.cache_segment import DamagedSegmentError, Piece, Segment, compare, read_exactly
from lindi_bridge.ranges.file_bytes import read_into

__all__ = ["OpenSegment", "forget"]

_NOTE_EVERY = 300.0
"""Seconds between two notes on the disk that a segment is in use."""


class OpenSegment:
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
            forget(first.segment, problem)
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
                self._read_part(run[0], start, view)
                return True
            for part in _cut_at(run, start, start + len(view)):
                begin = max(part[0].start, start)
                if not self._read_checked(part, begin, view[begin - start : part[-1].stop - start], self._checked):
                    return False
        except (DamagedSegmentError, OSError) as problem:
            self.close()
            forget(segment, problem)
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

    def _read_part(self, first: Piece, start: int, view: memoryview) -> None:
        if read_into(self._descriptor, view, first.offset + start - first.start) != len(view):
            raise DamagedSegmentError

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
                self.has_changed |= status.st_mtime_ns != segment.sealed or status.st_size != self._size
        except OSError as problem:  # a network's file system may have lost it
            self.has_changed = True
            forget(segment, problem)
        finally:
            os.close(descriptor)


def _cut_at(run: Sequence[Piece], start: int, stop: int) -> Iterator[Sequence[Piece]]:
    """The first and the last piece of a run apart, where only a part of them is wanted."""
    first = 1 if run[0].start < start else 0
    last = len(run) - 1 if run[-1].stop > stop else len(run)
    for part in (run[:first], run[first:last], run[max(first, last) :]):
        if part:
            yield part


def forget(segment: Segment, problem: Exception) -> None:
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
