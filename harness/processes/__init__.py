"""Processes that a run starts, and their messages."""
