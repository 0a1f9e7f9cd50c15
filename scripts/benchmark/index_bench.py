"""``scripts/bench index``: this package and its peers index the same files, in one run."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from benchmark import data, floor, needs, report
from benchmark.documents import DocumentFacts, facts
from benchmark.runner import Phase, Run, run
from benchmark.server import Server
from benchmark.session import Session, Settings, Tool, busy, capacity

OURS = "lindi_bridge"
TOOLS = {
    OURS: Tool("**lindi_bridge**", ""),
    "lindi": Tool("LINDI, as it comes", "lindi", complete=False),
    "lindi-all": Tool("LINDI, all chunks", "lindi"),
    "kerchunk": Tool("kerchunk", "kerchunk"),
    "virtualizarr": Tool("VirtualiZarr", "virtualizarr"),
    "h5py-remfile": Tool("h5py + remfile, no document", "remfile", complete=False),
}
HEAD = [
    "tool",
    "wall s",
    "CPU s",
    "peak RSS MB",
    "requests",
    "waves",
    "connections",
    "MB read",
    "document MB",
    "as zstd MB",
    "chunk references",
    "x lindi_bridge",
    "remarks",
]


@dataclass
class Result:
    """One row."""

    file: str
    remote: bool
    tool: str
    outcome: Run
    document: DocumentFacts | None = None

    @property
    def phase(self) -> Phase | None:
        """The measured phase, where it came to its end without an error."""
        return None if self.outcome.error else self.outcome.phases.get("index")


@dataclass
class Results:
    """All of a run."""

    rows: list[Result]
    floors: dict[str, floor.Floor]
    limit: float

    def get(self, file: str, tool: str, remote: bool) -> Result | None:
        """One row, if it was measured."""
        return next((r for r in self.rows if (r.file, r.tool, r.remote) == (file, tool, remote)), None)

    def ours(self, file: str, remote: bool) -> Phase | None:
        """What this package took."""
        row = self.get(file, OURS, remote)
        return row.phase if row else None

    def best_peer(self, file: str, remote: bool) -> tuple[str, float, bool] | None:
        """The fastest peer that indexes every chunk: title, seconds, and whether these are only a lower bound.

        They are where no such peer came to its end and one was stopped by the time limit.
        """
        peers = [r for r in self.rows if r.file == file and r.remote == remote and r.tool != OURS]
        complete = [r for r in peers if TOOLS[r.tool].complete]
        finished = [(r.phase.wall, TOOLS[r.tool].title) for r in complete if r.phase]
        if finished:
            wall, title = min(finished)
            return title, wall, False
        hung = [TOOLS[r.tool].title for r in complete if r.outcome.hung]
        return (hung[0], self.limit, True) if hung else None


def measure(session: Session, files: list[str], remote: list[bool]) -> Results:
    """Run everything."""
    results = Results([], {}, session.settings.limit)
    for name in files:
        session.file(name)
    session.prepare()
    with session.server() as server:
        for name in files:
            for is_remote in remote:
                if is_remote and data.chunk_count(name):
                    continue
                for tool in session.tools:
                    results.rows.append(index_once(session, server, name, tool, is_remote))
                if is_remote:
                    results.floors[name] = measure_floor(session, server, name)
    return results


def index_once(session: Session, server: Server, name: str, tool: str, remote: bool) -> Result:
    """One row: a file, a tool, here or there."""
    path, url = session.file(name), server.url(data.file_name(name))
    output = session.output / f"{name}.{'remote' if remote else 'local'}.{tool}.lindi.json"
    output.unlink(missing_ok=True)
    arguments = [tool, url if remote else str(path), str(output), url]
    label = {"what": "index", "file": name, "where": "remote" if remote else "local", "tool": tool}

    def once() -> Run:
        python = session.python(session.tools[tool])
        counted = server if remote else None
        done = run(python, "benchmark.index_child", arguments, counted, session.settings.limit, tool == OURS)
        if done.result.get("misses") and not done.error:
            done.error = f"libhdf5 asked {done.result['misses']} times for what the walk had not read"
        return done

    outcome = session.repeated(label, once)
    return Result(name, remote, tool, outcome, facts(output) if output.exists() and not outcome.error else None)


def measure_floor(session: Session, server: Server, name: str) -> floor.Floor:
    """The replay of what indexing this file needs."""
    path = session.file(name)
    spans = needs.spans("index", str(path))
    found = floor.measure(server.url(path.name), spans, path.stat().st_size, [floor.BLOCK])
    session.note({"what": "index floor", "file": name, **asdict(found)})
    return found


# -- the report -------------------------------------------------------------------------------------------------------


def written(session: Session, results: Results, header: str) -> str:
    """The whole text between the markers."""
    parts = [header, "### Targets", targets_table(results)]
    files = list(dict.fromkeys(row.file for row in results.rows))
    for remote in (True, False):
        for name in files:
            rows = [row for row in results.rows if row.file == name and row.remote == remote]
            if rows:
                size = session.file(name).stat().st_size
                place = "over the network" if remote else "a local file"
                parts.append(f"### {name}, {report.megabytes(size)} MB, {place}")
                parts += [rows_table(results, rows), verdict(results, name, remote)]
    if len(scaling_files(results)) > 1:
        parts += ["### From 10,000 to a million chunks, local files", scaling_table(results)]
    return "\n\n".join(part for part in parts if part)


def rows_table(results: Results, rows: list[Result]) -> str:
    """All tools on one file."""
    name, remote = rows[0].file, rows[0].remote
    lines = [_row(row, results.ours(name, remote)) for row in rows]
    if remote and name in results.floors:
        lines.append(_floor_row(results.floors[name], results.ours(name, remote)))
    return report.table(HEAD, lines)


def _row(row: Result, ours: Phase | None) -> list[str]:
    title = TOOLS[row.tool].title
    phase = row.phase
    if phase is None:
        unfinished = row.outcome.phases.get("unfinished")
        counts = _counts(unfinished) if row.remote and unfinished else [""] * 4
        return [title, "", "", "", *counts, "", "", "", "", f"failed: {row.outcome.error[:100]}"]
    return [
        title,
        report.seconds(phase.wall),
        report.seconds(phase.cpu),
        report.megabytes(phase.rss),
        *(_counts(phase) if row.remote else [""] * 4),
        *_document(row.document),
        report.times(phase.wall / ours.wall) if ours else "",
        busy(phase) if row.remote else "",
    ]


def _counts(phase: Phase) -> list[str]:
    traffic = phase.traffic
    return [str(traffic.requests), str(traffic.waves), str(traffic.connections), report.megabytes(traffic.nbytes)]


def _document(document: DocumentFacts | None) -> list[str]:
    if document is None:
        return ["", "", ""]
    return [report.megabytes(document.nbytes), report.megabytes(document.compressed), str(document.chunks)]


def _floor_row(found: floor.Floor, ours: Phase | None) -> list[str]:
    ratio = report.times(found.wall / ours.wall) if ours else ""
    waves = str(-(-found.requests // floor.CONNECTIONS))
    counts = [str(found.requests), waves, str(min(found.requests, floor.CONNECTIONS)), report.megabytes(found.nbytes)]
    cells = [report.seconds(found.wall), report.seconds(found.cpu), "", *counts, "", "", ""]
    return ["*floor: the needed bytes, replayed*", *cells, ratio, ""]


def verdict(results: Results, name: str, remote: bool) -> str:
    """The two ratios in a sentence."""
    ours, best = results.ours(name, remote), results.best_peer(name, remote)
    said = []
    if ours and best:
        title, wall, is_bound = best
        more = "more than " if is_bound else ""
        said.append(
            f"{more}{report.times(wall / ours.wall)} x as fast as the best peer that indexes all chunks ({title})"
        )
    if ours and remote and name in results.floors:
        said.append(f"{report.times(ours.wall / results.floors[name].wall)} x the floor")
    return f"lindi_bridge: {'; '.join(said)}." if said else ""


def scaling_files(results: Results) -> list[str]:
    """The files that differ in their number of chunks only, in order of size."""
    names = {row.file for row in results.rows if data.chunk_count(row.file) and results.ours(row.file, False)}
    return sorted(names, key=data.chunk_count)


def slopes(results: Results) -> list[tuple[float, float]]:
    """CPU seconds and bytes of memory for one chunk more, from each scaling file to the next."""
    names = scaling_files(results)
    found = []
    for small, large in pairwise(names):
        less, more = results.ours(small, False), results.ours(large, False)
        assert less is not None
        assert more is not None
        chunks = data.chunk_count(large) - data.chunk_count(small)
        found.append(((more.cpu - less.cpu) / chunks, (more.rss - less.rss) / chunks))
    return found


def scaling_table(results: Results) -> str:
    """How time and memory grow."""
    names = scaling_files(results)
    lines = []
    for name, slope in zip(names, [None, *slopes(results)], strict=True):
        phase = results.ours(name, False)
        assert phase is not None
        grown = [f"{slope[0] * 1e6:.2f}", f"{slope[1]:.0f}"] if slope else ["", ""]
        lines.append(
            [f"{data.chunk_count(name):,} chunks", report.seconds(phase.cpu), report.megabytes(phase.rss), *grown]
        )
    head = ["lindi_bridge", "CPU s", "peak RSS MB", "CPU us for a chunk more", "bytes of memory for a chunk more"]
    return report.table(head, lines)


def targets_table(results: Results) -> str:
    """What was to be reached, and what was."""
    lines: list[list[str]] = []

    def target(title: str, measured: float | None, shown: str, is_met: bool) -> None:
        lines.append(
            [title, *(["not measured", ""] if measured is None else [shown, "met" if is_met else "**not met**"])]
        )

    def wall(name: str, limit: float) -> None:
        phase = results.ours(name, True)
        value = phase.wall if phase else None
        target(f"{name}: at most {limit:g} s", value, f"{report.seconds(value or 0)} s", (value or 0) <= limit)

    def ratio(name: str, least: float) -> None:
        phase, best = results.ours(name, True), results.best_peer(name, True)
        value = best[1] / phase.wall if phase and best else None
        bound = "more than " if best and best[2] else ""
        title = f"{name}: at least {least:g} x as fast as the best peer that indexes all chunks"
        target(title, value, f"{bound}{report.times(value or 0)} x", (value or 0) >= least)

    wall("M", 2.0)
    ratio("M", 8)
    wall("L", 5.0)
    ratio("L", 20)
    wall("N", 4.0)
    phase = results.ours("C100k", False)
    cpu = phase.cpu if phase else None
    target("local CPU for 100,000 chunks: at most 0.2 s", cpu, f"{report.seconds(cpu or 0)} s", (cpu or 0) <= 0.2)
    growth = slopes(results)
    least, most = (min(growth), max(growth)) if growth else ((0.0, 0.0), (0.0, 0.0))
    memory = " and ".join(f"{m:.0f}" for _, m in growth)
    target(
        "linear from 10,000 to a million chunks (CPU for a chunk more: within a factor of 1.5)",
        most[0] if len(growth) > 1 else None,
        f"{least[0] * 1e6:.2f} to {most[0] * 1e6:.2f} us; {memory} bytes of memory for a chunk more",
        most[0] <= 1.5 * least[0],
    )
    return report.table(["target", "measured", ""], lines)


def main(arguments: argparse.Namespace, settings: Settings) -> int:
    """Measure and report."""
    peers = [] if arguments.peers == "none" else arguments.peers.split(",")
    unknown = set(peers) - set(TOOLS)
    if unknown:
        raise SystemExit(f"no peer {', '.join(sorted(unknown))}; there are {', '.join(TOOLS)}")
    session = Session(settings, {name: TOOLS[name] for name in dict.fromkeys([OURS, *peers])})
    session.prepare()
    header = session.header(capacity(session.file(arguments.files.split(",")[0])))
    remote = {"both": [False, True], "remote": [True], "local": [False]}[arguments.where]
    results = measure(session, arguments.files.split(","), remote)
    text = written(session, results, header)
    print(text)
    if arguments.write:
        page = Path(arguments.write)
        page.write_text(report.replaced(page.read_text(), "index", text))
    return int(any(row.tool == OURS and row.outcome.error for row in results.rows))
