"""Backends of known duration, which prove the harness itself."""
