"""The documentation: it builds without a warning, its links lead somewhere, and its examples are real.

Those of docs/format.md: tests/conformance/test_format.py.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    return [text for name, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="Sphinx is not installed")
def test_the_documentation_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", tmp_path / "tree", "-b", "html"]
    process = subprocess.run([*command, ROOT / "docs", tmp_path / "html"], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    for page in ("index", "quickstart", "cli", "api", "concepts", "format", "security", "fidelity", "changelog"):
        assert (tmp_path / "html" / f"{page}.html").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page):
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        path = target.partition("#")[0]
        if path and "://" not in path:
            assert (page.parent / path).exists(), f"{page.name} links to {target}"


def test_the_commands_of_the_readme_exist_and_can_be_run():
    for name in ("scripts/demo", "scripts/test", ".ci/run"):
        assert (ROOT / name).stat().st_mode & 0o111 == 0o111


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_are_python(page):
    for text in blocks(page, "python"):
        compile(text, page.name, "exec")
