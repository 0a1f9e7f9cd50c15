"""anndata reads our objects whatever was imported first, and nothing depends on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anndata
import h5py
import numpy as np
import pytest
from builders.documents import write_document
from builders.elements import assert_same

import lindi_bridge as lb


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("registration") / "a.h5ad"
    with h5py.File(path, "w") as file:
        anndata.io.write_elem(file, "mapping", {"a": np.arange(3), "b": {"c": "text"}})
    return write_document(path)


ORDERS = {
    "anndata first": "import anndata; import lindi_bridge as lb; f = lb.open(DOCUMENT); x = f['mapping']",
    "anndata last": "import lindi_bridge as lb; f = lb.open(DOCUMENT); x = f['mapping']; import anndata",
    "lb.File": "import lindi_bridge as lb; f = lb.File(DOCUMENT); x = f['mapping']; import anndata",
    "attributes read before": "import lindi_bridge as lb; f = lb.open(DOCUMENT); x = f['mapping']; list(x.attrs); "
    "import anndata",
}


@pytest.mark.parametrize("order", ORDERS)
def test_whatever_is_imported_first(order: str, document: Path) -> None:
    code = f"import sys, warnings; warnings.simplefilter('ignore'); DOCUMENT = {str(document)!r}; {ORDERS[order]}; "
    code += "print(anndata.io.read_elem(x)['b']); print(len(anndata.io.read_elem(f)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == "{'c': 'text'}\n1\n", done.stderr


def test_opening_does_not_import_anndata(document: Path) -> None:
    code = f"import sys, lindi_bridge as lb; f = lb.open({str(document)!r}); f['mapping'].attrs['encoding-type']; "
    code += "lb.prefetch(f); print('anndata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "False\n"


def test_a_registry_of_another_layout_is_left_alone(
    document: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from anndata._io.specs import registry

    from lindi_bridge.elements import registration

    monkeypatch.setattr(registry, "_REGISTRY", object())
    with caplog.at_level("INFO"):
        registration.register_types()
    assert "cannot be told of new types" in caplog.text


def test_read_elem_does_not_need_the_registry(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anndata._io.specs.registry import _REGISTRY

    plain = {key: reader for key, reader in _REGISTRY.read.items() if key[0] not in (lb.File, lb.Group, lb.Dataset)}
    monkeypatch.setattr(_REGISTRY, "read", plain)
    with lb.open(document) as file, h5py.File(document.with_suffix("").with_suffix("")) as local:
        assert_same(lb.read_elem(file["mapping"]), anndata.io.read_elem(local["mapping"]))
        with pytest.raises(Exception, match="No read method registered"):
            anndata.io.read_elem(file["mapping"])
