"""A real S3 server (SeaweedFS) through the public functions: indexing, opening, and errors that name the remedy."""

from __future__ import annotations

import pickle
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from builders.compare import Raised, attempt, compare_files
from servers.seaweed import Seaweed

import lindi_bridge as lb

obstore = pytest.importorskip("obstore")

KEY = "folder/a b ü.h5"
SHORT = {"connect_timeout": 2.0, "read_timeout": 5.0, "total_timeout": 10.0}


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of whoever runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("s3") / "a.h5"
    random = np.random.default_rng(5)
    with h5py.File(path, "w") as file:
        file.create_dataset("values", data=random.random(300_000), chunks=(20_000,), compression="gzip", shuffle=True)
        file["rows"] = random.random((500, 200))
        file["group/text"] = np.array([f"text {i}" for i in range(50)], dtype=h5py.string_dtype())
    return path


@pytest.fixture
def storage(seaweed: Seaweed) -> dict[str, dict[str, Any]]:
    """Options by bucket."""
    return {"pub": seaweed.anonymous, "priv": seaweed.signed}


buckets = pytest.mark.parametrize("bucket", ["pub", "priv"])


@buckets
def test_index_and_open(bucket: str, seaweed: Seaweed, storage: dict[str, Any], local: Path, tmp_path: Path) -> None:
    url = seaweed.put(bucket, KEY, local.read_bytes())
    index = lb.index(url, storage_options=storage[bucket])
    assert index.url == url
    assert index.problems == []
    document = tmp_path / "a.lindi.json"
    index.save(document)
    assert not any(word in document.read_text() for word in (seaweed.signed["secret"], seaweed.signed["key"]))
    with lb.open(document, storage_options=storage[bucket]) as file, h5py.File(local) as expected:
        file["group/text"][()]
        assert file._file_object.reader.statistics.requests == 0
        assert compare_files(expected, file) == []
        assert file._file_object.misses == 0
        assert seaweed.signed["secret"].encode() not in pickle.dumps(file)
    with h5py.File(lb.hdf5_file(document, storage_options=storage[bucket])) as file, h5py.File(local) as expected:
        assert compare_files(expected, file) == []


@buckets
def test_a_slice_is_one_wave(
    bucket: str, seaweed: Seaweed, storage: dict[str, Any], local: Path, tmp_path: Path
) -> None:
    url = seaweed.put(bucket, KEY, local.read_bytes())
    document = tmp_path / "a.lindi.json"
    lb.index(url, storage_options=storage[bucket]).save(document)
    with lb.open(document, storage_options=storage[bucket]) as file:
        file["values"][::60_000]
        assert file._file_object.reader.statistics.waves == 1
        file["values"][::60_000]
        assert file._file_object.reader.statistics.waves == 1


@buckets
def test_the_file_itself(bucket: str, seaweed: Seaweed, storage: dict[str, Any], local: Path) -> None:
    url = seaweed.put(bucket, KEY, local.read_bytes())
    with lb.open(url, storage_options=storage[bucket]) as file, h5py.File(local) as expected:
        assert file.filename == url
        assert compare_files(expected, file) == []


@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
@pytest.mark.parametrize("suffix", [".json", ".json.zst"])
@buckets
def test_a_document_on_s3(
    bucket: str, suffix: str, relative: bool, seaweed: Seaweed, storage: dict[str, Any], local: Path, tmp_path: Path
) -> None:
    url = seaweed.put(bucket, KEY, local.read_bytes())
    index = lb.index(url, storage_options=storage[bucket], url=KEY.rsplit("/", 1)[1] if relative else url)
    index.save(tmp_path / f"a{suffix}")
    document = seaweed.put(bucket, f"folder/a.lindi{suffix}", (tmp_path / f"a{suffix}").read_bytes())
    with lb.open(document, storage_options=storage[bucket]) as file, h5py.File(local) as expected:
        assert file.filename == document
        assert compare_files(expected, file) == []


def test_another_bucket_named_by_a_document_on_s3(seaweed: Seaweed, local: Path) -> None:
    """The keys are for the bucket that was typed; a document there does not send them to another one."""
    source = seaweed.put("priv", KEY, local.read_bytes())
    text = lb.index(source, storage_options=seaweed.signed).to_json()
    document = seaweed.put("pub", "stranger.lindi.json", text.encode())
    with lb.open(document, storage_options=seaweed.signed, **SHORT) as file, pytest.raises(lb.SourceError):
        file["values"][:]
    for options in ({"source": source}, {"credentials_for": ["s3://priv"]}):
        with lb.open(document, storage_options=seaweed.signed, **SHORT, **options) as file:
            assert file["values"].shape == (300_000,)
            file["values"][:]


OPENERS = {
    "index": lambda url, options: lb.index(url, storage_options=options),
    "open": lambda url, options: lb.open(url, storage_options=options),
    "hdf5_file": lambda url, options: lb.hdf5_file(url, storage_options=options),
}


@pytest.mark.parametrize("way", OPENERS)
@pytest.mark.parametrize("wrong", ["key", "secret"])
def test_wrong_keys(way: str, wrong: str, seaweed: Seaweed, local: Path) -> None:
    url = seaweed.put("priv", KEY, local.read_bytes())
    with pytest.raises(lb.SourcePermissionError, match=r"credentials were refused.*storage_options") as caught:
        OPENERS[way](url, {**seaweed.signed, wrong: "s3cr3t"})
    assert url in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("way", OPENERS)
def test_a_private_object_anonymously(way: str, seaweed: Seaweed, local: Path) -> None:
    url = seaweed.put("priv", KEY, local.read_bytes())
    with pytest.raises(lb.SourcePermissionError, match=r"anonymously.*storage_options=\{'key'"):
        OPENERS[way](url, seaweed.anonymous)


@pytest.mark.parametrize("way", OPENERS)
@buckets
def test_no_such_object_or_bucket(way: str, bucket: str, seaweed: Seaweed, storage: dict[str, Any]) -> None:
    for url in (f"s3://{bucket}/nothing.h5", f"s3://{bucket}/folder"):
        with pytest.raises(lb.SourceNotFoundError, match="no such object") as caught:
            OPENERS[way](url, storage[bucket])
        assert url in str(caught.value)
    with pytest.raises(lb.SourceError):
        OPENERS[way]("s3://no-such-bucket/a.h5", storage[bucket])


@pytest.mark.parametrize("url", ["s3://", "s3://pub", "s3://pub/"])
def test_an_address_without_an_object(url: str, seaweed: Seaweed) -> None:
    with pytest.raises((lb.SourceError, ValueError)) as caught:
        lb.open(url, storage_options=seaweed.anonymous)
    assert str(caught.value)


def test_an_unknown_option_is_named(seaweed: Seaweed) -> None:
    with pytest.raises((lb.SourceError, ValueError), match="no_such_option"):
        lb.open("s3://pub/a.h5", storage_options={**seaweed.anonymous, "no_such_option": 1})


def test_no_server_there(seaweed: Seaweed) -> None:
    options = {**seaweed.anonymous, "endpoint_url": "http://127.0.0.1:9"}
    with pytest.raises(lb.SourceError, match=r"endpoint|in time"):
        lb.open("s3://pub/a.h5", storage_options=options, **SHORT)


def test_a_changed_object(seaweed: Seaweed, local: Path, tmp_path: Path) -> None:
    url = seaweed.put("pub", "changing.h5", local.read_bytes())
    document = tmp_path / "a.lindi.json"
    lb.index(url, storage_options=seaweed.anonymous).save(document)
    seaweed.put("pub", "changing.h5", local.read_bytes()[::-1])
    with (
        lb.open(document, storage_options=seaweed.anonymous) as file,
        pytest.raises(lb.SourceChangedError, match="ndex it again"),
    ):
        file["values"][:]


def test_a_deleted_object(seaweed: Seaweed, local: Path, tmp_path: Path) -> None:
    url = seaweed.put("pub", "passing.h5", local.read_bytes())
    document = tmp_path / "a.lindi.json"
    lb.index(url, storage_options=seaweed.anonymous).save(document)
    obstore.delete(seaweed.store("pub"), "passing.h5")
    with lb.open(document, storage_options=seaweed.anonymous) as file:
        assert file["group/text"].asstr()[3] == "text 3"
        with pytest.raises(lb.SourceNotFoundError):
            file["values"][:]


def _sign(seaweed: Seaweed, bucket: str, key: str, seconds: int) -> str:
    return str(obstore.sign(seaweed.store(bucket), "GET", key, timedelta(seconds=seconds)))


def test_presigned_addresses(seaweed: Seaweed, local: Path, tmp_path: Path) -> None:
    url = seaweed.put("priv", "signed.h5", local.read_bytes())
    signed = _sign(seaweed, "priv", "signed.h5", 600)
    assert "Signature=" in signed
    index = lb.index(signed)
    assert index.url == signed.split("?")[0]
    document = tmp_path / "a.lindi.json"
    index.save(document)
    assert "Signature" not in document.read_text()
    with h5py.File(local) as expected:
        with lb.open(signed) as file:
            assert "Signature" not in file.filename + repr(file)
            assert compare_files(expected, file) == []
        with lb.open(document, source=signed) as file:
            assert compare_files(expected, file) == []
            assert file._file_object.misses == 0
            assert b"Signature" not in pickle.dumps(file)
        with lb.open(document, source=url, storage_options=seaweed.signed) as file:
            assert compare_files(expected, file) == [], "the same object by its own address"
    with lb.open(document) as file, pytest.raises(lb.SourcePermissionError, match="source="):
        file["values"][:]


def test_an_expired_presigned_address(seaweed: Seaweed, local: Path, tmp_path: Path) -> None:
    seaweed.put("priv", "signed.h5", local.read_bytes())
    document = tmp_path / "a.lindi.json"
    lb.index(_sign(seaweed, "priv", "signed.h5", 600)).save(document)
    expired = _sign(seaweed, "priv", "signed.h5", 1)
    until = time.monotonic() + 30
    outcome = attempt(lb.open, expired)
    while not isinstance(outcome, Raised) and time.monotonic() < until:
        outcome.close()
        time.sleep(0.2)
        outcome = attempt(lb.open, expired)
    assert isinstance(outcome.error, lb.SourcePermissionError)
    assert "presigned" in str(outcome.error)
    assert "source=" in str(outcome.error)
    assert "Signature" not in str(outcome.error)
    with lb.open(document, source=expired) as file:
        assert file["group/text"].asstr()[3] == "text 3"
        with pytest.raises(lb.SourcePermissionError, match=r"presigned.*source="):
            file["values"][:]
