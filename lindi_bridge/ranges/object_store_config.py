"""From ``storage_options`` in fsspec's or obstore's words, and the environment, to the configuration of obstore."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from lindi_bridge.errors import UnsupportedSchemeError
from lindi_bridge.ranges.address import split
from lindi_bridge.ranges.aws_profile import AwsProfile, read_profile

__all__ = ["StoreAddress", "StoreConfiguration", "configuration", "provided_credentials", "store_address"]

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
    "gs": {"anon": "skip_signature", "endpoint_url": "base_url", "endpoint": "base_url"},
    "az": {"anon": "skip_signature", "sas_token": "sas_key", "endpoint_url": "endpoint"},
}
# What a credential provider of obstore gives (obstore.store.S3Credential and the others), as configuration.
_PROVIDED = {
    "s3": {"access_key_id": "access_key_id", "secret_access_key": "secret_access_key", "token": "session_token"},
    "gs": {"token": "bearer_token"},
    "az": {"access_key": "account_key", "sas_token": "sas_key", "token": "bearer_token"},
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
        "AZURE_STORAGE_CONNECTION_STRING",
    ),
}
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": (),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_PROVIDERS = ("AWS_", "GOOGLE_", "AZURE_")
_OF_PLACE = ("endpoint", "url", "account_name", "emulator")
_OF_ACCESS = ("key", "secret", "token", "sas", "credential")


class StoreAddress(NamedTuple):
    """An object: ``kind`` is "s3", "gs" or "az"; ``account`` only for Azure, and only if the address names it."""

    kind: str
    bucket: str
    key: str
    account: str = ""


class StoreConfiguration(NamedTuple):
    """How to make a store. Holds secrets.

    ``config`` and ``client`` are obstore's (the store's and its HTTP client's). ``ambient`` tells that the credentials
    came from the environment and not from the caller. ``provider`` gives temporary credentials. ``hint`` is for the
    message of a refusal.
    """

    config: dict[str, Any]
    client: dict[str, Any]
    ambient: bool = False
    provider: Callable[[], Mapping[str, Any]] | None = None
    hint: str = ""

    @property
    def signed(self) -> bool:
        """Whether requests are signed."""
        return not self.config.get("skip_signature")

    @property
    def endpoint(self) -> str:
        """The address of a server that is not the provider's own; else empty."""
        named = (self.config.get(name) for name in ("endpoint", "aws_endpoint", "aws_endpoint_url_s3", "base_url"))
        return str(next((value for value in named if value), ""))

    @property
    def place(self) -> tuple[str, ...]:
        """What tells the store from others of its kind: endpoint and account, also as the environment has them."""
        given = {name.lower(): str(value) for name, value in os.environ.items() if name.startswith(_PROVIDERS)}
        given |= {name.lower(): str(value) for name, value in self.config.items()}
        return tuple(
            f"{name}={value}"
            for name, value in sorted(given.items())
            if any(word in name for word in _OF_PLACE) and not any(word in name for word in _OF_ACCESS)
        )

    def anonymous(self) -> StoreConfiguration:
        """The same without credentials."""
        return self._replace(config={**self.config, "skip_signature": True}, ambient=False, provider=None)


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


def configuration(address: StoreAddress, options: Mapping[str, Any], restricted: bool) -> StoreConfiguration:
    """Make the configuration of the store, and that of its HTTP client.

    Credentials are looked for in ``options``, then in the environment variables that obstore reads, then (S3) in the
    files of the AWS command line under the profile ``profile=`` or ``AWS_PROFILE``. If there are none, requests are not
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
    provider = given.pop("credential_provider", None)
    inner = given.pop("client_kwargs", None) or {}
    for name in ("endpoint_url", "region_name"):
        if inner.get(name):
            given.setdefault(name, inner[name])
    profile = given.pop("profile", None) or os.environ.get("AWS_PROFILE")
    for ours in ("asynchronous", "use_listings_cache", "skip_instance_cache"):  # fsspec's own affairs
        given.pop(ours, None)
    _bill_to_project(address.kind, given, client)
    if address.kind == "gs" and "token" in given:
        given |= _google_token(given.pop("token"))
    if address.kind == "az" and given.get("connection_string"):
        given |= _azure_connection(given.pop("connection_string"))
    names = _FSSPEC_NAMES[address.kind]
    config = {names.get(name, name): value for name, value in given.items() if value is not None}
    if address.account:
        config.setdefault("account_name", address.account)
    made = StoreConfiguration(config, client, provider=provider)
    if provider is None and "skip_signature" not in config and not _plain(config) & _CREDENTIALS[address.kind]:
        made = _from_environment(address.kind, made, profile, restricted)
    config = made.config
    if config.get("skip_signature") is False:
        del config["skip_signature"]
    if not made.endpoint:
        endpoint = next((os.environ[name] for name in _ENDPOINTS[address.kind] if os.environ.get(name)), "")
        if endpoint:
            config["endpoint"] = endpoint
    if os.environ.get("AWS_ENDPOINT_URL_S3") and address.kind == "s3":
        # obstore lets this variable override what it is told by the other name.
        config.setdefault("aws_endpoint_url_s3", made.endpoint)
    if made.endpoint.startswith("http://"):
        client.setdefault("allow_http", True)
    return made


def provided_credentials(kind: str, credentials: Mapping[str, Any]) -> dict[str, Any]:
    """Configuration of what a credential provider gave.

    Raises
    ------
    TypeError
        It gave something else, for instance a coroutine.
    """
    if not isinstance(credentials, Mapping):
        raise TypeError(
            "credential_provider= must give a mapping, and be an ordinary function, not an asynchronous one"
        )
    names = _PROVIDED[kind]
    found = {names[name]: value for name, value in credentials.items() if name in names and value}
    if isinstance(found.get("sas_key"), list | tuple):
        found["sas_key"] = urlencode(found["sas_key"])
    return found


def _plain(config: Mapping[str, Any]) -> set[str]:
    """Names without the prefix of their provider: obstore takes both."""
    prefixes = ("aws_", "google_", "azure_storage_", "azure_")
    out = set()
    for name in config:
        prefix = next((p for p in prefixes if name.lower().startswith(p)), "")
        out.add(name.lower()[len(prefix) :])
    return out


def _from_environment(kind: str, made: StoreConfiguration, profile: str | None, restricted: bool) -> StoreConfiguration:
    if restricted:
        return made.anonymous()
    if any(os.environ.get(name) for name in _ENVIRONMENT[kind]):
        connection = os.environ.get("AZURE_STORAGE_CONNECTION_STRING") if kind == "az" else None
        return made._replace(config={**_azure_connection(connection or ""), **made.config}, ambient=True)
    if kind == "s3":
        return _with_profile(made, read_profile(profile or "default"))
    # Where "gcloud auth application-default login" leaves its result, and obstore looks for it.
    home = os.path.expanduser("~/.config/gcloud/application_default_credentials.json")
    if kind == "gs" and os.path.isfile(home):
        return made._replace(ambient=True)
    return made.anonymous()


def _with_profile(made: StoreConfiguration, profile: AwsProfile) -> StoreConfiguration:
    settings = dict(profile.settings)
    if any(os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION")):
        settings.pop("region", None)
    if any(os.environ.get(name) for name in _ENDPOINTS["s3"]):
        settings.pop("endpoint", None)
    made = made._replace(config={**settings, **made.config})
    if profile.keys:
        return made._replace(config={**made.config, **profile.keys}, ambient=True)
    if profile.sign_in is None:
        return made.anonymous()
    provider = profile.provider()
    if provider is not None:
        return made._replace(ambient=True, provider=provider)
    return made.anonymous()._replace(
        hint=f"The AWS profile {profile.name!r} signs in by {profile.sign_in}, which needs the package botocore "
        "(pip install botocore)"
    )


def _bill_to_project(kind: str, given: dict[str, Any], client: dict[str, Any]) -> None:
    """Who pays for a bucket of Google's whose readers pay: a header names the project, as gcsfs does it."""
    project = given.pop("project", None)
    if kind != "gs":
        return
    payer = given.pop("requester_pays", None)
    payer = project if payer is True else payer
    if payer:
        client["default_headers"] = {**(client.get("default_headers") or {}), "x-goog-user-project": str(payer)}


def _azure_connection(text: str) -> dict[str, Any]:
    """Take apart a connection string of Azure: ``AccountName=...;AccountKey=...;...``."""
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    named = {
        "account_name": "AccountName",
        "account_key": "AccountKey",
        "sas_key": "SharedAccessSignature",
        "endpoint": "BlobEndpoint",
    }
    return {ours: parts[theirs] for ours, theirs in named.items() if parts.get(theirs)}


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
