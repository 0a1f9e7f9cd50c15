"""Values that are copied out of the bytes in memory: h5py on the local file is the oracle, errors included."""

from __future__ import annotations

import math

import h5py
import numpy as np
import pytest
from builders.compare import Raised, attempt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lindi_bridge as lb
from lindi_bridge.client import unfiltered
from lindi_bridge.client.exact_selection import exact_selection
from lindi_bridge.client.plan import read_plan
from lindi_bridge.client.selection import AxisSelection
from lindi_bridge.client.unfiltered import UnfilteredValues, unfiltered_values
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.indexer import embed
from lindi_bridge.ranges import ByteRange

PADDED = np.dtype({"names": ["a", "b"], "formats": ["i2", "f8"], "offsets": [1, 4], "itemsize": 16})
PLAIN = ["i1", "<i2", ">i4", "u8", "<f2", ">f8", "f4", "c8", ">c16", "?", "S5", "V3", "g"]
TYPES = [*map(np.dtype, PLAIN), PADDED, np.dtype([("x", ">i4"), ("y", "S3"), ("z", "u1", (2,))])]
OTHERS = [h5py.enum_dtype({"a": 1, "b": 2}), h5py.string_dtype(), np.dtype(("i2", (2,))), h5py.string_dtype("utf-8", 4)]


@pytest.fixture
def nothing_embedded(monkeypatch):
    """Documents without raw data, so that what is in memory is what was fetched."""
    policy = embed.EmbedPolicy(plain=0, variable=0, total=0)
    monkeypatch.setattr(embed, "EmbedPolicy", lambda: policy)


@pytest.fixture(autouse=True)
def no_chunk_is_small(monkeypatch):
    """Small chunks, which libhdf5 would be asked for, are read like large ones."""
    monkeypatch.setattr(unfiltered, "_SMALL_CHUNK", 0)


def values_of(dtype, shape, seed):
    """Values of a type in which every byte may be anything that it can be."""
    if dtype == np.dtype("?"):
        return np.random.default_rng(seed).integers(0, 2, shape).astype("?")
    data = np.random.default_rng(seed).integers(0, 256, math.prod(shape) * dtype.itemsize, np.uint8)
    return data.view(dtype).reshape(shape)


def ones(dtype, shape):
    """An array of which every byte is 1."""
    return np.ones(math.prod(shape) * dtype.itemsize, "u1").view(dtype).reshape(shape)


def write(path, shape, dtype, layout, fill, chunks, seed):
    """One dataset, ``x``: contiguous, in raw chunks, or in chunks of which the filter left some out."""
    options = {} if fill is None else {"fillvalue": np.zeros((), dtype) if fill == "zero" else values_of(dtype, (), 7)}
    values = values_of(dtype, shape, seed)
    random = np.random.default_rng(seed)
    with h5py.File(path, "w", userblock_size=512 * (seed % 2)) as file:
        if layout == "contiguous":
            file.create_dataset("x", data=values, **options)
            return
        options["compression"] = "gzip" if layout == "skipped" else None
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if fill == "never":
            create.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            options |= {"dcpl": create, "fillvalue": None}
        x = file.create_dataset("x", shape, dtype, chunks=chunks, **options)
        for corner in np.ndindex(*(-(-n // c) for n, c in zip(shape, chunks, strict=True))):
            start = tuple(k * c for k, c in zip(corner, chunks, strict=True))
            what = random.integers(0, 4)
            if what == 0:
                continue  # never written
            if layout == "skipped" and what > 1:
                x.id.write_direct_chunk(start, values_of(dtype, chunks, int(random.integers(99))).tobytes(), 1)
            else:
                inside = tuple(slice(s, s + c) for s, c in zip(start, chunks, strict=True))
                x[inside] = values[inside]


@st.composite
def items(draw, length):
    """What may select along an axis, wrong things among them."""
    kind = draw(st.sampled_from(["int", "int", "slice", "slice", "slice", "list", "mask", "odd"]))
    bound = st.none() | st.integers(-length - 2, length + 2)
    if kind == "int":
        index = draw(st.integers(-length - 1, length))
        return draw(st.sampled_from([index, np.int16(index)]))
    if kind == "slice":
        return slice(draw(bound), draw(bound), draw(st.none() | st.integers(-1, 4)))
    if kind == "list":
        chosen = draw(st.lists(st.integers(-1, length), max_size=5))
        chosen = sorted(set(chosen)) if draw(st.booleans()) else chosen
        return np.array(chosen, "i4") if draw(st.booleans()) else chosen
    if kind == "mask":
        return np.array(draw(st.lists(st.booleans(), min_size=length, max_size=length + draw(st.integers(0, 1)))))
    return draw(st.sampled_from([True, np.bool_(True), 1.0, None, "a", np.array(0), np.uint8(0), [[0]], (0,), [True]]))


@st.composite
def selections(draw, shape):
    """Of all axes or fewer, or one too many; perhaps with an ellipsis."""
    chosen = [draw(items(length)) for length in shape[: draw(st.integers(0, len(shape)))]]
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(chosen)))
        chosen[at:at] = [...]
        if draw(st.booleans()) and len(chosen) <= len(shape):
            chosen.append(draw(items(shape[-1])))
    if draw(st.integers(0, 30)) == 0:
        chosen += [slice(None)] * 3
    return chosen[0] if len(chosen) == 1 and draw(st.booleans()) else tuple(chosen)


def _stored(array, value):
    """Bytes of an array, but for those of a long double alone that numpy leaves as they were in memory."""
    width = np.dtype("g").itemsize
    if isinstance(value, np.generic) and array.dtype.char in "gG" and np.finfo("g").nmant == 63:
        return np.frombuffer(array.tobytes(), "u1").reshape(-1, width)[:, :10].tobytes()  # 80 bits of the x87
    return array.tobytes()


def assert_same(actual, expected):
    """The same to the last bit, padding and errors included."""
    assert type(actual) is type(expected), (actual, expected)
    if isinstance(expected, Raised):
        assert repr(actual) == repr(expected)
        return
    mine, theirs = np.asarray(actual), np.asarray(expected)
    assert mine.shape == theirs.shape
    assert (mine.dtype, mine.dtype.char, mine.dtype.isnative) == (
        theirs.dtype,
        theirs.dtype.char,
        theirs.dtype.isnative,
    )
    assert mine.dtype.metadata == theirs.dtype.metadata
    if mine.dtype.hasobject:
        assert mine.tolist() == theirs.tolist()
    else:
        assert _stored(mine, actual) == _stored(theirs, expected)
    if isinstance(expected, np.ndarray):
        assert actual.flags.c_contiguous
        assert actual.flags.writeable
        assert actual.flags.owndata >= expected.flags.owndata


@st.composite
def datasets(draw):
    """Arguments of :func:`write` after the path."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    return (
        shape,
        draw(st.sampled_from(TYPES)),
        draw(st.sampled_from(["contiguous", "raw", "raw", "skipped"])),
        draw(st.sampled_from([None, "zero", "any", "never"])),
        tuple(draw(st.integers(1, n)) for n in shape),
        draw(st.integers(0, 99)),
    )


@pytest.mark.usefixtures("nothing_embedded")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(data=st.data())
def test_every_selection_is_what_h5py_reads(tmp_path, data):
    path, document = tmp_path / "a.h5", tmp_path / "a.lindi.json"
    described = data.draw(datasets(), label="dataset")
    write(path, *described)
    lb.index(path).save(document)
    # Annotations do not say that values are left alone, nor what is between fields, nor all of a long double.
    is_said = described[1] is not PADDED and described[1] != np.dtype("g") and described[3] != "never"
    prefer = data.draw(st.sampled_from([None, "annotations"]), label="prefer") if is_said else None
    with h5py.File(path) as oracle, lb.open(document, prefer=prefer) as file:
        expected, actual, below = oracle["x"], file["x"], file._file_object
        if data.draw(st.booleans(), label="as if remote"):
            below.read_into = lambda _: False
        # Bytes that come in small pieces, with holes in between.
        for start in data.draw(st.lists(st.integers(0, 9000), max_size=20), label="held"):
            if start + 13 <= below.size:
                below.fetch([ByteRange(start, 13)])
        for _ in range(4):
            args = data.draw(selections(expected.shape), label="selection")
            wanted = attempt(lambda x, a=args: x[a], expected)
            assert_same(attempt(lambda x, a=args: x[a], actual), wanted)
            mine, theirs = (ones(described[1], getattr(wanted, "shape", ())) for _ in range(2))
            assert_same(
                attempt(lambda x, a=args, out=mine: x.read_direct(out, a), actual),
                attempt(lambda x, a=args, out=theirs: x.read_direct(out, a), expected),
            )
            assert mine.tobytes() == theirs.tobytes()
            views = [lambda x, a=args: x.astype("f4")[a]] if described[1].kind in "iuf" else []
            views += [lambda x, a=args, name=name: x[name, a] for name in described[1].names or ()]
            for view in views:
                assert_same(attempt(view, actual), attempt(view, expected))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "raw", "skipped"])
def test_plain_types_need_no_libhdf5(tmp_path, monkeypatch, dtype, layout):
    path = tmp_path / "a.h5"
    write(path, (8, 6), dtype, layout, "any", (3, 4), 4)
    with h5py.File(path) as oracle, lb.open(lb.index(path)) as file:
        dataset = file["x"]
        assert isinstance(unfiltered_values(dataset.id, read_plan(dataset.id, file._file_object)), UnfilteredValues)
        monkeypatch.setattr(type(dataset), "_read", lambda *_: pytest.fail("asked libhdf5"))
        selections = [3, (slice(1, 8, 3), 2), ([0, 5, 6], slice(2, 5)), (7, 5), ..., (slice(None), [1, 2])]
        if layout == "skipped":  # only chunks that the filter left out
            table = dataset._reading.plan.table
            raw = table.coordinates()[table.filter_mask == 1]
            selections = [(slice(i * 3, i * 3 + 2), slice(j * 4, j * 4 + 3, 2)) for i, j in raw.tolist()]
        assert selections
        for args in selections:
            assert_same(dataset[args], oracle["x"][args])


@pytest.mark.usefixtures("nothing_embedded")
@pytest.mark.parametrize("shape", [(2000, 2000), (4, 1_000_000), (2000, 1, 2000)], ids=str)
@pytest.mark.parametrize("selection", [np.s_[..., ::2], np.s_[..., 3], np.s_[::2, ..., 5:-5:3], np.s_[1:, ..., :-1]])
def test_slabs_of_large_selections_need_no_libhdf5(tmp_path, monkeypatch, shape, selection):
    """It would ask for the bytes between two strides one by one."""
    path, document = tmp_path / "a.h5", tmp_path / "a.lindi.json"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(math.prod(shape), dtype="f4").reshape(shape)
    lb.index(path).save(document)
    reads = []
    readinto = HDF5File.readinto
    monkeypatch.setattr(HDF5File, "readinto", lambda self, buffer: reads.append(len(buffer)) or readinto(self, buffer))
    with h5py.File(path) as expected, lb.open(document, cache_bytes=1 << 22) as actual:
        wanted, dataset = expected["x"][selection], actual["x"]
        out = np.zeros_like(wanted)
        assert dataset.nbytes > 2 * dataset._file_object.cache_bytes
        reads.clear()
        found = dataset[selection]
        dataset.read_direct(out, selection)
        assert len(reads) < 10
        assert found.dtype == wanted.dtype
        assert np.array_equal(found, wanted)
        assert np.array_equal(out, wanted)
        for refused in (np.zeros(wanted.shape, "f4", "F"), np.zeros((2, *wanted.shape), "f4")[..., 0], out[:1]):
            if not refused.flags.c_contiguous or refused.shape != wanted.shape:
                error = attempt(lambda _, out=refused: expected["x"].read_direct(out, selection), None)
                assert isinstance(error, Raised)
                with pytest.raises(type(error.error)):
                    dataset.read_direct(refused, selection)
        out.flags.writeable = False
        with pytest.raises(TypeError):
            dataset.read_direct(out, selection)
        assert np.array_equal(dataset.astype("f8")[-2:], expected["x"].astype("f8")[-2:])


@pytest.mark.parametrize("layout", ["contiguous", "raw"])
@pytest.mark.parametrize("step", [9, 10, 11, 2**31, 2**62, 2**63, 2**70], ids=str)
def test_steps_beyond_the_end(tmp_path, layout, step):
    path = tmp_path / "a.h5"
    write(path, (10, 10), np.dtype("i4"), layout, None, (4, 5), 3)
    with h5py.File(path) as expected, lb.open(path) as actual:
        for selection in (np.s_[::step], np.s_[3::step], np.s_[2:5, ::step], np.s_[::step, [1, 2]], np.s_[20::step]):
            wanted, found = (attempt(lambda dataset, at=selection: dataset[at], f["x"]) for f in (expected, actual))
            if isinstance(wanted, Raised):
                assert isinstance(found, Raised)
                assert isinstance(found.error, type(wanted.error)), found
            else:
                assert np.array_equal(wanted, found)


@pytest.mark.parametrize(
    "selection",
    [[[1], [1, 2]], [2**70], h5py.MultiBlockSlice(start=9, stride=4, block=2), h5py.MultiBlockSlice(start=2, count=90)],
    ids=str,
)
def test_what_is_no_selection_is_h5pys_error(tmp_path, selection):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(10)
    with h5py.File(path) as expected, lb.open(path) as actual:
        ways = [lambda dataset: dataset[selection], lambda dataset: dataset.astype("U5")[selection]]
        for way in ways:
            wanted, found = attempt(way, expected["x"]), attempt(way, actual["x"])
            assert isinstance(wanted, Raised)
            assert isinstance(found, Raised)
            assert isinstance(found.error, type(wanted.error)), (wanted, found)


@pytest.mark.parametrize("dtype", OTHERS, ids=str)
def test_other_types_are_left_to_h5py(tmp_path, dtype):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (4,), dtype)
    with lb.open(lb.index(path)) as file:
        is_string = h5py.check_string_dtype(dtype)
        if is_string and is_string.length:
            assert file["x"]._reading is not None
            return
        assert unfiltered_values(file["x"].id, read_plan(file["x"].id, file._file_object)) is None


@given(data=st.data())
def test_a_part_of_an_axis(data):
    indices = data.draw(st.lists(st.integers(0, 40), min_size=1, unique=True).map(sorted))
    first = data.draw(st.integers(0, 40))
    stop = data.draw(st.integers(first, 41))
    steps = range(data.draw(st.integers(0, 40)), 41, data.draw(st.integers(1, 9)))
    for axis in (AxisSelection(np.array(indices)), AxisSelection(steps)):
        wanted = [k - first for k in axis.array().tolist() if first <= k < stop]
        assert axis.within(first, stop).array().tolist() == wanted


def test_what_is_no_exact_selection():
    assert exact_selection((..., [1, 2]), (3, 3)) is None
    assert exact_selection(([0, 1], [0, 1]), (3, 3)) is None
    assert exact_selection([2, 1], (3,)) is None
    assert exact_selection([], (3,)) is None
    assert exact_selection(slice(2, 2), (3,)) is None
    found = exact_selection((1, slice(None, None, 2), [0, 2]), (2, 3, 4))
    assert found is not None
    assert found.shape == (2, 2)
