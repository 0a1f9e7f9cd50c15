"""The store does what zarr asks of every store, as far as a read-only one can."""

from __future__ import annotations

import json
import os
import pickle
import warnings

import h5py
import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.sync import _collect_aiterator
from zarr.testing.store import StoreTests

import lindi_bridge as lb
from lindi_bridge.store import opening
from lindi_bridge.store.store import HDF5Store

PROTOTYPE = default_buffer_prototype()
VALUES = np.arange(24, dtype="<i4").reshape(4, 6)


@pytest.fixture
def document(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("x", data=VALUES, chunks=(2, 3))
        f["foo/one"] = np.int16(1)
        f.create_dataset("foo/hole", (10,), "u1", chunks=(5,))[5:] = 7
        f["foo/words"] = ["a", "bc"]
        f.create_group("empty")
    lb.index(str(tmp_path / "a.h5")).save(str(tmp_path / "a.json"))
    return str(tmp_path / "a.json")


CHUNKS = {
    "x/c/0/0": VALUES[:2, :3].tobytes(),
    "x/c/1/1": VALUES[2:, 3:].tobytes(),
    "foo/one/c": np.int16(1).tobytes(),
    "foo/hole/c/1": bytes([7] * 5),
}
KEYS = sorted(
    [
        *("zarr.json", "empty/zarr.json", "foo/zarr.json", "foo/hole/c/1", "foo/hole/zarr.json", "foo/one/c"),
        *("foo/one/zarr.json", "foo/words/c/0", "foo/words/zarr.json"),
        *("x/c/0/0", "x/c/0/1", "x/c/1/0", "x/c/1/1", "x/zarr.json"),
    ]
)


class TestHDF5Store(StoreTests):
    """zarr's own tests; those that begin by writing are done over with what is in a file."""

    store_cls = HDF5Store
    buffer_cls = cpu.Buffer

    async def set(self, store, key, value):
        pytest.skip("a read-only store")

    async def get(self, store, key):
        pytest.skip("a read-only store")

    @pytest.fixture
    def store_kwargs(self, document):
        return {"name": document}

    @pytest.fixture
    def store(self, store_kwargs):
        with HDF5Store(**store_kwargs) as store:
            store._is_open = True
            yield store

    @pytest.fixture
    def store_not_open(self, store_kwargs):
        with HDF5Store(**store_kwargs) as store:
            yield store

    def test_store_repr(self, store, document):
        assert repr(store) == f"HDF5Store({document!r})"
        assert str(store) == f"hdf5://{document}"

    def test_store_supports_writes(self, store):
        assert not store.supports_writes
        assert not store.supports_deletes

    def test_store_supports_listing(self, store):
        assert store.supports_listing

    def test_store_read_only(self, store):
        assert store.read_only
        with pytest.raises(AttributeError):
            store.read_only = False

    @pytest.mark.parametrize("read_only", [True, False])
    async def test_store_open_read_only(self, open_kwargs, read_only):
        if read_only:
            store = await HDF5Store.open(**open_kwargs, read_only=True)
            assert store._is_open
            assert store.read_only
        else:
            with pytest.raises(lb.ReadOnlyError):
                await HDF5Store.open(**open_kwargs, read_only=False)

    async def test_serializable_store(self, store):
        copy = pickle.loads(pickle.dumps(store))
        assert copy == store
        assert copy.read_only
        assert (await copy.get("x/c/0/0", PROTOTYPE)).to_bytes() == CHUNKS["x/c/0/0"]
        assert pickle.loads(pickle.dumps(copy)) == store
        copy.close()

    @pytest.mark.parametrize("key", CHUNKS)
    @pytest.mark.parametrize(
        ("byte_range", "part"),
        [
            (None, slice(None)),
            (RangeByteRequest(1, 4), slice(1, 4)),
            (RangeByteRequest(1, 1000), slice(1, None)),
            (OffsetByteRequest(1), slice(1, None)),
            (SuffixByteRequest(1), slice(-1, None)),
            (SuffixByteRequest(1000), slice(None)),
        ],
    )
    async def test_get(self, store, key, byte_range, part):
        assert (await store.get(key, PROTOTYPE, byte_range)).to_bytes() == CHUNKS[key][part]

    async def test_get_not_open(self, store_not_open):
        assert not store_not_open._is_open
        assert (await store_not_open.get("x/c/0/0", PROTOTYPE)).to_bytes() == CHUNKS["x/c/0/0"]
        assert store_not_open._is_open

    async def test_get_raises(self, store):
        with pytest.raises(TypeError, match="Unexpected byte_range, got"):
            await store.get("x/c/0/0", PROTOTYPE, (0, 2))

    async def test_get_many(self, store):
        wanted = [(key, PROTOTYPE, None) for key in CHUNKS]
        found = await _collect_aiterator(store._get_many(wanted))
        assert {key: value.to_bytes() for key, value in found} == CHUNKS

    @pytest.mark.parametrize("key", [*CHUNKS, "foo/words/c/0", "zarr.json"])
    async def test_getsize(self, store, key):
        assert await store.getsize(key) == len(await store.get(key, PROTOTYPE))

    async def test_getsize_prefix(self, store):
        assert await store.getsize_prefix("x/c") == VALUES.nbytes

    @pytest.mark.parametrize(
        "key", ["foo/hole/c/0", "x/c/2/0", "x/c/0", "x/c/0/0/0", "c/0", "nothing", "x/c/00/0", "x//c/0/0", "./x/c/0/0"]
    )
    async def test_there_is_nothing_else(self, store, key):
        assert await store.get(key, PROTOTYPE) is None
        assert not await store.exists(key)
        with pytest.raises(FileNotFoundError):
            await store.getsize(key)

    async def test_get_partial_values(self, store):
        assert await store.get_partial_values(PROTOTYPE, []) == []
        found = await store.get_partial_values(
            PROTOTYPE,
            [("x/c/0/0", RangeByteRequest(0, 2)), ("foo/hole/c/0", None), ("foo/one/c", SuffixByteRequest(1))],
        )
        assert [None if value is None else value.to_bytes() for value in found] == [
            CHUNKS["x/c/0/0"][:2],
            None,
            CHUNKS["foo/one/c"][1:],
        ]

    async def test_exists(self, store):
        assert [await store.exists(key) for key in KEYS] == [True] * len(KEYS)

    async def test_is_empty(self, store):
        assert not await store.is_empty("")
        assert await store.is_empty("fo")
        assert not await store.is_empty("foo/")
        assert not await store.is_empty("x/c/1")
        assert await store.is_empty("spam/")

    async def test_list(self, store):
        assert sorted(await _collect_aiterator(store.list())) == KEYS

    @pytest.mark.parametrize("prefix", ["", "x", "x/", "x/c", "x/c/1", "x/c/1/", "foo/", "foo/h", "nothing", "x/zarr"])
    async def test_list_prefix(self, store, prefix):
        found = await _collect_aiterator(store.list_prefix(prefix))
        assert sorted(found) == [key for key in KEYS if key.startswith(prefix)]

    async def test_list_empty_path(self, store):
        assert await _collect_aiterator(store.list()) == await _collect_aiterator(store.list_prefix(""))

    @pytest.mark.parametrize("path", ["", "x", "x/c", "x/c/1", "foo", "foo/hole", "foo/one", "empty", "nothing"])
    async def test_list_dir(self, store, path):
        inside = f"{path}/" if path else ""
        expected = {key.removeprefix(inside).partition("/")[0] for key in KEYS if key.startswith(inside)}
        for spelled in {path, inside}:
            assert sorted(await _collect_aiterator(store.list_dir(spelled))) == sorted(expected)

    async def test_the_metadata_of_an_array(self, store):
        found = json.loads((await store.get("x/zarr.json", PROTOTYPE)).to_bytes())
        assert (found["shape"], found["data_type"]) == ([4, 6], "int32")

    async def test_the_metadata_of_a_group_are_consolidated(self, store):
        found = json.loads((await store.get("zarr.json", PROTOTYPE)).to_bytes())
        inside = sorted(found["consolidated_metadata"]["metadata"])
        assert inside == ["empty", "foo", "foo/hole", "foo/one", "foo/words", "x"]
        found = json.loads((await store.get("foo/zarr.json", PROTOTYPE)).to_bytes())
        assert sorted(found["consolidated_metadata"]["metadata"]) == ["hole", "one", "words"]

    async def test_writing_is_refused_wherever_it_begins(self, store):
        value = cpu.Buffer.from_bytes(b"1")
        for attempt in (store.set("k", value), store.set_if_not_exists("k", value), store.delete("k"), store.clear()):
            with pytest.raises((ValueError, NotImplementedError)):
                await attempt

    # What zarr tests by writing first, and nothing else remains of it here.
    test_set = test_set_not_open = test_set_many = test_clear = test_set_if_not_exists = None
    test_get_bytes = test_get_bytes_sync = test_get_json = test_get_json_sync = None
    test_delete = test_delete_dir = test_delete_nonexistent_key_does_not_raise = None


def test_the_text_of_the_metadata_is_what_the_group_holds(document):
    """Whoever opens the store anew finds what the group was given; the notes for this package's store aside."""
    group = lb.open_zarr(document)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr's, about codecs of numcodecs
        again = zarr.open_group(group.store, mode="r")
        alone = zarr.open_group(group.store, mode="r", use_consolidated=False)
    given = json.dumps(group.metadata.to_dict(), sort_keys=True)
    assert json.dumps(again.metadata.to_dict(), sort_keys=True) == given
    assert sorted(key for key, _ in alone.members(max_depth=None)) == sorted(
        k for k, _ in group.members(max_depth=None)
    )
    group.store.close()


def test_a_closed_store_says_so(document):
    group = lb.open_zarr(document)
    array = group["x"]
    assert array[0, 0] == 0
    group.store.close()
    group.store.close()
    with pytest.raises(ValueError, match="closed"):
        array[0, 0]
    with pytest.raises(ValueError, match="closed"):
        group.store.problems  # noqa: B018


def test_a_document_that_is_gone_is_no_empty_store(document):
    """zarr takes FileNotFoundError for a key that is not there, and what is not there for fill values."""
    group = lb.open_zarr(document)
    array, store = pickle.dumps(group["x"]), pickle.dumps(group.store)
    group.store.close()
    opening._shared.clear()  # another process
    os.unlink(document)
    with pytest.raises(lb.SourceError, match="there is no such file") as caught:
        pickle.loads(array)[0, 0]
    assert not isinstance(caught.value, FileNotFoundError)
    for attempt in (zarr.open_group, zarr.open):
        with pytest.raises(lb.SourceError, match="there is no such file"):
            attempt(pickle.loads(store), mode="r")


def test_an_open_file_stays_open(document):
    with lb.open(document) as file:
        group = lb.open_zarr(file)
        np.testing.assert_array_equal(group["x"][:], VALUES)
        group.store.close()
        np.testing.assert_array_equal(file["x"][:], VALUES)


def test_an_index_in_memory(document):
    index = lb.index(document.replace("a.json", "a.h5"))
    with lb.open_zarr(index).store as store:
        assert store.problems == []
        np.testing.assert_array_equal(lb.open_zarr(store.file)["x"][:], VALUES)
