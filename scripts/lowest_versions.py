#!/usr/bin/env python3
"""Print the lowest versions that pyproject.toml promises to work with, as pip constraints: ``h5py==3.11`` and so on.

Dependencies and the extras that users install; what only the tests need is left to pip.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
OF_THE_TIME = ["pandas<3"]
"""What the lowest versions cannot know of: anndata 0.12.0 cannot write the strings of pandas 3."""

REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*)")


def lowest(requirements: list[str]) -> list[str]:
    """Constraints for the requirements that have a lower bound."""
    constraints = []
    for requirement in requirements:
        match = REQUIREMENT.match(requirement)
        bound = re.search(r">=\s*([0-9][^,\s]*)", match[2]) if match else None
        if match and bound:
            constraints.append(f"{match[1]}=={bound[1]}")
    return constraints


def main() -> int:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = {name: extra for name, extra in project["optional-dependencies"].items() if name != "test"}
    requirements = project["dependencies"] + [requirement for extra in extras.values() for requirement in extra]
    print("\n".join([*lowest(requirements), *OF_THE_TIME]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
