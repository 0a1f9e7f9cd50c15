"""The JSON Schema of a reference document, and what in a document is not as it says.

The schema is ``schema.json`` beside this module, in draft 2020-12. A document may have hundreds of thousands of chunk
references and embedded ranges: those are looked at by plain loops that say the same as their definitions in the schema
do, and only what they do not know goes to the validator.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from lindi_bridge.errors import MissingDependencyError
from lindi_bridge.model.nodes import Problem

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

__all__ = ["is_plain_pairs", "is_plain_reference", "load_schema", "schema_problems"]

JSONValue = Any

_DEFINITIONS = {".zgroup": "zgroup", ".zarray": "zarray", ".zattrs": "zattrs", "zarr.json": "zarr_v3"}
_METADATA = frozenset([*_DEFINITIONS, ".zmetadata"])
_MOST_ADDRESS = 65536


@cache
def load_schema() -> Mapping[str, JSONValue]:
    """The schema, as JSON."""
    text = resources.files("lindi_bridge.document").joinpath("schema.json").read_text("utf-8")
    schema: Mapping[str, JSONValue] = json.loads(text)
    return schema


@cache
def _validator(definition: str | None) -> Validator:
    """A validator of the whole schema, or of one of its definitions."""
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        raise MissingDependencyError(
            "checking a document against its schema needs jsonschema; install lindi_bridge[check]"
        ) from None
    schema = load_schema()
    if definition is not None:
        schema = {"$ref": f"#/$defs/{definition}", "$defs": schema["$defs"]}
    validator: Validator = Draft202012Validator(schema)
    return validator


def is_plain_reference(value: JSONValue) -> bool:
    """Whether a value is text or ``[address, offset, length]``.

    Says the same as ``$defs/reference``, but for ``[address]`` alone and for whole numbers written with a fraction.
    """
    if type(value) is str:
        return True
    return (
        type(value) is list
        and len(value) == 3
        and type(value[0]) is str
        and 0 < len(value[0]) <= _MOST_ADDRESS
        and type(value[1]) is int
        and type(value[2]) is int
        and value[1] >= 0
        and value[2] > 0
    )


def is_plain_pairs(value: JSONValue) -> bool:
    """Whether a value is a list of pairs of whole numbers; says the same as ``$defs/pairs``."""
    return type(value) is list and all(
        type(pair) is list
        and len(pair) == 2
        and type(pair[0]) is int
        and type(pair[1]) is int
        and pair[0] >= 0
        and pair[1] >= 0
        for pair in value
    )


def schema_problems(head: Mapping[str, JSONValue], refs: Mapping[str, JSONValue]) -> Iterator[Problem]:
    """What in a document is not as the schema says.

    Parameters
    ----------
    head : mapping
        All members of the document but ``refs``.
    refs : mapping
        The parsed ``refs``.

    Yields
    ------
    Problem
        Its ``path`` is a JSON pointer (RFC 6901) into the document, its ``kind`` ``"schema"``.

    Raises
    ------
    MissingDependencyError
        jsonschema is not installed.
    """
    rest = {**head, "refs": {}}
    if "hdf5" in head:
        rest["hdf5"] = _without_pairs(head["hdf5"])
    yield from _errors(None, rest, "")
    sound: set[tuple[str, str]] = set()
    for key, value in refs.items():
        name = key[key.rfind("/") + 1 :]
        if name not in _METADATA:
            if not is_plain_reference(value):
                yield from _errors("reference", value, _pointer("refs", key))
        elif name in _DEFINITIONS:
            yield from _metadata_errors(key, name, value, sound)
        if "\0" in key:
            yield Problem(_pointer("refs", key), "schema", "its key holds a null character")


def _metadata_errors(key: str, name: str, value: JSONValue, sound: set[tuple[str, str]]) -> Iterator[Problem]:
    """Errors of metadata that stand in ``refs`` as an object, or as text. What is alike is looked at once."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):  # also a number of too many digits
            yield Problem(_pointer("refs", key), "schema", "it is neither a JSON object nor the text of one")
            return
    try:
        text = json.dumps(value)
    except RecursionError:
        yield Problem(_pointer("refs", key), "schema", _TOO_DEEP)
        return
    if (name, text) in sound:
        return
    found = False
    for problem in _errors(_DEFINITIONS[name], value, _pointer("refs", key)):
        found = True
        yield problem
    if not found and len(text) < _MOST_ADDRESS:
        sound.add((name, text))


def _without_pairs(section: JSONValue) -> JSONValue:
    """The ``hdf5`` section without its long lists of pairs, as far as these are sound."""
    if not isinstance(section, dict):
        return section
    section = dict(section)
    if isinstance(section.get("metadata"), dict):
        section["metadata"] = _emptied(section["metadata"], ("ranges",))
    if isinstance(section.get("heaps"), dict):
        section["heaps"] = {
            address: _emptied(heap, ("collections", "blocks")) for address, heap in section["heaps"].items()
        }
    return section


def _emptied(members: JSONValue, names: tuple[str, ...]) -> JSONValue:
    if not isinstance(members, dict):
        return members
    return {k: [] if k in names and is_plain_pairs(v) else v for k, v in members.items()}


# -- words ------------------------------------------------------------------------------------------------------------

_TOO_DEEP = "it is nested too deeply to be looked at"
_KINDS = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}


def _errors(definition: str | None, value: JSONValue, base: str) -> Iterator[Problem]:
    try:
        told: set[tuple[str, str]] = set()
        for error in _validator(definition).iter_errors(value):
            path, message = base + _pointer(*error.absolute_path) or "/", _explain(error)
            if (path, message) not in told:  # there is an error for each missing member, and all are in one message
                told.add((path, message))
                yield Problem(path, "schema", message)
    except RecursionError:
        yield Problem(base or "/", "schema", _TOO_DEEP)


def _pointer(*parts: str | int) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _explain(error: ValidationError) -> str:
    """One error in plain words: what stands there, and what has to."""
    found, schema = error.instance, error.schema
    if error.validator == "required":
        missing = [name for name in error.validator_value if isinstance(found, dict) and name not in found]
        return f"{', '.join(missing)} missing" if missing else error.message[:200]
    title = schema.get("title") if isinstance(schema, dict) else None
    wanted = title or f"{error.validator} {json.dumps(error.validator_value)[:100]}"
    return f"it has to be {wanted}, and is {_shown(found)}"


def _shown(value: JSONValue) -> str:
    """A value in few words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        text = repr(value) if abs(value) < 1e300 else "a huge number"
        return text if len(text) < 60 else "a huge number"
    if isinstance(value, str):
        return json.dumps(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, list) and len(value) <= 6 and all(isinstance(v, (str, int, float)) for v in value):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return f"{_KINDS[type(value)]} of {len(value)}"
