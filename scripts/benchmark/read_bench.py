"""``scripts/bench read``: the same reads through this package and its peers, in one run."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from benchmark import data, floor, needs, report
from benchmark.read_report import OURS, TOOLS, Row, written
from benchmark.runner import Run, run
from benchmark.server import Server
from benchmark.session import Session, Settings, capacity
from benchmark.tasks import TASKS

LOCAL = "h5py-local"
WITH_DOCUMENT = {OURS, "lindi", "lindi-all", "kerchunk"}


def measure(session: Session, server: Server, name: str, tasks: list[str]) -> list[Row]:
    """All tasks on one file."""
    path, url = session.file(name), server.url(data.file_name(name))
    sources = dict.fromkeys(session.tools, url)
    failed: dict[str, str] = {}
    for tool in session.tools:
        if tool in WITH_DOCUMENT:
            document, error = make_document(session, name, tool, url)
            sources[tool] = str(document)
            if error:
                failed[tool] = f"no document: {error}"
    rows = []
    for task in tasks:
        local = read_once(session, None, name, LOCAL, task, str(path))
        if local.error:
            raise SystemExit(f"plain h5py fails at {task}: {local.error}")
        outcomes = {
            tool: Run(error=failed[tool]) if tool in failed else read_once(session, server, name, tool, task, source)
            for tool, source in sources.items()
        }
        spans = needs.spans("read", str(path), sources[OURS], task)
        net = floor.measure(url, spans, path.stat().st_size, [1, floor.BLOCK])
        session.note({"what": "read floor", "file": name, "task": task, "ms": server.latency * 1000, **asdict(net)})
        rows.append(Row(task, outcomes, net, local))
    return rows


def make_document(session: Session, name: str, tool: str, url: str) -> tuple[Path, str]:
    """Path of a tool's document of a file, which names the address that is read, and why there is none.

    Ours is made over the network, as its users would, so that it knows the file's ETag; the others, to which that makes
    no difference, of the local file, without garbage collection: see :mod:`benchmark.index_child`.
    """
    document = session.output / f"{name}.read.{tool}.lindi.json"
    document.unlink(missing_ok=True)
    source = [url, str(document), url] if tool == OURS else [str(session.file(name)), str(document), url, "no-gc"]
    python = session.python(session.tools[tool])
    made = run(python, "benchmark.index_child", [tool, *source], None, session.settings.limit, tool == OURS)
    session.say({"what": "document", "file": name, "tool": tool}, made)
    return document, made.error


def read_once(session: Session, server: Server | None, name: str, tool: str, task: str, source: str) -> Run:
    """One tool at one task."""
    python = session.python(session.tools[tool]) if tool in session.tools else session.python(TOOLS[OURS])
    label = {"what": "read", "file": name, "task": task, "tool": tool}
    if server is not None:
        label["ms"] = f"{server.latency * 1000:g}"

    def once() -> Run:
        arguments = [tool, task, source]
        return run(python, "benchmark.read_child", arguments, server, session.settings.limit, tool == OURS)

    return session.repeated(label, once)


def main(arguments: argparse.Namespace, settings: Settings) -> int:
    """Measure and report."""
    peers = [] if arguments.peers == "none" else arguments.peers.split(",")
    tasks = list(TASKS) if arguments.tasks == "all" else arguments.tasks.split(",")
    unknown = (set(peers) - set(TOOLS)) | (set(tasks) - set(TASKS))
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; peers {', '.join(TOOLS)}; tasks {', '.join(TASKS)}")
    session = Session(settings, {name: TOOLS[name] for name in dict.fromkeys([OURS, *peers])})
    session.prepare()
    path = session.file(arguments.file)
    latencies = [float(text) for text in arguments.latency.split(",")]
    header = session.header(capacity(path), latencies)
    found: dict[float, list[Row]] = {}
    for latency in latencies:
        with session.server(latency / 1000) as server:
            found[latency] = measure(session, server, arguments.file, tasks)
    size = report.megabytes(path.stat().st_size)
    text = written(found, list(session.tools), f"{arguments.file}, {size} MB", header)
    print(text)
    if arguments.write:
        page = Path(arguments.write)
        page.write_text(report.replaced(page.read_text(), "read", text))
    return int(any(row.outcomes[OURS].error or not row.is_right(OURS) for rows in found.values() for row in rows))
