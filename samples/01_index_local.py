"""Index a file on this disk and save the document.

python samples/01_index_local.py atlas.h5ad
python samples/01_index_local.py atlas.h5ad atlas.lindi.json --url https://host/atlas.h5ad
"""

import argparse

import lindi_bridge as lb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="path of an HDF5 file")
    parser.add_argument("document", nargs="?", default="out.lindi.json", help="where to save (default: %(default)s)")
    parser.add_argument("--url", help="where readers will find the file, if it is published")
    options = parser.parse_args()

    index = lb.index(options.source, url=options.url)
    index.save(options.document)

    print(f"{options.document}: {len(index.paths)} objects of a file of {index.size:,} bytes")
    for problem in index.problems:
        print(f"  not in the JSON: {problem.path}: {problem.message}")


if __name__ == "__main__":
    main()
