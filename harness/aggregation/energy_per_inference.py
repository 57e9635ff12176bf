"""Energy of one inference from two readings of a GPU's energy counter (pure except for the date).

The counter is used instead of power readings: the H100's power sensor samples only a quarter of the time (arXiv
2312.02741), and in windows of seconds the counter's own steps are small.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.aggregation import batch_times, flags
from harness.aggregation.flags_host import counted_stop
from harness.core.errors import CaseError
from harness.core.schemas import Case, Energy, Generated, Gpu, Measured, Measurement, TimedRecord
from harness.core.timestamps import utc_now

MIN_WINDOW_S = 5.0
"""The power sensor of an H100 sees about a quarter of the time (arXiv 2312.02741): the window has to be many of its
periods."""

_BLOCKS = 2
"""After each block outputs are copied for the check, and the GPU does nothing meanwhile: 50 ms for the 50 MB of
DistilBERT at batch 128. One block would leave nothing to compare a held-up block with."""

_MAX_COPIES_SHARE = 0.1
"""Largest share of the window for copies of outputs. The GPU then draws some 50 W above idle (H200), so a case at 600 W
would count at most 1% too much."""

_NEVER = 1e-12
"""A width that no interval reaches: time ends the pass, not precision."""

_MAX_BATCHES = 2_000_000


@dataclass(frozen=True)
class Meter:
    """One reading of a GPU: energy since the driver was loaded, and when it was read."""

    energy_mj: int
    at_ns: int


@dataclass(frozen=True)
class EnergySpent:
    """Energy that a GPU used between two readings."""

    energy_j: float
    window_ns: int

    @classmethod
    def between(cls, first: Meter, last: Meter) -> EnergySpent:
        """The difference of two readings."""
        return cls((last.energy_mj - first.energy_mj) / 1000, last.at_ns - first.at_ns)

    @property
    def watts(self) -> float:
        """Mean power over the window, in W."""
        return self.energy_j / (self.window_ns / 1e9)


def settings_with_window(settings: Measurement, window_s: float) -> Measurement:
    """The plan's settings, with a measuring phase of that length."""
    return settings.model_copy(
        update={
            "block_s": window_s / _BLOCKS,
            "block_iterations": 1,
            "target_ci": _NEVER,
            "min_samples": 1,
            "max_samples": _MAX_BATCHES,
            "max_s": window_s,
        }
    )


def metered_cases(cases: Iterable[Case], computing: Iterable[str]) -> list[tuple[str, Case]]:
    """(id in the plan, the case in offline mode) of every case that computes; a case planned in two modes comes once.

    computing: backends that compute anything.
    """
    names, case_ids = frozenset(computing), dict[Case, str]()
    for case in cases:
        if case.skip_reason is None and case.boundary == "compute" and case.backend in names:
            case_ids.setdefault(case.model_copy(update={"mode": "offline", "case_id": ""}), case.case_id)
    return [(name, case.model_copy(update={"case_id": name})) for case, name in case_ids.items()]


def energy_of(record: TimedRecord, batch_size: int, spent: EnergySpent, idle: EnergySpent, gpu: Gpu) -> Energy:
    """The energy of one case. Raises CaseError where the window is too short or the process was stopped in it, or where
    the GPU used no more than idle."""
    window_s = spent.window_ns / 1e9
    if window_s < MIN_WINDOW_S:
        raise CaseError(
            f"The GPU was watched for {window_s:.1f} s only; {MIN_WINDOW_S:g} s are needed.",
            "Ask for a longer one: --window 10.",
        )
    if held := _disturbance(record, spent):
        raise CaseError(
            f"The case was held up while the GPU was read: {held}.",
            "Neither stop the process nor pause its container while it runs, then run the same command again.",
        )
    net_j = spent.energy_j - idle.watts * window_s
    if net_j <= 0:
        raise CaseError(
            f"The GPU used {spent.watts:.0f} W with the case and {idle.watts:.0f} W before: something else ran there.",
            "Stop the other programs on the GPU (`nvidia-smi` lists them), then run the same command again.",
        )
    batches = _passes(record)
    return Energy(
        case_id=record.case_id,
        settings_id=record.settings_id,
        created_at=utc_now(),
        environment_id=record.environment_id,
        gpu=gpu.name,
        uuid=gpu.uuid,
        batch_size=batch_size,
        idle_w=idle.watts,
        idle_ns=idle.window_ns,
        energy_j=spent.energy_j,
        window_ns=spent.window_ns,
        busy_ns=_busy_ns(record),
        batches=batches,
        joules_per_inference=net_j / batches,
        joules_per_item=net_j / batches / batch_size,
    )


def _passes(record: TimedRecord) -> int:
    """Batches; of generation its requests, from their prompts to their last tokens."""
    return len(record.requests) if isinstance(record, Generated) else batch_times.batch_count(record)


def _busy_ns(record: TimedRecord) -> int:
    if isinstance(record, Generated):
        return sum(request.token_ns[-1] - request.start_ns for request in record.requests)
    return batch_times.wall_ns(record)


def _disturbance(record: TimedRecord, spent: EnergySpent) -> str | None:
    """Why the window contains time in which the case did not compute; idle power would then count as its work."""
    if (known := counted_stop(record)) is not None:
        return known
    if findings := flags.long_iterations([record]):
        return findings[0].flag.detail
    idle_ns = spent.window_ns - _busy_ns(record)
    copies_ns = min(_copies_ns(record), _MAX_COPIES_SHARE * spent.window_ns)
    if idle_ns - copies_ns <= (1 - flags.MIN_SAMPLED_SHARE) * spent.window_ns:
        return None
    return f"{idle_ns / 1e9:.1f} s of {spent.window_ns / 1e9:.1f} s lie between its blocks"


def _copies_ns(record: TimedRecord) -> int:
    """Time of copying the outputs after all blocks: each counts as the shortest, because a held-up one is longer."""
    reads = record.outputs_time if isinstance(record, Measured) else None
    return len(reads.outputs_ns) * min(reads.outputs_ns) if reads else 0
