"""Tests in which h5py is the oracle: what it says of a local file, lindi_bridge has to say of the document."""
