"""Escaped keys of mappings, by the specification's own examples and rules."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lindi_bridge.elements.keys import unescape_key
from lindi_bridge.errors import ElementError

UNSAFE = '/\\:*?"<>|%' + "".join(map(chr, range(32)))


def escape(key: str, wrapped: bool) -> str:
    inner = "".join(f"%{ord(c):02X}" if c in UNSAFE else c for c in key)
    return f"%{inner}%" if wrapped else inner


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a%2Fb", "a/b"),
        ("%CON%", "CON"),
        ("CON%25", "CON%"),
        ("plain", "plain"),
        ("%%", ""),
        ("%..%", ".."),
        ("%a%2Fb%", "a/b"),
        ("%2F%", "2F"),
        ("%1F", "\x1f"),
        ("käse", "käse"),
    ],
)
def test_a_name_stands_for_a_key(name: str, key: str) -> None:
    assert unescape_key(name) == key


@pytest.mark.parametrize("name", ["%41", "%2f", "a%", "%", "a%2", "a/b", "a%zz", "%%41%"])
def test_a_name_that_no_writer_makes_is_refused(name: str) -> None:
    with pytest.raises(ElementError, match="not an escaped key"):
        unescape_key(name)


@given(st.text(st.sampled_from(string.ascii_letters + UNSAFE + "äö."), max_size=12), st.booleans())
def test_unescaping_undoes_escaping(key: str, wrapped: bool) -> None:
    name = escape(key, wrapped)
    if not wrapped and len(name) > 1 and name.startswith("%") and name.endswith("%"):
        pytest.fail("nothing else can leave a key ending in a percent sign")
    assert unescape_key(name) == key
