"""File objects in and out: what may be indexed, and how the file object that we give behaves as a file."""

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from builders.compare import compare_files
from servers.range_server import RangeServer

import lindi_bridge as lb

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file objects") / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("chunked", data=np.arange(60_000), chunks=(5000,), compression="gzip")
        file["rows"] = np.arange(40_000.0).reshape(-1, 20)
        file["group/text"] = np.array(["one", "two", "drei"], dtype=h5py.string_dtype())
        file["group"].attrs["note"] = "a note"
    return path


@pytest.fixture(scope="module")
def document(source: Path) -> str:
    name = str(source.with_suffix(".lindi.json"))
    lb.index(str(source)).save(name)
    return name


@pytest.fixture(scope="module")
def server(source: Path) -> Iterator[RangeServer]:
    with RangeServer() as running:
        running.add("a.h5", source)
        yield running


# -- what may be given -----------------------------------------------------------------------------------------------


def _remfile(path: Path, url: str, stack: ExitStack) -> Any:
    remfile = pytest.importorskip("remfile")
    return remfile.File(url)


def _memory(path: Path, url: str, stack: ExitStack) -> Any:
    fsspec.filesystem("memory").pipe("/lindi_bridge/a.h5", path.read_bytes())
    return stack.enter_context(fsspec.open("memory://lindi_bridge/a.h5").open())


GIVEN: dict[str, Callable[[Path, str, ExitStack], Any]] = {
    "BytesIO": lambda path, url, stack: io.BytesIO(path.read_bytes()),
    "open('rb')": lambda path, url, stack: stack.enter_context(path.open("rb")),
    "open('rb', buffering=0)": lambda path, url, stack: stack.enter_context(path.open("rb", buffering=0)),
    "remfile.File": _remfile,
    "fsspec, local": lambda path, url, stack: stack.enter_context(fsspec.open(str(path)).open()),
    "fsspec, memory": _memory,
    "fsspec, http": lambda path, url, stack: stack.enter_context(fsspec.open(url).open()),
    "fsspec, http, cached": lambda path, url, stack: stack.enter_context(fsspec.open(f"simplecache::{url}").open()),
    "fsspec, not opened": lambda path, url, stack: fsspec.open(url),
    "bytes": lambda path, url, stack: path.read_bytes(),
}


@pytest.fixture(params=list(GIVEN))
def given_object(request: pytest.FixtureRequest, source: Path, server: RangeServer) -> Iterator[Any]:
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # remfile and fsspec leave their sessions to the collector
        yield GIVEN[request.param](source, server.url("a.h5"), stack)


def test_indexing_a_file_object(given_object: Any, source: Path, tmp_path: Path) -> None:
    index = lb.index(given_object, url=str(source))
    assert index.problems == []
    assert index.size == source.stat().st_size
    document = tmp_path / "a.lindi.json"
    index.save(document)
    with lb.open(document) as file, h5py.File(source) as local:
        assert compare_files(local, file) == []


def test_opening_a_file_object(given_object: Any, source: Path) -> None:
    with lb.open(given_object) as file, h5py.File(source) as local:
        assert compare_files(local, file) == []


def test_plain_h5py_over_a_file_object(given_object: Any, source: Path) -> None:
    with h5py.File(lb.hdf5_file(given_object)) as file, h5py.File(source) as local:
        assert compare_files(local, file) == []


def test_a_file_object_as_the_source_of_a_document(given_object: Any, source: Path, document: str) -> None:
    with lb.open(document, source=given_object) as file, h5py.File(source) as local:
        assert compare_files(local, file) == []


def test_a_file_object_that_was_given_stays_open(source: Path) -> None:
    with source.open("rb") as stream:
        lb.index(stream)
        lb.open(stream).close()
        assert not stream.closed
        stream.seek(0)
        assert stream.read(4) == b"\x89HDF"


def test_the_index_of_a_file_object_without_address(source: Path) -> None:
    data = io.BytesIO(source.read_bytes())
    index = lb.index(data)
    with pytest.raises(lb.DocumentError, match="url="):
        index.to_json()
    with lb.open(index, source=data) as file, h5py.File(source) as local:
        assert compare_files(local, file) == []


OPENED = {
    "index": lambda source, document: (lb.index(source), {}),
    "document in memory": lambda source, document: (Path(document).read_bytes(), {"source": source}),
    "document as a stream": lambda source, document: (io.BytesIO(Path(document).read_bytes()), {"source": source}),
    "path": lambda source, document: (Path(document), {}),
    "file object of ours": lambda source, document: (lb.hdf5_file(document), {}),
}


@pytest.mark.parametrize("kind", OPENED)
def test_what_else_can_be_opened(kind: str, source: Path, document: str) -> None:
    name, options = OPENED[kind](str(source), document)
    with lb.open(name, **options) as file, h5py.File(source) as local:
        assert isinstance(file.filename, str)
        assert file.filename
        assert Path(file.filename).suffix != ".h5", "anndata would open that"
        assert compare_files(local, file) == []
    name, options = OPENED[kind](str(source), document)
    with h5py.File(lb.hdf5_file(name, **options)) as file, h5py.File(source) as local:
        assert compare_files(local, file) == []


NOTHING = {
    "empty": b"",
    "short text": b"hello",
    "text": b"hello\n" * 500,
    "zeros": bytes(3000),
    "half a signature": b"\x89HDF",
    "signature only": b"\x89HDF\r\n\x1a\n",
}


@pytest.mark.parametrize("kind", NOTHING)
@pytest.mark.parametrize("over", ["path", "stream"])
@pytest.mark.parametrize("way", [lb.index, lb.open, lb.hdf5_file], ids=["index", "open", "hdf5_file"])
def test_what_is_no_hdf5_file(kind: str, over: str, way: Callable[[Any], Any], tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    path.write_bytes(NOTHING[kind])
    with pytest.raises(lb.NotHDF5Error) as caught:
        way(str(path) if over == "path" else io.BytesIO(NOTHING[kind]))
    assert "truncated" not in str(caught.value) or kind == "signature only"


@pytest.mark.parametrize("wrong", [None, 5, 1.5, object(), io.StringIO("text"), ["a"]], ids=lambda w: type(w).__name__)
@pytest.mark.parametrize("way", [lb.index, lb.open, lb.hdf5_file], ids=["index", "open", "hdf5_file"])
def test_what_is_no_file_at_all(wrong: Any, way: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        way(wrong)


# -- what is given back: a file ----------------------------------------------------------------------------------------


@pytest.fixture
def file(document: str) -> Iterator[Any]:
    with lb.hdf5_file(document) as opened:
        yield opened


def test_it_is_a_readable_seekable_raw_file(file: Any) -> None:
    assert isinstance(file, io.RawIOBase)
    assert file.readable()
    assert file.seekable()
    assert not file.writable()
    assert not file.closed
    assert not file.isatty()
    with pytest.raises(OSError):
        file.fileno()


def test_it_begins_at_the_beginning(file: Any, source: Path) -> None:
    assert file.tell() == 0
    assert file.read() == source.read_bytes()
    assert file.tell() == source.stat().st_size
    assert file.read() == file.read(5) == b""


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "read some": lambda f: (f.read(10), f.tell()),
    "read nothing": lambda f: (f.read(0), f.tell()),
    "read None": lambda f: len(f.read(None)),
    "readall": lambda f: (f.seek(100), f.readall()),
    "seek": lambda f: [f.seek(10), f.seek(5, 1), f.seek(-7, 2), f.read()],
    "seek past the end": lambda f: [f.seek(10**7), f.tell(), f.read(), f.read(5), f.seek(3), f.read(2)],
    "seek before the beginning": lambda f: f.seek(-1),
    "seek before the beginning, from the end": lambda f: f.seek(-(10**9), 2),
    "seek by nothing known": lambda f: f.seek(0, 9),
    "seek to a fraction": lambda f: f.seek(0.5),
    "seek to None": lambda f: f.seek(None),
    "a failed seek leaves the position": lambda f: (f.seek(7), _try(lambda: f.seek(-1)), f.tell()),
    "readinto": lambda f: (f.seek(5), b := bytearray(20), f.readinto(b), b),
    "readinto at the end": lambda f: (f.seek(-3, 2), b := bytearray(20), f.readinto(b), b),
    "readinto after the end": lambda f: (f.seek(10**7), b := bytearray(20), f.readinto(b), b),
    "readinto an array": lambda f: (f.seek(64), f.readinto(b := np.zeros(8, "i4")), b.tolist()),
    "readinto a part": lambda f: (b := bytearray(20), f.readinto(memoryview(b)[5:9]), b),
    "readinto what cannot be changed": lambda f: f.readinto(b"abc"),
    "readinto nothing": lambda f: f.readinto(bytearray()),
    "readline": lambda f: (f.seek(4), f.readline()),
    "write": lambda f: f.write(b"x"),
    "truncate": lambda f: f.truncate(5),
    "flush": lambda f: f.flush(),
    "after closing": lambda f: [f.close(), f.close(), f.closed],
    "read after closing": lambda f: (f.close(), f.read(1)),
    "readinto after closing": lambda f: (f.close(), f.readinto(bytearray(1))),
    "seek after closing": lambda f: (f.close(), f.seek(0)),
    "tell after closing": lambda f: (f.close(), f.tell()),
    "readable after closing": lambda f: (f.close(), f.readable()),
    "with after closing": lambda f: (f.close(), f.__enter__()),
}


def _try(operation: Callable[[], Any]) -> Any:
    try:
        return operation()
    except (ValueError, OSError, TypeError) as error:
        # io.UnsupportedOperation is both of the first two.
        return "refused" if isinstance(error, ValueError | OSError) else "TypeError"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_it_does_what_a_raw_file_does(operation: str, document: str, source: Path) -> None:
    with source.open("rb", buffering=0) as expected, lb.hdf5_file(document) as found:
        assert _try(lambda: OPERATIONS[operation](found)) == _try(lambda: OPERATIONS[operation](expected))


def test_a_buffered_reader_over_it(file: Any, source: Path) -> None:
    data = source.read_bytes()
    buffered = io.BufferedReader(file, 1000)
    assert buffered.peek(4)[:4] == data[:4]
    buffered.seek(len(data) // 2)
    assert buffered.read(5000) == data[len(data) // 2 :][:5000]
    buffered.seek(-5, 2)
    assert buffered.read(100) == data[-5:]
    buffered.seek(0)
    assert b"".join(iter(lambda: buffered.read1(777), b"")) == data


def test_its_repr_names_the_document_and_no_secret(source: Path, server: RangeServer, tmp_path: Path) -> None:
    document = tmp_path / "b.lindi.json"
    document.write_text(lb.index(str(source)).to_json(server.url("a.h5")))
    url = server.add("b.lindi.json", document)
    with lb.hdf5_file(f"{url}?sig=s3cr3t") as opened:
        assert url in repr(opened)
        assert "s3cr3t" not in repr(opened)


def test_two_files_at_one_time(document: str, source: Path) -> None:
    with h5py.File(lb.hdf5_file(document)) as one, h5py.File(lb.hdf5_file(document)) as two, h5py.File(source) as local:
        assert one != two
        assert compare_files(local, one) == compare_files(local, two) == []
        one.close()
        assert two["chunked"][59_999] == 59_999


def test_one_file_object_opened_twice(document: str, source: Path) -> None:
    opened = lb.hdf5_file(document)
    with h5py.File(source) as local:
        one, two = h5py.File(opened), lb.File(opened)
        assert compare_files(local, one) == compare_files(local, two) == []
        two.close()
        assert one["chunked"][::7].tolist() == local["chunked"][::7].tolist(), "two did not own the file object"
        one.close()
        assert not opened.closed
        with h5py.File(opened) as again:
            assert compare_files(local, again) == []
    opened.close()


# -- lb.File -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["r+", "a", "w", "w-", "x"])
def test_other_modes_are_refused_as_read_only(mode: str, document: str) -> None:
    with pytest.raises(lb.ReadOnlyError, match="read-only"):
        lb.File(document, mode)
    with pytest.raises(OSError, match="read-only"):
        lb.open(document, mode=mode)


def test_an_unknown_mode_is_a_value_error_as_in_h5py(document: str) -> None:
    with pytest.raises(ValueError, match="mode"):
        lb.File(document, "nonsense")


def test_the_default_mode_is_r(document: str) -> None:
    with lb.File(document) as file:
        assert file.mode == "r"


def test_the_signature_takes_all_of_h5pys_arguments(document: str) -> None:
    """By name and by position, each with h5py's default."""
    parameters = list(inspect.signature(h5py.File.__init__).parameters.values())[3:]
    defaults = {p.name: p.default for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
    with lb.File(document, "r", **defaults) as file:
        assert file["chunked"][5] == 5
    with lb.File(document, "r", *defaults.values()) as file:
        assert file["chunked"][5] == 5


def test_chunk_cache_options_reach_libhdf5(document: str) -> None:
    with lb.File(document, rdcc_nbytes=12_345_678, rdcc_nslots=1009, rdcc_w0=0.25) as file:
        assert file.id.get_access_plist().get_cache()[1:] == (1009, 12_345_678, 0.25)


def test_an_unknown_option_is_named(document: str) -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        lb.File(document, no_such_option=1)


def test_context_manager_and_bool(document: str) -> None:
    with lb.open(document) as file:
        group, dataset = file["group"], file["chunked"]
        assert file
        assert group
        assert dataset
    assert not file
    assert not group
    assert not dataset
    file.close()
    assert "Closed" in repr(file)
    assert "closed" in file._repr_html_()


AFTER_CLOSE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "getitem": lambda f, g, d: f["chunked"],
    "dataset": lambda f, g, d: d[0],
    "dataset, list": lambda f, g, d: d[[1, 2]],
    "shape": lambda f, g, d: d.shape,
    "asarray": lambda f, g, d: np.asarray(d),
    "read_direct": lambda f, g, d: d.read_direct(np.zeros(60_000, "i8")),
    "iteration": lambda f, g, d: list(d),
    "astype": lambda f, g, d: d.astype("f4")[:],
    "attrs": lambda f, g, d: dict(g.attrs),
    "file attrs": lambda f, g, d: dict(f.attrs),
    "keys": lambda f, g, d: list(f.keys()),
    "items": lambda f, g, d: list(f.items()),
    "values": lambda f, g, d: list(g.values()),
    "len": lambda f, g, d: len(f),
    "in": lambda f, g, d: "chunked" in f,
    "get": lambda f, g, d: f.get("chunked"),
    "visititems": lambda f, g, d: f.visititems(print),
    "file": lambda f, g, d: d.file,
    "parent": lambda f, g, d: d.parent,
    "name": lambda f, g, d: d.name,
    "filename": lambda f, g, d: f.filename,
    "dims": lambda f, g, d: d.dims[0],
}


@pytest.mark.parametrize("use", AFTER_CLOSE)
def test_use_after_closing_raises_what_h5py_raises(use: str, document: str, source: Path) -> None:
    answers = []
    for file in (h5py.File(source), lb.open(document)):
        group, dataset = file["group"], file["chunked"]
        dataset[0]
        file.close()
        try:
            answers.append(repr(AFTER_CLOSE[use](file, group, dataset)))
        except Exception as error:  # noqa: BLE001 (whatever it is, both must raise it)
            answers.append(next(cls for cls in type(error).__mro__ if cls.__module__ == "builtins").__name__)
    assert answers[0] == answers[1]


def test_closing_one_of_two_leaves_the_other(document: str) -> None:
    one, two = lb.open(document), lb.open(document)
    one.close()
    assert two["rows"][5, 5] == 105
    two.close()


def test_objects_keep_the_file_open_as_in_h5py(document: str, source: Path) -> None:
    def dataset(file: Any) -> Any:
        return file["chunked"]

    assert dataset(lb.open(document))[59_999] == dataset(h5py.File(source))[59_999] == 59_999
