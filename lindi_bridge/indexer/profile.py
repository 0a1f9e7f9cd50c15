"""Profiles: whom a document is written for. They differ in how values, attributes and links are expressed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import h5py

from lindi_bridge.indexer.datasets import DatasetIndexer
from lindi_bridge.indexer.netcdf import name_dimensions
from lindi_bridge.indexer.storage import DatasetStorage, InlinePolicy
from lindi_bridge.indexer.values import EncodedAttribute, ReferenceEncoder, encode_attribute
from lindi_bridge.indexer.zarr_attributes import encode_zarr_attribute
from lindi_bridge.indexer.zarr_datasets import ZarrDatasetIndexer
from lindi_bridge.model.categories import name_categories
from lindi_bridge.model.links import resolve_links
from lindi_bridge.model.names import leave_out_names
from lindi_bridge.model.nodes import ArrayNode, ReferenceTree

__all__ = ["PROFILES", "Profile"]

Finish = Callable[[ReferenceTree, Mapping[str, Any], Callable[[int], str | None]], None]


class _DatasetIndexer(Protocol):
    def node(self, dataset: h5py.Dataset, path: str) -> tuple[ArrayNode, dict[str, Any]]: ...


@dataclass(frozen=True)
class Profile:
    """How a tree is written.

    Parameters
    ----------
    name : str
        As in ``lindi_bridge.index(profile=...)``.
    inline : InlinePolicy
        What may be copied into the document.
    datasets : callable
        Makes what makes array nodes.
    attribute : callable
        Encodes an attribute.
    finish : callable
        What is done to the whole tree at the end. Takes the tree, the open objects by path, and the path of an object
        by the address of its header.
    """

    name: str
    inline: InlinePolicy
    datasets: Callable[[DatasetStorage, ReferenceEncoder], _DatasetIndexer]
    attribute: Callable[[h5py.AttributeManager, str, ReferenceEncoder], EncodedAttribute]
    finish: Finish


def _leave(tree: ReferenceTree, objects: Mapping[str, Any], path_of: Callable[[int], str | None]) -> None:
    """LINDI's readers know links."""


def _finish_zarr(tree: ReferenceTree, objects: Mapping[str, Any], path_of: Callable[[int], str | None]) -> None:
    name_dimensions(tree, objects, path_of)
    name_categories(tree)
    leave_out_names(tree)
    resolve_links(tree)


PROFILES = {
    "lindi": Profile("lindi", InlinePolicy(), DatasetIndexer, encode_attribute, _leave),
    # A million strings of an index: what is left out here is nowhere else for a plain reader.
    "zarr": Profile(
        "zarr", InlinePolicy(dataset=32 * 1024 * 1024), ZarrDatasetIndexer, encode_zarr_attribute, _finish_zarr
    ),
}
"""All profiles by name."""
