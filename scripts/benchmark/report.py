"""Numbers as text, tables in Markdown, and the place in the documentation where they stand."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; columns after the first are aligned to the right."""
    lines = [list(head), ["---", *(["---:"] * (len(head) - 1))], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def seconds(value: float) -> str:
    """Three digits, not more than milliseconds."""
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def megabytes(value: float) -> str:
    """Of 10^6 bytes."""
    return f"{value / 1e6:.1f}" if value < 1e9 else f"{value / 1e6:.0f}"


def times(value: float) -> str:
    """A ratio."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def machine() -> str:
    """What was measured on."""
    model = ""
    if Path("/proc/cpuinfo").exists():
        names = [
            line.partition(":")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
        ]
        model = " ".join(names[0].split()) if names else ""
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores {model}".strip() + f", {platform.system()}; load {load:.1f} at the beginning"


def markers(name: str) -> tuple[str, str]:
    """The comments around a generated part."""
    return f"<!-- {name}: begin (written by scripts/bench {name}) -->", f"<!-- {name}: end -->"


def replaced(page: str, name: str, text: str) -> str:
    """The page with new text between the markers of a part."""
    begin, end = markers(name)
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"the page to write to lacks the marker comments\n{begin}\n{end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"
