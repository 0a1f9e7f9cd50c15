"""An open HDF5 file as a read-only Zarr store of version 3.

Data flow: what a file holds (``opening``, ``objects``), how each object is presented as a Zarr node (``element_types``,
``presentation``, ``attributes``, ``nodes``, ``hierarchy``) and said in zarr's metadata (``metadata``, ``group``); the
bytes of chunks (``text``, ``chunks``, ``fetching``, ``serving``, ``waiting``); and requests that zarr makes at one time
gathered into waves (``keys``, ``bursts``, ``waves``, ``store``). Only ``bursts``, ``metadata``, ``store`` and ``group``
import zarr.
"""
