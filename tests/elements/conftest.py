"""Files and documents for the tests of the anndata face."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb

pytest.importorskip("anndata")


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
