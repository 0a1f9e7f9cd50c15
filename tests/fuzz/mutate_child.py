"""Open and check damaged documents, many in one process, which may die; one JSON line a document on stdout.

``python mutate_child.py SECONDS FOLDER NAME...``: for each document, in order, what there is to be asked of it as an
HDF5 file (as for damaged files), or the error that ended it; what ``lindi_bridge.check`` says; or how the process died.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corrupt_child import describe

import lindi_bridge as lb
from lindi_bridge.document.document import decode_document, parse_document
from lindi_bridge.document.document_file import document_json
from lindi_bridge.document.relocation import relocate_document

MOST_MEMORY = 4 << 30


def attempt(question: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"answers": question()}
    except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
        names = [kind.__name__ for kind in type(error).__mro__]
        return {"error": names, "message": str(error)[:300]}


def opened(path: Path, **options: Any) -> Any:
    with lb.open(path, **options) as file:
        return describe(file)


def relocated(path: Path) -> list[bool]:
    """Whether the document goes together as it did before."""
    data = document_json(path.read_bytes())
    moved = relocate_document(decode_document(data), "https://new.example/moved.h5")
    return [parse_document(data).edited, parse_document(moved.text).edited]


def outcome(path: Path) -> dict[str, Any]:
    prefer = {"prefer": "annotations"} if "annotations" in path.name else {}
    return {
        "open": attempt(lambda: opened(path, **prefer)),
        "check": attempt(lambda: [[p.kind, p.path, p.message[:200]] for p in lb.check(path)]),
        "diff": attempt(lambda: [str(d)[:200] for d in lb.diff(path, path)]),
        "relocate": attempt(lambda: relocated(path)),
    }


def outcomes(seconds: int, paths: list[Path]) -> None:
    """One line a document; a document that kills the process is told, and the next process goes on after it."""
    while paths:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
            with os.fdopen(writer, "w") as stream:
                for path in paths:
                    signal.alarm(seconds)
                    stream.write(json.dumps(outcome(path)) + "\n")
                    stream.flush()
                signal.alarm(0)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as stream:
            lines = [line for line in stream if line.endswith("\n")]
        _, status = os.waitpid(child, 0)
        sys.stdout.writelines(lines)
        paths = paths[len(lines) :]
        if paths:
            print(json.dumps({"died": os.waitstatus_to_exitcode(status)}), flush=True)
            paths = paths[1:]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    outcomes(int(sys.argv[1]), [Path(sys.argv[2]) / name for name in sys.argv[3:]])
