"""What the commands have in common: access to SRC, and the objects in it."""

from __future__ import annotations

import argparse
from typing import Any

from lindi_bridge.errors import LindiBridgeError

__all__ = ["access_options", "encoding_of", "find", "link_target", "open_source"]


def access_options(options: argparse.Namespace) -> dict[str, Any]:
    """Options of :func:`lindi_bridge.open` from the command line."""
    storage = dict(options.storage_option)
    if options.anonymous:
        storage["anon"] = True
    access: dict[str, Any] = {"headers": dict(options.header), "storage_options": storage}
    if options.command == "check":
        access["cache_dir"] = ""  # what lies on this disk says nothing about the source
    if getattr(options, "source", None) is not None:
        access["source"] = options.source
    return access


def open_source(options: argparse.Namespace) -> Any:
    """Open SRC as a :class:`lindi_bridge.File`, with the filter plugins if they are installed."""
    import lindi_bridge

    try:
        import hdf5plugin  # noqa: F401
    except ImportError:
        pass  # h5py says which filter it misses
    return lindi_bridge.open(options.src, **access_options(options))


def find(file: Any, options: argparse.Namespace) -> Any:
    """The object at PATH."""
    try:
        return file[options.path]
    except LindiBridgeError:
        raise
    except KeyError:
        raise LindiBridgeError(
            f"{file.filename}: there is no {options.path!r} in it; lindi-bridge ls lists what there is"
        ) from None


def link_target(link: Any) -> str | None:
    """What a soft or external link points to; None for a hard link."""
    import h5py

    if isinstance(link, h5py.ExternalLink):
        return f"{link.filename}:{link.path}"
    return str(link.path) if isinstance(link, h5py.SoftLink) else None


def encoding_of(obj: Any) -> str:
    """The ``encoding-type`` that anndata gives an object; else what older versions or NWB say; else nothing."""
    for name in ("encoding-type", "h5sparse_format", "neurodata_type"):
        value = obj.attrs.get(name)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str) and value:
            return value
    return ""
