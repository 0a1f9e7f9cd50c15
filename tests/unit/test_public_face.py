"""What ``import lindi_bridge`` gives."""

from __future__ import annotations

import builtins
import inspect
import subprocess
import sys

import pytest

import lindi_bridge
from lindi_bridge import errors


def test_all_is_what_is_exported():
    assert sorted(lindi_bridge.__all__) == sorted(lindi_bridge._HOME_OF)
    for name in lindi_bridge.__all__:
        assert getattr(lindi_bridge, name) is not None
        assert name in dir(lindi_bridge)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = lindi_bridge.nonsense


def test_all_errors_are_public_and_also_a_builtin():
    for name in errors.__all__:
        cls = getattr(errors, name)
        assert getattr(lindi_bridge, name) is cls
        assert issubclass(cls, lindi_bridge.LindiBridgeError)
        assert name in errors.__doc__
        if cls is not lindi_bridge.LindiBridgeError:
            parents = {c for c in cls.__mro__ if c.__module__ == "builtins"} - {Exception, BaseException, object}
            assert parents, f"{name} is no builtin that users catch"


def test_importing_is_cheap():
    """Heavy libraries are imported by the function that needs them."""
    code = "import sys, lindi_bridge; print([m for m in ('h5py', 'numpy', 'requests', 'obstore') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    code = "import sys, lindi_bridge as lb; lb.open; print([m for m in ('zarr', 'obstore', 'fsspec', 'anndata', "
    code += "'numcodecs') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_public_functions_have_docstrings_with_sections():
    for name in ("index", "open", "hdf5_file", "prefetch"):
        doc = inspect.getdoc(getattr(lindi_bridge, name))
        assert "Parameters\n----------" in doc
        assert "Returns\n-------" in doc or "Raises\n------" in doc


def test_open_does_not_hide_the_builtin_elsewhere():
    assert lindi_bridge.open is not builtins.open
