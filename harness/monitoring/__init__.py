"""Readings beside a measurement: counters of CPUs, processes and the GPU."""
