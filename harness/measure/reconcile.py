"""Whether the parts of a profile add up to the latency that they explain, and if not, by which rule (pure).

Three figures of one inference: the plain latency, without a profiler; the window, the same with one; and the sum of the
parts inside the window. Window over plain is what profiling costs; parts over window is what the parts leave out or
count twice; parts over plain, between 0.9 and 1.1, says that the profile explains the latency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.core.schemas.profile_parts import PartsProfile

LOW, HIGH = 0.9, 1.1

Outcome = Literal["adds up", "explained", "unexplained"]


@dataclass(frozen=True)
class Reconciliation:
    """How parts, window and plain latency of one case hang together, ns an inference.

    measured_ns: the case's latency from the results, where it was measured. reasons: the rules that explain a sum
    outside LOW…HIGH of the plain latency, with their figures; and what else a reader has to know.
    """

    outcome: Outcome
    parts_ns: int
    window_ns: int
    plain_ns: int
    measured_ns: int | None
    reasons: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """Parts over the plain latency."""
        return self.parts_ns / self.plain_ns

    @property
    def overhead(self) -> float:
        """What profiling costs, as a share of the plain latency; below 0 where the profiled runs were faster."""
        return self.window_ns / self.plain_ns - 1

    @property
    def idle(self) -> float:
        """The share of the window that no part covers; below 0 where parts overlap."""
        return 1 - self.parts_ns / self.window_ns


def reconcile(parts: PartsProfile, on_gpu: bool, measured_ns: int | None = None) -> Reconciliation | None:
    """Sum of the layers, or of the operators where there are no layers, against the latency; None of no parts.

    The plain latency is that of the profiling process itself: machine and moment are the same.
    """
    total = parts_total(parts, on_gpu)
    if total is None:
        return None
    outside = not LOW <= total / parts.plain_ns <= HIGH
    reasons = _explained(total, parts, on_gpu) if outside else []
    outcome: Outcome = "adds up" if not outside else "explained" if reasons else "unexplained"
    if outcome == "unexplained":
        reasons.append(_flagged(total, parts))
    if measured_ns is not None and not LOW <= parts.plain_ns / measured_ns <= HIGH:
        reasons.append(
            f"the plain latency here is {parts.plain_ns / measured_ns:.2f} times the measured one: the machine or the "
            "way to run differed, and shares hold better than times"
        )
    return Reconciliation(outcome, total, parts.window_ns, parts.plain_ns, measured_ns, tuple(reasons))


def parts_total(parts: PartsProfile, on_gpu: bool) -> int | None:
    """Self times of the layers in ns; else, of operators, those of the device that computes; None of neither."""
    if parts.layers:
        return sum(row.self_ns for row in parts.layers)
    if parts.operators:
        return sum((row.self_device_ns or 0) if on_gpu else row.self_cpu_ns for row in parts.operators)
    return None


def _flagged(total: int, parts: PartsProfile) -> str:
    """What a reader can do about a sum that no rule explains."""
    stretched, covered = parts.window_ns / parts.plain_ns, total / parts.window_ns
    figures = f"profiled runs took {stretched:.2f} times the plain ones, and parts cover {covered:.0%} of them"
    if stretched < 1:
        return f"{figures}: no profiler makes runs faster, so the machine was not steady; profile again when it is idle"
    return figures


def launch_gaps(parts: PartsProfile) -> float | None:
    """The share of the plain latency in which no kernel ran on the GPU; None where no kernel was told.

    Kernels take as long with a profiler as without; that kernels overlap, which would hide gaps, is not told apart.
    """
    kernels = sum(row.self_device_ns or 0 for row in parts.operators)
    return max(0.0, 1 - kernels / parts.plain_ns) if kernels else None


def _explained(total: int, parts: PartsProfile, on_gpu: bool) -> list[str]:
    """Rules that hold for a sum outside the limits, each with its figure."""
    found = []
    stretched, covered = parts.window_ns / parts.plain_ns, total / parts.window_ns
    if total > parts.plain_ns and stretched > HIGH:
        found.append(
            f"profiler overhead: profiled runs took {stretched:.2f} times the plain latency, unless other work slowed "
            "the machine meanwhile"
        )
    if total > parts.plain_ns and covered > HIGH:
        found.append(f"parallel streams or threads: parts overlap, {covered:.2f} times the profiled run")
    if total < parts.plain_ns and covered < LOW:
        where = "launch gaps: the GPU" if on_gpu else "work between the parts: the run"
        found.append(f"{where} spent {1 - covered:.0%} of the profiled time in no part")
    return found
