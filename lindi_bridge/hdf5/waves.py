"""The scheduler of the shadow walk: many visits, each step of which is one concurrent wave of range requests.

A *visit* is a generator that yields the byte ranges it needs next, and is resumed with their bytes once they are
in memory. What all visits need at one time is fetched together. A visit is resumed with *fewer* bytes than it asked
for where they cannot be had (outside the file, too long, no budget left, no reading allowed), and then ends by itself
with :class:`NoHintError`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from lindi_bridge.hdf5.fields import NoHintError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.ranges import ByteRange, is_local

__all__ = ["Visit", "Waves", "read", "together"]

T = TypeVar("T")
Visit: TypeAlias = Generator[Sequence[ByteRange], list[bytes], T]

_PAGE = 4096
"""Bytes. Requests are rounded to pages: what a structure points to often lies next to it."""
_GAP = 16 * 1024
"""Bytes. All holes up to this long are read through: between pages they are at most four times the pages."""
_WASTE = _GAP / _PAGE
_CROWD = 1024
"""Requests of one wave beyond which a request costs more than the bytes of a wider hole: 16 rounds of 64."""
_LONGEST = 64 * 1024 * 1024
"""Bytes of the longest single structure."""
_MOST_FETCHED = 1024**3
_MOST_HANDED_OUT = 4 * 1024**3
"""Bytes given to visits in all. Those of overlapping structures count each time, so that a damaged file cannot keep
the walk busy with what is in memory."""
_MOST_VISITS = 4_000_000
_MOST_WAVES = 20_000

_ENDS_A_VISIT = (NoHintError, LookupError, ValueError, ArithmeticError, MemoryError, RecursionError)
"""What a parser can meet in a damaged structure; the visit ends, the walk goes on."""


def read(address: int, length: int) -> Visit[bytes]:
    """Visit one range; its bytes, fewer if they cannot be had."""
    [data] = yield [ByteRange(address, length)]
    return data


def together(*visits: Visit[Any]) -> Visit[list[Any]]:
    """Several visits as one: each step fetches what all of them need next."""
    results: list[Any] = [None] * len(visits)
    needs: dict[int, Sequence[ByteRange]] = {}
    answers: dict[int, list[bytes] | None] = dict.fromkeys(range(len(visits)))
    while answers:
        for index, answer in answers.items():
            try:
                needs[index] = next(visits[index]) if answer is None else visits[index].send(answer)
            except StopIteration as end:
                results[index] = end.value
        pieces = (yield [wanted for ranges in needs.values() for wanted in ranges]) if needs else []
        answers, position = {}, 0
        for index, ranges in needs.items():
            answers[index] = pieces[position : position + len(ranges)]
            position += len(ranges)
        needs.clear()
    return results


class Waves:
    """Runs visits until none is left. It always ends, and within its budget of bytes.

    Parameters
    ----------
    file : HDF5File
        Where bytes come from and where they are kept.
    fetch : bool
        Whether the source may be read; otherwise visits see only what is in memory.
    budget : int
        Bytes that may be fetched at the most.
    """

    def __init__(self, file: HDF5File, *, fetch: bool = True, budget: int = _MOST_FETCHED) -> None:
        self.file = file
        self.base = 0
        """File address of the superblock, from which addresses in the file count (user block)."""
        self.budget = min(2 * file.size + _GAP, budget, file.cache_bytes) if fetch else 0
        """Bytes that may still be fetched. More than the cache holds would be dropped again."""
        self.waves = 0
        """Waves so far in which something was fetched."""
        self.was_cut_off = False
        """Whether something was left out because the budget was used up."""
        self.problems: list[str] = []
        """Why visits ended early (the first hundred)."""
        self._fetches = fetch
        # A read of the disk costs less than the bytes of any hole.
        self._is_local = bool(file.reader.url) and is_local(file.reader.url)
        self._handed_out = min(16 * file.size, 4 * budget, _MOST_HANDED_OUT) + 1024
        self._visits = 0
        self._seen: set[tuple[str, int]] = set()
        self._ready: deque[tuple[Visit[Any], Sequence[ByteRange] | None]] = deque()

    @property
    def left(self) -> int:
        """Bytes that may still be given to visits."""
        return max(0, self._handed_out)

    def first_visit(self, kind: str, address: int) -> bool:
        """Whether a structure lies inside the file and was not visited before; from now on it was."""
        if not 0 <= address < self.file.size - self.base or (kind, address) in self._seen:
            return False
        self._seen.add((kind, address))
        return True

    def start(self, visit: Visit[Any]) -> None:
        """Add a visit; it begins in this wave. Its result is dropped."""
        self._visits += 1
        if self._visits <= _MOST_VISITS:
            self._ready.append((visit, None))

    def run(self) -> None:
        """Run all visits, and those that they start, to their ends."""
        for _ in range(_MOST_WAVES):
            waiting = []
            while self._ready:
                visit, needs = self._ready.popleft()
                wanted = self._advance(visit, None if needs is None else self._held(needs))
                while wanted is not None and (answer := self._held(wanted, complete=True)) is not None:
                    wanted = self._advance(visit, answer)
                if wanted is not None:
                    waiting.append((visit, wanted))
            if not waiting:
                return
            self._fetch([needs for _, needs in waiting])
            self._ready.extend(waiting)
        self._ready.clear()

    def result(self, visit: Visit[T]) -> T | None:
        """Run one visit, and what it starts; None if it ended early."""
        found: list[T] = []

        def keep() -> Visit[None]:
            found.append((yield from visit))

        self.start(keep())
        self.run()
        return found[0] if found else None

    def _advance(self, visit: Visit[Any], answer: list[bytes] | None) -> Sequence[ByteRange] | None:
        """Resume a visit; what it needs next, or None at its end."""
        try:
            return next(visit) if answer is None else visit.send(answer)
        except StopIteration:
            return None
        except _ENDS_A_VISIT as error:
            if len(self.problems) < 100:
                self.problems.append(f"{type(error).__name__}: {error}")
            return None

    def _held(self, needs: Sequence[ByteRange], *, complete: bool = False) -> list[bytes] | None:
        """The bytes of ranges as far as they are in memory; None if all of them were asked for and are not there."""
        answer = []
        for wanted in needs:
            inside = self._inside(wanted)
            data = b"" if inside is None or self._handed_out < 0 else self.file.held(*inside)
            if complete and inside is not None and len(data) < inside.length and self._handed_out >= 0:
                return None
            answer.append(data)
        self._handed_out -= sum(map(len, answer))
        return answer

    def _inside(self, wanted: ByteRange) -> ByteRange | None:
        """A range as file addresses, cut at the end of the file; None for what is not read."""
        start = wanted.start + self.base
        if not 0 <= wanted.start <= start < self.file.size or not 0 < wanted.length <= _LONGEST:
            return None
        return ByteRange(start, min(wanted.length, self.file.size - start))

    def _fetch(self, waiting: list[Sequence[ByteRange]]) -> None:
        """Fetch what visits wait for in one wave; if it is more than the budget, for those that need least."""
        if not self._fetches:
            return
        demands = [[inside for r in needs if (inside := self._inside(r)) is not None] for needs in waiting]
        gap = _GAP
        while demands:
            wanted = [r for ranges in demands for r in ranges]
            crowd = _CROWD if gap and not self._is_local else 1 << 62
            requests = self.file.missing(wanted, page=_PAGE, gap=gap, waste=_WASTE, crowd=crowd)
            if (nbytes := sum(r.length for r in requests)) <= self.budget:
                if requests:
                    self.budget -= nbytes
                    self.waves += 1
                    self.file.fetch(requests)
                return
            self.was_cut_off = True
            if gap:
                gap = 0
                demands.sort(key=lambda ranges: sum(r.length for r in ranges))
            else:
                del demands[len(demands) // 2 :]
