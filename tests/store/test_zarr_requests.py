"""A Zarr group of a file on a server: what is asked of the server, and what becomes of its failures."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from servers.range_server import RangeServer

import lindi_bridge as lb
from lindi_bridge.store import opening

ROWS, COLUMNS, CHUNK = 4000, 1000, 100
TILE_NBYTES = CHUNK * CHUNK * 4


def make_file(path):
    random = np.random.default_rng(3)
    with h5py.File(path, "w") as f:
        f.create_dataset("tiles", data=random.random((ROWS, COLUMNS), np.float32), chunks=(CHUNK, CHUNK))
        zipped = random.integers(0, 1 << 30, 1_000_000, np.int32)
        f.create_dataset("zipped", data=zipped, chunks=(25_000,), compression="gzip", shuffle=True)
        f["block"] = random.random((20_000, 60))
        f.create_dataset("holes", (3_000_000,), "i4", chunks=(50_000,), fillvalue=-7)[100_000:600_000] = (
            random.integers(0, 1 << 30, 500_000)
        )
        words = [f"word {i:07d} {'é' * (i % 31)}" for i in range(40_000)]
        f.create_dataset("words", data=words, dtype=h5py.string_dtype(), chunks=(4000,), compression="gzip")
        f.create_dataset("lzf", data=random.integers(0, 1 << 30, 500_000), chunks=(20_000,), compression="lzf")
        f["group/number"] = 5
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return make_file(tmp_path_factory.mktemp("zarr-requests") / "data.h5")


@pytest.fixture(scope="module")
def module_server(source):
    with RangeServer() as server:
        server.add("data.h5", source)
        yield server


@pytest.fixture(scope="module")
def document(module_server, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("zarr-documents") / "data.json")
    lb.index(module_server.url("data.h5")).save(path)
    return path


@pytest.fixture
def server(module_server, source):
    module_server.add("data.h5", source)
    module_server.group = 1
    module_server.reset()
    return module_server


@pytest.fixture
def opened(source):
    with h5py.File(source) as f:
        yield f


def test_opening_and_listing_asks_nothing(document, server):
    group = lb.open_zarr(document)
    found = dict(group.members(max_depth=None))
    assert set(found) == {"block", "group", "group/number", "holes", "lzf", "tiles", "words", "zipped"}
    assert group["group/number"][()] == 5
    assert [a.shape for _, a in group.arrays()]
    assert zarr.open_group(group.store, mode="r", use_consolidated=False)["group"].attrs == {}
    assert server.requests == 0


@pytest.mark.parametrize("through_a_pickle", [False, True])
def test_a_selection_is_one_wave_whatever_the_concurrency_of_zarr(document, server, opened, through_a_pickle):
    assert zarr.config.get("async.concurrency") == 10
    array = lb.open_zarr(document)["tiles"]
    if through_a_pickle:
        array = pickle.loads(pickle.dumps(array))
    server.group = ROWS // CHUNK
    column = array[:, 5]
    np.testing.assert_array_equal(column, opened["tiles"][:, 5])
    # Every tenth chunk of the file, further apart than it pays to read through. The server answers none before the
    # last of them has come.
    assert (server.requests, server.waves(), server.nbytes) == (40, 1, 40 * TILE_NBYTES)
    server.group = 1
    np.testing.assert_array_equal(array[:, 6], opened["tiles"][:, 6])
    assert server.requests == 40  # they are in memory


def test_chunks_side_by_side_are_one_request(document, server, opened):
    array = lb.open_zarr(document)["zipped"]
    np.testing.assert_array_equal(array[:200_000], opened["zipped"][:200_000])
    assert server.requests == 1
    server.reset()
    array = lb.open_zarr(document)["zipped"]
    np.testing.assert_array_equal(array[:500_000], opened["zipped"][:500_000])
    assert server.requests <= 3, "20 chunks of 100 kB; half a megabyte is enough for one request"
    assert server.nbytes < 1.05 * 500_000 * 4


def test_several_selections_of_one_task_are_a_wave_each(document, server, opened):
    """What one read announced and got is not fetched again with the next."""
    array = lb.open_zarr(document)["tiles"]

    async def read():
        asynchronous = array._async_array
        first = await asynchronous.getitem((slice(0, 100), slice(0, 100)))
        return first, await asynchronous.getitem((slice(3900, 4000), slice(900, 1000)))

    first, last = zarr.core.sync.sync(read())
    np.testing.assert_array_equal(first, opened["tiles"][:100, :100])
    np.testing.assert_array_equal(last, opened["tiles"][3900:, 900:])
    assert (server.requests, server.nbytes) == (2, 2 * TILE_NBYTES)


def test_counting_chunks_announces_no_read(document, server):
    array = lb.open_zarr(document)["holes"]
    assert array.nchunks_initialized == 10
    assert server.requests == 0
    assert array[0] == -7
    assert server.requests == 0


def test_a_slice_of_a_block_fetches_not_much_more(document, server, opened):
    array = lb.open_zarr(document)["block"]
    np.testing.assert_array_equal(array[7000:7010], opened["block"][7000:7010])
    assert server.requests <= 1
    assert server.nbytes <= 1024 * 1024
    assert array.chunks[0] * array.chunks[1] * 8 <= 1024 * 1024


def test_what_was_never_written_is_not_asked_for(document, server, opened):
    np.testing.assert_array_equal(lb.open_zarr(document)["holes"][:], opened["holes"][:])
    assert server.nbytes == 500_000 * 4


@pytest.mark.parametrize("name", ["words", "lzf"])
def test_what_libhdf5_has_to_read_is_one_wave_too(document, server, opened, name):
    array = lb.open_zarr(document)[name]
    reader = array.store.file._file_object.reader
    wanted = opened[name].asstr()[:] if name == "words" else opened[name][:]
    np.testing.assert_array_equal(array[:].astype(wanted.dtype), wanted)
    assert reader.statistics.waves == 1
    assert array.store.file._file_object.misses == 0


def test_a_file_without_a_document(source, server, opened):
    group = lb.open_zarr(server.add("plain.h5", source))
    at_first = server.waves()
    assert at_first <= 6
    assert dict(group.members(max_depth=None)).keys() > {"block", "group/number"}
    assert server.waves() == at_first
    np.testing.assert_array_equal(group["tiles"][:, 5], opened["tiles"][:, 5])
    np.testing.assert_array_equal(group["words"][:].astype(object), opened["words"].asstr()[:])


def test_more_than_the_cache_holds(document, server, opened):
    with lb.open_zarr(document, cache_bytes=1024 * 1024).store as store:
        array = lb.open_zarr(store.file)["tiles"]
        np.testing.assert_array_equal(array[:], opened["tiles"][:])
    # A wave is at most a quarter of the cache, and nothing is fetched twice.
    assert server.nbytes < 1.02 * ROWS * COLUMNS * 4
    assert server.waves() > 60


def test_a_chunk_larger_than_the_cache(document, server, opened):
    array = lb.open_zarr(document, cache_bytes=4096)["tiles"]
    np.testing.assert_array_equal(array[:100], opened["tiles"][:100])


def test_threads(document, server, opened):
    group = lb.open_zarr(document)
    started = threading.Barrier(8)

    def read(number):
        started.wait()
        name = ("tiles", "zipped", "words", "lzf")[number % 4]
        return name, group[name][...]

    with ThreadPoolExecutor(8) as pool:
        for name, values in pool.map(read, range(8)):
            wanted = opened[name].asstr()[...] if name == "words" else opened[name][...]
            np.testing.assert_array_equal(values.astype(wanted.dtype), wanted)


@pytest.mark.parametrize("fault", ["404", "403", "truncated", "changed", "no_range", "wrong_range"])
@pytest.mark.parametrize("name", ["tiles", "zipped", "block", "words", "lzf"])
def test_a_chunk_that_cannot_be_had_is_an_error(document, source, server, name, fault):
    server.add("data.h5", source, fault=fault)
    array = lb.open_zarr(document)[name]
    with pytest.raises(lb.SourceError) as caught:
        array[...]
    # zarr and fsspec take these for chunks that are not there.
    assert not isinstance(caught.value, (KeyError, FileNotFoundError))


def test_only_the_failed_read_fails(document, source, server, opened):
    """Another one that comes at the same time, and the same one later, are answered."""
    array = lb.open_zarr(document)["tiles"]
    server.add("data.h5", source, fault="404", times=1)
    with pytest.raises(lb.SourceError):
        array[0, 0]
    np.testing.assert_array_equal(array[0, :50], opened["tiles"][0, :50])


def test_no_secret_is_in_a_pickle_or_a_text(source, server, tmp_path):
    url = server.add("signed.h5", source, query="sig=SECRET")
    lb.index(f"{url}?sig=SECRET").save(str(tmp_path / "data.json"))
    group = lb.open_zarr(
        str(tmp_path / "data.json"), source=f"{url}?sig=SECRET", headers={"Authorization": "Bearer SECRET"}
    )
    assert group["tiles"][0, 0] > 0
    array = group["zipped"]
    texts = [
        repr(group),
        str(group),
        repr(array),
        repr(group.store),
        str(group.store),
        str(array.info),
        str(group.info),
    ]
    assert not any("SECRET" in text for text in texts)
    for thing in (group, array, group.store):
        assert b"SECRET" not in pickle.dumps(thing)
    # So what is unpickled has to get access by itself, and says so.
    with pytest.raises(lb.SourcePermissionError) as caught:
        pickle.loads(pickle.dumps(array))[0]
    assert "SECRET" not in str(caught.value)


def test_pickles_of_one_state_of_a_file_open_it_once(document, server, opened):
    """A worker gets a pickle with every task."""
    url = server.add("data.json", Path(document))
    group = lb.open_zarr(url)
    pickles = [pickle.dumps(group["tiles"]), pickle.dumps(group), pickle.dumps(group["tiles"])]
    server.reset()
    stores = []
    for text in pickles:
        found = pickle.loads(text)
        stores.append(found.store)
        array = found if isinstance(found, zarr.Array) else found["tiles"]
        assert array[7, 7] == opened["tiles"][7, 7]
        found.store.close()
        with pytest.raises(ValueError, match="closed"):
            array[7, 7]
    assert len({id(store) for store in stores}) == 3
    ranges = [request.range for request in server.log if request.path == "/data.json"]
    assert len(ranges) == len(set(ranges)) <= 2  # its beginning, and the rest
    assert server.nbytes < 2 * TILE_NBYTES + Path(document).stat().st_size


def test_a_document_that_was_replaced_is_not_taken_for_the_pickled_one(document, server):
    url = server.add("data.json", Path(document))
    text = pickle.dumps(lb.open_zarr(url)["tiles"])
    opening._shared.clear()  # another process
    server.add("data.json", Path(document).read_bytes().replace(b"lindi_bridge", b"another_name", 1))
    with pytest.raises(lb.SourceChangedError, match="replaced since it was opened and pickled"):
        pickle.loads(text)[0]


def test_it_is_not_opened_under_the_lock_of_h5py(document, opened):
    def visit(name):
        lb.open_zarr(document)

    with pytest.raises(lb.SourceLockError):
        opened.visit(visit)


UNDER_THE_LOCK = """
import faulthandler, sys
faulthandler.dump_traceback_later(50, exit=True)
import h5py
import lindi_bridge as lb
group = lb.open_zarr(sys.argv[1], source=sys.argv[2])
array = group["words"]
def visit(name, obj):
    return str(array[0])
with h5py.File(sys.argv[3]) as plain:
    for attempt in range(2):  # what zarr had to open, and what it had read already
        try:
            plain.visititems(visit)
        except lb.SourceLockError as error:
            print(type(error).__name__)
        print(repr(str(array[0])))
with lb.open(sys.argv[1], source=sys.argv[2]) as ours:  # calls back without the lock
    print(repr(ours.visititems(visit)))
"""


def test_reading_under_the_lock_of_h5py_is_refused_and_does_not_hang(document, server, source):
    command = [sys.executable, "-c", UNDER_THE_LOCK, document, server.url("data.h5"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    word, refused = "'word 0000000 '", "SourceLockError"
    assert done.stdout.splitlines() == [refused, word, refused, word, word], done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process(document, server, opened):
    group = lb.open_zarr(document)
    assert str(group["words"][0]) == "word 0000000 "
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_read_in_a_child, args=(group, queue)) for _ in range(2)]
    for process in processes:
        process.start()
    found = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert found == [(opened["tiles"][3950, :5].tolist(), opened["words"].asstr()[39_999])] * 2


def _read_in_a_child(group, queue):
    queue.put((group["tiles"][3950, :5].tolist(), str(group["words"][39_999])))
