"""Files that take data from other files: the companion's values, or a named error; never a value of another object.

The main file holds a decoy for everything that lies in a companion: an object of the same name with other values.
HDF5 itself, over a Python file object, reads the decoys without a word.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from builders.compare import Raised, attempt
from builders.documents import write_document
from builders.exact import value_difference

import lindi_bridge as lb

ROWS = 12
TABLE = np.dtype([("x", "i4"), ("y", "f8")])


def _table(start: int) -> np.ndarray:
    table = np.zeros(ROWS, TABLE)
    table["x"] = np.arange(start, start + ROWS)
    table["y"] = table["x"] / 4
    return table


def _fill(file: h5py.File, start: int) -> None:
    """The objects that companions hold; `start` tells whose values they are."""
    file["x"] = np.arange(start, start + ROWS)
    file["x"].attrs["whose"] = start
    file["group/sub/x"] = np.arange(start, start + ROWS) + 0.5
    file["group"].attrs["whose"] = start
    file["table"] = _table(start)
    file["names"] = np.array([f"name {i}" for i in range(start, start + ROWS)], dtype=h5py.string_dtype())
    file["pointer"] = file["group/sub/x"].ref


def _virtual(file: h5py.File, name: str, filename: str, source: str, dtype: Any) -> None:
    layout = h5py.VirtualLayout((ROWS,), dtype=dtype)
    layout[:] = h5py.VirtualSource(filename, source, (ROWS,), dtype=dtype)
    file.create_virtual_dataset(name, layout)


def _make_files(folder: Path) -> Path:
    """Main file, companion, and a third file that the companion leads on to."""
    with h5py.File(folder / "third.h5", "w") as file:
        _fill(file, 300)
    with h5py.File(folder / "other.h5", "w", libver="latest") as file:
        _fill(file, 200)
        file["group/onward"] = h5py.ExternalLink("third.h5", "/x")
        _virtual(file, "group/v", "third.h5", "x", "i8")
    with h5py.File(folder / "main.h5", "w", libver="latest") as file:
        _fill(file, 100)
        file["group/onward"] = file["x"]
        file["group/v"] = file["x"]
        file["link"] = h5py.ExternalLink("other.h5", "/x")
        file["door"] = h5py.ExternalLink("other.h5", "/group")
        file["soft"] = h5py.SoftLink("/link")
        file["softdoor"] = h5py.SoftLink("/door/sub")
        file["inside/link"] = h5py.ExternalLink("other.h5", "x")
        _virtual(file, "v", "other.h5", "x", "i8")
        _virtual(file, "vt", "other.h5", "table", TABLE)
        _virtual(file, "vdeep", "other.h5", "group/sub/x", "f8")
        _virtual(file, "itself", ".", "x", "i8")
    return folder / "main.h5"


def _read_direct(dataset: h5py.Dataset) -> np.ndarray:
    array = np.zeros(dataset.shape, dataset.dtype)
    dataset.read_direct(array)
    return array


def _visited(group: h5py.Group) -> list[str]:
    names: list[str] = []
    group.visititems(lambda name, _: names.append(name))
    return names


_mask = np.arange(ROWS) % 3 == 0

LINK_READS: dict[str, Callable[[h5py.File], Any]] = {
    "[]": lambda file: file["link"][()],
    "absolute path": lambda file: file["/link"][2:5],
    "get": lambda file: file.get("link")[()],
    "items": lambda file: dict(file["inside"].items())["link"][()],
    "values": lambda file: next(iter(file["inside"].values()))[()],
    "reversed values": lambda file: next(reversed(file["inside"].values()))[()],
    "reversed items": lambda file: next(reversed(file["inside"].items()))[1][()],
    "in a group": lambda file: file["inside"]["link"][()],
    "from a group, absolute": lambda file: file["inside"]["/link"][()],
    "path through a group": lambda file: file["inside/link"][()],
    "middle of a path": lambda file: file["door/sub/x"][()],
    "middle of a path, get": lambda file: file.get("door/sub/x")[()],
    "step by step": lambda file: file["door"]["sub"]["x"][()],
    "soft link": lambda file: file["soft"][()],
    "soft link, get": lambda file: file.get("soft")[()],
    "soft link in the middle": lambda file: file["softdoor/x"][()],
    "attributes": lambda file: [file["link"].attrs["whose"], file["door"].attrs["whose"]],
    "require_group": lambda file: file.require_group("door")["sub/x"][()],
    "require_dataset": lambda file: file.require_dataset("link", (ROWS,), "i8")[()],
    "setdefault": lambda file: file.setdefault("link")[()],
    "file of it": lambda file: file["link"].file["group/sub/x"][()],
    "parent of it": lambda file: file["door/sub/x"].parent.parent["sub/x"][()],
    "absolute path from it": lambda file: file["door"]["/x"][()],
    "visititems inside": lambda file: _visited(file["door"]),
    "keys inside": lambda file: list(file["door"]),
    "reference inside": lambda file: file["link"].file[file["link"].file["pointer"][()]].name,
    "name": lambda file: [file["link"].name, file["door/sub/x"].name],
    "a third file": lambda file: file["door/onward"][()],
    "a third file, step by step": lambda file: file["door"].get("onward")[()],
    "virtual in a companion": lambda file: file["door/v"][3:6],
}

VIRTUAL_READS: dict[str, Callable[[h5py.File], Any]] = {
    "()": lambda file: file["v"][()],
    "...": lambda file: file["v"][...],
    "slice": lambda file: file["v"][3:7],
    "stride": lambda file: file["v"][1::4],
    "element": lambda file: file["v"][-1],
    "list": lambda file: file["v"][[0, 5, 11]],
    "mask": lambda file: file["v"][_mask],
    "iteration": lambda file: list(file["v"]),
    "asarray": lambda file: np.asarray(file["v"]),
    "array with dtype": lambda file: np.array(file["v"], dtype="f4"),
    "__array__": lambda file: file["v"].__array__(),
    "sum": lambda file: np.sum(file["v"]),
    "read_direct": lambda file: _read_direct(file["v"]),
    "astype": lambda file: file["v"].astype("f4")[2:5],
    "asarray of astype": lambda file: np.asarray(file["v"].astype("f4")),
    "table": lambda file: file["vt"][()],
    "field": lambda file: file["vt"]["x"],
    "field, slice": lambda file: file["vt"]["y", 2:4],
    "fields, one": lambda file: file["vt"].fields("y")[1:5],
    "fields, two": lambda file: file["vt"].fields(["y", "x"])[()],
    "asarray of fields": lambda file: np.asarray(file["vt"].fields("x")),
    "deep source": lambda file: file["vdeep"][::5],
    "get": lambda file: file.get("v")[()],
    "values": lambda file: [item[0] for item in file.values() if getattr(item, "is_virtual", False)],
}

QUESTIONS: dict[str, Callable[[h5py.File], Any]] = {
    "in": lambda file: ["link" in file, "/link" in file, "door/sub/x" in file, "soft" in file, "softdoor/x" in file],
    "in, for what is not there": lambda file: ["door/nope" in file, "link/nope" in file, "nope/link" in file],
    "get with a default": lambda file: [file.get("door/nope", 5), file.get("nope", 6)],
    "getlink": lambda file: [file.get("link", getlink=True).filename, file.get("link", getlink=True).path],
    "link class": lambda file: file.get("link", getlink=True, getclass=True).__name__,
    "keys": lambda file: list(file),
    "visit": lambda file: _visited(file),
    "virtual_sources": lambda file: [source.file_name for source in file["v"].virtual_sources()],
    "shape and dtype": lambda file: [file["v"].shape, file["vt"].dtype.names, file["v"].is_virtual],
    "virtual over itself": lambda file: file["itself"][2:9],
    "what stays in the file": lambda file: [file["x"][()], file["group/sub/x"][()], file["group/onward"][()]],
    "class of the object": lambda file: [file.get(name, getclass=True).__name__ for name in ("link", "door", "v")],
    "what a link does not hold": lambda file: file["door/nope"],
}

VALUE_READS = {f"link, {name}": read for name, read in LINK_READS.items()}
VALUE_READS |= {f"virtual, {name}": read for name, read in VIRTUAL_READS.items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    main = _make_files(tmp_path_factory.mktemp("companions"))
    return main, write_document(main)


@pytest.fixture(scope="module")
def orphans(tmp_path_factory):
    """The same, its companions deleted after the document was written."""
    main = _make_files(tmp_path_factory.mktemp("orphans"))
    document = write_document(main)
    (main.parent / "other.h5").unlink()
    (main.parent / "third.h5").unlink()
    return main, document


@pytest.fixture(params=["document", "hdf5"])
def address(request, files):
    """What lb.open is given: the document, or the HDF5 file itself."""
    return str(files[request.param == "document"])


@pytest.fixture(params=["document", "hdf5"])
def orphan_address(request, orphans):
    return str(orphans[request.param == "document"])


def _same(expected: h5py.File, actual: h5py.File, question: Callable[[h5py.File], Any]) -> None:
    answers = attempt(question, expected), attempt(question, actual)
    errors = [getattr(answer, "error", None) for answer in answers]
    if errors[0] is None:
        assert errors[1] is None, answers[1]
        assert value_difference(*answers, expected, actual) is None
    else:
        assert isinstance(errors[1], type(errors[0])), answers


@pytest.mark.parametrize("way", VALUE_READS)
def test_values_are_the_companions(way, files, address):
    with h5py.File(files[0]) as expected, lb.open(address) as actual:
        value = VALUE_READS[way](expected)
        assert value_difference(value, VALUE_READS[way](actual), expected, actual) is None


@pytest.mark.parametrize("question", QUESTIONS)
def test_other_questions_are_answered_as_h5py_does(question, files, address):
    with h5py.File(files[0]) as expected, lb.open(address) as actual:
        _same(expected, actual, QUESTIONS[question])


@pytest.mark.parametrize("way", VALUE_READS)
def test_a_deleted_companion_is_a_named_error(way, orphans, orphan_address):
    with h5py.File(orphans[0]) as expected, lb.open(orphan_address) as actual:
        plain, answer = attempt(VALUE_READS[way], expected), attempt(VALUE_READS[way], actual)
    assert isinstance(answer, Raised), answer
    if isinstance(getattr(plain, "error", None), TypeError) and isinstance(answer.error, TypeError):
        return  # h5py's get() answers None to a link that dangles, and None has no values
    assert isinstance(answer.error, (lb.LeavesFileError, lb.SourceError)), answer
    message = str(answer.error)
    assert "other.h5" in message
    assert "\n" not in message


@pytest.mark.parametrize("path", ["link", "soft", "door/sub/x", "softdoor/x", "inside/link", "door"])
def test_a_deleted_companion_holds_nothing(path, orphans, orphan_address):
    """The link itself is there, says h5py; what would lie behind it is not."""
    with h5py.File(orphans[0]) as expected, lb.open(orphan_address) as actual:
        plain, answer = (attempt(lambda file: path in file, file) for file in (expected, actual))
    assert answer is plain or answer is False or isinstance(answer, Raised)


@pytest.mark.parametrize("question", ["keys", "visit", "getlink", "link class", "virtual_sources", "shape and dtype"])
def test_what_needs_no_companion_works_without(question, orphans, orphan_address):
    with h5py.File(orphans[0]) as expected, lb.open(orphan_address) as actual:
        _same(expected, actual, QUESTIONS[question])


def test_the_message_names_the_object(orphans):
    with lb.open(str(orphans[1])) as file:
        with pytest.raises(lb.LindiBridgeError, match=r"/inside/link"):
            file["inside"]["link"]
        with pytest.raises(lb.LindiBridgeError, match=r"/vdeep"):
            file["vdeep"][()]


def test_a_missing_companion_is_a_key_error_as_in_h5py(orphans):
    with h5py.File(orphans[0]) as expected, lb.open(str(orphans[1])) as actual:
        with pytest.raises(KeyError):
            expected["link"]
        with pytest.raises(KeyError):
            actual["link"]


def test_a_plain_file_object_is_refused(files):
    with pytest.raises(lb.LeavesFileError, match="allow_external"):
        lb.hdf5_file(str(files[1]))


def test_a_plain_file_object_on_request(files):
    with h5py.File(files[0]) as expected, h5py.File(lb.hdf5_file(str(files[1]), allow_external=True)) as actual:
        assert np.array_equal(expected["x"][()], actual["x"][()])
        assert np.array_equal(expected["itself"][()], actual["itself"][()])


def test_a_virtual_dataset_over_itself_needs_no_permission(tmp_path):
    with h5py.File(tmp_path / "main.h5", "w", libver="latest") as file:
        file["x"] = np.arange(ROWS)
        _virtual(file, "v", ".", "x", "i8")
    document = write_document(tmp_path / "main.h5")
    with h5py.File(lb.hdf5_file(str(document))) as file:
        assert np.array_equal(file["v"][()], np.arange(ROWS))


@pytest.mark.parametrize("kind", ["link", "virtual"])
def test_an_absolute_path_gives_the_companion_or_an_error(kind, tmp_path):
    _make_files(tmp_path)
    absolute = str(tmp_path / "other.h5")
    with h5py.File(tmp_path / "main.h5", "r+", libver="latest") as file:
        file["alink"] = h5py.ExternalLink(absolute, "/x")
        _virtual(file, "avirtual", absolute, "x", "i8")
    document = write_document(tmp_path / "main.h5")
    for allowed in (False, True):
        with lb.open(str(document), allow_external=allowed) as file:
            try:
                values = file[f"a{kind}"][()]
            except lb.LeavesFileError:
                continue
            assert values[0] == 200


PATTERN_QUESTIONS = (
    *("file['v'].shape", "len(file['v'])", "file['v'][()].tolist()", "file['v'][3:6].tolist()"),
    *("np.asarray(file['v']).tolist()", "file['v'].maxshape", "file['v'].size", "list(file['v'])"),
)
_LIMITS = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
_INDEX = f"""{_LIMITS}
import sys
import lindi_bridge as lb
lb.index(sys.argv[1]).save(sys.argv[2])
"""
_ASK = f"""{_LIMITS}
import sys, h5py, numpy as np
import lindi_bridge as lb
with lb.open(sys.argv[1]) as file:
    for question in sys.argv[2:]:
        try:
            print(eval(question), flush=True)
        except lb.LeavesFileError:
            print("LeavesFileError", flush=True)
"""


def _make_pattern(folder: Path, decoy: bool) -> Path:
    for i in range(2):
        with h5py.File(folder / f"part-{i}.h5", "w") as file:
            file.create_dataset("x", data=np.arange(4) + 10 * (i + 1), maxshape=(None,))
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    space = h5py.h5s.create_simple((8,), (h5py.h5s.UNLIMITED,))
    virtual = h5py.h5s.create_simple((8,), (h5py.h5s.UNLIMITED,))
    virtual.select_hyperslab((0,), (h5py.h5s.UNLIMITED,), (4,), (4,))
    properties.set_virtual(virtual, b"part-%b.h5", b"x", h5py.h5s.create_simple((4,)))
    with h5py.File(folder / "main.h5", "w", libver="latest") as file:
        h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_INT64, space, properties)
        file["y"] = np.arange(4)
        if decoy:
            file["x"] = np.arange(4)
    return folder / "main.h5"


def _in_a_process(*arguments: str) -> list[str]:
    """Lines that a Python program prints; one that runs for ever or takes all memory fails the test, and no more."""
    command = [sys.executable, "-c", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert run.returncode == 0, (run.stdout, run.stderr[-800:])
    return run.stdout.splitlines()


@pytest.mark.parametrize("decoy", [False, True], ids=["no decoy", "decoy"])
def test_a_virtual_dataset_with_a_file_name_pattern(decoy, tmp_path):
    """Over a file object, every part-0.h5, part-1.h5, ... is found, without end: even its shape must not be asked."""
    source = _make_pattern(tmp_path, decoy)
    document = f"{source}.lindi.json"
    _in_a_process(_INDEX, str(source), document)
    for address in (document, str(source)):
        with h5py.File(source) as file:
            assert file["v"][()].tolist() == [10, 11, 12, 13, 20, 21, 22, 23]
            wanted = [str(eval(question, {"file": file, "np": np})) for question in PATTERN_QUESTIONS]
        found = _in_a_process(_ASK, address, "file['y'][()].tolist()", "repr(file['v'])", *PATTERN_QUESTIONS)
        assert found[0] == "[0, 1, 2, 3]"
        assert found[1].startswith("<HDF5 dataset ")
        assert "(0,)" not in found[1]
        for question, value, answer in zip(PATTERN_QUESTIONS, wanted, found[2:], strict=True):
            assert answer in (value, "LeavesFileError"), question


def _make_raw(folder: Path, raw: Path, name: str | None = None) -> Path:
    """A file whose dataset `d` lies in the file `raw`, under its absolute path or the name given."""
    np.arange(ROWS, dtype="i4").tofile(raw)
    with h5py.File(folder / "main.h5", "w") as file:
        external = [(name or str(raw), 0, ROWS * 4)]
        file.create_dataset("d", (ROWS,), dtype="i4", external=external)
        file["x"] = np.arange(3)
    return folder / "main.h5"


RAW_READS: dict[str, Callable[[h5py.Dataset], Any]] = {
    "()": lambda dataset: dataset[()],
    "slice": lambda dataset: dataset[2:5],
    "list": lambda dataset: dataset[[1, 4]],
    "mask": lambda dataset: dataset[_mask],
    "asarray": np.asarray,
    "read_direct": _read_direct,
    "astype": lambda dataset: dataset.astype("f8")[()],
    "iteration": list,
}


@pytest.mark.parametrize("way", RAW_READS)
def test_raw_data_beside_the_source(way, tmp_path):
    source = _make_raw(tmp_path, tmp_path / "values.raw")
    document = write_document(source)
    with h5py.File(source) as expected, lb.open(str(document)) as actual:
        assert actual["d"].external == expected["d"].external
        _same(expected, actual, lambda file: RAW_READS[way](file["d"]))
    with pytest.raises(lb.LeavesFileError):
        lb.hdf5_file(str(document))


@pytest.mark.parametrize("way", RAW_READS)
def test_raw_data_in_another_folder_need_permission(way, tmp_path):
    (tmp_path / "here").mkdir()
    source = _make_raw(tmp_path / "here", tmp_path / "secret")
    document = write_document(source)
    with lb.open(str(document)) as file:
        assert file["x"][()].tolist() == [0, 1, 2]
        assert file["d"].shape == (ROWS,)
        with pytest.raises(lb.LeavesFileError, match="/d"):
            RAW_READS[way](file["d"])
    with h5py.File(source) as expected, lb.open(str(document), allow_external=True) as actual:
        _same(expected, actual, lambda file: RAW_READS[way](file["d"]))


@pytest.mark.parametrize("way", RAW_READS)
def test_raw_data_that_are_gone(way, tmp_path):
    document = write_document(_make_raw(tmp_path, tmp_path / "values.raw"))
    (tmp_path / "values.raw").unlink()
    for allowed in (False, True):
        with lb.open(str(document), allow_external=allowed) as file:
            with pytest.raises(lb.LindiBridgeError, match="/d") as caught:
                RAW_READS[way](file["d"])
            assert isinstance(caught.value, (lb.LeavesFileError, lb.SourceError))


@pytest.mark.parametrize("way", RAW_READS)
def test_raw_data_that_were_cut_short(way, tmp_path):
    """Unlike libhdf5, which reads what is missing as zeros."""
    document = write_document(_make_raw(tmp_path, tmp_path / "values.raw"))
    (tmp_path / "values.raw").write_bytes(b"short")
    with lb.open(str(document)) as file, pytest.raises(lb.LindiBridgeError):
        RAW_READS[way](file["d"])


def test_raw_data_are_never_taken_from_the_working_directory(tmp_path, monkeypatch):
    """A relative name counts from the source; the reader's own directory may hold a file of that name."""
    for folder in ("here", "elsewhere"):
        (tmp_path / folder).mkdir()
    np.full(ROWS, 99, "i4").tofile(tmp_path / "elsewhere" / "values.raw")
    monkeypatch.chdir(tmp_path / "here")
    source = _make_raw(tmp_path / "here", tmp_path / "here" / "values.raw", "values.raw")
    monkeypatch.chdir(tmp_path / "elsewhere")
    document = write_document(source)
    for allowed in (False, True):
        with lb.open(str(document), allow_external=allowed) as file:
            assert file["d"][()].tolist() == list(range(ROWS))


@pytest.mark.parametrize("kind", ["link", "virtual"])
def test_a_companion_in_another_folder_needs_permission(kind, tmp_path):
    (tmp_path / "here").mkdir()
    with h5py.File(tmp_path / "other.h5", "w") as file:
        _fill(file, 200)
    with h5py.File(tmp_path / "here" / "main.h5", "w", libver="latest") as file:
        _fill(file, 100)
        file["link"] = h5py.ExternalLink("../other.h5", "/x")
        _virtual(file, "virtual", "../other.h5", "x", "i8")
    document = write_document(tmp_path / "here" / "main.h5")
    with lb.open(str(document)) as file, pytest.raises(lb.LeavesFileError, match=f"/{kind}"):
        file[kind][()]
    with lb.open(str(document), allow_external=True) as file:
        assert file[kind][()].tolist() == list(range(200, 200 + ROWS))
