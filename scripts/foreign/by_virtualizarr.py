"""netcdf.virtualizarr.json, by VirtualiZarr."""

import json
import os
import warnings

from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr.parsers import HDFParser

warnings.simplefilter("ignore")
url = "file://" + os.path.abspath("netcdf.h5")
store = HDFParser()(url=url, registry=ObjectStoreRegistry({"file://": LocalStore()}))
dataset = store.to_virtual_dataset(loadable_variables=[])
made = dataset.vz.to_kerchunk(format="dict")
text = json.dumps(made, indent=0).replace(url, "netcdf.h5").replace(os.path.abspath("netcdf.h5"), "netcdf.h5")
with open("netcdf.virtualizarr.json", "w") as out:
    out.write(text)
