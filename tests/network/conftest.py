"""Fixtures of the network tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.range_server import RangeServer
from servers.seaweed import seaweed

__all__ = ["plain_environment", "seaweed", "server"]

_PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_CREDENTIALS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE"),
    *("AWS_CONFIG_FILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "NETRC"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_CONNECTION_STRING"),
)


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No proxies and no credentials of whoever runs the tests; pauses between attempts are short."""
    for name in (*_PROXIES, *_CREDENTIALS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("lindi_bridge.ranges.deadline._FIRST_PAUSE", 0.01)


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with RangeServer() as running:
        yield running
