"""Addresses of files: http(s), s3, gs, az/abfs(s), other fsspec URLs, ``file://`` and local paths.

Addresses may carry secrets (a signed query string, ``user:password@``): :func:`strip_secrets` makes the form
that may be shown, written and logged.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from typing import NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

from lindi_bridge.errors import SourceProtocolError

__all__ = [
    "HTTP_SCHEMES",
    "OBJECT_STORE_SCHEMES",
    "Address",
    "check_redirect",
    "is_chain",
    "is_local",
    "is_private_host",
    "join",
    "local_path",
    "same_origin",
    "scheme_of",
    "split",
    "strip_secrets",
]

HTTP_SCHEMES = frozenset({"http", "https"})
OBJECT_STORE_SCHEMES = frozenset({"s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl"})

# A single colon makes no scheme: "sample:1.h5" is a file name, and "C:\\x.h5" a path on another system.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(?:://|::)|(data|file)(?=:)", re.ASCII | re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """An address in its parts; what may be secret is kept apart.

    ``scheme`` is "" for a local path. ``container`` is the host with its port, or the bucket (for
    ``abfs://container@account`` all of it).
    """

    scheme: str
    container: str
    path: str
    query: str = ""
    userinfo: str = ""


def scheme_of(address: str) -> str:
    """Lower-case scheme of ``address``; "" for a local path (a drive letter is no scheme)."""
    match = _SCHEME.match(address)
    return (match[1] or match[2]).lower() if match else ""


def is_chain(address: str) -> bool:
    """Tell whether ``address`` is a chain of fsspec file systems (``zip://member::https://host/a.zip``).

    ``::`` in the path of a web address or in an object key is nothing special, nor is it in ``http://[::1]/``.
    """
    return "::" in address and scheme_of(address) not in {"", "file", *HTTP_SCHEMES, *OBJECT_STORE_SCHEMES}


def is_local(address: str) -> bool:
    """Tell whether ``address`` is a path of this machine or a ``file://`` URL."""
    return scheme_of(address) in {"", "file", "local"}


def local_path(address: str) -> str:
    """Path on this machine that a local ``address`` means."""
    if not scheme_of(address):
        return address
    parts = urlsplit(address)
    if parts.netloc not in {"", "localhost"}:
        raise ValueError(f"{strip_secrets(address)}: a file: address of another machine")
    path = unquote(parts.path)
    return path[1:] if re.match(r"/[A-Za-z]:[/\\]", path) and os.name == "nt" else path


def split(address: str) -> Address:
    """Take an address apart.

    Local paths, chains with ``::`` and object keys are not cut at ``?`` or ``#``, which are ordinary characters
    there; only http(s) and other URL-like schemes have a query string.
    """
    scheme = scheme_of(address)
    if not scheme:
        return Address("", "", address)
    if is_chain(address) or "://" not in address:
        return Address(scheme, "", address.partition(":")[2])
    rest = address.split("://", 1)[1]
    container, slash, path = rest.partition("/")
    if scheme in OBJECT_STORE_SCHEMES:
        return Address(scheme, container, slash + path)
    parts = urlsplit(address)
    userinfo, _, host = parts.netloc.rpartition("@")
    return Address(scheme, host, parts.path, parts.query, userinfo)


def strip_secrets(address: str) -> str:
    """Address as it may be shown: without query string, fragment, user name and password.

    Object keys keep ``?`` and ``#``, which belong to the key. Each link of an fsspec chain is stripped.
    """
    if is_chain(address):
        return "::".join(strip_secrets(link) if "://" in link else link for link in address.split("::"))
    scheme = scheme_of(address)
    if scheme == "data":
        return "data:..."
    if not scheme or scheme in {"file", "local"} or "://" not in address:
        return address
    parts = split(address)
    container = parts.container
    if scheme in OBJECT_STORE_SCHEMES and "@" in container and ":" in container.partition("@")[0]:
        container = container.partition("@")[2]  # key:secret@bucket; abfs://container@account is no secret
    return f"{scheme}://{container}{parts.path}"


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").rstrip("."), parts.port or _DEFAULT_PORTS.get(scheme)


def same_origin(a: str, b: str) -> bool:
    """Tell whether two URLs have the same scheme, host and port, so that credentials of one may go to the other."""
    try:
        return _origin(a) == _origin(b)
    except ValueError:  # a port that is no number: no place to send secrets to
        return False


def join(base: str, relative: str) -> str:
    """Address that ``relative`` means when it stands in a document at ``base``.

    Parameters
    ----------
    base : str
        Address of the document: URL or local path.
    relative : str
        An absolute address of any kind, or a path relative to the folder of ``base``. The query string of ``base``
        (which may be a signature) is not inherited.
    """
    scheme = scheme_of(relative)
    if scheme:
        return relative
    base_scheme = scheme_of(base)
    if not base_scheme:
        return os.path.normpath(os.path.join(os.path.dirname(base), relative))
    if base_scheme in HTTP_SCHEMES:
        return urljoin(base, relative)
    if is_chain(base):
        raise ValueError(f"{strip_secrets(base)}: nothing can be named relative to a chained address")
    # urljoin knows no s3:, gs:, az:; and a "?" in an object key is not a query: only the path part is joined.
    head, _, rest = base.partition("://")
    container, _, path = rest.partition("/")
    if relative.startswith("//"):
        raise ValueError(f"{relative!r} names another host without a scheme")
    absolute = relative if relative.startswith("/") else f"{os.path.dirname('/' + path).rstrip('/')}/{relative}"
    parts: list[str] = []
    for part in absolute.split("/")[1:]:
        if part == "..":
            if parts:
                parts.pop()
        elif part != ".":
            parts.append(part)
    return f"{head}://{container}/" + "/".join(parts)


def is_private_host(url: str) -> bool:
    """Tell whether a URL names, literally, a host that only this machine or its network can reach.

    ``localhost``, and IP addresses (in every notation that the C library takes) that are loopback, link-local,
    private, or unspecified. Names are not looked up: a public name may still point to such an address.
    """
    try:
        host = (urlsplit(url).hostname or "").rstrip(".").partition("%")[0]
    except ValueError:
        return True  # cannot be understood: not trusted
    if not host or host == "localhost" or host.endswith((".localhost", ".internal")):
        return True
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            address = ipaddress.IPv4Address(socket.inet_aton(host))  # 2130706433, 0x7f.1, 127.1
        except (OSError, ValueError):
            return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return not address.is_global


def check_redirect(from_url: str, to_url: str, restricted: bool) -> None:
    """Refuse a redirect that must not be followed.

    Parameters
    ----------
    from_url : str
        The URL that was asked for in the first place.
    to_url : str
        Where the server sends us, absolute.
    restricted : bool
        The address came from a stranger's document: no way from a public host to loopback or private addresses.

    Raises
    ------
    SourceProtocolError
        The redirect is refused.
    """
    if scheme_of(to_url) not in HTTP_SCHEMES:
        kind = scheme_of(to_url) or "path"
        raise SourceProtocolError(
            f"{strip_secrets(from_url)}: the server redirects to a {kind}: address; only http and https are followed"
        )
    if restricted and is_private_host(to_url) and not is_private_host(from_url):
        raise SourceProtocolError(
            f"{strip_secrets(from_url)}: the server redirects to a local or private address "
            f"({strip_secrets(to_url)}), which is refused for addresses named by somebody else's document"
        )
