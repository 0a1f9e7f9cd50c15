"""``scripts/bench open``: how long opening a document takes, and how much memory. Nothing is asked of any server."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmark import data, report
from benchmark.documents import facts
from benchmark.read_report import TOOLS
from benchmark.runner import Run, run
from benchmark.session import Session, Settings

OURS = "lindi_bridge"
PEERS = ("lindi-all", "kerchunk")
TARGETS = {"M": (0.1, None), "N": (0.3, 100e6), "C1M": (1.0, None)}
"""Seconds and bytes of memory."""
HEAD = ["tool", "document MB", "chunk references", "wall s", "CPU s", "MB of memory", "x lindi_bridge", "remarks"]


def open_once(session: Session, name: str, tool: str) -> tuple[Path, Run]:
    """A tool's document of a file, made of the local file, and what opening it took."""
    document = session.output / f"{name}.open.{tool}.lindi.json"
    document.unlink(missing_ok=True)
    python, seconds = session.python(session.tools[tool]), session.settings.limit
    address = f"https://host.example/{data.file_name(name)}"
    source = [tool, str(session.file(name)), str(document), address, "no-gc"]
    made = run(python, "benchmark.index_child", source, None, seconds, tool == OURS)
    label = {"what": "open", "file": name, "tool": tool}
    if made.error:
        session.say(label, made)
        return document, made
    arguments = [tool, str(document)]
    return document, session.repeated(
        label, lambda: run(python, "benchmark.open_child", arguments, None, seconds, tool == OURS)
    )


def row(title: str, document: Path, outcome: Run, ours: Run) -> list[str]:
    """One line of a table."""
    if outcome.error:
        return [title, *[""] * 6, f"failed: {outcome.error[:100]}"]
    found, opened = facts(document), outcome.phases["open"]
    ratio = report.times(opened.wall / ours.phases["open"].wall) if not ours.error else ""
    size = [report.megabytes(found.nbytes), str(found.chunks)]
    cost = [report.seconds(opened.wall), report.seconds(opened.cpu), report.megabytes(grown(outcome))]
    return [title, *size, *cost, ratio, ""]


def grown(outcome: Run) -> int:
    """Bytes of memory that opening took."""
    return outcome.phases["open"].rss - outcome.phases["imports"].rss


def verdict(name: str, ours: Run) -> str:
    """What was to be reached, and what was."""
    if ours.error or name not in TARGETS:
        return ""
    seconds, nbytes = TARGETS[name]
    wall, memory = ours.phases["open"].wall, grown(ours)
    is_met = wall <= seconds and (nbytes is None or memory <= nbytes)
    limit = f"{seconds:g} s" + (f" and {report.megabytes(nbytes)} MB" if nbytes else "")
    return f"Target: at most {limit}: {'met' if is_met else '**not met**'}."


def main(arguments: argparse.Namespace, settings: Settings) -> int:
    """Measure and report."""
    peers = [] if arguments.peers == "none" else arguments.peers.split(",")
    session = Session(settings, {name: TOOLS[name] for name in dict.fromkeys([OURS, *peers])})
    session.prepare()
    parts, failed = [session.header()], False
    for name in arguments.files.split(","):
        outcomes = {tool: open_once(session, name, tool) for tool in session.tools}
        ours = outcomes[OURS][1]
        failed |= bool(ours.error)
        lines = [row(TOOLS[tool].title, *found, ours) for tool, found in outcomes.items()]
        size = report.megabytes(session.file(name).stat().st_size)
        parts += [f"### {name}, {size} MB", report.table(HEAD, lines), verdict(name, ours)]
    text = "\n\n".join(part for part in parts if part)
    print(text)
    if arguments.write:
        page = Path(arguments.write)
        page.write_text(report.replaced(page.read_text(), "open", text))
    return int(failed)
