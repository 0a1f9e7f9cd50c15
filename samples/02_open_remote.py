"""Index a file on a server, then open it from the document: h5py's own interface, no download.

python samples/02_open_remote.py https://host/atlas.h5ad
"""

import argparse

import h5py

import lindi_bridge as lb


def show(name: str, obj: h5py.HLObject) -> None:
    detail = f"{obj.shape} {obj.dtype}" if isinstance(obj, h5py.Dataset) else f"{len(obj)} members"
    print(f"  {name}: {detail}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="address of an HDF5 file: https://, s3://, gs://, az://, or a path")
    parser.add_argument("document", nargs="?", default="remote.lindi.json", help="where to save (default: %(default)s)")
    options = parser.parse_args()

    lb.index(options.url).save(options.document)  # once; share the JSON

    with lb.open(options.document) as file:  # asks the server nothing
        print(file)
        file.visititems(show)


if __name__ == "__main__":
    main()
