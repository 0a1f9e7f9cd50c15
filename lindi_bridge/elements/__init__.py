"""The anndata face: elements of AnnData files, read by anndata itself over what was fetched ahead."""
