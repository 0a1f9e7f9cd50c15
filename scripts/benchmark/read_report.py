"""The tables of ``scripts/bench read``: what was to be reached, a summary, and everything about each task."""

from __future__ import annotations

from dataclasses import dataclass

from benchmark import floor, report
from benchmark.runner import Phase, Run
from benchmark.session import Tool, busy
from benchmark.tasks import TASKS

OURS = "lindi_bridge"
TOOLS = {
    OURS: Tool("**lindi_bridge**", ""),
    "lindi": Tool("LINDI, its document as it comes", "lindi"),
    "lindi-all": Tool("LINDI, its document with all chunks", "lindi"),
    "kerchunk": Tool("kerchunk + zarr", "kerchunk"),
    "h5py-remfile": Tool("h5py + remfile", "remfile"),
    "h5py-fsspec": Tool("h5py + fsspec", "remfile"),
    "download": Tool("download first, then h5py", ""),
}

MOST_WAVES = {"obs": 3, "rows": 2, "random": 2, "obsm": 2}
MOST_REQUESTS = {"obs": 12}
MOST_OF_FLOORS = {"obs": 1.5, "random": 1.5}
"""Seconds of a task by those of both floors together."""
LEAST_RATE = 0.8
"""Of the slower of the floors, for all of X."""


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
    def best_peer(self) -> tuple[str, float] | None:
        """The fastest other tool that is right, and its seconds by ours, with opening for both."""
        totals = {
            tool: sum(phase.wall for phase in outcome.phases.values())
            for tool, outcome in self.outcomes.items()
            if self.phase(tool) and self.is_right(tool)
        }
        mine = totals.pop(OURS, None)
        if mine is None or not totals:
            return None
        best = min(totals, key=totals.__getitem__)
        return best, totals[best] / mine

    @property
    def decode(self) -> float:
        """Seconds that plain h5py takes for the task on the local file."""
        phase = _phase(self.local, self.task)
        return phase.wall if phase else 0.0


def _phase(outcome: Run, task: str) -> Phase | None:
    return None if outcome.error else outcome.phases.get("open" if task == "open" else "task")


# -- the tables -------------------------------------------------------------------------------------------------------


def written(found: dict[float, list[Row]], tools: list[str], file: str, header: str) -> str:
    """The whole text between the markers.

    Parameters
    ----------
    found : dict
        What was measured, by the milliseconds before each answer.
    tools : list of str
        In the order of the tables.
    file : str
        Name and size of the file.
    header : str
        Server, machine, versions.
    """
    parts = [header, "### Targets", targets_table(found)]
    for latency, rows in found.items():
        parts += [f"### {file}, {latency:g} ms before each answer", summary(rows, tools)]
    for latency, rows in found.items():
        for row in rows:
            parts += [f"#### {TASKS[row.task].title}, {latency:g} ms", task_table(row)]
    return "\n\n".join(parts)


def targets_table(found: dict[float, list[Row]]) -> str:
    """What was to be reached, and what was."""
    verdicts = [_verdicts({row.task: row for row in rows}) for rows in found.values()]
    lines = []
    for title in verdicts[0]:
        cells: list[str] = []
        for verdict in (by_title[title] for by_title in verdicts):
            cells += ["not measured", ""] if verdict is None else [verdict[0], "met" if verdict[1] else "**not met**"]
        lines.append([title, *cells])
    return report.table(["target", *(cell for latency in found for cell in (f"at {latency:g} ms", ""))], lines)


def _verdicts(rows: dict[str, Row]) -> dict[str, tuple[str, bool] | None]:
    """By target: what was measured, and whether that is enough; None where it was not measured."""
    verdicts: dict[str, tuple[str, bool] | None] = {}

    def judge(title: str, verdict: tuple[str, bool] | None) -> None:
        verdicts[title] = verdict

    for task, most in MOST_WAVES.items():
        phase = _right(rows, task)
        requests = MOST_REQUESTS.get(task)
        title = f"{TASKS[task].title}: at most {most} waves" + (f" and {requests} requests" if requests else "")
        if phase is None:
            judge(title, None)
            continue
        # As it counts itself: the server sees more where there are more requests than connections.
        waves, count = rows[task].outcomes[OURS].result["waves"], phase.traffic.requests
        judge(title, (f"{waves} and {count} requests", waves <= most and (requests is None or count <= requests)))
    ratios = [(found[1], TASKS[task].title) for task, row in rows.items() if (found := row.best_peer)]
    slowest = min(ratios) if ratios else None
    judge(
        "every task, with opening: at least as fast as the best peer",
        slowest and (f"{report.times(slowest[0])} x and more ({slowest[1]})", slowest[0] >= 1),
    )
    for task, most in MOST_OF_FLOORS.items():
        phase = _right(rows, task)
        ratio = phase.wall / (rows[task].net.wall + rows[task].decode) if phase else 0.0
        title = f"{TASKS[task].title}: at most {most:g} x what both floors take together"
        judge(title, (f"{report.times(ratio)} x", ratio <= most) if phase else None)
    phase = _right(rows, "stream")
    rate = max(rows["stream"].net.wall, rows["stream"].decode) / phase.wall if phase else 0.0
    title = f"{TASKS['stream'].title}: at least {LEAST_RATE:g} of the rate of the slower floor"
    judge(title, (report.times(rate), rate >= LEAST_RATE) if phase else None)
    return verdicts


def _right(rows: dict[str, Row], task: str) -> Phase | None:
    return rows[task].phase(OURS) if task in rows and rows[task].is_right(OURS) else None


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
    ours, best, limit = row.phase(OURS), row.best_peer, row.net.wall + row.decode
    return [report.times(best[1]) if best else "", report.times(ours.wall / limit) if ours and limit else ""]


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
