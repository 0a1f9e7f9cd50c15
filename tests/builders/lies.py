"""Documents whose halves contradict each other, and which open all the same, since their digests are made to fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lindi_bridge.document.digest import canonical_of_refs, text_digest


def changed(text: str, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A document after `change` was made to it, with digests of its new refs."""
    document = json.loads(text)
    change(document)
    refs = json.dumps(document.pop("refs"))
    digests = {"blake2b": text_digest(refs), "canonical": canonical_of_refs(json.loads(refs), document["templates"])}
    document["hdf5"]["refs"] = digests
    return (json.dumps(document)[:-1] + ', "refs": ' + refs + "}").encode()
