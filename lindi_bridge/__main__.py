"""``python -m lindi_bridge``: the same as the command ``lindi-bridge``."""

from __future__ import annotations

import sys

from lindi_bridge.cli import main

if __name__ == "__main__":
    sys.exit(main())
