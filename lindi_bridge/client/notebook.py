"""How an open file shows itself in a notebook."""

from __future__ import annotations

from html import escape
from typing import Any

import h5py

__all__ = ["file_html"]

_MOST_ROWS = 200


def file_html(file: Any) -> str:
    """An HTML tree of the names, shapes and dtypes in a file; makes no request on a mounted document."""
    if not file:
        return "<pre>closed file</pre>"
    rows: list[str] = []
    _add_rows(file, rows, 0)
    more = "<li>…</li>" if len(rows) >= _MOST_ROWS else ""
    return (
        f"<details open><summary><b>{escape(str(file.filename))}</b></summary><ul>{''.join(rows)}{more}</ul></details>"
    )


def _add_rows(group: Any, rows: list[str], depth: int) -> None:
    for name in group:
        if len(rows) >= _MOST_ROWS:
            return
        label = f"{'&emsp;' * depth}{escape(name)}"
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            rows.append(f"<li>{label} → {escape(link.path)}</li>")
            continue
        obj = group[name]
        if isinstance(obj, h5py.Dataset):
            rows.append(f"<li>{label} <code>{escape(str(obj.shape))} {escape(str(obj.dtype))}</code></li>")
        else:
            rows.append(f"<li>{label}/</li>")
            if isinstance(obj, h5py.Group) and depth < 3:
                _add_rows(obj, rows, depth + 1)
