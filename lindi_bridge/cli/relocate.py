"""``lindi-bridge relocate``."""

from __future__ import annotations

import argparse
import sys

from lindi_bridge.cli.source import access_options
from lindi_bridge.cli.text import clean, write

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Write SRC with another address of its source."""
    from lindi_bridge.inspection.relocation import relocate
    from lindi_bridge.ranges import scheme_of, strip_secrets

    output = options.output or options.src
    if scheme_of(output):
        raise argparse.ArgumentTypeError("a document on a server is not written to; say where to write with -o")
    moved = relocate(
        options.src, options.new, output, old_url=options.from_url, verify=options.verify, **access_options(options)
    )
    for old, new in moved.items():
        sys.stderr.write(f"{clean(strip_secrets(old))} -> {clean(new)}\n")
    write(output)
    return 0
