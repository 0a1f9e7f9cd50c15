"""Arguments, and what becomes of errors. Each command is a module of its own, imported when it is asked for."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from lindi_bridge import __version__
from lindi_bridge.cli.text import clean
from lindi_bridge.errors import LindiBridgeError

__all__ = ["main"]

_EPILOG = """\
SRC is a reference document (.json, .json.zst), or an HDF5 file: a path, or an address that begins with
http://, https://, s3://, gs://, az://, or with any other scheme that fsspec knows.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; from ``sys.argv`` if not given.

    Returns
    -------
    int
        The exit status.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 is no reason to fail
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if len(rest) == 1 and not rest[0].startswith("-") and getattr(options, "path", "") == "/":
        options.path = rest.pop()  # "ls SRC -l PATH": argparse before Python 3.13 takes PATH for left out at SRC
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    command = importlib.import_module(f"lindi_bridge.cli.{options.command}")
    try:
        status = command.run(options)
        sys.stdout.flush()
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _abandon(sys.stdout)
        return 130
    except Exception as error:  # whatever h5py or a server comes up with
        if options.debug:
            raise
        sys.stderr.write(f"lindi-bridge: {_explain(error)}\n")
        return int(getattr(command, "FAILED", 1))
    return int(status)


def _explain(error: Exception) -> str:
    if isinstance(error, LindiBridgeError):
        return "\n".join(clean(line) for line in str(error).splitlines())
    if isinstance(error, OSError) and error.strerror:
        return clean(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    if isinstance(error, KeyError) and error.args:
        return clean(str(error.args[0]))
    return clean(f"{type(error).__name__}: {error} (--debug shows where)")


def _abandon(stream: TextIO) -> None:
    """Keep the interpreter from flushing, at its end, to a pipe that nobody reads."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lindi-bridge",
        description="Index an HDF5 or .h5ad file once; look into it, wherever it lies, through the small JSON.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"lindi-bridge {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, summary: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.add_argument("src", metavar="SRC", help="path or address")
        return sub

    index = command("index", "write the reference document of an HDF5 file")
    index.add_argument("-o", "--output", metavar="OUT", help="where to write it: .json, or .json.zst (compressed)")
    index.add_argument("--url", metavar="URL", help="address to write into it, where SRC is a local copy of that")
    index.add_argument("--strict", action="store_true", help="fail if anything cannot be expressed")
    index.add_argument(
        "--profile",
        choices=["lindi", "zarr"],
        default="lindi",
        help="whom to write it for: readers of LINDI's format, or plain readers of Zarr (default: %(default)s)",
    )
    index.add_argument(
        "--link-above",
        metavar="N",
        type=_count,
        help="write datasets of more than N chunks as links into the HDF5 file, which keeps the document small",
    )

    ls = command("ls", "list the names in a file")
    ls.add_argument("path", metavar="PATH", nargs="?", default="/", help="where to begin (default: the root)")
    ls.add_argument("-l", "--long", action="store_true", help="with shapes, dtypes and encodings")
    ls.add_argument("-d", "--depth", metavar="N", type=_count, help="levels to show")
    ls.add_argument("-1", "--plain", action="store_true", help="one absolute path a line; with -l, tab-separated")

    view = command("view", "show one object: its properties, attributes and first values")
    view.add_argument("path", metavar="PATH", nargs="?", default="/", help="the object (default: the root)")
    view.add_argument("--rows", metavar="N", type=_count, default=5, help="rows to show (default: %(default)s)")

    check = command("check", "check that a document is sound, that its source is there, and that all of it can be read")
    check.add_argument("--data", action="store_true", help="read the first and the last chunk of every dataset")

    relocate = command("relocate", "write a document with another address of its source")
    relocate.add_argument("new", metavar="NEW_URL", help="where the source is now: an address, or a path")
    relocate.add_argument(
        "--from",
        metavar="OLD_URL",
        dest="from_url",
        help="which source, as the document names it; with a slash at the end of both, all that lies below",
    )
    relocate.add_argument("-o", "--output", metavar="OUT", help="where to write it (default: over SRC)")
    relocate.add_argument("--verify", action="store_true", help="look whether the source is there, and the same file")

    diff = command("diff", "tell what differs between two documents, or a document and an HDF5 file")
    diff.add_argument("other", metavar="OTHER", help="what to compare with: path or address")

    for sub in (index, ls, view, check, relocate, diff):
        access = sub.add_argument_group("access")
        access.add_argument(
            "--header", metavar="NAME:VALUE", type=_header, action="append", default=[], help="HTTP header to send"
        )
        access.add_argument(
            "--storage-option",
            metavar="KEY=VALUE",
            type=_storage_option,
            action="append",
            default=[],
            help="option for s3, gs, az and fsspec; may be given more than once",
        )
        access.add_argument("--anonymous", action="store_true", help="do not sign requests to s3, gs or az")
        if sub not in (index, relocate, diff):
            access.add_argument("--source", metavar="URL", help="where the bytes are now, if not where SRC says")
        sub.add_argument("--debug", action="store_true", help="show the traceback of an error")

    summary = "show how full the cache on the disk is"
    cache = commands.add_parser("cache", help=summary, description=f"{summary.capitalize()}, or empty it.")
    cache.add_argument("dir", metavar="DIR", nargs="?", help="its folder (default: what LINDI_BRIDGE_CACHE names)")
    cache.add_argument("--clear", action="store_true", help="delete everything that is in it")
    cache.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError("a header looks like 'Name: value'")  # not shown: it may hold a secret
    return name.strip(), value.strip()


def _storage_option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError("a storage option looks like key=value")
    return key.strip(), {"true": True, "false": False}.get(value.lower(), value)
