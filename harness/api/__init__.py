"""Inferometer from Python: a profiler for one model that runs the stages and hands back what they wrote, typed.

It drives the same programs and files as `make bench` and `make profile`, each in processes of its own: nothing is
measured in the interpreter that calls it. docs/api.md shows it at work.
"""

from __future__ import annotations

from harness.api.profiler import ModelProfiler
from harness.api.profiles import GpuProfile, LayerProfile, MemoryProfile, Profile
from harness.api.regressions import Regressions, detect_regressions
from harness.api.results import Benchmark, Result

__all__ = [
    "Benchmark",
    "GpuProfile",
    "LayerProfile",
    "MemoryProfile",
    "ModelProfiler",
    "Profile",
    "Regressions",
    "Result",
    "detect_regressions",
]
