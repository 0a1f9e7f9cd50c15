"""Annotations of a document that say something of nothing: whoever opens it does not look at them."""

from __future__ import annotations

from collections.abc import Iterator

from lindi_bridge.client.written_order import creation_order
from lindi_bridge.document.document import Document
from lindi_bridge.model.nodes import Problem, ReferenceTree

__all__ = ["unused_annotations"]


def unused_annotations(document: Document, tree: ReferenceTree) -> Iterator[Problem]:
    """Tell the paths that the document annotates, and where there is no object and no link.

    Parameters
    ----------
    document : Document
        The document. What it lists among its problems it may annotate all the same: of an object that has no
        expression, attributes may have one.
    tree : ReferenceTree
        What ``refs`` say, with what annotations put back.
    """
    listed = {str(problem.get("path")) for problem in document.problems}
    made = {"/", *creation_order(tree, document.annotations)}
    for path in document.annotations:
        if path not in made and path not in listed:
            yield Problem(path, "annotation", "the hdf5 section annotates it, and there is no such object in refs")
