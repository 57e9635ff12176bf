"""Profilers of the time inside each backend: one profiler per backend, as the table of backends names it.

Each runs in a fresh process of its own, so its cost is in no measured latency.
"""
