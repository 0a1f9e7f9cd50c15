"""Builders of test files, and the comparators that judge what was read back from them."""
