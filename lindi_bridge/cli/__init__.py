"""The command line: ``lindi-bridge index | ls | view | check``.

Results go to standard output, everything else to standard error. Exit status: 0, 1 (failed), 2 (wrong usage),
130 (interrupted).
"""

from __future__ import annotations

from lindi_bridge.cli.command_line import main

__all__ = ["main"]
