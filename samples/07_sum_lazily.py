"""The counts of every cell, block of rows by block of rows, by dask: no block is in memory longer than it is needed.

python samples/07_sum_lazily.py atlas.lindi.json
python samples/07_sum_lazily.py atlas.lindi.json --workers 4     # processes of dask.distributed
"""

import argparse
import contextlib

import numpy as np

import lindi_bridge as lb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", help="a reference document, or an .h5ad anywhere")
    parser.add_argument("--workers", type=int, default=0, help="processes; without it, threads of this one")
    options = parser.parse_args()

    adata = lb.read_lazy(options.document)  # opens the document, and reads the names of cells and genes
    blocks = adata.X.map_blocks(total, dtype="f8", chunks=(adata.X.chunks[0], (1,)))

    with contextlib.ExitStack() as stack:
        if options.workers:
            from dask.distributed import Client

            stack.enter_context(Client(n_workers=options.workers, threads_per_worker=1, dashboard_address=None))
        counts = blocks.compute().ravel()

    print(f"{adata.n_obs} cells in {blocks.numblocks[0]} blocks: {counts.sum():.6g} counts")
    most = int(counts.argmax())
    print(f"  most in {adata.obs_names[most]}: {counts[most]:.6g}")


def total(block: object) -> np.ndarray:
    """Sum of each row, as a column."""
    return np.asarray(block.sum(axis=1), "f8").reshape(-1, 1)


if __name__ == "__main__":
    main()
