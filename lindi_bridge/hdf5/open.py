"""Opening an HDF5 file over a file object, with plain words for what can go wrong."""

from __future__ import annotations

import h5py
from h5py import h5f, h5fd, h5p

from lindi_bridge.errors import LindiBridgeError, NotHDF5Error
from lindi_bridge.hdf5.damage import EndOfFileError
from lindi_bridge.hdf5.file import HDF5File
from lindi_bridge.model.text import stored_name

__all__ = ["open_file_id"]

_LARGEST_USER_BLOCK = 64 * 1024
"""Bytes. Larger ones exist, but looking for them costs a round trip each; libhdf5 finds them all the same."""
_SIGNATURE = b"\x89HDF\r\n\x1a\n"

_OTHER_FILES = {
    b"\x1f\x8b": "but one compressed with gzip; decompress it first",
    b"\x28\xb5\x2f\xfd": "but one compressed with Zstandard; decompress it first",
    b"PK\x03\x04": "but a ZIP archive; unpack it first",
    b"CDF": "but netCDF in its classic format; convert it to netCDF-4 first",
    b"version https://git-lfs": "but the pointer of Git LFS to one; fetch the file itself (git lfs pull)",
    b"<": "but what looks like a web page; give the address that downloads the file itself",
    b"{": "but JSON; a reference document is opened, not indexed",
}
"""What is taken for HDF5 files, by how it begins."""


def open_file_id(
    file: HDF5File,
    *,
    rdcc_nslots: int | None = None,
    rdcc_nbytes: int | None = None,
    rdcc_w0: float | None = None,
) -> h5f.FileID:
    """Open ``file`` read-only with libhdf5.

    Parameters
    ----------
    file : HDF5File
        The file object. libhdf5 holds it until the file is closed.
    rdcc_nslots, rdcc_nbytes, rdcc_w0
        Chunk cache settings, as for :class:`h5py.File`.

    Raises
    ------
    NotHDF5Error
        Not an HDF5 file, truncated, or marked as open by a writer.
    SourceError
        The bytes cannot be had.
    """
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_libver_bounds(h5f.LIBVER_EARLIEST, h5f.LIBVER_LATEST)
    access.set_fileobj_driver(h5fd.fileobj_driver, file)
    mdc, nslots, nbytes, w0 = access.get_cache()
    access.set_cache(
        mdc,
        nslots if rdcc_nslots is None else rdcc_nslots,
        nbytes if rdcc_nbytes is None else rdcc_nbytes,
        w0 if rdcc_w0 is None else rdcc_w0,
    )
    _refuse_open_for_writing(file)
    try:
        # The name is only a label here: the driver reads from the file object.
        return h5f.open(stored_name(file.address), h5f.ACC_RDONLY, access)
    except EndOfFileError as error:
        raise NotHDF5Error(_explain(file, error)) from None
    except LindiBridgeError:
        raise
    except OSError as error:
        raise NotHDF5Error(_explain(file, error)) from None


def _refuse_open_for_writing(file: HDF5File) -> None:
    """Look at the file consistency flags, which libhdf5 itself does not over a file object.

    Superblock version 3 (HDF5 File Format Specification 3.0, section II.C): byte 8 is the version, byte 11 the flags;
    bit 0: open for writing, bit 2: open for single-writer/multiple-reader writing.
    """
    start = 0
    while start + 12 <= file.size:
        file.seek(start)
        superblock = file.read(12)
        if superblock.startswith(_SIGNATURE):
            if superblock[8] == 3 and superblock[11] & 0b101:
                raise NotHDF5Error(
                    f"{file.address}: a writer has this file open or did not close it; close the writer, or clear the "
                    "flag with HDF5's tool: h5clear -s FILE"
                )
            return
        start = start * 2 or 512  # a user block is a power of two from 512 on (section II.A)
        if start > _LARGEST_USER_BLOCK:
            return


def _explain(file: HDF5File, error: OSError) -> str:
    text = str(error)
    if file.size == 0:
        return f"{file.address}: the file is empty, so it is not an HDF5 file"
    if isinstance(error, EndOfFileError) or "signature not found" in text:
        file.seek(0)
        head = file.read(64)
        if head.startswith(_SIGNATURE):
            return f"{file.address}: the beginning of the file is HDF5 but damaged or cut off; copy or write it again"
        advice = next((said for beginning, said in _OTHER_FILES.items() if head.lstrip().startswith(beginning)), None)
        advice = advice or "(no HDF5 signature); is it an .h5ad, .h5 or .nwb file?"
        return f"{file.address}: not an HDF5 file {advice}"
    if "truncated file" in text:
        return (
            f"{file.address}: the file is truncated: it has {file.size} bytes, less than its own metadata says; "
            "copy or upload it again"
        )
    if "bad version number" in text or "unknown superblock" in text:
        return (
            f"{file.address}: written in a version of the HDF5 format that HDF5 {h5py.version.hdf5_version} cannot "
            "read; install a newer h5py"
        )
    return f"{file.address}: libhdf5 cannot open the file ({text})"
