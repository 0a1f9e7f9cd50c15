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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "peers"))

import h5py
import lindi
from values import Finding, canonical, compare_values, equal

FIELDS_ONLY = "does not support selection"
"""LINDI reads a compound field by field, and says so in these words when it is asked for rows."""


def compare(file: h5py.File, opened: Any) -> Iterator[Finding]:
    """Differences of values; compounds are read field by field."""
    compounds = set()
    for finding in compare_values(file, opened):
        if finding.kind == "read" and FIELDS_ONLY in finding.message:
            compounds.add(finding.path)
        elif finding.kind != "metadata":
            yield finding
    for path in sorted(compounds):
        for name in file[path].dtype.names:
            try:
                found = opened[path][name][:]
            except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
                yield Finding("read", f"{path}[{name}]", f"{type(error).__name__}: {error}")
                continue
            if not equal(canonical(file[path][name], file), canonical(found, opened)):
                yield Finding("value", f"{path}[{name}]", "another value")


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
            print(json.dumps(list(compare(file, lindi.LindiH5pyFile.from_lindi_file(second)))))


if __name__ == "__main__":
    main()
