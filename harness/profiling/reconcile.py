"""Checks whether the parts of a profile add up to the latency, and if not, which measured reason explains it (pure).

Three figures of one inference: the plain latency, without a profiler; the window, the same with a profiler; and the sum
of the parts inside the window. The parts add up where parts over plain is between 0.9 and 1.1. Outside these limits the
parts are corrected by other measured figures; they explain the latency only where that brings them within the limits:

    overlap            GPU work: its sum over the time in which any of it ran, from the trace
    profiler overhead  window over plain; not for kernels, which take as long with a profiler as without
    launch gaps        plain latency without the kernels' own time, at most the idle time in the trace

A difference that no figure covers is unexplained, and nothing is concluded from such a profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.core.schemas.profile_record import PartsProfile
from harness.core.units import duration
from harness.profiling.launch_gaps import kernel_busy_ns, no_kernel_ns, work_overlap

LOW, HIGH = 0.9, 1.1

LEAST_OVERLAP = 1.005
"""Smallest overlap, sum of the work over busy time: below it, a trace only rounds the times of short kernels."""

Agreement = Literal["adds up", "explained", "unexplained"]


@dataclass(frozen=True)
class Reconciliation:
    """Parts, window and plain latency of one case compared, in ns per inference.

    corrected_ns: the parts corrected by the measured reasons; the parts themselves where they add up. measured_ns: the
    case's latency from the results, where it was measured. reasons: the measured reasons for a sum outside LOW…HIGH of
    the plain latency, with figures, and other remarks for the reader.
    """

    outcome: Agreement
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
        """Profiler overhead as a share of the plain latency; below 0 where the profiled runs were faster."""
        return self.window_ns / self.plain_ns - 1


def reconcile(parts: PartsProfile, on_gpu: bool, measured_ns: int | None = None) -> Reconciliation | None:
    """Compare the sum of the layers, or else of the operators, with the latency; None without parts.

    The plain latency is from the profiling process itself, so machine and time are the same.
    """
    total = parts_total(parts, on_gpu)
    if total is None:
        return None
    outcome: Agreement = "adds up"
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
    """Sum in ns of the layers' self times, else of the operators' on the device that computes; None without both."""
    if parts.layers:
        return sum(row.self_ns for row in parts.layers)
    if parts.operators:
        return sum((row.self_device_ns or 0) if on_gpu else row.self_cpu_ns for row in parts.operators)
    return None


def are_kernels(parts: PartsProfile) -> bool:
    """Whether the times are those of GPU kernels, also by layer. On a CPU and with TensorRT they are not."""
    return any(row.self_device_ns is not None for row in parts.operators)


def _is_whole(spent_ns: int, parts: PartsProfile) -> bool:
    return LOW <= spent_ns / parts.plain_ns <= HIGH


def _corrected(total: int, parts: PartsProfile) -> tuple[int, list[str]]:
    """(parts corrected by other measured figures, those figures in words)."""
    spent, reasons, gaps = float(total), list[str](), parts.launch_gaps
    if gaps is not None and work_overlap(gaps) > LEAST_OVERLAP:
        spent /= work_overlap(gaps)
        reasons.append(
            f"overlap: the work of the GPU's streams sums to {work_overlap(gaps):.2f} times the time that it took"
        )
    stretched = parts.window_ns / parts.plain_ns
    if spent > parts.plain_ns and stretched > 1 and not are_kernels(parts):
        spent /= stretched
        reasons.append(f"profiler overhead: profiled runs took {stretched:.2f} times the plain latency")
    if spent < parts.plain_ns and gaps is not None:
        busy_ns = kernel_busy_ns(parts)
        idle_ns = min(parts.plain_ns - busy_ns, no_kernel_ns(gaps))
        if idle_ns > 0:
            spent += idle_ns
            reasons.append(
                f"launch gaps: the kernels' own time leaves {duration(parts.plain_ns - busy_ns)} of the plain "
                f"latency, and in a traced pass no kernel ran for {duration(no_kernel_ns(gaps))}"
            )
    return round(spent), reasons


def _uncovered(total: int, corrected: int, parts: PartsProfile, on_gpu: bool) -> str:
    """Why a sum is unexplained, with the figures that a reader needs to investigate it."""
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
    """Indices of the runs in the middle half by length, at least one, in the order in which they ran. Raises ValueError
    without runs."""
    if not spans_ns:
        raise ValueError("no runs")
    quarter = len(spans_ns) // 4
    by_length = sorted(range(len(spans_ns)), key=spans_ns.__getitem__)
    return sorted(by_length[quarter : len(spans_ns) - quarter])


def middle_mean(spans_ns: Sequence[int]) -> int:
    """Mean length in ns of the runs in the middle half (middle_runs)."""
    chosen = middle_runs(spans_ns)
    return round(sum(spans_ns[place] for place in chosen) / len(chosen))
