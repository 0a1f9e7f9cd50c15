"""``lindi-bridge index``."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any
from urllib.parse import unquote

from lindi_bridge.cli.source import access_options
from lindi_bridge.cli.text import clean, count, size, write
from lindi_bridge.errors import LindiBridgeError

__all__ = ["run"]

_MOST_PROBLEMS = 20


def run(options: argparse.Namespace) -> int:
    """Index SRC and write the document."""
    import lindi_bridge

    output = options.output or _default_output(options.src, options.profile)
    _check_output(output, options.src)
    progress = _Progress()
    try:
        made = lindi_bridge.index(
            options.src,
            url=options.url,
            strict=options.strict,
            profile=options.profile,
            link_above=options.link_above,
            progress=progress,
            **access_options(options),
        )
    finally:
        progress.close()
    made.save(output)
    _summarise(made, options.src, output)
    write(output)
    return 0


def _default_output(source: str, profile: str) -> str:
    from lindi_bridge.ranges import scheme_of, strip_secrets

    name = os.path.basename(unquote(strip_secrets(source)) if scheme_of(source) else source)
    if not name:
        raise argparse.ArgumentTypeError(f"{strip_secrets(source)} has no file name to name the document after; use -o")
    return f"{name}.{profile}.json"


def _check_output(output: str, source: str) -> None:
    """Refuse what cannot be written, before the walk and not after it."""
    from lindi_bridge.ranges.address import is_local, local_path

    folder = os.path.dirname(os.path.abspath(output))
    if not os.path.isdir(folder):
        raise LindiBridgeError(f"{output}: there is no folder {folder}; make it, or choose another place with -o")
    if os.path.isdir(output):
        raise LindiBridgeError(f"{output}: is a folder; give the name of a file with -o")
    if not os.access(folder, os.W_OK):
        raise LindiBridgeError(f"{output}: the folder {folder} may not be written to; choose another with -o")
    if not os.path.exists(output):
        return
    if is_local(source) and os.path.exists(local_path(source)) and os.path.samefile(output, local_path(source)):
        raise LindiBridgeError(
            f"{output}: is the file to be indexed, and is not overwritten; choose another name with -o"
        )
    with open(output, "rb") as existing:
        if existing.read(8) == b"\x89HDF\r\n\x1a\n":
            raise LindiBridgeError(f"{output}: is an HDF5 file, and is not overwritten; choose another name with -o")


def _summarise(made: Any, source: str, output: str) -> None:
    from lindi_bridge.model.nodes import ArrayNode, GroupNode, SoftLinkNode
    from lindi_bridge.ranges import strip_secrets

    nodes = list(made._tree.nodes.values())
    groups, datasets, links = (
        sum(isinstance(node, kind) for node in nodes) for kind in (GroupNode, ArrayNode, SoftLinkNode)
    )
    found = [count(groups, "group"), count(datasets, "dataset"), count(links, "link")]
    lines = [
        f"{clean(strip_secrets(source))} ({size(made.size)}) -> {clean(output)} ({size(os.path.getsize(output))})",
        "  " + ", ".join(found),
    ]
    statistics = getattr(made, "statistics", None)
    if statistics is not None:
        asked = f"{count(statistics.requests, 'request')} in {count(statistics.waves, 'wave')}"
        lines.append(f"  {asked}, {size(statistics.nbytes)} read")
    problems = made.problems
    if problems:
        lines.append(f"  {count(len(problems), 'object')} that readers of the JSON alone will not see:")
        lines += [f"    {clean(p.path)}: {p.kind}: {clean(p.message)}" for p in problems[:_MOST_PROBLEMS]]
        if len(problems) > _MOST_PROBLEMS:
            lines.append(f"    and {len(problems) - _MOST_PROBLEMS} more (lindi-bridge check lists all)")
    sys.stderr.write("\n".join(lines) + "\n")


class _Progress:
    """One bar a stage on standard error, if that is a terminal."""

    def __init__(self) -> None:
        self._stage = ""
        self._bar: Any = None
        self._found = 0

    def __call__(self, stage: str, done: int) -> None:
        """Count ``done`` more objects."""
        if not sys.stderr.isatty():
            return
        if stage != self._stage:
            from tqdm import tqdm

            self.close()
            self._stage = stage
            total = self._found + 1 if stage == "index" and self._found else None  # the root is not counted as found
            self._bar = tqdm(desc=stage, unit=" objects", total=total, leave=False, file=sys.stderr)
        if stage == "walk":
            self._found += done
        self._bar.update(done)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
