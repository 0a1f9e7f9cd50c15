"""What LINDI itself does, in an environment of its own: ``lindi_child.py index|resave|compare ...``.

======================= ==================================================================================
index HDF5 DOCUMENT     LINDI's own document of a file
resave DOCUMENT COPY    opened by LINDI and written again
compare HDF5 DOCUMENT   prints what LINDI reads otherwise than h5py, as a JSON list of [kind, path, message]
======================= ==================================================================================
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "peers"))

import h5py
import lindi
from values import compare_values


def main() -> None:
    """Command line; see the module's docstring."""
    task, first, second = sys.argv[1:]
    if task == "index":
        options = lindi.LindiH5ZarrStoreOpts(num_dataset_chunks_threshold=None)
        lindi.LindiH5pyFile.from_hdf5_file(first, url=first, zarr_store_opts=options).write_lindi_file(second)
    elif task == "resave":
        lindi.LindiH5pyFile.from_lindi_file(first).write_lindi_file(second)
    else:
        with h5py.File(first, "r") as file:
            found = compare_values(file, lindi.LindiH5pyFile.from_lindi_file(second))
        print(json.dumps([finding for finding in found if finding.kind != "metadata"]))


if __name__ == "__main__":
    main()
