"""The layers of the package: data flows one way, so a module may import what stands before it, never back."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lindi_bridge

PACKAGE = Path(lindi_bridge.__file__).parent

LAYERS = [
    "errors",
    "ranges",
    "model",
    "hdf5",
    "indexer",
    "document",
    "client",
    "store",
    "elements",
    "api",
    "inspection",
    "cli",
    "__main__",
]

# What a layer must not know. (Module names at any depth of an import statement.)
FORBIDDEN = {
    "ranges": {"h5py", "zarr", "numcodecs"},
    "model": {"h5py", "zarr", "numcodecs", "requests", "fsspec", "obstore", "json", "io", "socket"},
    "hdf5": {"zarr", "numcodecs", "requests", "fsspec", "obstore", "json"},
    "indexer": {"zarr", "requests", "fsspec", "obstore", "json"},
    "document": {"h5py", "zarr", "requests", "fsspec", "obstore"},
    "client": {"zarr", "requests", "fsspec", "obstore"},
    "store": {"requests", "fsspec", "obstore"},
    "elements": {"requests", "fsspec", "obstore"},
}


def _imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            yield node.module


def _modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts != ("__init__",):
            yield pytest.param(path, parts[0], id=".".join(parts))


@pytest.mark.parametrize(("path", "layer"), list(_modules()))
def test_a_module_imports_only_what_stands_before_it(path, layer):
    for name in _imports(ast.parse(path.read_text())):
        root, _, rest = name.partition(".")
        if root == "lindi_bridge" and rest:
            other = rest.split(".")[0]
            assert LAYERS.index(other) <= LAYERS.index(layer), f"{path.name} imports {name}"
        else:
            assert root not in FORBIDDEN.get(layer, ()), f"{path.name} imports {name}"


def test_the_model_knows_of_the_ranges_only_what_a_source_is():
    for path in (PACKAGE / "model").glob("*.py"):
        for name in _imports(ast.parse(path.read_text())):
            if name.startswith("lindi_bridge.ranges"):
                assert name == "lindi_bridge.ranges.identity"


def test_no_module_is_a_drawer():
    names = {path.stem for path in PACKAGE.rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "helper", "misc", "common"}
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 450, f"{path} is too long to have one reason to change"


def test_there_are_no_import_circles():
    graph = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(("lindi_bridge", *parts)).removesuffix(".__init__")
        top = ast.parse(path.read_text()).body
        statements = [s for s in top if isinstance(s, (ast.Import, ast.ImportFrom))]
        graph[name] = {n for s in statements for n in _imports(s) if n.startswith("lindi_bridge.")}
    done: set[str] = set()

    def visit(name, trail):
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for other in sorted(graph.get(name, ())):
                visit(other, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())
