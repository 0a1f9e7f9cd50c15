"""Filters: HDF5's own, plug-ins, their order, and chunks that skipped some of them."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from builders.registry import SkipFeature, feature, random_numbers, slowly_rising

try:
    import hdf5plugin
except ImportError:
    hdf5plugin = None


def _filtered(path: Path, data: np.ndarray | None = None, **filters: Any) -> None:
    """One chunked dataset with the filters that h5py's high level knows."""
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=slowly_rising() if data is None else data, chunks=(20, 50), **filters)


def _plugin(name: str, **options: Any) -> dict[str, Any]:
    """Keywords of create_dataset for a filter of hdf5plugin."""
    if hdf5plugin is None:
        raise SkipFeature("hdf5plugin is not installed")
    return dict(getattr(hdf5plugin, name)(**options))


@feature
def filter_gzip(path: Path) -> None:
    """gzip"""
    _filtered(path, compression="gzip")


@feature
def filter_shuffle_gzip(path: Path) -> None:
    """shuffle, gzip"""
    _filtered(path, compression="gzip", shuffle=True)


@feature
def filter_shuffle_only(path: Path) -> None:
    """shuffle alone"""
    _filtered(path, shuffle=True)


@feature
def filter_fletcher32(path: Path) -> None:
    """checksums alone"""
    _filtered(path, fletcher32=True)


@feature
def filter_gzip_fletcher32(path: Path) -> None:
    """gzip, checksums"""
    _filtered(path, compression="gzip", fletcher32=True)


@feature
def filter_shuffle_gzip_fletcher32(path: Path) -> None:
    """shuffle, gzip, checksums"""
    _filtered(path, compression="gzip", shuffle=True, fletcher32=True)


@feature
def filter_fletcher_then_gzip_order(path: Path) -> None:
    """the unusual order checksum, gzip, shuffle"""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((20, 50))
    properties.set_fletcher32()
    properties.set_deflate(4)
    properties.set_shuffle()
    _low_level(path, h5py.h5t.NATIVE_INT32, properties)


def _low_level(path: Path, datatype: h5py.h5t.TypeID, properties: h5py.h5p.PropDCID) -> None:
    with h5py.File(path, "w") as file:
        dataset = h5py.h5d.create(file.id, b"d", datatype, h5py.h5s.create_simple((60, 100)), properties)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, slowly_rising())


@feature
def filter_szip(path: Path) -> None:
    """szip"""
    try:
        _filtered(path, compression="szip")
    except ValueError as error:
        raise SkipFeature(f"this HDF5 has no szip encoder: {error}") from error


@feature
def filter_lzf(path: Path) -> None:
    """lzf"""
    _filtered(path, compression="lzf")


@feature
def filter_lzf_shuffle(path: Path) -> None:
    """shuffle, lzf"""
    _filtered(path, compression="lzf", shuffle=True)


@feature
def filter_lzf_small_tiny(path: Path) -> None:
    """lzf on ten numbers"""
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=np.arange(10), chunks=(10,), compression="lzf")


@feature
def filter_scaleoffset_int(path: Path) -> None:
    """scale-offset of integers"""
    _filtered(path, scaleoffset=0)


@feature
def filter_scaleoffset_float(path: Path) -> None:
    """scale-offset of floats"""
    _filtered(path, random_numbers().random((60, 100)).astype("f4"), scaleoffset=3)


@feature
def filter_nbit(path: Path) -> None:
    """n-bit"""
    seventeen_bits = h5py.h5t.NATIVE_INT32.copy()
    seventeen_bits.set_precision(17)
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((20, 50))
    properties.set_filter(h5py.h5z.FILTER_NBIT, 0, ())
    _low_level(path, seventeen_bits, properties)


@feature
def filter_blosc_lz4(path: Path) -> None:
    """blosc with lz4"""
    _filtered(path, **_plugin("Blosc", cname="lz4", clevel=5, shuffle=1))


@feature
def filter_blosc_zstd_bitshuffle(path: Path) -> None:
    """blosc with zstd and bitshuffle"""
    _filtered(path, **_plugin("Blosc", cname="zstd", clevel=5, shuffle=2))


@feature
def filter_blosc2(path: Path) -> None:
    """blosc2"""
    _filtered(path, **_plugin("Blosc2", cname="zstd", clevel=5))


@feature
def filter_zstd(path: Path) -> None:
    """zstd"""
    _filtered(path, **_plugin("Zstd", clevel=3))


@feature
def filter_zstd_shuffle_fletcher(path: Path) -> None:
    """shuffle, zstd, checksums"""
    _filtered(path, **_plugin("Zstd", clevel=3), shuffle=True, fletcher32=True)


@feature
def filter_lz4(path: Path) -> None:
    """lz4"""
    _filtered(path, **_plugin("LZ4"))


@feature
def filter_bitshuffle_lz4(path: Path) -> None:
    """bitshuffle with lz4"""
    _filtered(path, **_plugin("Bitshuffle", cname="lz4"))


@feature
def filter_bitshuffle_zstd(path: Path) -> None:
    """bitshuffle with zstd"""
    _filtered(path, **_plugin("Bitshuffle", cname="zstd"))


@feature
def filter_bitshuffle_none(path: Path) -> None:
    """bitshuffle without compression"""
    _filtered(path, **_plugin("Bitshuffle", cname="none"))


@feature
def filter_bzip2(path: Path) -> None:
    """bzip2"""
    _filtered(path, **_plugin("BZip2"))


@feature
def filter_zfp(path: Path) -> None:
    """zfp, reversible"""
    _filtered(path, random_numbers().random((60, 100)).astype("f4"), **_plugin("Zfp", reversible=True))


def _write_chunks(path: Path, numbers: np.ndarray, chunk: int, filters: dict[str, Any], plan: list[tuple[int, bool]]):
    """Write chunks as they are: for each one its filter mask and whether its bytes are deflated."""
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("d", numbers.shape, chunks=(chunk,), dtype=numbers.dtype, **filters)
        for i, (mask, deflated) in enumerate(plan):
            piece = numbers[i * chunk : (i + 1) * chunk].tobytes()
            dataset.id.write_direct_chunk((i * chunk,), zlib.compress(piece) if deflated else piece, mask)


_SKIP_FIRST, _SKIP_BOTH = 0b01, 0b11


@feature
def filter_mask_mixed(path: Path) -> None:
    """one chunk of two skipped gzip"""
    plan = [(0, True), (_SKIP_FIRST, False)]
    _write_chunks(path, np.arange(2000, dtype="i4"), 1000, {"compression": "gzip"}, plan)


@feature
def filter_mask_mixed_big(path: Path) -> None:
    """every second chunk, of 200 KB each, skipped gzip"""
    plan = [(0, True), (_SKIP_FIRST, False)] * 2
    _write_chunks(path, np.arange(200_000, dtype="i4"), 50_000, {"compression": "gzip"}, plan)


@feature
def filter_mask_uniform(path: Path) -> None:
    """all chunks skipped shuffle and gzip"""
    filters = {"compression": "gzip", "shuffle": True}
    _write_chunks(path, np.arange(2000, dtype="i4"), 1000, filters, [(_SKIP_BOTH, False)] * 2)


@feature
def filter_mask_uniform_partial(path: Path) -> None:
    """all chunks skipped shuffle, none gzip"""
    filters = {"compression": "gzip", "shuffle": True}
    _write_chunks(path, np.arange(2000, dtype="i4"), 1000, filters, [(_SKIP_FIRST, True)] * 2)


@feature
def filter_mask_shuffle_only(path: Path) -> None:
    """shuffle is the only filter and all chunks skipped it"""
    _write_chunks(path, np.arange(2000, dtype="i4"), 1000, {"shuffle": True}, [(_SKIP_FIRST, False)] * 2)


@feature
def filter_mask_shuffle_mixed(path: Path) -> None:
    """shuffle is the only filter and one chunk of two skipped it"""
    numbers = np.arange(200_000, dtype="i4")
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("d", numbers.shape, chunks=(100_000,), dtype="i4", shuffle=True)
        dataset[:100_000] = numbers[:100_000]
        dataset.id.write_direct_chunk((100_000,), numbers[100_000:].tobytes(), _SKIP_FIRST)


@feature
def filter_gzip_incompressible_tiny(path: Path) -> None:
    """gzip on chunks of five random numbers, which grow"""
    numbers = random_numbers().integers(0, 2**31, 2000).astype("i4")
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=numbers, chunks=(5,), compression="gzip")
