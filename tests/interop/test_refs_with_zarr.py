"""The refs of a document, read by zarr 3 through fsspec's reference file system: never another value than h5py's."""

from __future__ import annotations

import json
import warnings

import h5py
import numpy as np
import pytest
from builders.documents import write_document
from builders.features import BAD, COMPANIONS, FEATURES, SkipFeature
from numcodecs import get_codec

zarr = pytest.importorskip("zarr")

READABLE = sorted(set(FEATURES) - BAD - COMPANIONS)


def _array_paths(refs):
    return [key[: -len("/.zarray")] for key in refs if key.endswith("/.zarray")]


def _open_array(refs, path):
    import fsspec
    from zarr.storage import FsspecStore

    fs = fsspec.filesystem("reference", fo=refs, remote_protocol="file", asynchronous=True)
    return zarr.open_array(FsspecStore(fs, read_only=True, path=path), mode="r", zarr_format=2)


def _expected(dataset):
    string = h5py.check_string_dtype(dataset.dtype)
    if string is not None and string.length is None:
        return np.asarray(dataset.asstr()[()], object)
    return np.asarray(dataset[()])


def _load(source, path):
    document = json.loads(path.read_text())
    assert document["templates"] == {"u": source.name}
    text = json.dumps(document["refs"]).replace("{{u}}", str(source))
    return {"version": 1, "refs": json.loads(text)}


@pytest.mark.parametrize("name", READABLE)
def test_zarr_reads_what_h5py_reads(name, tmp_path):
    source = tmp_path / f"{name}.h5"
    try:
        FEATURES[name](source)
    except SkipFeature as reason:
        pytest.skip(str(reason))
    document = _load(source, write_document(source))
    refs = document["refs"]
    compared = 0
    with h5py.File(source) as file:
        for path in _array_paths(refs):
            metadata = refs[f"{path}/.zarray"]
            attributes = refs.get(f"{path}/.zattrs", {})
            codecs = [c["id"] for c in metadata["filters"] or ()]
            if "_EXTERNAL_ARRAY_LINK" in attributes or "json2" in codecs:
                continue  # zarr has no such type; LINDI does
            for codec in [*(metadata["filters"] or ()), metadata["compressor"]]:
                if codec is not None:
                    get_codec(dict(codec))
            dataset = file[path]
            if dataset.shape is None:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # zarr: some of these types have no v3 specification yet
                try:
                    array = _open_array(document, path)
                except ValueError as error:
                    if "data type" in str(error):
                        continue  # long double, opaque: LINDI's zarr 2 has them, zarr 3 has not
                    raise
                actual = np.asarray(array[...])
            expected = _expected(dataset)
            if attributes.get("_SCALAR"):
                expected = expected.reshape(1)
            assert actual.shape == expected.shape, path
            if expected.dtype == object:
                actual = actual.astype(object)
            if expected.dtype.kind in "fc":
                np.testing.assert_array_equal(actual, expected, err_msg=path)
            else:
                assert actual.tolist() == expected.tolist(), path
            compared += 1
    assert compared or name in WITHOUT_ZARR_ARRAYS


WITHOUT_ZARR_ARRAYS = {
    *(
        name
        for name in READABLE
        if name.startswith(("attr", "compound_", "filter_", "vlen_array", "objref", "regionref"))
    ),
    "array_dtype",
    "committed_datatype",
    "empty_attr",
    "empty_dataset",
    "external_link_dangling",
    "int_odd_bitfield",
    "longdouble",
    "many_groups_dense_links",
    "opaque",
    "virtual_dataset_same_file",
    "vlen_str_non_utf8",
}
