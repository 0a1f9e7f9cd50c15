"""Telling what a Zarr group has not got of its file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from lindi_bridge.model.nodes import Problem

__all__ = ["IncompleteWarning", "warn_of_problems"]

_EXPECTED = frozenset(["dimension"])
"""Kinds of problems that nobody needs to be warned of."""
_SHOWN = 5


class IncompleteWarning(UserWarning):
    """Something of a file is not in what was made of it; all that is missing is in its ``problems``."""


def warn_of_problems(address: str, problems: Sequence[Problem], *, stacklevel: int) -> None:
    """Warn, once, if there are problems that users should know of.

    Parameters
    ----------
    address : str
        Of the file.
    problems : sequence of Problem
        All of them.
    stacklevel : int
        As for :func:`warnings.warn`, seen from the caller.
    """
    found = [p for p in problems if p.kind not in _EXPECTED]
    if not found:
        return
    listed = "; ".join(f"{p.path}: {p.message}" for p in found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    warnings.warn(
        f"{address}: {len(found)} things are not in the Zarr group, see its store.problems: {listed}{more}",
        IncompleteWarning,
        stacklevel=stacklevel + 1,
    )
