"""Measure one feature with one implementation, in a process of its own: ``run_feature.py NAME FEATURE FOLDER``.

Makes the feature's file in the folder, opens it with the implementation, compares with h5py, and writes
``verdict.json`` there. ``run_feature.py versions`` prints the versions in this environment instead.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import h5py
from adapters import OPENERS, OURS, versions
from builders.features import BAD, SkipFeature, make
from values import compare_values

_ORDER = (("value", "different"), ("read", "refused"), ("error", "refused"), ("missing", "missing"))


def measure(implementation: str, feature: str, folder: Path) -> dict[str, str | bool]:
    """The verdict about one feature: equal, metadata, different, missing, listed, refused or untested, and why."""
    try:
        path = make(feature, folder)
    except SkipFeature as reason:
        return {"verdict": "untested", "why": str(reason)}
    try:
        actual, warned = OPENERS[implementation](path)
    except BaseException as error:  # noqa: BLE001 (whatever it is, it is the verdict)
        why = f"{type(error).__name__}: {error}"
        return {"verdict": "equal" if feature in BAD else "refused", "why": why}
    if feature in BAD:
        return {"verdict": "different", "why": "opened without an error"}
    with h5py.File(path, "r") as expected:
        if implementation in OURS:
            return _measure_ours(implementation, path, expected, actual)
        findings = [(finding.kind, " ".join(finding)) for finding in compare_values(expected, actual)]
    verdict = {"verdict": _judge([kind for kind, _ in findings]), "why": "; ".join(text for _, text in findings[:3])}
    return verdict | ({"warned": True} if warned else {})


def _measure_ours(implementation: str, path: Path, expected: h5py.File, actual: object) -> dict[str, str | bool]:
    """Our own files are held to the strict comparator; annotations say nothing of how a file stores its chunks."""
    from builders.compare import compare_files
    from builders.documents import unlisted

    differences = compare_files(expected, actual, storage=implementation == "mount")
    document = path.with_name(path.name + ".lindi.json")
    rest = unlisted(differences, document) if implementation == "annotations" else differences
    why = "; ".join(str(difference) for difference in (rest or differences)[:3])
    verdict = _judge([difference.kind for difference in rest])
    return {"verdict": "listed" if verdict == "equal" and differences else verdict, "why": why}


def _judge(kinds: list[str]) -> str:
    for kind, verdict in _ORDER:
        if kind in kinds:
            return verdict
    return "metadata" if kinds else "equal"


def main() -> None:
    """Command line; see the module's docstring."""
    if sys.argv[1] == "versions":
        print(json.dumps(versions()))
        return
    implementation, feature, folder = sys.argv[1:]
    verdict = measure(implementation, feature, Path(folder))
    verdict["why"] = " ".join(str(verdict["why"]).replace(folder, "").split())[:200]
    Path(folder, "verdict.json").write_text(json.dumps(verdict))


if __name__ == "__main__":
    main()
