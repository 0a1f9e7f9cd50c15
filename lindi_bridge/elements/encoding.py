"""What kind of element an object is: by its own words, or by its structure.

``encoding-type`` and ``encoding-version`` say it in files of anndata 0.8 and newer. Files of anndata 0.7 and of other
writers may say nothing; then a group's members tell, and only where they leave no doubt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

__all__ = ["UNTAGGED", "Encoding", "encoding_of", "inferred_type", "text_attribute"]


@dataclass(frozen=True)
class Encoding:
    """Type and version of an element, both empty where it does not say.

    Parameters
    ----------
    type, version : str
        The attributes ``encoding-type`` and ``encoding-version``.
    """

    type: str
    version: str


UNTAGGED = Encoding("", "")


def text_attribute(obj: Any, name: str, default: str = "") -> str:
    """An attribute as text; of fixed length in files of some writers, where h5py gives bytes."""
    value = obj.attrs.get(name, default)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else default


def encoding_of(obj: Any) -> Encoding:
    """What an object says of itself."""
    return Encoding(text_attribute(obj, "encoding-type"), text_attribute(obj, "encoding-version"))


def inferred_type(obj: Any) -> str:
    """The type of a group that says nothing of itself; empty where its members leave a doubt.

    ``categorical``: integer codes and categories, nothing else. ``nullable-integer``, ``-boolean``, ``-string-array``:
    values and a boolean mask of the same shape, nothing else. ``dataframe``: the attribute ``_index`` names a member.
    """
    if not isinstance(obj, h5py.Group) or encoding_of(obj) != UNTAGGED:
        return ""
    names = set(obj)
    if names == {"codes", "categories"}:
        codes, categories = obj["codes"], obj["categories"]
        if _is_array(codes, 1) and _is_array(categories, 1) and codes.dtype.kind in "iu":
            return "categorical"
    if names == {"values", "mask"}:
        values, mask = obj["values"], obj["mask"]
        if _is_array(values, 1) and _is_array(mask, 1) and mask.dtype == np.bool_ and mask.shape == values.shape:
            if h5py.check_string_dtype(values.dtype):
                return "nullable-string-array"
            return {"i": "nullable-integer", "u": "nullable-integer", "b": "nullable-boolean"}.get(
                values.dtype.kind, ""
            )
    if text_attribute(obj, "_index") in names:
        return "dataframe"
    return ""


def _is_array(obj: Any, rank: int) -> bool:
    return isinstance(obj, h5py.Dataset) and obj.shape is not None and len(obj.shape) == rank
