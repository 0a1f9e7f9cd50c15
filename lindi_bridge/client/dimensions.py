"""Dimensions of a dataset, whose scales are our datasets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from h5py._hl import dims

__all__ = ["DimensionManager"]


class DimensionProxy(dims.DimensionProxy):  # type: ignore[misc]
    """One dimension of a dataset, whose scales are our datasets."""

    _wrap: Callable[[Any], Any]

    def __getitem__(self, item: Any) -> Any:
        return self._wrap(super().__getitem__(item))

    def items(self) -> list[tuple[str, Any]]:
        """Names and datasets of the scales."""
        return [(name, self._wrap(scale)) for name, scale in super().items()]

    def values(self) -> list[Any]:
        """Datasets of the scales."""
        return [scale for _, scale in self.items()]


class DimensionManager(dims.DimensionManager):  # type: ignore[misc]
    """The dimensions of a dataset."""

    def __init__(self, parent: Any, wrap: Callable[[Any], Any]) -> None:
        super().__init__(parent)
        self._wrap = wrap

    def __getitem__(self, index: int) -> DimensionProxy:
        proxy = super().__getitem__(index)
        proxy.__class__ = DimensionProxy
        proxy._wrap = self._wrap
        return proxy  # type: ignore[no-any-return]
