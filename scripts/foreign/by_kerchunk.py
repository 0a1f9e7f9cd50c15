"""source.kerchunk.json and netcdf.kerchunk.json, by kerchunk."""

import gc
import json
import warnings

import kerchunk.hdf

# Its threads and h5py wait for each other when garbage is collected in the wrong moment.
gc.disable()
warnings.simplefilter("ignore")
for name in ("source", "netcdf"):
    with open(f"{name}.h5", "rb") as stream:
        made = kerchunk.hdf.SingleHdf5ToZarr(stream, f"{name}.h5", inline_threshold=200, error="ignore").translate()
    with open(f"{name}.kerchunk.json", "w") as out:
        json.dump(made, out, indent=0)
