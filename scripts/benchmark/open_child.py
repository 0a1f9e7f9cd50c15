"""Open a document with one tool, and list its root: ``python -m benchmark.open_child TOOL DOCUMENT``."""

from __future__ import annotations

import sys

from benchmark.dialog import Dialog
from benchmark.read_child import TOOLS


def main() -> None:
    """Command line; see the module's docstring."""
    tool, document = sys.argv[1:]
    dialog = Dialog()
    _, opener = TOOLS[tool](document)
    with dialog.phase("imports"):
        pass  # its memory is what the process needs before
    with dialog.phase("open"):
        names = list(opener().keys())
    dialog.finish(names=sorted(names))


if __name__ == "__main__":
    main()
