"""Links made copies, and members left out whose names Zarr does not have."""

from __future__ import annotations

import numpy as np

from lindi_bridge.model.categories import name_categories
from lindi_bridge.model.chunks import ChunkTable
from lindi_bridge.model.links import resolve_links
from lindi_bridge.model.names import leave_out_names
from lindi_bridge.model.nodes import ArrayNode, GroupNode, ReferenceTree, SoftLinkNode

ARRAY = ArrayNode((3,), (3,), "<i4", inline={"0": b"abcdefghijkl"})


def tree(**nodes):
    """A tree of nodes by path, with ``__`` for a slash: text is a link."""
    found = {f"/{name.replace('__', '/')}": node for name, node in nodes.items()}
    made = {path: SoftLinkNode(node) if isinstance(node, str) else node for path, node in found.items()}
    return ReferenceTree({"/": GroupNode(), **made})


def resolved(**nodes):
    made = tree(**nodes)
    resolve_links(made)
    return made


def messages(made):
    return {problem.path: problem.message for problem in made.problems}


def test_a_link_becomes_a_copy_of_everything_below_its_target():
    made = resolved(a=GroupNode({"k": 1}), a__d=ARRAY, a__g=GroupNode(), a__g__e=ARRAY, link="/a", z=ARRAY)
    assert list(made.nodes) == ["/", "/a", "/a/d", "/a/g", "/a/g/e", "/link", "/link/d", "/link/g", "/link/g/e", "/z"]
    assert made.nodes["/link"] is made.nodes["/a"]
    assert made.nodes["/link/g/e"] is ARRAY
    assert made.annotations == {"/link": {"copy_of": "/a"}}
    assert made.problems == []


def test_links_over_links():
    made = resolved(
        a=GroupNode(), a__d=ARRAY, to_a="/a", through="/to_a/d", chain="/through", early="/late", late="/a/d"
    )
    assert {path for path, node in made.nodes.items() if node is ARRAY} == {
        *("/a/d", "/to_a/d", "/through", "/chain", "/early", "/late")
    }
    assert made.annotations["/through"] == {"copy_of": "/to_a/d"}
    assert made.problems == []


def test_links_that_lead_nowhere_are_listed():
    made = resolved(a=ARRAY, gone="/nothing", below="/a/b", loop="/pool", pool="/loop")
    assert list(made.nodes) == ["/", "/a"]
    assert messages(made) == {
        "/gone": "a link to /nothing, which is not there, or not in the document",
        "/below": "a link to /a/b, which is not there, or not in the document",
        "/loop": "a link to /pool, which leads to no end of links",
        "/pool": "a link to /loop, which leads to no end of links",
    }
    assert made.annotations["/gone"] == {"link": "/nothing"}


def test_a_link_that_leads_nowhere_costs_only_itself_in_a_copy():
    made = resolved(a=GroupNode(), a__d=ARRAY, a__gone="/nothing", copy="/a")
    assert list(made.nodes) == ["/", "/a", "/a/d", "/copy", "/copy/d"]
    assert list(messages(made)) == ["/a/gone", "/copy/gone"]
    assert "/copy/gone" not in made.annotations


def test_cycles_end_and_are_listed():
    made = resolved(a=GroupNode(), a__b="/b", b=GroupNode(), b__a="/a", g=GroupNode(), g__self="/g", g__up="/")
    assert list(made.nodes) == ["/", "/a", "/a/b", "/b", "/b/a", "/g"]
    assert messages(made) == {
        "/a/b/a": "a link to /a, a group that holds it",
        "/b/a/b": "a link to /b, a group that holds it",
        "/g/self": "a link to /g, a group that holds it",
        "/g/up": "a link to /, a group that holds it",
    }


def test_a_cycle_over_a_group_further_up():
    made = resolved(a=GroupNode(), a__link="/x/y", x=GroupNode(), x__y=GroupNode(), x__y__up="/x", x__y__d=ARRAY)
    assert {"/a/link", "/a/link/d", "/x/y/d"} <= made.nodes.keys()
    assert list(messages(made)) == ["/a/link/up", "/x/y/up"]


def test_copies_that_double_with_every_group_are_not_made():
    """Thirty groups with two links each to the next: a thousand million copies of the last."""
    nodes = {"g30": GroupNode(), "g30__d": ARRAY}
    for number in range(30):
        nodes |= {f"g{number}": GroupNode(), f"g{number}__x": f"/g{number + 1}", f"g{number}__y": f"/g{number + 1}"}
    made = resolved(**nodes)
    assert len(made.nodes) < 500_000
    assert "which is too much to write twice" in messages(made)["/g0/x"]
    assert "/g29/x/d" in made.nodes


def test_a_copy_of_many_chunks_counts_as_many():
    number = np.arange(1_000_000)
    table = ChunkTable((len(number),), number, number, number, np.zeros_like(number))
    large = ArrayNode((len(number),), (1,), "|u1", table=table)
    made = resolved(large=large, small=ARRAY, **{f"l{k}": "/large" for k in range(4)}, s="/small")
    assert "/l0" in made.nodes
    assert list(messages(made)) == ["/l1", "/l2", "/l3"]
    assert "/s" in made.nodes


def test_names_that_zarr_does_not_have():
    made = tree(
        **{"a": GroupNode(), "a__.zattrs": GroupNode(), "a__.zattrs__d": ARRAY, "b\\c": ARRAY, "..": ARRAY, "d": "/.."}
    )
    leave_out_names(made)
    assert list(made.nodes) == ["/", "/a", "/d"]
    assert [(p.path, p.kind) for p in made.problems] == [("/a/.zattrs", "name"), ("/b\\c", "name"), ("/..", "name")]


def test_categories_of_anndata_0_7():
    def codes(target):
        return ArrayNode((3,), (3,), "|i1", attributes={"categories": {"_REFERENCE": {"path": target}}})

    made = tree(obs=GroupNode(), obs__c=codes("/obs/__categories/c"), obs__elsewhere=codes("/var"), var=ARRAY)
    made.nodes["/obs/__categories/c"] = ARRAY
    name_categories(made)
    assert made.nodes["/obs/c"].attributes["categories"] == "__categories/c"
    assert made.annotations["/obs/c"]["attributes"]["categories"]["value"] == {
        "_REFERENCE": {"path": "/obs/__categories/c"}
    }
    assert made.nodes["/obs/elsewhere"].attributes["categories"] == {"_REFERENCE": {"path": "/var"}}
