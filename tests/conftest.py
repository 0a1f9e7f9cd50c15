"""Settings for all tests."""

from __future__ import annotations

from hypothesis import settings

# No test depends on how fast the machine is.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
