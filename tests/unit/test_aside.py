"""Calls in threads of their own."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from h5py._objects import phil

from lindi_bridge.ranges.aside import Aside, ask


class Thing:
    pass


@pytest.fixture
def _no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def fail(thing: Thing) -> None:
    raise LookupError(f"no {type(thing).__name__}")


@pytest.mark.usefixtures("_no_collection")
def test_what_was_raised_is_no_garbage_in_a_cycle() -> None:
    def call() -> weakref.ref[Thing]:
        thing = Thing()
        with phil, pytest.raises(LookupError, match="no Thing"):
            ask(lambda: fail(thing), 10.0)
        return weakref.ref(thing)

    assert call()() is None


def test_any_limit_can_be_given() -> None:
    assert Aside(lambda: 5).result(float("inf")) == 5
