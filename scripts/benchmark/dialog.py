"""What a measured process says to the one that measures it: a line of JSON before and after each phase.

The answer to the first line sets the counters of the server to zero; the answer to the second is given when they have
been read. Standard library only, as it runs in the peers' environments.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Dialog:
    """The child's end. Whatever the measured code prints goes to the standard error from now on."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure what is done inside. A failure is told, and ends the process."""
        self._say({"begin": name})
        cpu, began = cpu_seconds(), time.perf_counter()
        error = None
        try:
            yield
        except BaseException as failure:  # noqa: BLE001 (whatever it is, it is the result)
            traceback.print_exc()
            error = f"{type(failure).__name__}: {' '.join(str(failure).split())}"[:200]
        wall = time.perf_counter() - began
        cpu = cpu_seconds() - cpu
        self._say({"end": name, "wall": wall, "cpu": cpu, "rss": peak_memory(), "error": error})
        if error is not None:
            os._exit(1)

    def finish(self, **result: Any) -> None:
        """Tell the result, and end at once: peers' threads may never end by themselves."""
        self._out.write(json.dumps({"result": result}) + "\n")
        self._out.flush()
        os._exit(0)

    def _say(self, line: dict[str, Any]) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()
        sys.stdin.readline()


def cpu_seconds() -> float:
    """User and system time of this process, all its threads, and the children it has waited for."""
    records = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(record.ru_utime + record.ru_stime for record in records)


def peak_memory() -> int:
    """Largest resident set in bytes. ``ru_maxrss`` would include the parent's at the time of the fork."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
