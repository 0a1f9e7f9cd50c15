"""Hand a remote .h5ad to scanpy, through a file object: backed (X stays where it is) or in memory.

python samples/05_hand_to_scanpy.py atlas.lindi.json
python samples/05_hand_to_scanpy.py atlas.lindi.json --in-memory
"""

import argparse

import scanpy

import lindi_bridge as lb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", help="a reference document, or an .h5ad anywhere")
    parser.add_argument("--in-memory", action="store_true", help="read all of it, X included")
    options = parser.parse_args()

    file = lb.hdf5_file(options.document)
    adata = scanpy.read_h5ad(file, backed=None if options.in_memory else "r")
    print(adata)

    rows = adata[:5].to_memory() if adata.isbacked else adata[:5]
    print(f"the first {rows.n_obs} cells have {rows.X.sum():.6g} counts")
    if adata.isbacked:
        adata.file.close()


if __name__ == "__main__":
    main()
