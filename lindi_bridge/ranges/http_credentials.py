"""Whom we are to an HTTP server: headers of the caller, user name and password, and where they may go."""

from __future__ import annotations

import netrc
import os
import re
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from lindi_bridge.errors import SourceError
from lindi_bridge.ranges.address import same_origin
from lindi_bridge.ranges.reader import ReaderOptions

__all__ = ["HttpCredentials"]

_OURS = frozenset({"accept-encoding", "range", "if-match", "if-range", "connection"})
_SENDABLE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HttpCredentials:
    """Headers that go to one origin and to no other.

    Parameters
    ----------
    url : str
        Says the origin. Without user name.
    userinfo : str
        ``user:password`` of the address, or "".
    headers : mapping
        The caller's.
    options : ReaderOptions
        What was withheld or left behind, for the hint, and whether ``~/.netrc`` may be used.
    name : str
        Address without secrets, for messages.

    Raises
    ------
    SourceError
        A header cannot be sent.
    """

    def __init__(self, url: str, userinfo: str, headers: Mapping[str, str], options: ReaderOptions, name: str) -> None:
        self._url = url
        self._options = options
        self._headers = _headers(url, userinfo, _checked(headers, name), options)

    def headers_for(self, url: str) -> dict[str, str]:
        """What may be sent to ``url``; nothing to another origin."""
        return dict(self._headers) if same_origin(url, self._url) else {}

    def hint(self, url: str) -> str:
        """Why ``url`` may have refused us, and what to do."""
        parts = urlsplit(self._url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if pickled := self._options.pickled_hint():
            return pickled
        if self._headers and same_origin(url, self._url):
            return "The credentials that were given (headers=, user:password@ or ~/.netrc) were refused"
        if self._options.withheld:
            return (
                "What was given for access (headers=, renew=) was not used, because it was a document that named this "
                f"address: pass source=, or credentials_for=['{origin}'] if it is meant for it"
            )
        if self._headers:
            return f"It redirected to another host; headers= are sent to {origin} only"
        return "No credentials were given: pass headers={'Authorization': ...}"


def _checked(headers: Mapping[str, str], name: str) -> dict[str, str]:
    """Those that are not ours to set. A message about a value must not show it."""
    for key, value in headers.items():
        if not (isinstance(key, str) and _NAME.fullmatch(key)):
            raise SourceError(f"{name}: headers= has a name that is none: {key!r}")
        if not (isinstance(value, str) and _SENDABLE.fullmatch(value)):
            raise SourceError(
                f"{name}: the value of the header {key} cannot be sent; it must be text of Latin-1 characters without "
                "line breaks (a token that was read from a file may end in one)"
            )
    return {key: value for key, value in headers.items() if key.lower() not in _OURS}


def _headers(url: str, userinfo: str, given: dict[str, str], options: ReaderOptions) -> dict[str, str]:
    if any(key.lower() == "authorization" for key in given):
        return given
    pair: tuple[str, str] | None = None
    if userinfo:
        user, _, password = userinfo.partition(":")
        pair = unquote(user), unquote(password)
    elif not options.restricted:  # a stranger's document may not make us send what lies in ~/.netrc
        pair = _from_netrc(urlsplit(url).hostname or "")
    if pair is not None:
        given["Authorization"] = "Basic " + b64encode(":".join(pair).encode()).decode("ascii")
    return given


def _from_netrc(host: str) -> tuple[str, str] | None:
    path = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
    if not os.path.isfile(path):
        return None
    try:
        entry = netrc.netrc(path).authenticators(host)
    except (netrc.NetrcParseError, OSError, UnicodeError):
        return None  # as curl and requests do: a broken file means no credentials
    return None if entry is None else (entry[0] or entry[1] or "", entry[2] or "")
