"""What the disk cache holds of one state of one remote file, found without taking a lock."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lindi_bridge.ranges.cache_reading import OpenSegment, forget
from lindi_bridge.ranges.cache_segment import PAGE, PART, DamagedSegmentError, Piece, Segment
from lindi_bridge.ranges.reader import ByteRange

__all__ = ["CacheEntry", "Part"]


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
        opened = OpenSegment()
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
        opened = OpenSegment()
        try:
            done = all(self._read_into(start, view, opened) for start, view in runs)
        finally:
            opened.close()
        return done and not opened.has_changed

    def _read_into(self, start: int, view: memoryview, opened: OpenSegment) -> bool:
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

    def _read(self, wanted: ByteRange, opened: OpenSegment) -> list[Part]:
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
                forget(segment, problem)
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
