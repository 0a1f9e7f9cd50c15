"""``lindi-bridge diff``."""

from __future__ import annotations

import argparse
import sys

from lindi_bridge.cli.source import access_options
from lindi_bridge.cli.text import clean, count, write

__all__ = ["FAILED", "run"]

FAILED = 2
"""Exit status after an error: 1 says that they differ."""


def run(options: argparse.Namespace) -> int:
    """Compare SRC and OTHER; one line for every difference (exit status 1)."""
    from lindi_bridge.inspection.diff import diff

    found = 0
    for difference in diff(options.src, options.other, **access_options(options)):
        found += 1
        write("\t".join(map(clean, (difference.path, difference.what, difference.left, difference.right))))
    sys.stderr.write(f"{count(found, 'difference')}\n")
    return 1 if found else 0
