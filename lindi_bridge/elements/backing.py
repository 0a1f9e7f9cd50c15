"""The file behind a backed AnnData object: opened again when it is needed, and never written to.

anndata knows a backing file by its name, with which it opens it, writes it and moves it. Here the name is the address
of a document, or of the HDF5 file itself, which may lie next to the user.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lindi_bridge.errors import ReadOnlyError, SourceError

__all__ = ["keep_backing_file"]


class BackingName(os.PathLike[str]):
    """What stands for the name of a backing file: it can be shown and compared, but nothing can be opened with it.

    Parameters
    ----------
    name : pathlib.Path
        As anndata has it.
    """

    def __init__(self, name: Path) -> None:
        self._name = name

    def __fspath__(self) -> str:
        raise ReadOnlyError(
            f"{self}: read with lindi_bridge, and therefore read-only; write to another name, or copy(filename=...) it"
        )

    def __str__(self) -> str:
        return str(self._name)

    def __repr__(self) -> str:
        return repr(self._name)

    def __eq__(self, other: object) -> bool:
        return self._name == (other._name if isinstance(other, BackingName) else other)

    def __hash__(self) -> int:
        return hash(self._name)


def keep_backing_file(adata: Any, reopen: Callable[[], Any] | None) -> None:
    """Have a backing file that was closed opened again as it was opened before, and writing to it refused.

    ``to_memory`` of anndata 0.12 closes the backing file, and the next access would open its name with h5py.

    Parameters
    ----------
    adata : AnnData
        Backed by a file of ours.
    reopen : callable, optional
        Opens the file; None where it cannot be opened again, as an open file object.
    """
    known = type(adata.file)

    class Manager(known):  # type: ignore[misc, valid-type]
        """anndata's manager of the backing file."""

        def open(self, *args: Any, **options: Any) -> None:
            """Open the file again; one under another name, which was written meanwhile, as anndata does."""
            if args or options or not isinstance(self._filename, BackingName):
                super().open(*args, **options)
            elif reopen is None:
                raise SourceError(f"{self._filename}: the backing file was closed, and there is no address to open it")
            else:
                self._file = reopen()

    Manager.__name__ = Manager.__qualname__ = known.__name__
    adata.file.__class__ = Manager
    adata.file._filename = BackingName(adata.file._filename)
