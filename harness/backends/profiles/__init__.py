"""Where the time goes inside each backend: one profiler a backend, as the table of backends names it.

Each runs in a fresh process of its own, so what it costs stands in no measured latency.
"""
