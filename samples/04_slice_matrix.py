"""Rows of a sparse matrix in CSR form, with h5py alone: indptr says where a row's values lie.

python samples/04_slice_matrix.py atlas.lindi.json 100 110
"""

import argparse

import numpy as np

import lindi_bridge as lb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", help="a reference document, or an .h5ad anywhere")
    parser.add_argument("first", type=int, nargs="?", default=0, help="first row (default: %(default)s)")
    parser.add_argument("stop", type=int, nargs="?", default=10, help="row after the last (default: %(default)s)")
    parser.add_argument("--matrix", default="X", help="X, layers/counts, ... (default: %(default)s)")
    options = parser.parse_args()

    with lb.open(options.document) as file:
        matrix = file[options.matrix]
        encoding = matrix.attrs.get("encoding-type")
        if encoding != "csr_matrix":
            raise SystemExit(f"{options.matrix} is {encoding}, not a csr_matrix; try --matrix layers/counts")
        n_rows, n_columns = matrix.attrs["shape"]
        first, stop = max(0, options.first), min(options.stop, n_rows)

        indptr = matrix["indptr"][first : stop + 1]
        begin, end = indptr[0], indptr[-1]
        values, columns = matrix["data"][begin:end], matrix["indices"][begin:end]

    dense = np.zeros((stop - first, n_columns), values.dtype)
    dense[np.repeat(np.arange(stop - first), np.diff(indptr)), columns] = values
    print(f"rows {first} to {stop - 1} of {n_rows} x {n_columns}: {len(values)} values, sum {values.sum():.6g}")
    for row, numbers in enumerate(dense, start=first):
        print(f"  row {row}: {np.count_nonzero(numbers)} values, sum {numbers.sum():.6g}")


if __name__ == "__main__":
    main()
