"""``scripts/bench read``: the same reads through this package and its peers, in one run."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmark import data, floor, needs, report
from benchmark.runner import Phase, Run, run
from benchmark.server import Server
from benchmark.session import Session, Settings, Tool, busy, capacity
from benchmark.tasks import TASKS

OURS, LOCAL = "lindi_bridge", "h5py-local"
TOOLS = {
    OURS: Tool("**lindi_bridge**", ""),
    "lindi": Tool("LINDI, its document as it comes", "lindi"),
    "lindi-all": Tool("LINDI, its document with all chunks", "lindi"),
    "kerchunk": Tool("kerchunk + zarr", "kerchunk"),
    "h5py-remfile": Tool("h5py + remfile", "remfile"),
    "h5py-fsspec": Tool("h5py + fsspec", "remfile"),
    "download": Tool("download first, then h5py", ""),
}
WITH_DOCUMENT = {OURS, "lindi", "lindi-all", "kerchunk"}


@dataclass
class Row:
    """A task: what each tool did, and the limits."""

    task: str
    outcomes: dict[str, Run]
    net: floor.Floor
    local: Run

    def phase(self, tool: str) -> Phase | None:
        """The phase that is the task."""
        return _phase(self.outcomes[tool], self.task)

    def is_right(self, tool: str) -> bool:
        """Whether the values are those of plain h5py."""
        return self.outcomes[tool].result.get("digest") == self.local.result.get("digest")

    @property
    def decode(self) -> float:
        """Seconds that plain h5py takes for the task on the local file."""
        phase = _phase(self.local, self.task)
        return phase.wall if phase else 0.0


def _phase(outcome: Run, task: str) -> Phase | None:
    return None if outcome.error else outcome.phases.get("open" if task == "open" else "task")


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
        session.note({"what": "read floor", "file": name, "task": task, **asdict(net)})
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

    def once() -> Run:
        arguments = [tool, task, source]
        return run(python, "benchmark.read_child", arguments, server, session.settings.limit, tool == OURS)

    return session.repeated(label, once)


# -- the report -------------------------------------------------------------------------------------------------------


def written(session: Session, rows: list[Row], name: str, header: str) -> str:
    """The whole text between the markers."""
    size = report.megabytes(session.file(name).stat().st_size)
    parts = [header, f"### {name}, {size} MB", summary(rows, list(session.tools))]
    for row in rows:
        parts += [f"#### {TASKS[row.task].title}", task_table(row)]
    return "\n\n".join(parts)


def summary(rows: list[Row], tools: list[str]) -> str:
    """Seconds of every tool at every task, and what limits them."""
    lines = []
    for row in rows:
        cells = [_seconds(row, tool) for tool in tools]
        limits = [report.seconds(row.net.wall), report.seconds(row.decode)]
        lines.append([TASKS[row.task].title, *cells, *limits, *_ratios(row)])
    titles = [TOOLS[tool].title for tool in tools]
    head = [
        "wall s",
        *titles,
        "net floor",
        "decode floor",
        "best peer / lindi_bridge, with opening",
        "lindi_bridge / floors",
    ]
    return report.table(head, lines)


def _seconds(row: Row, tool: str) -> str:
    phase = row.phase(tool)
    if phase is None:
        return "hangs" if row.outcomes[tool].hung else "fails"
    return report.seconds(phase.wall) + ("" if row.is_right(tool) else " **wrong**")


def _ratios(row: Row) -> list[str]:
    """Of the best right peer to us, opening included for both, and of us to both floors."""
    ours = row.phase(OURS)
    if ours is None:
        return ["", ""]
    totals = {
        tool: sum(phase.wall for phase in outcome.phases.values())
        for tool, outcome in row.outcomes.items()
        if row.phase(tool) and row.is_right(tool)
    }
    mine = sum(phase.wall for phase in row.outcomes[OURS].phases.values())
    peers = [total for tool, total in totals.items() if tool != OURS]
    limit = row.net.wall + row.decode
    return [report.times(min(peers) / mine) if peers else "", report.times(ours.wall / limit) if limit else ""]


def task_table(row: Row) -> str:
    """Everything about one task."""
    lines = []
    for tool, outcome in row.outcomes.items():
        phase, title = row.phase(tool), TOOLS[tool].title
        if phase is None:
            lines.append([title, *[""] * 6, f"failed: {outcome.error[:100]}"])
            continue
        traffic = phase.traffic
        numbers = [report.seconds(phase.wall), report.seconds(phase.cpu), report.megabytes(phase.rss)]
        counts = [str(traffic.requests), str(traffic.waves), report.megabytes(traffic.nbytes)]
        remarks = [] if row.is_right(tool) else ["**the values are not those of h5py**"]
        lines.append([title, *numbers, *counts, "; ".join(remarks + [text for text in [busy(phase)] if text])])
    net = row.net
    waves = str(-(-net.requests // floor.CONNECTIONS))
    counts = [str(net.requests), waves, report.megabytes(net.nbytes)]
    lines.append(["*net floor*", report.seconds(net.wall), report.seconds(net.cpu), "", *counts, ""])
    lines.append(["*decode floor: h5py, local*", report.seconds(row.decode), *[""] * 6])
    head = ["tool", "wall s", "CPU s", "peak RSS MB", "requests", "waves", "MB read", "remarks"]
    return report.table(head, lines)


def main(arguments: argparse.Namespace, settings: Settings) -> int:
    """Measure and report."""
    peers = [] if arguments.peers == "none" else arguments.peers.split(",")
    tasks = list(TASKS) if arguments.tasks == "all" else arguments.tasks.split(",")
    unknown = (set(peers) - set(TOOLS)) | (set(tasks) - set(TASKS))
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; peers {', '.join(TOOLS)}; tasks {', '.join(TASKS)}")
    session = Session(settings, {name: TOOLS[name] for name in dict.fromkeys([OURS, *peers])})
    session.prepare()
    header = session.header(capacity(session.file(arguments.file)))
    with session.server() as server:
        rows = measure(session, server, arguments.file, tasks)
    text = written(session, rows, arguments.file, header)
    print(text)
    if arguments.write:
        page = Path(arguments.write)
        page.write_text(report.replaced(page.read_text(), "read", text))
    return int(any(row.outcomes[OURS].error or not row.is_right(OURS) for row in rows))
