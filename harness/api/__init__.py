"""Inferometer from Python: a profiler for one model that runs the stages and returns their results as typed objects.

It uses the same programs and files as `make bench` and `make profile`, in separate processes: nothing is measured in
the interpreter that calls it. docs/api.md has examples.
"""

from __future__ import annotations

from harness.api.generation import Generation, generate
from harness.api.profiler import ModelProfiler
from harness.api.profiles import GpuProfile, LayerProfile, MemoryProfile, Profile
from harness.api.regressions import Regressions, detect_regressions
from harness.api.results import Benchmark, Load, Result, read_results
from harness.core.errors import InferometerError

__all__ = [
    "Benchmark",
    "Generation",
    "GpuProfile",
    "InferometerError",
    "LayerProfile",
    "Load",
    "MemoryProfile",
    "ModelProfiler",
    "Profile",
    "Regressions",
    "Result",
    "detect_regressions",
    "generate",
    "read_results",
]
