"""Columns of obs, one by one, from a document: only the columns that are asked for are read.

python samples/03_read_obs.py atlas.lindi.json
python samples/03_read_obs.py atlas.lindi.json cell_type n_counts
"""

import argparse

import h5py
import numpy as np

import lindi_bridge as lb


def read_column(column: h5py.Group | h5py.Dataset) -> np.ndarray:
    """Values of a column: numbers, strings, a categorical (codes and categories), or a nullable array (with a mask)."""
    if isinstance(column, h5py.Dataset):
        return column.asstr()[:] if h5py.check_string_dtype(column.dtype) else column[:]
    if "codes" in column:
        codes, categories = column["codes"][:], read_column(column["categories"])
        return np.where(codes >= 0, categories[codes], "missing")
    return np.where(column["mask"][:], "missing", read_column(column["values"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", help="a reference document, or an .h5ad anywhere")
    parser.add_argument("columns", nargs="*", help="which columns (default: their names are listed)")
    options = parser.parse_args()

    with lb.open(options.document) as file:
        obs = file["obs"]
        if not options.columns:
            print("\n".join(name for name in obs if name != obs.attrs["_index"]))
        for name in options.columns:
            values = read_column(obs[name])
            print(f"{name}: {len(values)} values, the first {', '.join(map(str, values[:5]))}")
            if values.dtype == object or values.dtype.kind == "U":
                for value, count in zip(*np.unique(values.astype(str), return_counts=True), strict=True):
                    print(f"  {value}: {count}")


if __name__ == "__main__":
    main()
