"""What leaves the file: external links, virtual datasets over other files, external raw storage.

Over a file object libhdf5 resolves all three wrongly and says nothing: the "other" file is opened with the same
driver, which ignores the name, so that the link lands in *this* file; raw storage opens a path on the local disk.
So they are found before libhdf5 follows them, and the companion file is opened relative to the source.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from typing import Any

import h5py
from h5py import h5g, h5l

from lindi_bridge.errors import LeavesFileError, LindiBridgeError, SourceNotFoundError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.model.text import text_name
from lindi_bridge.ranges import is_local, join, scheme_of, strip_secrets

__all__ = [
    "MissingCompanionError",
    "companion_address",
    "external_target",
    "open_companion",
]

_MOST_LINKS = 16
"""As many as libhdf5 follows (HDF5 reference manual, ``H5Pset_nlinks``)."""


class MissingCompanionError(LeavesFileError, RuntimeError):
    """The companion file, or the object in it, does not exist: what h5py calls a dangling link.

    h5py raises KeyError or RuntimeError for those, depending on what is asked.
    """


def external_target(group: h5g.GroupID, path: bytes, follow_last: bool = True) -> tuple[str, str] | None:
    """Whether a path runs through an external link.

    Parameters
    ----------
    group : h5py.h5g.GroupID
        Where the path starts.
    path : bytes
        Absolute or relative; soft links on the way are followed, component by component.
    follow_last : bool
        Whether the last component counts, if it is a link itself.

    Returns
    -------
    (filename, path) or None
        The file that the link names and the path in it. None for a path that stays here or leads nowhere.
    """
    for _ in range(_MOST_LINKS):
        step = _next_link(group, path)
        if step is None:
            return None
        kind, value, rest = step
        if not rest and not follow_last:
            return None
        if kind == "external":
            filename, target = value
            return text_name(filename), text_name(posixpath.join(target, rest))
        path = posixpath.join(value, rest)
    return None


def _next_link(group: h5g.GroupID, path: bytes) -> Any:
    """The first soft or external link on a path: (kind, its value, what follows); None where there is none."""
    walked = b"/" if path.startswith(b"/") else b""
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    for position, part in enumerate(parts):
        here = posixpath.join(walked, part)
        try:
            kind = group.links.get_info(here).type
        except (KeyError, ValueError, OSError, RuntimeError):
            return None  # libhdf5 says what is wrong with it
        rest = b"/".join(parts[position + 1 :])
        if kind == h5l.TYPE_EXTERNAL:
            return "external", group.links.get_val(here), rest
        if kind == h5l.TYPE_SOFT:
            return "soft", posixpath.join(walked, group.links.get_val(here)), rest
        walked = here
    return None


def companion_address(base: str, filename: str, allow_external: bool) -> str:
    """Address of a companion file named in an HDF5 file.

    Parameters
    ----------
    base : str
        Address of the HDF5 file that names it.
    filename : str
        As the file has it. Relative names lie beside the file (HDF5 reference manual, ``H5Lcreate_external``); of an
        absolute name beside a remote file only the last part counts, as libhdf5 does when the path does not exist.
    allow_external : bool
        Whether a companion outside the folder of a local file may be opened.

    Raises
    ------
    LeavesFileError
        The name is a URL, or lies outside the folder of the file.
    """
    if scheme_of(filename) or "\0" in filename:
        raise LeavesFileError(f"the companion file {strip_secrets(filename)!r} is no plain file name; it is not opened")
    if not is_local(base):
        return join(base, posixpath.basename(filename) if posixpath.isabs(filename) else filename)
    folder = os.path.realpath(os.path.dirname(base) or ".")
    found = os.path.realpath(os.path.join(folder, filename))
    if os.path.isabs(filename) and not os.path.exists(found):
        found = os.path.join(folder, os.path.basename(filename))
    if not allow_external and os.path.commonpath([folder, found]) != folder:
        raise LeavesFileError(
            f"the companion file {filename!r} does not lie in the folder of {strip_secrets(base)}; pass "
            "allow_external=True to open it"
        )
    return found


def open_companion(file: HDF5File, path: str, filename: str, kind: str, opener: Callable[[str], Any]) -> Any:
    """Open a companion once; kept as long as the file.

    Parameters
    ----------
    file : HDF5File
        The file that names it.
    path : str
        The object in it, for messages.
    filename : str
        As the file has it.
    kind : str
        ``"hdf5"`` or ``"bytes"``.
    opener : callable
        Opens an address.

    Raises
    ------
    MissingCompanionError
        It does not exist.
    LeavesFileError
        It may not, or cannot, be opened.
    """
    base = file.properties.get("companion_of")
    if base is None:
        raise LeavesFileError(
            f"{file.address}: {path} lies in another file ({filename}), and it is not known where; open the document "
            "with lindi_bridge.open"
        )
    opened: dict[str, Any] = file.properties.setdefault("companions", {})
    try:
        address = companion_address(base, filename, file.properties.get("allow_external", False))
        key = f"{kind} {address}"
        if key not in opened:
            depth = file.properties.get("companion_depth", 0) + 1
            if depth > _MOST_LINKS:
                raise LeavesFileError("too many links from file to file")
            opened[key] = opener(address)
            if isinstance(opened[key], h5py.File):
                opened[key]._file_object.properties["companion_depth"] = depth
        return opened[key]
    except SourceNotFoundError as error:
        raise MissingCompanionError(
            f"{file.address}: {path} lies in another file, which is not there: {error}"
        ) from None
    except LeavesFileError as error:
        raise LeavesFileError(f"{file.address}: {path} lies in another file: {error}") from None
    except LindiBridgeError as error:
        raise LeavesFileError(
            f"{file.address}: {path} lies in another file, which cannot be opened: {error}"
        ) from error
