"""Whether the parts of a profile add up to the latency that they explain, and if not, by which measured reason (pure).

Three figures of one inference: the plain latency, without a profiler; the window, the same with one; and the sum of the
parts inside the window. Parts over plain between 0.9 and 1.1 adds up. Outside, the parts are corrected by what was
measured beside them, and explain the latency only where that brings them within the same limits:

    overlap          of work on a GPU: its sum over the time in which any of it ran, from the trace
    profiler's cost  window over plain; not for kernels, which take as long under a profiler as without
    launch gaps      what the kernels' own time leaves of the plain latency, as far as the trace has as much idle time

What no figure covers stays unexplained, and nothing is concluded from such a profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.core.schemas.profile_record import PartsProfile
from harness.profiling.launch_gaps import busy_in_a_pass, idle_in_a_pass, overlap

LOW, HIGH = 0.9, 1.1

LEAST_OVERLAP = 1.005
"""Sum of the work over busy time: less is how a trace rounds the times of short kernels."""

Outcome = Literal["adds up", "explained", "unexplained"]


@dataclass(frozen=True)
class Reconciliation:
    """How parts, window and plain latency of one case hang together, ns an inference.

    corrected_ns: the parts with the measured reasons counted in; the parts themselves where they add up. measured_ns:
    the case's latency from the results, where it was measured. reasons: what was measured about a sum outside LOW…HIGH
    of the plain latency, with its figures; and what else a reader has to know.
    """

    outcome: Outcome
    parts_ns: int
    corrected_ns: int
    window_ns: int
    plain_ns: int
    measured_ns: int | None
    reasons: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """Parts over the plain latency."""
        return self.parts_ns / self.plain_ns

    @property
    def corrected(self) -> float:
        """Corrected parts over the plain latency."""
        return self.corrected_ns / self.plain_ns

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
    outcome: Outcome = "adds up"
    corrected, reasons = total, list[str]()
    if not _is_whole(total, parts):
        corrected, reasons = _corrected(total, parts)
        outcome = "explained" if _is_whole(corrected, parts) else "unexplained"
    if outcome == "unexplained":
        reasons.append(_uncovered(total, corrected, parts, on_gpu))
    if measured_ns is not None and not LOW <= parts.plain_ns / measured_ns <= HIGH:
        reasons.append(
            f"the plain latency here is {parts.plain_ns / measured_ns:.2f} times the measured one: the machine or the "
            "way to run differed, and shares are more reliable than times"
        )
    return Reconciliation(outcome, total, corrected, parts.window_ns, parts.plain_ns, measured_ns, tuple(reasons))


def parts_total(parts: PartsProfile, on_gpu: bool) -> int | None:
    """Self times of the layers in ns; else, of operators, those of the device that computes; None of neither."""
    if parts.layers:
        return sum(row.self_ns for row in parts.layers)
    if parts.operators:
        return sum((row.self_device_ns or 0) if on_gpu else row.self_cpu_ns for row in parts.operators)
    return None


def are_kernels(parts: PartsProfile) -> bool:
    """Whether the times are those of a GPU's kernels, also by layer; of a CPU and of TensorRT they are not."""
    return any(row.self_device_ns is not None for row in parts.operators)


def _is_whole(spent_ns: int, parts: PartsProfile) -> bool:
    return LOW <= spent_ns / parts.plain_ns <= HIGH


def _corrected(total: int, parts: PartsProfile) -> tuple[int, list[str]]:
    """(parts with what was measured beside them, those measurements in words)."""
    spent, reasons, gaps = float(total), list[str](), parts.launch_gaps
    if gaps is not None and overlap(gaps) > LEAST_OVERLAP:
        spent /= overlap(gaps)
        reasons.append(
            f"overlap: the work of the GPU's streams sums to {overlap(gaps):.2f} times the time that it took"
        )
    stretched = parts.window_ns / parts.plain_ns
    if spent > parts.plain_ns and stretched > 1 and not are_kernels(parts):
        spent /= stretched
        reasons.append(f"profiler overhead: profiled runs took {stretched:.2f} times the plain latency")
    if spent < parts.plain_ns and gaps is not None:
        busy_ns = busy_in_a_pass(parts)
        idle_ns = min(parts.plain_ns - busy_ns, idle_in_a_pass(gaps))
        if idle_ns > 0:
            spent += idle_ns
            reasons.append(
                f"launch gaps: the kernels' own time leaves {(parts.plain_ns - busy_ns) / 1e6:.3g} ms of the plain "
                f"latency, and in a traced pass no kernel ran for {idle_in_a_pass(gaps) / 1e6:.3g} ms"
            )
    return round(spent), reasons


def _uncovered(total: int, corrected: int, parts: PartsProfile, on_gpu: bool) -> str:
    """Why a sum stays unexplained, with the figures that a reader needs to look further."""
    stretched, covered = parts.window_ns / parts.plain_ns, total / parts.window_ns
    figures = f"profiled runs took {stretched:.2f} times the plain ones, and parts cover {covered:.0%} of them"
    if corrected != total:
        figures = f"with that the parts come to {corrected / parts.plain_ns:.2f} of the plain latency; {figures}"
    if stretched < LOW:
        return f"{figures}: no profiler makes runs faster, so the machine was not steady; profile again when it is idle"
    if on_gpu and total < parts.plain_ns and parts.launch_gaps is None:
        return f"{figures}; no trace shows whether the GPU was idle"
    return f"{figures}; nothing that was measured covers the difference"


def middle_runs(spans_ns: Sequence[int]) -> list[int]:
    """Places of the runs in the middle half by length, at least one, in the order in which they ran. ValueError of
    none."""
    if not spans_ns:
        raise ValueError("no runs")
    quarter = len(spans_ns) // 4
    by_length = sorted(range(len(spans_ns)), key=spans_ns.__getitem__)
    return sorted(by_length[quarter : len(spans_ns) - quarter])


def middle_mean(spans_ns: Sequence[int]) -> int:
    """The mean length of those runs in ns."""
    chosen = middle_runs(spans_ns)
    return round(sum(spans_ns[place] for place in chosen) / len(chosen))
