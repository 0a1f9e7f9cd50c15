"""Cells of one type out of an atlas that stays where it is: obs, var, and the rows of X that are needed.

python samples/06_cells_of_one_type.py atlas.lindi.json "B cell"
python samples/06_cells_of_one_type.py atlas.lindi.json "B cell" --most 1000 -o b_cells.h5ad
"""

import argparse

import anndata
import numpy as np

import lindi_bridge as lb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", help="a reference document, or an .h5ad anywhere")
    parser.add_argument("type", help="which cells")
    parser.add_argument("--column", default="cell_type", help="column of obs (default: %(default)s)")
    parser.add_argument("--most", type=int, default=500, help="so many at the most (default: %(default)s)")
    parser.add_argument("-o", "--output", help="write them to this .h5ad file")
    options = parser.parse_args()

    with lb.open(options.document) as file:
        obs = lb.read_elem(file["obs"])
        rows = np.flatnonzero(obs[options.column] == options.type)[: options.most]
        if not len(rows):
            raise SystemExit(
                f"no {options.type!r} in {options.column}: {sorted(map(str, obs[options.column].unique()))}"
            )
        cells = anndata.AnnData(lb.sparse_rows(file["X"], rows), obs=obs.iloc[rows], var=lb.read_elem(file["var"]))

    print(cells)
    print(f"{cells.n_obs} cells with {cells.X.sum():.6g} counts")
    if options.output:
        cells.write_h5ad(options.output)


if __name__ == "__main__":
    main()
