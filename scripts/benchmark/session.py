"""What both benchmarks share: the server, the files, the environments, repetition, the log of raw results."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from peers.environments import ENVIRONMENTS, interpreter, versions

import lindi_bridge
from benchmark import data, floor, report
from benchmark.runner import Phase, Run
from benchmark.server import Server, Traffic

LONG = 20.0
"""Seconds of a run that is not repeated."""


@dataclass(frozen=True)
class Tool:
    """What is compared: its title in tables, its environment ("" for ours), and whether it indexes every chunk."""

    title: str
    environment: str
    complete: bool = True


@dataclass(frozen=True)
class Settings:
    """From the command line: seconds, bytes a second, seconds a child may take."""

    folder: Path
    venvs: Path
    latency: float
    bandwidth: float
    repeat: int
    limit: float
    log: Path


class Session:
    """One run of a benchmark."""

    def __init__(self, settings: Settings, tools: dict[str, Tool]) -> None:
        self.settings, self.tools = settings, tools
        settings.folder.mkdir(parents=True, exist_ok=True)
        # Of this run alone: another one may be under way with the same files.
        self.output = Path(tempfile.mkdtemp(prefix="documents-", dir=settings.folder))
        weakref.finalize(self, shutil.rmtree, self.output, ignore_errors=True)
        self._interpreters: dict[str, Path] = {"": Path(sys.executable)}

    @contextmanager
    def server(self, latency: float | None = None) -> Iterator[Server]:
        """The slow server over the files; seconds before each answer, if not those of the settings."""
        latency = self.settings.latency if latency is None else latency
        with Server(self.settings.folder, latency, self.settings.bandwidth) as server:
            yield server

    def file(self, name: str) -> Path:
        """A file, made if need be."""
        return data.make(name, self.settings.folder)

    def prepare(self) -> None:
        """Make all environments, so that no measurement waits for one."""
        for tool in self.tools.values():
            self.python(tool)

    def python(self, tool: Tool) -> Path:
        """Interpreter of a tool."""
        name = tool.environment
        if name not in self._interpreters:
            self._interpreters[name] = interpreter(name, self.settings.venvs)
        return self._interpreters[name]

    def repeated(self, label: dict[str, Any], once: Callable[[], Run]) -> Run:
        """Run a few times, long ones and failures once; the medians, and the counts of the last."""
        runs: list[Run] = []
        while len(runs) < self.settings.repeat:
            began = time.monotonic()
            runs.append(once())
            took = time.monotonic() - began
            self.note({**label, **asdict(runs[-1]), "process_seconds": took})
            if runs[-1].error or took > LONG:
                break
        self.say(label, runs[-1])
        return runs[-1] if runs[-1].error else middle(runs)

    def say(self, label: dict[str, Any], outcome: Run) -> None:
        """Progress, on the standard error."""
        walls = ", ".join(f"{name} {report.seconds(phase.wall)} s" for name, phase in outcome.phases.items())
        print(*label.values(), "|", walls, outcome.error, file=sys.stderr, flush=True)

    def note(self, record: dict[str, Any]) -> None:
        """Append to the log of raw results."""
        with open(self.settings.log, "a") as log:
            log.write(json.dumps(record) + "\n")

    def header(self, capacity: str | None = None, latencies: Sequence[float] = ()) -> str:
        """Versions, machine and, where one takes part, the server, for the top of the tables; ms before each answer."""
        settings = self.settings
        named = [f"lindi_bridge {lindi_bridge.__version__}"]
        for name in dict.fromkeys(tool.environment for tool in self.tools.values() if tool.environment):
            named.append(versions(self._interpreters[name], ENVIRONMENTS[name].named))
        rate = f"{settings.bandwidth / 1e6:g} MB/s a connection" if settings.bandwidth else "no limit of bandwidth"
        waits = " or ".join(f"{latency:g}" for latency in latencies or [settings.latency * 1000])
        server = f"* **Server:** {waits} ms before each answer, {rate}; {capacity}"
        return "\n".join(
            [
                *([] if capacity is None else [server]),
                f"* **Machine:** {report.machine()}",
                f"* **Versions:** {'; '.join(named)}",
                f"* **Repetitions:** {settings.repeat}, median; once where a run takes more than {LONG:g} s",
            ]
        )


def middle(runs: list[Run]) -> Run:
    """Medians of times and memory over runs that all went well."""
    last = runs[-1]
    phases = {
        name: Phase(
            median(run.phases[name].wall for run in runs),
            median(run.phases[name].cpu for run in runs),
            int(median(run.phases[name].rss for run in runs)),
            phase.traffic,
        )
        for name, phase in last.phases.items()
    }
    return Run(phases, last.result)


def capacity(path: Path) -> str:
    """What the server can do when it is not slowed down: the proof that it is not what is measured."""
    size = path.stat().st_size
    small = [(k * 4096 % (size - 4096), k * 4096 % (size - 4096) + 4096) for k in range(4096)]
    large = [(0, min(size, 4 << 20))] * 256
    with Server(path.parent) as server:
        url = server.url(path.name)
        for_small = floor.measure_plan(url, small)
        for_large = floor.measure_plan(url, large)
    rate = sum(stop - start for start, stop in large) / for_large / 1e6
    return f"without these it answers {len(small) / for_small:,.0f} requests or {rate:,.0f} MB in a second"


def busy(phase: Phase) -> str:
    """A remark where the server's own work may have slowed the run."""
    traffic: Traffic = phase.traffic
    remarks = []
    if phase.wall and traffic.server_cpu > 0.5 * phase.wall:
        remarks.append(f"server busy {100 * traffic.server_cpu / phase.wall:.0f} %")
    if traffic.late_ms > 5:
        remarks.append(f"server late by {traffic.late_ms:.0f} ms")
    return ", ".join(remarks)
