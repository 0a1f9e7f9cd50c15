"""A document as a file: its text from bytes, plain or compressed, and the file written whole or not at all."""

from __future__ import annotations

import os
import tempfile

from lindi_bridge.document import zstd
from lindi_bridge.errors import DocumentError
from lindi_bridge.ranges.address import is_local

__all__ = ["MOST_BYTES", "address_beside", "document_json", "is_document", "write_document_file"]

MOST_BYTES = 4 * 1024**3
"""Of a document, compressed or not."""

_LEVEL = 12


def is_document(head: bytes) -> bool:
    """Whether a file that begins like this can be a document."""
    return head.startswith(zstd.MAGIC) or head.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{")


def document_json(data: bytes) -> bytes:
    """The JSON of a document.

    Parameters
    ----------
    data : bytes
        All of the file: JSON, or one Zstandard frame that holds it.

    Raises
    ------
    DocumentError
        The frame is damaged, or holds an impossible amount.
    """
    return _decompress(data) if data.startswith(zstd.MAGIC) else data


def _decompress(data: bytes) -> bytes:
    """Decompress one Zstandard frame whose header tells its size."""
    from numcodecs import Zstd

    if len(data) < zstd.LONGEST_HEADER:
        raise DocumentError("the Zstandard frame is cut off")
    size = zstd.decoded_size(data)
    if size is None:
        raise DocumentError("the Zstandard frame does not tell its size; decompress the document first")
    if size > MOST_BYTES:
        raise DocumentError(f"{size} bytes are too many for a reference document")
    try:
        return bytes(Zstd().decode(data))
    except RuntimeError as error:
        raise DocumentError(f"the Zstandard frame is damaged: {error}") from error


def address_beside(url: str, path: str) -> str:
    """How a document at ``path`` names a source.

    A local file in the folder of the document or below is named relative to it, so that the two can be moved together.
    """
    folder = os.path.realpath(os.path.dirname(os.path.abspath(path)))
    if not (url and is_local(url) and os.path.isabs(url)):
        return url
    if os.path.commonpath([os.path.realpath(url), folder]) != folder:
        return url
    return os.path.relpath(url, os.path.dirname(os.path.abspath(path))).replace(os.sep, "/")


def write_document_file(path: str, text: str) -> None:
    """Write a document, whole or not at all.

    Parameters
    ----------
    path : str
        A local path; one that ends in ``.zst`` is compressed with Zstandard.
    text : str
        The document.
    """
    data = text.encode("utf-8", "surrogatepass")
    if path.endswith(".zst"):
        from numcodecs import Zstd

        data = bytes(Zstd(level=_LEVEL).encode(data))
    folder, name = os.path.split(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
