"""The Zarr store: metadata from memory, chunks from the file, those of a whole selection in one wave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from lindi_bridge.client.file import File
from lindi_bridge.errors import ReadOnlyError
from lindi_bridge.model.nodes import Problem
from lindi_bridge.store.bursts import Burst, current_burst
from lindi_bridge.store.chunks import ABSENT, ChunkSource, Coordinates
from lindi_bridge.store.hierarchy import Hierarchy
from lindi_bridge.store.keys import ZARR_JSON, ChunkKey, chunk_key, join, split_chunk_key, split_metadata_key
from lindi_bridge.store.metadata import consolidated_json
from lindi_bridge.store.nodes import ArrayNode, GroupNode
from lindi_bridge.store.opening import Opening, Recipe, reopen
from lindi_bridge.store.serving import ChunkServer, Wanted, never_missing
from lindi_bridge.store.waves import Gatherer

__all__ = ["HDF5Store"]


class HDF5Store(Store):
    """A reference document, or an HDF5 file anywhere, as a read-only Zarr store of version 3.

    Nothing is opened before it is needed. A pickle holds the address and no secrets; the file is opened again in the
    process that unpickles it.

    Parameters
    ----------
    name : str, os.PathLike, bytes, file object, or File
        Path or URL of a document or of an HDF5 file, or a file opened with :func:`lindi_bridge.open`, which is then
        left open by :meth:`close`.
    read_only : bool
        Only True.
    **options
        As for :func:`lindi_bridge.open`.

    Raises
    ------
    ReadOnlyError
        ``read_only=False``.
    """

    def __init__(self, name: Any, *, read_only: bool = True, **options: Any) -> None:
        if not read_only:
            raise ReadOnlyError("a Zarr store over an HDF5 file can only be read; leave read_only as it is")
        super().__init__(read_only=True)
        self._begin(Opening(name, options))

    def _begin(self, opening: Opening) -> None:
        self._opening = opening
        self._closed = False
        self._server = ChunkServer(opening)
        self._gatherer: Gatherer[Wanted] = Gatherer(self._server.answer)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, HDF5Store):
            return self is other
        try:
            return self._opening.recipe == other._opening.recipe
        except TypeError:  # opened from objects
            return False

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"HDF5Store({self._opening.address!r})"

    def __str__(self) -> str:
        return f"hdf5://{self._opening.address}"

    def __reduce__(self) -> Any:
        return _unpickle, self._opening.recipe

    # -- what is opened -------------------------------------------------------------------------------------------

    @property
    def file(self) -> File:
        """The file, as :func:`lindi_bridge.open` gives it; opened at the first use."""
        self._refuse_closed()
        return self._opening.file

    @property
    def hierarchy(self) -> Hierarchy:
        """All nodes; found at the first use."""
        self._refuse_closed()
        return self._opening.hierarchy

    @property
    def problems(self) -> list[Problem]:
        """What the store has not got, or has otherwise, object by object."""
        self._refuse_closed()
        return self._opening.problems

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ValueError(f"{self._opening.address}: the store is closed")

    def close(self) -> None:
        """Close the file, unless it was given open."""
        super().close()
        self._closed = True
        self._gatherer.close()
        self._server.clear()
        self._opening.close()

    # -- reading ---------------------------------------------------------------------------------------------------

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """The value of a key, or a part of it; None if there is none.

        Raises
        ------
        SourceError
            A chunk that exists and cannot be had.
        """
        if not self._is_open:
            await self._open()
        self._refuse_closed()
        path = split_metadata_key(key)
        data = await self._chunk(key) if path is None else await self._gatherer.run(lambda: self._text(path))
        return None if data is None else prototype.buffer.from_bytes(_part(data, byte_range))

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Parts of the values of several keys."""
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Whether a key has a value."""
        path = split_metadata_key(key)
        if path is not None:
            return bool(await self._gatherer.run(lambda: path in self.hierarchy.nodes))
        found = split_chunk_key(key)
        if found is None:
            return False
        return bool(await self._gatherer.run(lambda: _holds(self._server.source(found.path), found.coordinates)))

    async def getsize(self, key: str) -> int:
        """Bytes of the value of a key."""
        found = split_chunk_key(key)
        if found is not None:
            size = await self._gatherer.run(lambda: _size(self._server.source(found.path), found.coordinates))
            if size is not None:
                return int(size)
        data = await self.get(key, default_buffer_prototype())
        if data is None:
            raise FileNotFoundError(key)
        return len(data)

    async def _chunk(self, key: str) -> Any:
        found = split_chunk_key(key)
        if found is None:
            return None
        burst = current_burst(found.below)
        while (data := self._server.held(found.path, found.coordinates)) is None:
            if burst is None or found.below in burst.fetched:
                data = (await self._gatherer.get(Wanted(found.path, found.coordinates))).data
                break
            if burst.error is not None:
                raise burst.error
            if burst.wave is None:
                data = await self._start_wave(burst, found)
                break
            await burst.wave
        return None if data is ABSENT else data

    async def _start_wave(self, burst: Burst, first: ChunkKey) -> Any:
        """Get a chunk, and have those that its read will ask for next fetched along."""
        following = burst.following()
        burst.wave = wave = asyncio.get_running_loop().create_future()
        try:
            answer = await self._gatherer.get(Wanted(first.path, first.coordinates, following))
        except Exception as error:
            burst.error = error
            raise
        finally:
            burst.wave = None
            wave.set_result(None)
        burst.fetched.update(following[: answer.fetched])
        return answer.data

    def _text(self, path: str) -> bytes | None:
        try:
            nodes = self.hierarchy.nodes
        except (KeyError, FileNotFoundError) as error:
            raise never_missing(error) from error
        return consolidated_json(nodes, path).encode("utf-8") if path in nodes else None

    # -- listing ---------------------------------------------------------------------------------------------------

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys that begin with a prefix."""
        nodes = await self._gatherer.run(lambda: self.hierarchy.nodes)
        for path, node in nodes.items():
            own = join(path, ZARR_JSON)
            if own.startswith(prefix):
                yield own
            inside = join(path, "")
            if isinstance(node, ArrayNode) and (inside.startswith(prefix) or prefix.startswith(inside)):
                for key in await self._gatherer.run(lambda path=path: self._chunk_keys(path)):  # type: ignore[misc]
                    if key.startswith(prefix):
                        yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names directly below a prefix, each once."""
        path = prefix.rstrip("/")
        nodes = await self._gatherer.run(lambda: self.hierarchy.nodes)
        node = nodes.get(path)
        if isinstance(node, GroupNode):
            yield ZARR_JSON
            for name in node.members:
                yield name
            return
        inside, seen = join(path, ""), set()
        async for key in self.list_prefix(inside):
            name = key.removeprefix(inside).partition("/")[0]
            if name not in seen:
                seen.add(name)
                yield name

    def _chunk_keys(self, path: str) -> tuple[str, ...]:
        source = self._server.source(path)
        return () if source is None else tuple(chunk_key(path, coordinates) for coordinates in source)

    # -- writing ---------------------------------------------------------------------------------------------------

    @property
    def supports_writes(self) -> bool:
        """Never."""
        return False

    @property
    def supports_deletes(self) -> bool:
        """Never."""
        return False

    @property
    def supports_listing(self) -> bool:
        """Always."""
        return True

    async def set(self, key: str, value: Buffer) -> None:
        """Refuse."""
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Refuse."""
        self._check_writable()


def _unpickle(*recipe: Any) -> HDF5Store:
    store = HDF5Store(recipe[0], **recipe[1])
    store._begin(reopen(cast(Recipe, recipe)))
    return store


def _part(data: bytes, wanted: ByteRequest | None) -> bytes:
    if wanted is None:
        return data
    if isinstance(wanted, RangeByteRequest):
        return data[wanted.start : wanted.end]
    if isinstance(wanted, OffsetByteRequest):
        return data[wanted.offset :]
    if isinstance(wanted, SuffixByteRequest):
        return data[max(0, len(data) - wanted.suffix) :]
    raise TypeError(f"Unexpected byte_range, got {wanted}")


def _holds(source: ChunkSource | None, coordinates: Coordinates) -> bool:
    return source is not None and coordinates in source


def _size(source: ChunkSource | None, coordinates: Coordinates) -> int | None:
    return None if source is None or coordinates not in source else source.nbytes(coordinates)
