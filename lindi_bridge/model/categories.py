"""Categories of columns as anndata 0.7 wrote them: an attribute of the codes refers to them."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from lindi_bridge.model.nodes import ArrayNode, ReferenceTree

__all__ = ["name_categories"]

_ATTRIBUTE = "categories"


def name_categories(tree: ReferenceTree) -> None:
    """Write the references to categories as anndata's reader of Zarr has them: paths relative to the data frame.

    The references themselves go to the annotations. (anndata, element ``dataframe`` 0.1.0.)

    Parameters
    ----------
    tree : ReferenceTree
        Is changed.
    """
    for path, node in tree.nodes.items():
        value = node.attributes.get(_ATTRIBUTE) if isinstance(node, ArrayNode) else None
        if not isinstance(node, ArrayNode) or not isinstance(value, dict):
            continue
        target, frame = value["_REFERENCE"]["path"], posixpath.dirname(path).rstrip("/") + "/"
        if target in tree.nodes and target.startswith(frame):
            relative = target.removeprefix(frame)
            tree.nodes[path] = replace(node, attributes={**node.attributes, _ATTRIBUTE: relative})
            typed = tree.annotations.setdefault(path, {}).setdefault("attributes", {})
            typed[_ATTRIBUTE] = {"dtype": {"reference": "object"}, "shape": [], "value": value}
