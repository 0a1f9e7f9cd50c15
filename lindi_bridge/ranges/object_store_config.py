"""From ``storage_options`` in fsspec's or obstore's words, and the environment, to the configuration of obstore."""

from __future__ import annotations

import configparser
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from lindi_bridge.errors import UnsupportedSchemeError
from lindi_bridge.ranges.address import split

__all__ = ["StoreAddress", "configuration", "store_address"]

_KINDS = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "adl": "az",
    "abfs": "az",
    "abfss": "az",
}
_FSSPEC_NAMES: dict[str, dict[str, str]] = {
    "s3": {
        "anon": "skip_signature",
        "key": "access_key_id",
        "secret": "secret_access_key",
        "token": "session_token",
        "endpoint_url": "endpoint",
        "region_name": "region",
        "requester_pays": "request_payer",
    },
    "gs": {"anon": "skip_signature", "endpoint_url": "base_url"},
    "az": {"anon": "skip_signature", "sas_token": "sas_key", "endpoint_url": "endpoint"},
}
_CREDENTIALS = {
    "s3": {"access_key_id", "secret_access_key", "session_token", "web_identity_token_file", "role_arn"},
    "gs": {"service_account", "service_account_key", "service_account_path", "bearer_token", "application_credentials"},
    "az": {"account_key", "access_key", "sas_key", "sas_token", "client_id", "client_secret", "token", "bearer_token"},
}
_ENVIRONMENT = {
    "s3": (
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
    "gs": (
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ),
    "az": (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_CLIENT_ID",
        "AZURE_STORAGE_TOKEN",
    ),
}


class StoreAddress(NamedTuple):
    """An object: ``kind`` is "s3", "gs" or "az"; ``account`` only for Azure, and only if the address names it."""

    kind: str
    bucket: str
    key: str
    account: str = ""


def store_address(url: str) -> StoreAddress:
    """Take the address of an object apart. The key is as it stands: nothing in it is decoded or cut off."""
    parts = split(url)
    kind, bucket, account = _KINDS[parts.scheme], parts.container.rpartition("@")[2], ""
    if kind == "az" and "@" in parts.container:  # abfs://container@account.dfs.core.windows.net/key
        bucket, _, host = parts.container.partition("@")
        account = host.partition(".")[0]
    key = parts.path.lstrip("/")
    if not bucket or not key:
        raise UnsupportedSchemeError(f"{url!r} names no object: {parts.scheme}://bucket/key is needed")
    return StoreAddress(kind, bucket, key, account)


def configuration(
    address: StoreAddress, options: Mapping[str, Any], restricted: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the configuration of the store, and that of its HTTP client.

    Credentials are looked for in ``options``, then in the environment variables that obstore reads, then (S3) in the
    shared credentials file under the profile ``profile=`` or ``AWS_PROFILE``. If there are none, requests are not
    signed, so that public buckets need no settings; roles of the machine (instance metadata) are asked only with
    ``anon=False``, because elsewhere that question hangs.

    Parameters
    ----------
    address : StoreAddress
        What is to be read.
    options : mapping
        In obstore's words, fsspec's, or both.
    restricted : bool
        The address came from a stranger's document: credentials of the environment are not used.
    """
    given = dict(options)
    client = dict(given.pop("client_options", None) or {})
    inner = given.pop("client_kwargs", None) or {}
    for name in ("endpoint_url", "region_name"):
        if inner.get(name):
            given.setdefault(name, inner[name])
    profile = given.pop("profile", None) or os.environ.get("AWS_PROFILE")
    for ours in ("asynchronous", "use_listings_cache", "skip_instance_cache", "project"):  # fsspec's own affairs
        given.pop(ours, None)
    if address.kind == "gs" and "token" in given:
        given |= _google_token(given.pop("token"))
    names = _FSSPEC_NAMES[address.kind]
    config = {names.get(name, name): value for name, value in given.items() if value is not None}
    if address.account:
        config.setdefault("account_name", address.account)
    if "skip_signature" not in config and not _plain(config) & _CREDENTIALS[address.kind]:
        config |= _from_environment(address.kind, profile, restricted)
    if config.get("skip_signature") is False:
        del config["skip_signature"]
    endpoint = str(config.get("endpoint") or config.get("aws_endpoint") or config.get("base_url") or "")
    if endpoint.startswith("http://"):
        client.setdefault("allow_http", True)
    return config, client


def _plain(config: Mapping[str, Any]) -> set[str]:
    """Names without the prefix of their provider: obstore takes both."""
    prefixes = ("aws_", "google_", "azure_storage_", "azure_")
    out = set()
    for name in config:
        prefix = next((p for p in prefixes if name.lower().startswith(p)), "")
        out.add(name.lower()[len(prefix) :])
    return out


def _from_environment(kind: str, profile: str | None, restricted: bool) -> dict[str, Any]:
    anonymous = {"skip_signature": True}
    if restricted:
        return anonymous
    if any(os.environ.get(name) for name in _ENVIRONMENT[kind]):
        return {}
    if kind == "s3":
        return _shared_credentials(profile or "default") or anonymous
    if kind == "gs":
        # Where "gcloud auth application-default login" leaves its result, and obstore looks for it.
        home = os.path.expanduser("~/.config/gcloud/application_default_credentials.json")
        return {} if os.path.isfile(home) else anonymous
    return anonymous


def _shared_credentials(profile: str) -> dict[str, Any]:
    """Read the static keys of ``profile`` from the file that ``aws configure`` writes; empty if there are none."""
    path = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.expanduser("~/.aws/credentials")
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(path)
    except (configparser.Error, UnicodeError):
        return {}
    if not parser.has_option(profile, "aws_access_key_id") or not parser.has_option(profile, "aws_secret_access_key"):
        return {}
    section = parser[profile]
    found = {
        "access_key_id": section["aws_access_key_id"],
        "secret_access_key": section["aws_secret_access_key"],
        "session_token": section.get("aws_session_token"),
    }
    return {name: value for name, value in found.items() if value}


def _google_token(token: Any) -> dict[str, Any]:
    """Translate gcsfs's ``token``: "anon", a file of credentials, their content, or an access token."""
    if token == "anon":
        return {"skip_signature": True}
    if isinstance(token, Mapping):
        return {"service_account_key": json.dumps(dict(token))}
    if isinstance(token, str) and os.path.isfile(token):
        return {"application_credentials": token}
    if isinstance(token, str) and token not in {"google_default", "cloud", "cache", "browser"}:
        return {"bearer_token": token}
    return {"skip_signature": False}
