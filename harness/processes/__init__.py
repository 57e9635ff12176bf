"""Processes that a run starts, and what they say to each other."""
