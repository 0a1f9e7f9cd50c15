"""What the AWS command line's files say: keys, region, endpoint, and how a profile signs in."""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

__all__ = ["AwsProfile", "read_profile"]

# Ways to sign in that need the AWS SDK (AWS SDKs and Tools Reference Guide, "Settings reference").
_SIGN_IN = ("credential_process", "sso_session", "sso_start_url", "role_arn", "login_session")
_RENEWED_EVERY = timedelta(minutes=15)


class AwsProfile(NamedTuple):
    """A profile: static keys and settings in obstore's words, or the setting by which it signs in."""

    name: str
    keys: dict[str, str]
    settings: dict[str, str]
    sign_in: str | None

    def provider(self) -> Callable[[], Mapping[str, Any]] | None:
        """What signs in and gives temporary keys; None without the package botocore, or if the profile gives none."""
        try:
            import botocore.session
        except ImportError:
            return None
        credentials = botocore.session.Session(profile=self.name).get_credentials()
        if credentials is None:
            return None

        def provide() -> Mapping[str, Any]:
            keys = credentials.get_frozen_credentials()  # renews them if they are about to expire
            return {
                "access_key_id": keys.access_key,
                "secret_access_key": keys.secret_key,
                "token": keys.token,
                "expires_at": datetime.now(UTC) + _RENEWED_EVERY,
            }

        return provide


def read_profile(name: str) -> AwsProfile:
    """Read a profile from ``~/.aws/credentials`` and ``~/.aws/config``, or where the environment says they are.

    Files that are missing or broken hold nothing.
    """
    secrets = _section("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name)
    config = _section("AWS_CONFIG_FILE", "~/.aws/config", name if name == "default" else f"profile {name}")
    keys: dict[str, str] = {}
    for section in (secrets, config):
        if not keys and section.get("aws_access_key_id") and section.get("aws_secret_access_key"):
            keys = {
                "access_key_id": section["aws_access_key_id"],
                "secret_access_key": section["aws_secret_access_key"],
                "session_token": section.get("aws_session_token", ""),
            }
    settings = {"region": config.get("region", ""), "endpoint": config.get("endpoint_url", "")}
    sign_in = next((way for way in _SIGN_IN if secrets.get(way) or config.get(way)), None)
    return AwsProfile(name, _filled(keys), _filled(settings), sign_in)


def _section(variable: str, usual: str, name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(os.environ.get(variable) or os.path.expanduser(usual))
    except (configparser.Error, UnicodeError, OSError):
        return {}
    return dict(parser[name]) if parser.has_section(name) else {}


def _filled(section: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in section.items() if value}
