"""One attribute by its name, if there is one."""

from __future__ import annotations

from typing import Any

import h5py

from lindi_bridge.hdf5.damage import DAMAGE, refuse_source_error

__all__ = ["attribute_or_none"]


def attribute_or_none(attributes: h5py.AttributeManager, name: str) -> Any:
    """The value of an attribute; None if there is none, or it cannot be read.

    Not ``attributes.get``, which takes a missing attribute from libhdf5's error: h5py now and then finds the text of it
    gone already, and raises something else.
    """
    try:
        return attributes[name] if name in attributes else None  # noqa: SIM401
    except DAMAGE as error:
        refuse_source_error(error)
        return None
