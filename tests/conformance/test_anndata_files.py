"""AnnData files, real ones of several versions and one made here, read by anndata itself over our file object.

anndata sees a plain h5py.File; whatever it makes of the local file, it has to make of the document.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from builders.documents import write_document

import lindi_bridge as lb

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")
sparse = pytest.importorskip("scipy.sparse")

REAL_FILES = Path(__file__).parents[3] / "shared" / "data" / "anndata"
"""Files written by real versions of anndata; they lie outside the repository."""

MADE_HERE = "made here"
SOURCES = [MADE_HERE, *sorted(path.name for path in REAL_FILES.glob("*.h5ad"))]


@pytest.fixture(autouse=True)
def quiet_anndata():
    """anndata warns of old formats and deprecations, which are not what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _make_h5ad(path: Path) -> None:
    """A small file with most of the elements that anndata knows."""
    random = np.random.default_rng(1)
    cells, genes = 40, 12
    obs = pandas.DataFrame(index=[f"cell {i}" for i in range(cells)])
    obs["type"] = pandas.Categorical(random.choice(["B", "T", "NK"], cells))
    obs["stage"] = pandas.Categorical(random.choice(["early", "late"], cells), ["early", "late"], ordered=True)
    obs["score"] = random.random(cells)
    obs["count"] = random.integers(0, 9, cells)
    obs["good"] = random.random(cells) > 0.5
    obs["note"] = [f"nöte {i % 5}" for i in range(cells)]
    obs["maybe"] = pandas.array([None if i % 4 == 0 else i for i in range(cells)], dtype="Int64")
    obs["perhaps"] = pandas.array([None if i % 3 == 0 else i % 2 == 0 for i in range(cells)], dtype="boolean")
    var = pandas.DataFrame({"length": random.random(genes)}, index=[f"gene {i}" for i in range(genes)])
    counts = sparse.random(cells, genes, 0.3, format="csr", random_state=1, dtype=np.float32)
    made = anndata.AnnData(counts, obs=obs, var=var)
    made.layers["dense"] = random.random((cells, genes))
    made.layers["columns"] = counts.tocsc()
    made.obsm["umap"] = random.random((cells, 2))
    made.obsm["table"] = pandas.DataFrame({"a": np.arange(cells)}, index=obs.index)
    made.varm["loadings"] = random.random((genes, 3)).astype("f4")
    made.obsp["neighbours"] = sparse.random(cells, cells, 0.1, format="csr", random_state=2)
    made.uns["title"] = "título"
    made.uns["nested"] = {"number": 3, "real": np.float32(0.1), "flag": True, "list": np.array(["a", "b"])}
    made.uns["empty"] = {}
    made.uns["records"] = np.array([(1, 0.5), (2, 1.5)], dtype=[("rank", "i4"), ("score", "f8")])
    made.raw = made.copy()
    made.write_h5ad(path, compression="gzip")


@pytest.fixture(scope="module", params=SOURCES)
def files(request, tmp_path_factory):
    """A local .h5ad and its document."""
    folder = tmp_path_factory.mktemp("anndata")
    source = folder / "source.h5ad"
    if request.param == MADE_HERE:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _make_h5ad(source)
    else:
        source.write_bytes((REAL_FILES / request.param).read_bytes())
    return source, write_document(source)


def test_real_files_are_there():
    if not REAL_FILES.is_dir():
        pytest.skip("no real .h5ad files here: ../shared/data/anndata lies outside the repository")
    assert len(SOURCES) > 1


def _elements(group: h5py.Group, path: str = "") -> Iterator[str]:
    """Paths of all objects, groups before their members."""
    for name, thing in group.items():
        yield f"{path}{name}"
        if isinstance(thing, h5py.Group):
            yield from _elements(thing, f"{path}{name}/")


def _assert_equal(expected: Any, actual: Any, where: str) -> None:
    """Deep equality of what anndata makes of an element."""
    assert type(expected) is type(actual), where
    if isinstance(expected, anndata.AnnData):
        for name in ("X", "obs", "var", "obsm", "varm", "obsp", "varp", "layers", "uns"):
            _assert_equal(getattr(expected, name), getattr(actual, name), f"{where}.{name}")
        if expected.raw is not None:
            _assert_equal(expected.raw.to_adata(), actual.raw.to_adata(), f"{where}.raw")
    elif isinstance(expected, pandas.DataFrame):
        pandas.testing.assert_frame_equal(expected, actual)
    elif isinstance(expected, pandas.Categorical):
        pandas.testing.assert_extension_array_equal(pandas.Series(expected).array, pandas.Series(actual).array)
    elif isinstance(expected, pandas.api.extensions.ExtensionArray):
        pandas.testing.assert_extension_array_equal(expected, actual)
    elif sparse.issparse(expected):
        assert expected.dtype == actual.dtype, where
        for part in ("data", "indices", "indptr"):
            assert np.array_equal(getattr(expected, part), getattr(actual, part), equal_nan=part == "data"), where
    elif isinstance(expected, np.ndarray):
        assert expected.dtype == actual.dtype, where
        np.testing.assert_array_equal(expected, actual, where)
    elif hasattr(expected, "keys"):
        assert list(expected.keys()) == list(actual.keys()), where
        for key in expected.keys():  # noqa: SIM118 (AnnData's mappings)
            local, remote = (_outcome(lambda thing=thing, key=key: thing[key]) for thing in (expected, actual))
            _assert_equal(local, remote, f"{where}/{key}")
    elif isinstance(expected, (h5py.Dataset, h5py.Group)):
        assert expected.name == actual.name, where
    elif hasattr(expected, "to_memory"):
        _assert_equal(expected.to_memory(), actual.to_memory(), where)
    else:
        assert expected == actual or (np.isnan(expected) and np.isnan(actual)), where


def _outcome(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
        return type(error)


def test_every_element_is_equal(files):
    source, document = files
    with h5py.File(source) as expected, h5py.File(lb.hdf5_file(str(document))) as actual:
        paths = list(_elements(expected))
        assert list(_elements(actual)) == paths
        readable = 0
        for path in ["/", *paths]:
            local = _outcome(lambda path=path: anndata.io.read_elem(expected[path]))
            _assert_equal(local, _outcome(lambda path=path: anndata.io.read_elem(actual[path])), path)
            readable += not isinstance(local, type)
        assert readable > len(paths) / 2


def test_the_whole_file_in_memory(files):
    source, document = files
    local = anndata.read_h5ad(source)
    assert local.n_obs
    _assert_equal(local, anndata.read_h5ad(lb.hdf5_file(str(document))), "")


def test_the_whole_file_backed(files):
    source, document = files
    local = _outcome(lambda: anndata.read_h5ad(source, backed="r"))
    if isinstance(local, type):
        pytest.skip(f"anndata itself cannot open this file backed: {local.__name__}")
    remote = anndata.read_h5ad(lb.hdf5_file(str(document)), backed="r")
    try:
        for attribute in ("obs", "var", "obsm", "varm", "layers", "uns"):
            _assert_equal(getattr(local, attribute), getattr(remote, attribute), attribute)
        rows = slice(3, 17)
        wanted, found = (_outcome(lambda data=data: data.X[rows]) for data in (local, remote))
        _assert_equal(wanted, found, "X")
        wanted, found = (_outcome(lambda data=data: data[rows].to_memory()) for data in (local, remote))
        _assert_equal(wanted, found, "rows")
    finally:
        local.file.close()
        remote.file.close()


def test_our_own_file_object_is_read_by_anndata(files):
    """The exact h5py classes on the same identifiers, which is what anndata dispatches on."""
    source, document = files
    with h5py.File(source) as expected, lb.open(str(document)) as actual:
        for name in expected:
            local = _outcome(lambda name=name: anndata.io.read_elem(expected[name]))
            plain_class = h5py.Group if isinstance(expected[name], h5py.Group) else h5py.Dataset
            plain = plain_class(actual[name].id)
            _assert_equal(local, _outcome(lambda plain=plain: anndata.io.read_elem(plain)), name)
