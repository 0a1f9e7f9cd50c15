"""Keys of mappings as encoding ``dict`` 0.2.0 stores them.

Characters that no file system likes are percent-escaped, and reserved names stand between two percent signs (On-disk
format of AnnData, section "Escaped keys").
"""

from __future__ import annotations

import re

from lindi_bridge.errors import ElementError

__all__ = ["unescape_key"]

_UNSAFE = re.compile(r'[/\\:*?"<>|%\x00-\x1f]')
_ESCAPED = re.compile(r"%([0-9A-F]{2})")


def unescape_key(name: str) -> str:
    """The key that a member's name stands for.

    Raises
    ------
    ElementError
        No writer can have made this name of a key.
    """
    inner = name[1:-1] if len(name) > 1 and name.startswith("%") and name.endswith("%") else name
    key = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), inner)
    if _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", key) != inner:
        raise ElementError(f"{name!r} is not an escaped key: nothing is stored under this name by the specification")
    return key
