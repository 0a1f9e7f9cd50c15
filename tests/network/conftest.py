"""Fixtures of the network tests."""

from servers.seaweed import seaweed

__all__ = ["seaweed"]
