"""What a written document is like: its size, compressed too, and the chunks that it refers to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEVEL = 12
"""Of Zstandard, as lindi_bridge writes ``.json.zst``."""


@dataclass(frozen=True)
class DocumentFacts:
    """Bytes, bytes as one Zstandard frame, and the number of references into the source."""

    nbytes: int
    compressed: int
    chunks: int


def facts(path: Path) -> DocumentFacts:
    """Read a document in any dialect of reference file systems."""
    from numcodecs import Zstd

    data = path.read_bytes()
    document: dict[str, Any] = json.loads(data)
    refs = document.get("refs", document)
    chunks = sum(isinstance(value, list) for value in refs.values())
    return DocumentFacts(len(data), len(Zstd(level=LEVEL).encode(data)), chunks)
