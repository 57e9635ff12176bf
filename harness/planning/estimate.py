"""About how long a plan takes: bounds from its own settings, before anything is known about the models (pure)."""

from __future__ import annotations

from harness.backends import backend_info
from harness.core.schemas import Measurement, Plan

START_S = 1.5
"""Fork, load and the reference check of a small model, as measured on two cores; large models take longer."""
COMPILE_S = 30.0
"""First torch.compile of a model of ResNet-50's size on two cores; later rounds find it cached."""


def estimate(plan: Plan) -> tuple[float, float]:
    """(shortest, longest) seconds of the run stage: every process converges at once, or none before its limit.

    Further rounds count in the longest: all of them, or what begins before the budget is spent and one process more.
    """
    settings = plan.measurement
    runnable = [case for case in plan.cases if case.skip_reason is None]
    quick = START_S + max(settings.warmup_min_s + 3 * settings.window_s + 3 * settings.block_s, settings.min_s)
    slow = max(quick, START_S + settings.warmup_max_s + settings.max_s)
    compiles = sum(COMPILE_S for case in runnable if backend_info(case.backend).compile_cache)
    processes = len(runnable) * settings.rounds
    planned = processes * slow + compiles
    if settings.max_rounds is None or settings.max_rounds <= settings.rounds or not runnable:
        return processes * quick, planned
    every = len(runnable) * settings.max_rounds * slow + compiles
    if settings.budget_s is not None:
        every = min(every, max(planned, settings.budget_s + slow))
    return processes * quick, every


def further_in_words(settings: Measurement) -> str | None:
    """`up to 20 rounds while …`; None where a plan asks for no further rounds."""
    if settings.max_rounds is None or settings.max_rounds <= settings.rounds:
        return None
    until = f" and {duration(settings.budget_s)} are not over" if settings.budget_s is not None else ""
    width = f"±{100 * settings.target_interval:.3g}%"
    return f"up to {settings.max_rounds} rounds while the interval is wider than {width}{until}"


def in_words(bounds: tuple[float, float]) -> str:
    """`2 min to 9 min`."""
    low, high = (duration(seconds) for seconds in bounds)
    return f"{low} to {high}" if low != high else f"about {low}"


def duration(seconds: float) -> str:
    """`40 s`, `9 min` or `1.5 h`."""
    if seconds < 90:
        return f"{round(seconds)} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
