"""Settings for all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from servers.range_server import RangeServer

# No test depends on how fast the machine is.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# Nor on what lies in the cache of whoever runs them.
for name in ("LINDI_BRIDGE_CACHE", "LINDI_BRIDGE_CACHE_BYTES"):
    os.environ.pop(name, None)


def pytest_configure(config: pytest.Config) -> None:
    """anndata's test helpers make marks of their own when they are imported."""
    for mark in ("gpu", "zarr_io", "dask_distributed", "array_api"):
        config.addinivalue_line("markers", f"{mark}: of anndata's tests")


@pytest.fixture(autouse=True)
def _garbage_is_collected_between_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """While a server runs in this process, garbage is collected between tests only: its threads must not."""
    if RangeServer.running and not request.node.get_closest_marker("collects"):
        gc.disable()
    else:
        gc.enable()
    yield
    gc.enable()
