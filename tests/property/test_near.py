"""The short way is taken only where all that the selection needs is in memory, and is taken there."""

from __future__ import annotations

import math

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import lindi_bridge as lb
from lindi_bridge.client.near import _MOST_PIECES, NearChunks
from lindi_bridge.client.plan import read_plan
from lindi_bridge.indexer import embed


@pytest.fixture
def nothing_embedded(monkeypatch):
    """Documents without raw data, so that what is in memory is what was fetched."""
    policy = embed.EmbedPolicy(plain=0, variable=0, total=0)
    monkeypatch.setattr(embed, "EmbedPolicy", lambda: policy)


@st.composite
def boxes(draw, shape):
    """Integers and slices, of all axes or of the first."""
    items = []
    for length in shape[: draw(st.integers(1, len(shape)))]:
        if draw(st.booleans()):
            items.append(draw(st.integers(-length, length - 1)))
        else:
            first = draw(st.integers(0, length - 1))
            items.append(slice(draw(st.sampled_from([first, first - length])), draw(st.integers(first + 1, length))))
    return items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


@pytest.mark.usefixtures("nothing_embedded")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(data=st.data())
def test_what_is_held(tmp_path, data):
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3), label="shape"))
    chunks = tuple(data.draw(st.integers(1, n), label="chunk") for n in shape)
    assume(
        math.prod(-(-n // c) for n, c in zip(shape, chunks, strict=True)) <= _MOST_PIECES
    )  # more are left to the plan
    options = data.draw(st.sampled_from([{}, {"chunks": chunks}, {"chunks": chunks, "compression": "gzip"}]))
    path, document = tmp_path / "a.h5", tmp_path / "a.lindi.json"
    values = np.arange(math.prod(shape), dtype="i8").reshape(shape)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, **options)
    lb.index(path).save(document)
    with lb.open(document) as opened:
        file = opened._file_object
        plan = read_plan(opened["x"].id, file)
        near = NearChunks(plan, file)
        file.ensure(plan.ranges(data.draw(boxes(shape), label="fetched")))
        args = data.draw(boxes(shape), label="selection")
        held = near.are_held(args)
        assert held or not all(file.holds(wanted) for wanted in plan.ranges(args))
        assert np.array_equal(lb.plain(opened["x"])[args], values[args])
        assert file.misses == 0 or not held
        assert np.array_equal(opened["x"][args], values[args])
        file.ensure(plan.everything())
        assert near.are_held(args)
        assert not near.are_held(slice(None, None, 2)), "left to the plan"
        misses = file.misses
        assert np.array_equal(opened["x"][args], values[args])
        assert file.misses == misses
