"""The HDF5 files that the foreign documents are made of: one as LINDI's users have them, one like netCDF."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np


def lindi_source(path: Path) -> None:
    """Everything that LINDI 0.4.6 can index."""
    random = np.random.default_rng(7)
    numbers = np.cumsum(random.integers(0, 3, 6000)).astype("i4").reshape(60, 100)
    with h5py.File(path, "w") as file:
        file.attrs.update({"object_id": "6b2f", "nan": np.nan, "inf": -np.inf, "i": 3, "b": True, "x": 1.5})
        file.attrs.update({"list": [1, 2, 3], "floats": [0.5, np.nan], "words": ["a", "bé"], "empty": ""})
        file["small"] = np.arange(12, dtype="i2").reshape(3, 4)
        file.create_dataset("gzip", data=numbers, chunks=(20, 50), compression="gzip", shuffle=True)
        file.create_dataset("edges", data=numbers[:55, :90], chunks=(20, 50), compression="gzip")
        file.create_dataset("plain", data=numbers, chunks=(20, 50))
        missing = file.create_dataset("missing", (4000,), "i4", chunks=(1000,), fillvalue=-9)
        missing[1000:2000] = np.arange(1000)
        file["split"] = np.arange(5003.0)  # LINDI cuts it: the last piece is short
        file["table"] = random.random((300, 7))
        file.create_dataset("many", data=np.arange(2000), chunks=(50,))  # LINDI links to it
        file["words"] = ["one", "two", "trois é", ""]
        file["fixed"] = np.array([b"ab", b"c"])
        file["flags"] = np.array([True, False, True])
        file["scalar"] = 7.5
        file["title"] = "héllo"
        file["rows"] = np.array([(1, 2.5), (2, np.nan)], [("id", "i4"), ("x", "f8")])
        group = file.create_group("group")
        group["deep/values"] = np.arange(2000, dtype=">u2")
        group.attrs["about"] = file["small"].ref
        file["refs"] = np.array([file["small"].ref, group.ref], h5py.ref_dtype)
        links = file.create_dataset("links", (2,), np.dtype([("n", "i4"), ("what", h5py.ref_dtype)]))
        for k in range(2):
            links[k] = (k, file["small"].ref)
        file["soft"] = h5py.SoftLink("/group")
        file["chain"] = h5py.SoftLink("/soft/deep")


def netcdf_source(path: Path) -> None:
    """Arrays over named dimensions."""
    with h5py.File(path, "w") as file:
        for name, length in (("time", 40), ("x", 100)):
            file[name] = np.arange(length, dtype="f8")
            file[name].make_scale(name)
        values = np.random.default_rng(7).integers(0, 50, (40, 100)).astype("i4")
        file.create_dataset("packed", data=values, chunks=(10, 50), compression="gzip", shuffle=True)
        file.create_dataset("whole", data=values / 7)
        for name in ("packed", "whole"):
            file[name].attrs["units"] = "m"
            for axis, scale in enumerate(("time", "x")):
                file[name].dims[axis].attach_scale(file[scale])


if __name__ == "__main__":
    lindi_source(Path("source.h5"))
    netcdf_source(Path("netcdf.h5"))
