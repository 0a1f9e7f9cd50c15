"""Chunks of all arrays of a file, those that are asked for at one time fetched together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import h5py

from lindi_bridge.errors import SourceError
from lindi_bridge.model.text import stored_name, text_name
from lindi_bridge.store.chunks import ABSENT, ChunkSource, Coordinates
from lindi_bridge.store.fetching import FetchPlan
from lindi_bridge.store.nodes import ArrayNode, present_dataset
from lindi_bridge.store.opening import Opening
from lindi_bridge.store.waiting import refuse_waiting_under_lock

__all__ = ["Answer", "ChunkServer", "Wanted", "never_missing"]


class Wanted(NamedTuple):
    """A chunk that was asked for, and keys of further ones (below the same array) that will be."""

    path: str
    coordinates: Coordinates
    following: tuple[str, ...] = ()


class Answer(NamedTuple):
    """A chunk, or ABSENT; and how many of the following ones were fetched along."""

    data: bytes | object
    fetched: int = 0


class ChunkServer:
    """Answers for all arrays of a file. Everything here but :meth:`held` may block.

    Parameters
    ----------
    opening : Opening
        The file.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._sources: dict[str, ChunkSource | None] = {}

    def source(self, path: str) -> ChunkSource | None:
        """Where the chunks of an array come from; None if there is no array. Lists nothing but that one object."""
        if path not in self._sources:
            with self._opening.lock:
                self._sources[path] = self._make_source(path)
        return self._sources[path]

    def held(self, path: str, coordinates: Coordinates) -> bytes | object | None:
        """A chunk, or ABSENT, if nothing has to be asked or computed for it; None otherwise."""
        source = self._sources.get(path)
        return None if source is None else source.held(coordinates)

    def clear(self) -> None:
        """Forget all arrays."""
        self._sources.clear()

    def _make_source(self, path: str) -> ChunkSource | None:
        opening = self._opening
        if opening.is_listed:
            node = opening.hierarchy.nodes.get(path)
            if not isinstance(node, ArrayNode):
                return None
            return ChunkSource(node.file, node.path, node.presentation, partial(opening.reference, node.file))
        obj = opening.file.get(stored_name(f"/{path}"))
        if not isinstance(obj, h5py.Dataset):
            return None
        file = obj.file
        presentation = present_dataset(obj.id, obj._file_object)
        name = text_name(h5py.h5i.get_name(obj.id))
        return ChunkSource(file, name, presentation, partial(opening.reference, file))

    def answer(self, wanted: Sequence[Wanted]) -> list[Answer | Exception]:
        """Chunks, or why they cannot be had; those that follow are fetched along, as far as there is room."""
        results: list[Answer | Exception] = [Answer(ABSENT)] * len(wanted)
        ready: list[tuple[int, ChunkSource]] = []
        for number, item in enumerate(wanted):
            try:
                refuse_waiting_under_lock(self._opening.address)
                source = self.source(item.path)
            except Exception as error:  # noqa: BLE001 - raised where the chunk was asked for
                results[number] = never_missing(error)
                continue
            if source is not None:
                ready.append((number, source))
        while ready:
            ready = self._answer_some(wanted, ready, results)
        return results

    def _answer_some(
        self, wanted: Sequence[Wanted], ready: list[tuple[int, ChunkSource]], results: list[Answer | Exception]
    ) -> list[tuple[int, ChunkSource]]:
        """Fetch in one wave as much as there is room for; what is left to be done."""
        plan = FetchPlan()
        now: list[tuple[int, ChunkSource]] = []
        for number, source in ready:
            try:
                if not plan.add(source, wanted[number].coordinates, always=not now):
                    break
            except Exception as error:  # noqa: BLE001 - raised where the chunk was asked for
                results[number] = never_missing(error)
            now.append((number, source))
        is_last = len(now) == len(ready)
        along = [plan.add_following(source, wanted[number].following) if is_last else 0 for number, source in now]
        try:
            plan.fetch()
        except Exception as error:  # noqa: BLE001 - raised where the chunks were asked for
            for number, _ in now:
                results[number] = never_missing(error)
            return ready[len(now) :]
        for (number, source), count in zip(now, along, strict=True):
            if isinstance(results[number], Exception):
                continue
            try:
                results[number] = Answer(source.chunk(wanted[number].coordinates), count)
            except Exception as error:  # noqa: BLE001 - raised where the chunk was asked for
                results[number] = never_missing(error)
        return ready[len(now) :]


def never_missing(error: Exception) -> Exception:
    """An error that zarr cannot take for a key that is not there."""
    if isinstance(error, KeyError | FileNotFoundError):
        outer = SourceError(str(error))
        outer.__cause__ = error
        return outer
    return error
