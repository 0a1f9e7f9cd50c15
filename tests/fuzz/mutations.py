"""Damage to reference documents: to their structure, and to their bytes; and what of a document it touches."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from builders.lies import changed

JSONValue = Any

NUMBERS = [-1, 0, 1, 2, 7, 2**31, 2**62, 2**63, 2**64, 10**30, 0.5, 1e308]
VALUES = [None, True, False, "", "x", "base64:", "base64:AAAA", "{{u}}", "{{", "/", "..", "\0", "\ud800", [], {}, [[]]]
VALUES += [{"_REFERENCE": {"path": "/"}}, "A" * 5000, list(range(100)), *NUMBERS]
NAMES = [
    ".zgroup",
    ".zarray",
    ".zattrs",
    "0",
    "0.0",
    "_SOFT_LINK",
    "_SCALAR",
    "_COMPOUND_DTYPE",
    "_EXTERNAL_ARRAY_LINK",
]
NAMES += [
    "shape",
    "chunks",
    "dtype",
    "path",
    "refs",
    "hdf5",
    "templates",
    "x/.zarray",
    "x/0",
    "..",
    "a/b/c/.zgroup",
    "",
]


def mutated(text: str, rng: random.Random) -> bytes:
    """A document with a few changes."""
    if rng.random() < 0.3:
        return _bytes_changed(text.encode(), rng)
    document = json.loads(text)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        _change_structure(document, rng)
    if "hdf5" in document and rng.random() < 0.3 and isinstance(document.get("templates"), dict):
        try:
            return changed(json.dumps(document), lambda d: None)  # digests fit: it mounts
        except (KeyError, TypeError, ValueError, AttributeError):
            pass  # there is too little left of it
    return json.dumps(document).encode()


def _bytes_changed(data: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(damaged))
        kind = rng.randrange(6)
        if kind == 0:
            damaged[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            damaged[at] = rng.choice(b'0123456789"{}[],:\\/.-')
        elif kind == 2:
            del damaged[at : at + rng.choice([1, 2, 20])]
        elif kind == 3:
            damaged[at:at] = damaged[at : at + rng.choice([1, 20, 200])]
        elif kind == 4:
            other = rng.randrange(len(damaged))
            damaged[at : at + 20] = damaged[other : other + 20]
        elif rng.random() < 0.2:
            del damaged[at:]
        if not damaged:
            break
    return bytes(damaged)


def _change_structure(document: JSONValue, rng: random.Random) -> None:
    """Change one place, all sections alike: each has few members of the first levels."""
    container, depth = document, 0
    while True:
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        if not keys:
            break
        key = rng.choice(keys)
        value = container[key]
        if not isinstance(value, (dict, list)) or not value or (depth > 0 and rng.random() < 0.25):
            break
        container, depth = value, depth + 1
    if not keys:
        return
    kind = rng.randrange(7)
    if kind == 0:
        del container[key]
    elif kind == 1:
        container[key] = copy.deepcopy(rng.choice(VALUES))
    elif kind == 2 and isinstance(value, (int, float)) and not isinstance(value, bool):
        container[key] = rng.choice([value + 1, value - 1, value * 2, -value, value + 8])
    elif kind == 3 and isinstance(value, str) and value:
        at = rng.randrange(len(value))
        container[key] = (
            value[:at] + rng.choice(["", "x", "/", "\0", "é", "{{u}}", "0"]) + value[at + rng.randrange(3) :]
        )
    elif kind == 4:
        container[key] = copy.deepcopy(container[rng.choice(keys)])
    elif kind == 5 and isinstance(container, dict):
        container[rng.choice(NAMES)] = container.pop(key)
    elif isinstance(container, list):
        container.insert(rng.randrange(len(container) + 1), copy.deepcopy(rng.choice(VALUES)))
    else:
        container[rng.choice(NAMES)] = copy.deepcopy(rng.choice(VALUES))


# -- what was touched -------------------------------------------------------------------------------------------------


def touched(before: dict[str, JSONValue], after: dict[str, JSONValue]) -> tuple[set[str], set[str]]:
    """Sections that differ in two documents, and paths of the objects whose refs or annotations do."""
    sections = {key for key in _differing(before, after) if key not in ("refs", "hdf5")}
    here, there = _members(before, "hdf5"), _members(after, "hdf5")
    sections |= {f"hdf5/{key}" for key in _differing(here, there) if key != "annotations"}
    paths = _differing(_members(here, "annotations"), _members(there, "annotations"))
    for key in _differing(_members(before, "refs"), _members(after, "refs")):
        paths |= set(_owners(key))
    return sections, paths


def _differing(before: dict[str, JSONValue], after: dict[str, JSONValue]) -> set[str]:
    """Keys whose values are not the same JSON (true is not 1)."""
    texts = [{key: json.dumps(value) for key, value in members.items()} for members in (before, after)]
    return {key for key in {*before, *after} if texts[0].get(key) != texts[1].get(key)}


def _members(value: JSONValue, name: str) -> dict[str, JSONValue]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _owners(key: str) -> Iterator[str]:
    """Objects that a key of refs can belong to: a chunk's key may have slashes."""
    path = "/" + key
    while path not in ("", "/"):
        path = path.rpartition("/")[0]
        yield path or "/"
        if key.rpartition("/")[2].startswith(".z"):
            return


def reached(paths: set[str], refs: dict[str, JSONValue]) -> set[str]:
    """Those paths, and the soft links that lead to them or through them."""
    links = {}
    for key, value in refs.items():
        link = value.get("_SOFT_LINK") if key.endswith("/.zattrs") and isinstance(value, dict) else None
        if isinstance(link, dict) and isinstance(link.get("path"), str):
            links["/" + key.removesuffix("/.zattrs")] = link["path"]
    found = set(paths)
    while True:
        more = {path for path, target in links.items() if path not in found and _is_near(target, found)}
        if not more:
            return found
        found |= more


def _is_near(path: str, paths: set[str]) -> bool:
    """Whether a path is one of some, or lies above or below one of them."""
    return any(path == p or path.startswith(p.rstrip("/") + "/") or p.startswith(path.rstrip("/") + "/") for p in paths)


def is_touched(question: str, paths: set[str]) -> bool:
    """Whether the answer to a question about a file may depend on what was touched."""
    path = question.rpartition(" ")[0] if " @" not in question else question.partition(" @")[0]
    return question == "visit" or _is_near(path, paths)
