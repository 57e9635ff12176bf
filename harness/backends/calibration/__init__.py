"""Backends of known duration, which validate the harness."""
