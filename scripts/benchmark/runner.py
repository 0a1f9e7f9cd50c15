"""Runs one measurement in a process of its own, with a time limit."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.server import Server, Traffic

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Phase:
    """One measured phase of a child. ``wall`` and ``cpu`` in seconds, ``rss`` in bytes."""

    wall: float = 0.0
    cpu: float = 0.0
    rss: int = 0
    traffic: Traffic = field(default_factory=Traffic)


@dataclass
class Run:
    """What became of a child; ``error`` is empty where all went well."""

    phases: dict[str, Phase] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    hung: bool = False


def run(
    python: str | Path, module: str, arguments: Sequence[str], server: Server | None, seconds: float, ours: bool = False
) -> Run:
    """Run ``python -m module arguments...`` and measure its phases.

    Parameters
    ----------
    python : path
        Interpreter of the environment.
    module : str
        Of this package; speaks :mod:`benchmark.dialog`.
    arguments : sequence of str
        Its command line.
    server : Server, optional
        Counts the requests of each phase.
    seconds : float
        The child is killed after so many, all phases together.
    ours : bool
        This repository is importable in the child.
    """
    path = [str(ROOT / "scripts"), *([str(ROOT)] if ours else [])]
    outcome = Run()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [str(python), "-W", "ignore", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path),
                "PYTHONNOUSERSITE": "1",
                "NO_PROXY": "127.0.0.1",
                "no_proxy": "127.0.0.1",
            },
        )
        try:
            _listen(process, outcome, server, time.monotonic() + seconds)
        except TimeoutError:
            outcome.hung, outcome.error = True, f"no answer within {seconds:g} s, killed"
            if server is not None:
                outcome.phases.setdefault("unfinished", Phase(traffic=server.count()))
        finally:
            if process.poll() is None:
                _kill(process)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        if not outcome.error and not outcome.result:
            errors.seek(0)
            last = errors.read().strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
            outcome.error = last[0][:200]
    return outcome


def _listen(process: subprocess.Popen[str], outcome: Run, server: Server | None, deadline: float) -> None:
    """Follow the child's lines until it ends. It waits after each one, so none is ever held in a buffer."""
    assert process.stdin is not None
    assert process.stdout is not None
    while True:
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        text = process.stdout.readline()
        if not text:
            process.wait()
            return
        line = json.loads(text)
        if "result" in line:
            outcome.result = {"done": True, **line["result"]}
            process.wait()
            return
        if "begin" in line and server is not None:
            server.reset()
        if "end" in line:
            traffic = server.count() if server is not None else Traffic()
            outcome.phases[line["end"]] = Phase(line["wall"], line["cpu"], line["rss"], traffic)
            outcome.error = line["error"] or ""
        process.stdin.write("\n")
        process.stdin.flush()


def _kill(process: subprocess.Popen[str]) -> None:
    """End the child, and the group that it started in."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
