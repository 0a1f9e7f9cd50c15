"""Files and documents for the tests of the anndata face."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb

pytest.importorskip("anndata")


def pytest_configure(config: pytest.Config) -> None:
    """anndata's test helpers make marks of their own when they are imported."""
    for mark in ("gpu", "zarr_io", "dask_distributed", "array_api"):
        config.addinivalue_line("markers", f"{mark}: of anndata's tests")


@pytest.fixture(autouse=True)
def quiet_anndata() -> Iterator[None]:
    """anndata warns of old formats and experiments, and of what its libraries deprecate. Our warnings stay errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", category=lb.WholeReadWarning)
        yield


@pytest.fixture(scope="module")
def server() -> Iterator[RangeServer]:
    with RangeServer() as running:
        yield running
