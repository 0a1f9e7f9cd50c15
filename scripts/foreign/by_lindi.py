"""source.lindi.json, by LINDI."""

import lindi

options = lindi.LindiH5ZarrStoreOpts(num_dataset_chunks_threshold=20, contiguous_dataset_max_chunk_size=16_000)
file = lindi.LindiH5pyFile.from_hdf5_file("source.h5", url="source.h5", zarr_store_opts=options)
file.write_lindi_file("source.lindi.json")
