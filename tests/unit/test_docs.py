"""The documentation: it builds without a warning, its links lead somewhere, and its examples are real."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lindi_bridge as lb

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FORMAT = ROOT / "docs" / "format.md"

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


@pytest.mark.parametrize(("profile", "fewest"), [("lindi", 10), ("zarr", 4)])
def test_every_json_example_of_the_format_parses_and_is_what_is_written(profile, fewest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (maker,) = blocks(FORMAT, "python")
    exec(maker, {})
    lb.index("small.h5", profile=profile).save("small.json")
    document = json.loads(Path("small.json").read_text())
    sections = FORMAT.read_text(encoding="utf-8").split("\n## 7. ")
    examples = [json.loads(text) for name, text in _BLOCK.findall(sections[profile == "zarr"]) if name == "json"]
    assert len(examples) > fewest
    for example in examples:
        assert_is_part_of(example, document if set(example) & {"version", "hdf5", "problems"} else document["refs"])


def assert_is_part_of(example, document):
    """Every key of the example is in the document, with the same value as far as it depends on us alone."""
    if "problems" in example:
        document = document["generationMetadata"]
    if example.get("hdf5"):
        section, written = example["hdf5"], document["hdf5"]
        if section.get("annotations"):
            for path, annotation in section["annotations"].items():
                assert written["annotations"][path] == annotation
        else:
            assert section.keys() == written.keys()
            assert section["metadata"].keys() == written["metadata"].keys()
            assert section["sources"][0].keys() == written["sources"][0].keys()
            assert section["external"] == written["external"]
        return
    for key, value in example.items():
        if isinstance(value, list) and value and value[0] == "{{u}}":
            assert document[key][0] == "{{u}}"
            assert len(document[key]) == 3
        elif key not in ("generationMetadata", "hdf5", "refs"):
            assert document[key] == value, key
        else:
            assert value.keys() <= document[key].keys()
