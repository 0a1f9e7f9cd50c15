"""The programming interface: what h5py answers to an expression, lindi_bridge answers, with its own classes."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable
from typing import Any

import h5py
import numpy as np
import pytest
from builders.compare import Raised, attempt, compare_files
from builders.documents import write_document
from builders.exact import builtin_error, value_difference
from h5py._hl.base import _RegionProxy
from h5py._hl.dims import DimensionManager, DimensionProxy

import lindi_bridge as lb

PROBES = (
    *("f['nope']", "f['nope/x']", "f['/d'].shape", "f['d/x']", "f.get('nope',5)", "'d' in f", "'/d' in f", "f['g/']"),
    *("f['/'].name", "f['d'].parent", "len(f['d'])", "len(f)", "np.array(f['d'])[:2]", "np.asarray(f['d'])[:2]"),
    *("f['d'].fillvalue", "f['d'].maxshape", "f['d'].chunks", "f['g'].compression", "f['g'].shuffle"),
    *("f['d'].is_virtual", "f['d'].dims[0].label", "f['d'].asstr()", "f['d'].astype('f4')[:2]", "f['d'].fields('x')"),
    *("list(f['g'].iter_chunks())[:1]", "f['d'].read_direct(np.empty(50000,'i8'))"),
    *("f.visititems(lambda n,o: print('v',n))", "f.visit(print)", "f['d'].id.get_offset()", "f.filename", "f.driver"),
    *("f.libver", "f.attrs.get('x')", "f['d'].attrs['nope']", "f['d'][[1,5,7]]"),
    *("f['d'][np.array([True]+[False]*49999)]", "f['d'][5]", "f['d'][-1]", "f['d'][..., 0:2]", "f['d'][0:10:3]"),
    *("f['d'][10:0]", "f['d'][60000]", "f['d'].len()", "f['d'].nbytes", "f['d'].ref", "f['d'].name", "bool(f)"),
    *("(f.close(), bool(f))[1]", "f['d'][0]", "hash(f['d']) is not None", "f['d']==f['d']"),
    *("isinstance(f['d'], h5py.Dataset)", "h5py.h5o.get_info(f['d'].id)", "f['d'].file['g'].shape"),
    *("list(f.values())", "f.items()", "reversed(f)", "f['d'].make_scale('x')", "f['d'].size", "h5py.is_hdf5(path)"),
)
MORE_PROBES = (
    *("(f.close(), f['d'])", "(f.close(), f.keys())[1]", "(d := f['d'], f.close(), d[0])", "(f.close(), f.close())"),
    *("(d := f['d'], f.close(), bool(d), repr(d))[2:]", "f.mode", "f.userblock_size", "f.swmr_mode", "f == f['/']"),
    *("f['d'] in {f['d']: 1}", "f['d'] == f['g']", "f != f['d']", "f['d'][()].sum()", "f['d'][0, 0]", "f['d']['x']"),
    *("f['d'][[7, 5]]", "f['d'][[True, False]]", "f['d'][::-1]", "f['d'][None]", "f['d'][1.5]", "f['']", "f['.']"),
    *("f[b'd'].name", "f[0]", "f[None]", "f['./d'].name", "f['..']", "f['d'].attrs", "list(f['d'].attrs)", "f.id"),
    *("f['d'].id", "f['d'].dims", "f['d'].dims[0]", "f['d'].dims[3]", "f.get('d', getclass=True)", "f.keys()"),
    *("f.get('d', getlink=True)", "f.get('nope', getlink=True)", "f.values()", "f.require_group('d')", "f['d'].T"),
    *("f.require_dataset('d', (50000,), 'i8').name", "f.require_dataset('d', (3,), 'i8')", "len(f.attrs)"),
    *("f.create_group('h')", "np.max(f['d'])", "f['d'] + 1", "list(zip(f, f.values()))", "f.ref", "f[f['d'].ref]"),
    *("f[f['d'].regionref[3:5]]", "f['d'][f['d'].regionref[3:5]]", "f['d'].regionref.shape(f['d'].regionref[3:5])"),
    *("f['d'].asstr('ascii')", "f['d'].astype('nope')", "f['d'].read_direct(np.empty(3,'i8'))", "sorted(f)", "dir(f)"),
    *("f['d'].read_direct(np.empty(3,'i8'), np.s_[0:3])", "iter(f['d']).__next__()", "f['g'].iter_chunks(np.s_[5:7])"),
    *("f['d'].iter_chunks()", "f['d'].flush()", "f['d'].refresh()", "f.flush()", "f['d'].id.get_storage_size()"),
)
DEPEND_ON_THE_ADDRESS = {"f.filename", "f.driver", "dir(f)"}
"""Probes whose answers must differ; they have tests of their own below."""


@pytest.fixture(scope="module")
def plain_files(tmp_path_factory):
    """The file of the probes, and its document."""
    path = tmp_path_factory.mktemp("probes") / "a.h5"
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(50_000) + 1
        file.create_dataset("g", data=np.arange(50_000) + 1, chunks=(10_000,), compression="gzip")
    return path, write_document(path)


def _answer(expression: str, file: h5py.File, path: str) -> tuple[str, str]:
    """What an expression gives: its representation or its exception's builtin class, and what it printed."""
    printed = io.StringIO()
    names = {"f": file, "np": np, "h5py": h5py, "path": path}
    with contextlib.redirect_stdout(printed):
        try:
            answer = repr(eval(expression, names))
        except Exception as error:  # noqa: BLE001 (its class is the answer)
            answer = f"raises {builtin_error(error).__name__}"
    answer = re.sub(r"<HDF5 file \S+", "<HDF5 file", answer)
    return re.sub(r"0x[0-9a-f]+|\b\d{15,}\b", "*", answer), printed.getvalue()


def test_there_are_60_probes():
    assert len(PROBES) == len(set(PROBES)) == 60


@pytest.mark.parametrize("expression", sorted({*PROBES, *MORE_PROBES} - DEPEND_ON_THE_ADDRESS))
def test_an_expression_gives_what_h5py_gives(expression, plain_files):
    source, document = plain_files
    with h5py.File(source) as expected, lb.open(str(document)) as actual:
        assert _answer(expression, actual, str(source)) == _answer(expression, expected, str(source))


def test_filename_is_the_documents_address(plain_files):
    source, document = plain_files
    with lb.open(str(document)) as file:
        assert isinstance(file.filename, str)
        assert file.filename == str(document)
        assert file["d"].file.filename == file.filename
        assert file.filename in repr(file) or document.name in repr(file)
        assert str(source) != file.filename
    with h5py.File(lb.hdf5_file(str(document))) as file:
        assert isinstance(file.filename, str)
        assert file.filename != str(source)


def test_nothing_is_missing_from_the_interface(plain_files):
    source, document = plain_files
    with h5py.File(source) as expected, lb.open(str(document)) as actual:
        assert actual.driver == "fileobj"
        for name in ("/", "d"):
            assert set(dir(expected[name])) <= set(dir(actual[name]))
        assert set(dir(expected)) <= set(dir(actual))


# ---------------------------------------------------------------------- which methods return objects


@pytest.fixture(scope="module")
def linked_files(tmp_path_factory):
    """A file whose objects can be reached in every way there is, and its document."""
    path = tmp_path_factory.mktemp("linked") / "linked.h5"
    with h5py.File(path, "w") as file:
        file["g/d"] = np.arange(4.0)
        file["g/sub/e"] = np.arange(4.0)
        file["g/x"] = np.arange(4.0)
        file["g/x"].make_scale("steps")
        file["g/d"].dims[0].attach_scale(file["g/x"])
        file["g/soft"] = h5py.SoftLink("/g/d")
        file["g/hard"] = file["g/sub"]
        file["g/t"] = np.dtype("f8")
        file["g/t"].attrs["of"] = file["g"].ref
        group = file["g"]
        group.attrs["of"] = group["d"].ref
        group.attrs["region"] = group["d"].regionref[1:3]
        group["refs"] = np.array([group["d"].ref, group.ref, group["t"].ref], dtype=h5py.ref_dtype)
        rows = group.create_dataset("rows", (2,), dtype=np.dtype([("i", "i4"), ("r", h5py.ref_dtype)]))
        for i in range(2):
            rows[i] = (i, group["x"].ref)
        group.create_dataset("s", data=["a", "b", "c"], dtype=h5py.string_dtype())
        group.create_dataset("typed", data=np.arange(3.0), dtype=group["t"])
        group.create_dataset("z", data=np.arange(40).reshape(10, 4), chunks=(2, 3), compression="gzip")
        for i, name in enumerate(("a", "b")):
            group["z"].attrs[name] = i
    return path, write_document(path)


def _visited(group: h5py.Group) -> list[Any]:
    found: list[Any] = []
    group.visititems(lambda _, thing: found.append(thing))
    return found


def _returned_from_visit(group: h5py.Group) -> Any:
    return group.visititems(lambda _, thing: thing)


def _file_of(thing: Any) -> list[Any]:
    return [thing.file]


def _parent_of(thing: Any) -> list[Any]:
    return [thing.parent, thing.parent.parent]


def _entered(file: h5py.File) -> list[Any]:
    entered = file.__enter__()
    return [entered, entered["g"]]


def _keyword_arguments_of_require_dataset(group: h5py.Group) -> list[Any]:
    return [group.require_dataset("d", (4,), "f8"), group.require_dataset("d", shape=4, dtype="f4", exact=False)]


Route = Callable[[Any], Iterable[Any]]

GROUP_ROUTES: dict[str, Route] = {
    "__getitem__": lambda g: [g["d"], g["sub/e"], g["soft"], g["hard"], g["t"], g["/"], g["/g"], g["."], g[b"d"]],
    "__getitem__ by reference": lambda g: [g[g.attrs["of"]], g[g.attrs["region"]], *(g[r] for r in g["refs"][()])],
    "__getitem__ by a field": lambda g: [g[g["rows"][0]["r"]], g[g["rows"]["r"][1]], g[g["t"].attrs["of"]]],
    "get": lambda g: [g.get("d"), g.get("sub"), g.get("soft"), g.get("t"), g.get("/g/sub/e"), g.get("no", g["d"])],
    "values": lambda g: [*g.values(), *list(iter(g.values())), *reversed(g.values())],
    "items": lambda g: [thing for _, thing in [*g.items(), *reversed(g.items())]],
    "visititems": _visited,
    "visititems, its result": lambda g: [_returned_from_visit(g)],
    "require_group": lambda g: [g.require_group("sub"), g.require_group("/g/sub"), g.require_group("hard")],
    "require_dataset": _keyword_arguments_of_require_dataset,
    "setdefault": lambda g: [g.setdefault("d"), g.setdefault("sub")],
    "file": _file_of,
    "parent": _parent_of,
}
DATASET_ROUTES: dict[str, Route] = {
    "file": _file_of,
    "parent": _parent_of,
    "dims": lambda d: [
        *(d.dims[0][0], d.dims[0]["steps"]),
        *d.dims[0].values(),
        *(thing for _, thing in d.dims[0].items()),
    ],
}
DATATYPE_ROUTES: dict[str, Route] = {"file": _file_of, "parent": _parent_of}
FILE_ROUTES: dict[str, Route] = {"__enter__": _entered}


def _names(text: str) -> set[str]:
    return set(text.split())


NO_OBJECTS: dict[type, set[str]] = {
    h5py.Group: _names(
        "attrs id keys name ref regionref visit visit_links visititems_links "
        "__bool__ __contains__ __iter__ __len__ __nonzero__ __reversed__"
    ),
    h5py.File: _names(
        "close driver filename flush in_memory libver meta_block_size mode swmr_mode userblock_size "
        "track_times __exit__"
    ),
    h5py.Dataset: _names(
        "asstr astype attrs chunks compression compression_opts dtype external fields fillvalue "
        "filter_ids filter_names fletcher32 flush id is_scale is_virtual iter_chunks len maxshape name "
        "nbytes ndim read_direct ref refresh regionref scaleoffset shape shuffle size virtual_sources "
        "__array__ __bool__ __getitem__ __iter__ __len__ __nonzero__"
    ),
    h5py.Datatype: _names("attrs dtype id name ref regionref __bool__ __nonzero__"),
    h5py.AttributeManager: _names(
        "get get_id items keys values __contains__ __getitem__ __iter__ __len__ __reversed__"
    ),
    DimensionProxy: _names("keys label __contains__ __iter__ __len__ __hash__"),
    DimensionManager: _names("__iter__ __len__"),
    _RegionProxy: _names("selection shape __getitem__"),
}
"""What gives names, numbers, views and low-level identifiers, but never a group, dataset, datatype or file."""

THROUGH_DATASETS: dict[type, set[str]] = {
    DimensionProxy: {"items", "values", "__getitem__"},
    DimensionManager: {"__getitem__"},
}
"""What gives objects and is walked by the route ``dims``."""

WRITES: dict[type, set[str]] = {
    h5py.Group: _names(
        "build_virtual_dataset clear copy create_dataset create_dataset_like create_group create_virtual_dataset "
        "move pop popitem update __delitem__ __setitem__"
    ),
    h5py.File: set(),
    h5py.Dataset: _names("make_scale resize write_direct __setitem__"),
    h5py.Datatype: set(),
    h5py.AttributeManager: _names("clear create modify pop popitem setdefault update __delitem__ __setitem__"),
    DimensionProxy: {"attach_scale", "detach_scale"},
    DimensionManager: {"create_scale"},
    _RegionProxy: set(),
}

_MACHINERY = _names(
    "__abstractmethods__ __annotations__ __class_getitem__ __dict__ __firstlineno__ __getnewargs__ __module__ "
    "__orig_bases__ __parameters__ __slots__ __static_attributes__ __weakref__"
)

ROUTES: dict[type, dict[str, Route]] = {
    h5py.Group: GROUP_ROUTES,
    h5py.File: FILE_ROUTES,
    h5py.Dataset: DATASET_ROUTES,
    h5py.Datatype: DATATYPE_ROUTES,
}


def _public(cls: type) -> set[str]:
    """Public attributes and special methods that a class has beyond `object`."""
    special = {name for name in dir(cls) if re.fullmatch(r"__\w+__", name)} - set(dir(object)) - _MACHINERY
    return special | {name for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize("cls", NO_OBJECTS)
def test_every_public_method_of_h5py_is_classified(cls):
    known = NO_OBJECTS[cls] | WRITES[cls] | THROUGH_DATASETS.get(cls, set()) | set(ROUTES.get(cls, {}))
    if cls is h5py.File:
        known |= NO_OBJECTS[h5py.Group] | WRITES[h5py.Group] | set(GROUP_ROUTES)
    assert _public(cls) - known == set(), "new in this h5py: does it return objects? then it needs a route"


def _assert_ours(thing: Any) -> None:
    """The object is of a class of lindi_bridge, and so are its file and its parent."""
    kinds = {h5py.File: lb.File, h5py.Group: lb.Group, h5py.Dataset: lb.Dataset}
    plain = next((cls for cls in kinds if isinstance(thing, cls)), None)
    if plain is None:
        assert isinstance(thing, h5py.Datatype), thing
    else:
        assert isinstance(thing, kinds[plain]), f"{type(thing)} for {thing}"
    assert isinstance(thing.file, lb.File)
    assert isinstance(thing.parent, lb.Group)


_CASES = [
    *((f"group, {name}", "/g", route) for name, route in GROUP_ROUTES.items()),
    *((f"dataset, {name}", "/g/d", route) for name, route in DATASET_ROUTES.items()),
    *((f"datatype, {name}", "/g/t", route) for name, route in DATATYPE_ROUTES.items()),
    *((f"file, {name}", "", route) for name, route in FILE_ROUTES.items()),
]


@pytest.mark.parametrize(("start", "route"), [case[1:] for case in _CASES], ids=[case[0] for case in _CASES])
def test_objects_are_of_our_classes(start, route, linked_files):
    with h5py.File(linked_files[0]) as expected, lb.open(str(linked_files[1])) as actual:
        wanted = list(route(expected[start] if start else expected))
        found = list(route(actual[start] if start else actual))
        assert len(found) == len(wanted) > 0
        for plain, thing in zip(wanted, found, strict=True):
            assert thing.name == plain.name
            _assert_ours(thing)


def test_the_file_itself_gives_our_classes(linked_files):
    with lb.open(str(linked_files[1])) as file:
        things = [file["g"], file["/"], file.get("g"), *file.values(), *dict(file.items()).values(), *_visited(file)]
        things += [file.require_group("g"), file.setdefault("g"), file.file, file.parent, file[file["g"].ref]]
        for thing in things:
            _assert_ours(thing)


def test_callbacks_of_visit_may_read(linked_files):
    """h5py's lock must not be held while our visit calls back (a read there could wait for ever)."""
    found: dict[str, Any] = {}

    def read(name: str, thing: Any) -> None:
        if isinstance(thing, h5py.Dataset):
            found[name] = thing[()]
            assert not h5py._objects.phil._is_owned()

    with lb.open(str(linked_files[1])) as file:
        file.visititems(read)
    assert np.array_equal(found["g/d"], np.arange(4.0))


VISITS: dict[str, Callable[[h5py.File], Any]] = {
    "visit": lambda file: file.visit(lambda name: name if name.endswith("d") else None),
    "visit, to the end": lambda file: file.visit(lambda name: None),
    "visititems": lambda file: file.visititems(lambda name, thing: thing.name if name.endswith("/s") else None),
    "visit_links": lambda file: file.visit_links(lambda name: name if name.endswith("soft") else None),
    "visititems_links": lambda file: file.visititems_links(lambda name, link: getattr(link, "path", None)),
    "visit, zero stops": lambda file: file.visit(lambda name: 0),
    "visit, an error": lambda file: file.visit(lambda name: 1 / 0),
}


@pytest.mark.parametrize("way", VISITS)
def test_visits_end_as_in_h5py(way, linked_files):
    with h5py.File(linked_files[0]) as expected, lb.open(str(linked_files[1])) as actual:
        wanted, found = attempt(VISITS[way], expected), attempt(VISITS[way], actual)
        assert repr(wanted) == repr(found)


# ---------------------------------------------------------------------- reading, in every way


def _read_direct(dataset: h5py.Dataset) -> np.ndarray:
    array = np.zeros(dataset.shape, dataset.dtype)
    dataset.read_direct(array)
    return array


def _read_part_directly(dataset: h5py.Dataset) -> np.ndarray:
    array = np.zeros(dataset.shape, dataset.dtype)
    dataset.read_direct(array, np.s_[3:7, 1:3], np.s_[0:4, 2:4])
    return array


READS: dict[str, Callable[[h5py.Group], Any]] = {
    "[()]": lambda g: g["z"][()],
    "[...]": lambda g: g["z"][...],
    "[slice, slice]": lambda g: g["z"][3:8, 1:3],
    "[stride]": lambda g: g["z"][1::3],
    "[element]": lambda g: g["z"][7, 2],
    "[list]": lambda g: g["z"][[0, 3, 9]],
    "[column list]": lambda g: g["z"][:, [0, 3]],
    "[mask]": lambda g: g["z"][np.arange(10) % 2 == 0],
    "[whole mask]": lambda g: g["z"][g["z"][()] > 17],
    "[MultiBlockSlice]": lambda g: g["z"][h5py.MultiBlockSlice(start=0, count=2, stride=4, block=2)],
    "[region]": lambda g: g["d"][g.attrs["region"]],
    "[nothing]": lambda g: g["z"][4:4],
    "iteration": lambda g: list(g["z"]),
    "asarray": lambda g: np.asarray(g["z"]),
    "array with dtype": lambda g: np.array(g["z"], dtype="f4"),
    "__array__": lambda g: g["z"].__array__(),
    "__array__ with dtype": lambda g: g["z"].__array__(np.dtype("f4")),
    "numpy function": lambda g: np.sum(g["z"], axis=0),
    "read_direct": lambda g: _read_direct(g["z"]),
    "read_direct, selections": lambda g: _read_part_directly(g["z"]),
    "astype": lambda g: g["z"].astype("f4")[2:5],
    "asarray of astype": lambda g: np.asarray(g["z"].astype("f4")),
    "astype, length": lambda g: len(g["z"].astype("f4")),
    "asstr": lambda g: g["s"].asstr()[1:],
    "asstr, element": lambda g: g["s"].asstr()[0],
    "asarray of asstr": lambda g: np.asarray(g["s"].asstr()),
    "bytes": lambda g: g["s"][()],
    "fields, one": lambda g: g["rows"].fields("i")[()],
    "fields, some": lambda g: g["rows"].fields(["i"])[1:],
    "asarray of fields": lambda g: np.asarray(g["rows"].fields("i")),
    "field": lambda g: g["rows"]["i"],
    "iter_chunks": lambda g: [g["z"][part] for part in g["z"].iter_chunks()],
    "iter_chunks, part": lambda g: list(g["z"].iter_chunks(np.s_[1:5, 0:2])),
    "low level": lambda g: g["z"].id.read_direct_chunk((0, 0)),
    "committed type": lambda g: g["typed"][1:],
    "attributes": lambda g: [list(g["z"].attrs.items()), list(g["z"].attrs.values()), dict(g["z"].attrs)],
    "membership": lambda g: ["z" in g, "nope" in g, "sub/e" in g, "soft" in g, "sub/no" in g],
    "names": lambda g: [list(g), list(g.keys()), list(reversed(g)), len(g), list(reversed(g.keys()))],
    "view membership": lambda g: [g["d"] in g.values(), ("d", g["d"]) in g.items(), "d" in g.keys()],  # noqa: SIM118
}


@pytest.mark.parametrize("way", READS)
def test_reading_gives_equal_values(way, linked_files):
    with h5py.File(linked_files[0]) as expected, lb.open(str(linked_files[1])) as actual:
        value = READS[way](expected["g"])
        assert value_difference(value, READS[way](actual["g"]), expected, actual) is None


# ---------------------------------------------------------------------- writing


def _set(thing: Any, name: str, value: Any) -> None:
    setattr(thing, name, value)


_layout = h5py.VirtualLayout((2,), "i4")

WRITE_ATTEMPTS: dict[str, Callable[[h5py.File], Any]] = {
    "create_group": lambda f: f.create_group("new"),
    "create_group, existing": lambda f: f.create_group("g"),
    "require_group": lambda f: f.require_group("new"),
    "create_dataset": lambda f: f.create_dataset("new", data=[1]),
    "create_dataset, anonymous": lambda f: f.create_dataset(None, data=[1]),
    "create_dataset, chunked": lambda f: f.create_dataset("new", (4,), chunks=(2,), compression="gzip"),
    "create_dataset_like": lambda f: f.create_dataset_like("new", f["g/d"]),
    "create_virtual_dataset": lambda f: f.create_virtual_dataset("new", _layout),
    "require_dataset": lambda f: f.require_dataset("new", (2,), "i4"),
    "setdefault": lambda f: f.setdefault("new", 1),
    "assign": lambda f: f.__setitem__("new", 1),
    "assign, existing": lambda f: f.__setitem__("g", 1),
    "soft link": lambda f: f.__setitem__("new", h5py.SoftLink("/g")),
    "external link": lambda f: f.__setitem__("new", h5py.ExternalLink("a.h5", "/g")),
    "hard link": lambda f: f.__setitem__("new", f["g/d"]),
    "delete": lambda f: f.__delitem__("g"),
    "delete, missing": lambda f: f.__delitem__("nope"),
    "pop": lambda f: f.pop("g"),
    "popitem": lambda f: f.popitem(),
    "clear": lambda f: f.clear(),
    "update": lambda f: f.update({"new": 1}),
    "move": lambda f: f.move("g", "h"),
    "in a group": lambda f: f["g"].create_group("new"),
    "value": lambda f: f["g/d"].__setitem__(0, 1),
    "field": lambda f: f["g/rows"].__setitem__("i", 1),
    "write_direct": lambda f: f["g/d"].write_direct(np.zeros(4)),
    "resize": lambda f: f["g/z"].resize((3, 4)),
    "shape": lambda f: _set(f["g/z"], "shape", (3, 4)),
    "attribute": lambda f: f["g"].attrs.__setitem__("new", 1),
    "attribute, existing": lambda f: f["g/z"].attrs.__setitem__("a", 1),
    "attrs.create": lambda f: f.attrs.create("new", 1),
    "attrs.modify": lambda f: f["g/z"].attrs.modify("a", 5),
    "attrs.update": lambda f: f["g/z"].attrs.update(a=5),
    "attrs.setdefault": lambda f: f["g/z"].attrs.setdefault("new", 5),
    "delete an attribute": lambda f: f["g/z"].attrs.__delitem__("a"),
    "attrs.pop": lambda f: f["g/z"].attrs.pop("a"),
    "attrs.popitem": lambda f: f["g/z"].attrs.popitem(),
    "attrs.clear": lambda f: f["g/z"].attrs.clear(),
    "make_scale": lambda f: f["g/d"].make_scale("new"),
    "attach_scale": lambda f: f["g/d"].dims[0].attach_scale(f["g/x"]),
    "detach_scale": lambda f: f["g/d"].dims[0].detach_scale(f["g/x"]),
    "create_scale": lambda f: f["g/d"].dims.create_scale(f["g/sub/e"], "new"),
    "dimension label": lambda f: _set(f["g/d"].dims[0], "label", "new"),
    "single writer": lambda f: _set(f, "swmr_mode", True),
}


@pytest.mark.parametrize("way", WRITE_ATTEMPTS)
def test_writing_is_refused_as_h5py_refuses_it(way, linked_files):
    attempt_it = WRITE_ATTEMPTS[way]
    with h5py.File(linked_files[0], "r") as expected, lb.open(str(linked_files[1])) as actual:
        refusal, ours = attempt(attempt_it, expected), attempt(attempt_it, actual)
        if not isinstance(refusal, Raised):
            assert not isinstance(ours, Raised)
            return
        assert isinstance(ours, Raised)
        assert isinstance(ours.error, builtin_error(refusal.error)), (refusal, ours)
        assert list(actual) == list(expected)


def test_copying_within_the_file_is_refused(linked_files):
    """h5py does not notice before the file is closed, and then breaks."""
    with lb.open(str(linked_files[1])) as file:
        with pytest.raises((ValueError, OSError)):
            file.copy("g/d", "h")
        with pytest.raises((ValueError, OSError)):
            file["g"].copy(file["g/d"], "h")
        assert list(file) == ["g"]


def test_copying_into_another_file(linked_files, tmp_path):
    copies = []
    for name, opened in (("expected", h5py.File(linked_files[0])), ("actual", lb.open(str(linked_files[1])))):
        with opened as source, h5py.File(tmp_path / f"{name}.h5", "w") as target:
            source.copy("g/s", target)
            source.copy(source["g/z"], target.create_group("g"), "again")
            source["g"].copy("sub", target["g"], "shallow", shallow=True)
        copies.append(tmp_path / f"{name}.h5")
    with h5py.File(copies[0]) as expected, h5py.File(copies[1]) as actual:
        assert compare_files(expected, actual, storage=False) == []


@pytest.mark.parametrize("mode", ["w", "w-", "x", "r+", "a"])
def test_modes_other_than_reading_are_refused(mode, linked_files):
    before = linked_files[1].read_bytes()
    with pytest.raises((ValueError, OSError), match="read-only"):
        lb.File(str(linked_files[1]), mode)
    assert linked_files[1].read_bytes() == before


def test_the_class_opens_as_the_function_does(linked_files):
    with lb.File(str(linked_files[1])) as file, lb.File(str(linked_files[1]), "r", rdcc_nbytes=1 << 20) as again:
        assert type(file) is lb.File
        assert np.array_equal(file["g/z"][()], again["g/z"][()])


def test_h5netcdf_takes_our_objects_for_h5pys():
    for cls in (lb.File, lb.Group, lb.Dataset):
        assert cls.__module__.startswith("h5py.")
