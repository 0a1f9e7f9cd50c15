"""HDF5 files with every kind of element that anndata knows, and what they must be equal to."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np


def assert_same(found: Any, expected: Any, where: str = "") -> None:
    """The same classes and exactly the same values, by anndata's own comparison."""
    from anndata.tests.helpers import assert_equal

    assert type(found) is type(expected), where
    if isinstance(expected, Mapping) and type(expected) is dict:
        assert list(found) == list(expected), where
        for key in expected:
            assert_same(found[key], expected[key], f"{where}/{key}")
    elif isinstance(expected, float) and np.isnan(expected):
        assert np.isnan(found), where
    else:
        assert_equal(found, expected, exact=True, elem_name=where)
        assert getattr(found, "dtype", None) == getattr(expected, "dtype", None), where


def write_elements(path: Path) -> list[str]:
    """A file with one element of each kind that the installed anndata writes, at its root; their names."""
    import anndata
    import pandas as pd
    import scipy.sparse

    random = np.random.default_rng(5)
    rows = 300
    frame = pd.DataFrame(
        {
            "number": random.random(rows),
            "category": pd.Categorical(random.choice(["B", "T", "NK"], rows)),
            "ordered": pd.Categorical(random.choice(["low", "high"], rows), ["low", "high"], ordered=True),
            "holes": pd.Categorical([None if i % 3 == 0 else "x" for i in range(rows)]),
            "string": np.array([f"wört {i}" for i in range(rows)], dtype=object),
            "flag": random.random(rows) > 0.5,
            "integer": pd.array([None if i % 4 == 0 else i for i in range(rows)], dtype="Int32"),
            "boolean": pd.array([None if i % 5 == 0 else i % 2 == 0 for i in range(rows)], dtype="boolean"),
        },
        index=pd.Index([f"row {i}" for i in range(rows)], name="barcode"),
    )
    matrix = scipy.sparse.random(rows, 40, 0.2, "csr", "f4", random)
    elements: dict[str, Any] = {
        "array": random.random((rows, 7)),
        "array-3d": random.integers(0, 9, (4, 5, 6)),
        "array-empty": np.empty((0, 3), "f4"),
        "big-endian": np.arange(10, dtype=">i4"),
        "complex": np.array([1 + 2j, 3]),
        "bool-array": random.random(rows) > 0.5,
        "string-array": np.array([f"ä{i}" * (i % 9) for i in range(rows)], dtype=object),
        "string-array-2d": np.array([["a", "b"], ["c", ""]], dtype=object),
        "rec-array": np.array([(1, 0.5, "one"), (2, 1.5, "two")], [("n", "i4"), ("x", "f8"), ("s", "U5")]),
        "csr": matrix,
        "csc": matrix.tocsc(),
        "csr-empty": scipy.sparse.csr_matrix((5, 3)),
        "categorical": pd.Categorical(["x", "y", None, "x"]),
        "categorical-of-numbers": pd.Categorical([3, 1, 3], ordered=True),
        "nullable-integer": pd.array([1, None, 3], dtype="UInt8"),
        "nullable-boolean": pd.array([True, None, False], dtype="boolean"),
        "dataframe": frame,
        "dataframe-of-index": frame[[]],
        "dict": {"a": np.arange(3), "nested": {"text": "t", "number": 1.5, "empty": {}}, "frame": frame[:3]},
        "integer": 7,
        "float": np.float32(0.1),
        "nan": float("nan"),
        "bool": True,
        "complex-scalar": np.complex128(1 + 2j),
        "string": "título",
        "empty-string": "",
        "null": None,
        "anndata": anndata.AnnData(matrix, obs=frame, layers={"dense": matrix.toarray()}),
    }
    raw = elements["anndata"].copy()
    raw.raw = raw
    elements["with-raw"] = raw
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import awkward
        except ImportError:
            pass  # an optional library of anndata
        else:
            elements["awkward"] = awkward.Array([{"a": [1, 2], "b": "x"}, {"a": [], "b": "yy"}])
        with anndata.settings.override(allow_write_nullable_strings=True), h5py.File(path, "w") as file:
            elements["nullable-string"] = pd.array(["a", None, "c"], dtype="string")
            for name, element in elements.items():
                anndata.io.write_elem(file, name, element, dataset_kwargs={} if name == "csc" else {"compression": 4})
            file["bytes"] = np.bytes_("abc")
            tag(file["bytes"], "bytes", "0.2.0")
    return list(elements)


def tag(obj: Any, kind: str, version: str) -> Any:
    """Say of an object what it is."""
    obj.attrs.update({"encoding-type": kind, "encoding-version": version})
    return obj


def write_escaped(group: h5py.Group, content: Mapping[str, Any]) -> None:
    """Members of a mapping under the names that they are stored by, as arrays; an accessor for a list."""
    for name, value in content.items():
        if isinstance(value, list):
            group[name] = json.dumps(value)
            tag(group[name], "accessor", "0.1.0")
        else:
            group[name] = value
            tag(group[name], "array", "0.2.0")
