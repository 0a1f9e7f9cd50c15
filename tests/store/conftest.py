"""What the tests of other projects that are used here need: zarr's for stores, anndata's for elements."""

from __future__ import annotations

import asyncio
import inspect

import pytest


def pytest_configure(config):
    """anndata's test helpers make marks of their own when they are imported."""
    for mark in ("gpu", "zarr_io", "dask_distributed", "array_api"):
        config.addinivalue_line("markers", f"{mark}: of anndata's tests")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Tests that are coroutines, as zarr's are, run in a loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True
