"""Servers for tests: our own range server, which misbehaves on demand, and a real S3 server."""
