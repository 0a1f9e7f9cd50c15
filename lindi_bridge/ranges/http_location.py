"""Where a file is now: the address that was given, what the server redirects to, and what ``renew=`` made of it."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from lindi_bridge.errors import SourceError, SourcePermissionError, SourceProtocolError
from lindi_bridge.ranges.address import HTTP_SCHEMES, check_redirect, same_origin, scheme_of, strip_secrets
from lindi_bridge.ranges.aside import ask
from lindi_bridge.ranges.http_credentials import HttpCredentials
from lindi_bridge.ranges.lock import h5py_lock_is_held
from lindi_bridge.ranges.reader import ReaderOptions

__all__ = ["HttpLocation", "Place", "Refused"]

# https://api.dandiarchive.org/swagger: each answer of these is a redirect to a presigned address.
_RESOLVERS = re.compile(r"/api/(?:dandisets/[^?]+/)?assets/[0-9a-f-]{36}/download/?", re.IGNORECASE)


class Place(NamedTuple):
    """Where requests go. Each has its own ``serial``; ``redirected`` tells that a server sent us there."""

    url: str
    serial: int
    redirected: bool


class Refused(NamedTuple):
    """A place that refused, or from which the file is gone, and what makes the error if there is no other."""

    place: Place
    make_error: Callable[[], SourceError]


class HttpLocation:
    """Keeps the place of a file, and finds another one when it refuses.

    An address that a server redirects to, or that is presigned, is good for some time only. When it refuses, the server
    that redirected is asked again, and the caller's ``renew`` for a fresh address; each once.

    Parameters
    ----------
    url : str
        As the caller gave it.
    options : ReaderOptions
        Headers and ``renew``.
    """

    def __init__(self, url: str, options: ReaderOptions) -> None:
        self.name = strip_secrets(url)
        self._options = options
        self._given, userinfo = _request_url(url)
        self._target = self._given
        self._headers = options.headers
        self._credentials = HttpCredentials(self._target, userinfo, self._headers, options, self.name)
        self._serials = itertools.count(1)
        self._place = Place(self._target, 0, False)
        self._redirects = _RESOLVERS.fullmatch(urlsplit(self._target).path) is not None
        self._every_time = False
        self._renewed = False
        self._locks: dict[int, Lock] = {}

    @property
    def place(self) -> Place:
        """Where requests go now."""
        return self._place

    @property
    def must_resolve(self) -> bool:
        """The server will redirect, and it is not known whereto: better asked once than by each read of a wave."""
        return self._redirects and not self._place.redirected and not self._every_time

    @property
    def asks_every_time(self) -> bool:
        """Each read begins where the server redirects."""
        return self.must_resolve or self._every_time

    def headers_for(self, url: str) -> dict[str, str]:
        """Credentials that may be sent to ``url``."""
        return self._credentials.headers_for(url)

    def follow(self, url: str, location: str | None) -> str:
        """Where a redirect leads.

        Raises
        ------
        SourceProtocolError
            Nowhere, or where we do not go.
        """
        if not location:
            raise SourceProtocolError(f"{self.name}: the server redirects without saying where")
        # Header values arrive as latin-1; some servers send UTF-8 unescaped.
        following = urljoin(url, quote(location.encode("latin-1", "replace"), safe="%/:=&?~+#!$,;'@()*[]|"))
        check_redirect(self._target, following, self._options.restricted)
        return _request_url(following)[0]

    def ask_every_time(self) -> None:
        """From now on begin each read at the address itself: what it redirects to is good for too few of them."""
        self._every_time = True

    def arrived(self, began: Place, url: str) -> None:
        """Note where a request that began at a place was answered."""
        if url == began.url:
            self._redirects = self._redirects and began.redirected
        elif self._every_time:
            pass
        elif self._place.serial == began.serial:
            self._redirects = True
            self._place = Place(url, next(self._serials), True)

    def hint(self, url: str) -> str:
        """Why ``url`` may have refused us, and what to do."""
        if self._renewed:
            return "The address or the headers that renew= gave were refused as well"
        return self._credentials.hint(url)

    def can_move(self, refused: Place) -> bool:
        """Tell whether there may be another place for one that refused."""
        return refused.redirected or self._options.renew is not None

    def move(self, refused: Place, tried: set[str]) -> bool:
        """Find another place for one that refused; False if there is none left to try.

        Parameters
        ----------
        refused : Place
            Where the request went.
        tried : set of str
            What was tried for this read already; added to.

        Raises
        ------
        SourcePermissionError
            ``renew`` failed, or gave what is no address.
        """
        with self._alone():
            if self._place.serial != refused.serial:
                return True  # another thread was faster
            if refused.redirected and "redirect" not in tried:
                tried.add("redirect")
                self._place = Place(self._target, next(self._serials), False)
                return True
            if self._options.renew is not None and "renew" not in tried:
                tried.add("renew")
                self._renew()
                return True
            return False

    def _renew(self) -> None:
        assert self._options.renew is not None
        try:
            fresh = ask(partial(self._options.renew, self.name), self._options.read_timeout)
        except Exception as problem:
            raise SourcePermissionError(
                f"{self.name}: the server refused access, and renew= failed with {type(problem).__name__}"
            ) from problem
        userinfo = ""
        if isinstance(fresh, Mapping):
            self._headers = fresh
        elif isinstance(fresh, str) and scheme_of(fresh) in HTTP_SCHEMES:
            self._target, userinfo = _request_url(fresh)
        else:
            raise SourcePermissionError(
                f"{self.name}: the server refused access, and renew= gave neither an http(s) address nor headers but "
                f"a {type(fresh).__name__}"
            )
        headers = self._headers if same_origin(self._target, self._given) else {}
        self._credentials = HttpCredentials(self._target, userinfo, headers, self._options, self.name)
        self._renewed = True
        self._place = Place(self._target, next(self._serials), False)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        # While h5py's lock is held nobody is waited for. Two threads may then renew at one time, which does no harm.
        if h5py_lock_is_held():
            yield
            return
        # By process: a lock that another thread holds at the time of fork() is never released in the child.
        with self._locks.setdefault(os.getpid(), Lock()):
            yield


def _request_url(url: str) -> tuple[str, str]:
    """URL as it is requested (no fragment, no user name), and ``user:password`` apart."""
    parts = urlsplit(url)
    userinfo, _, host = parts.netloc.rpartition("@")
    # Characters that no request line may hold are escaped; what is escaped already stays as it is (signatures).
    path = quote(parts.path, safe="%/:=&~+!$,;'@()*[]|") or "/"
    query = quote(parts.query, safe="%/:=&?~+!$,;'@()*[]|")
    return urlunsplit((parts.scheme.lower(), host, path, query, "")), userinfo
