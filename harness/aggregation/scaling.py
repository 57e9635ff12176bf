"""Several devices of one host at once: throughput, scaling efficiency, interference, stragglers (pure).

The processes of one round work alone and together in mirrored order, so each gives a ratio in which its own memory
layout and a drift of the machine cancel. The replication unit is the round: its processes share the host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.aggregation.flags import Criteria, void_reason
from harness.aggregation.row import worst_parity
from harness.core.schemas import (
    Case,
    Copies,
    CopyFailure,
    CopyProcess,
    CopyTimes,
    DeviceSlot,
    Failed,
    Interval,
    Measured,
    NeighbourSample,
    Situation,
    TimedWindow,
)
from harness.statistics.estimators import median
from harness.statistics.ratios import Ratio, change_between, mean_ratio

STRAGGLES_BELOW = 0.98
"""A device is a straggler where the whole interval of its throughput, divided by the median of all devices, is below
this: the tolerance that differences of equal devices get here, twice that of `make compare`."""

DISTURBED_ABOVE = 1.02
"""A neighbour disturbs a case where the whole interval of its slow-down is above this, and does not where the whole
interval lies between the inverse and this."""

FULL_OVERLAP = 0.9
"""Least share of a window during which all devices must work; below, the windows did not run together."""


def copies_of(
    case: Case,
    slots: Sequence[DeviceSlot],
    records: Mapping[tuple[int, int], Measured | Failed],
    settings_id: str,
    window_s: float,
    created_at: str,
    checks: Criteria,
) -> Copies:
    """The record of one case. records: by (round, place of the slot). Only complete rounds count.

    checks: a process with outputs beyond the tolerance, or on another device than planned, counts as failed.
    """
    failures = tuple(
        CopyFailure(round=number, slot=place, reason=reason)
        for (number, place), record in sorted(records.items())
        if (reason := _reason_against(case, record, checks))
    )
    complete = sorted({number for number, _ in records} - {failure.round for failure in failures})
    sound = {
        key: record for key, record in sorted(records.items()) if key[0] in complete and isinstance(record, Measured)
    }
    overlaps = [
        overlap for number in complete for overlap in _overlaps([sound[number, place] for place in range(len(slots))])
    ]
    return Copies(
        case_id=case.case_id,
        settings_id=settings_id,
        created_at=created_at,
        device=case.device,
        batch_size=case.batch_size,
        slots=tuple(slots),
        window_s=window_s,
        processes=tuple(
            CopyProcess(
                round=number,
                slot=place,
                alone=_times(record, "alone", case.batch_size),
                together=_times(record, "together", case.batch_size),
            )
            for (number, place), record in sound.items()
        ),
        failures=failures,
        least_overlap=min(overlaps, default=None),
    )


def _reason_against(case: Case, record: Measured | Failed, checks: Criteria) -> str | None:
    if isinstance(record, Failed):
        return record.error
    situations = {window.situation for window in record.windows}
    if len(record.windows) != len(record.blocks) or situations != {"alone", "together"}:
        return "its windows are incomplete"
    return void_reason(case, [record], worst_parity([record]), checks)


def _times(record: Measured, situation: Situation, batch_size: int) -> CopyTimes:
    samples: list[int] = []
    batches = wall_ns = start = 0
    for window, block in zip(record.windows, record.blocks, strict=True):
        if window.situation == situation:
            samples += record.latency_ns[start : start + block.iterations]
            batches, wall_ns = batches + block.iterations, wall_ns + block.wall_ns
        start += block.iterations
    latency_ns = median(samples) if samples else wall_ns / batches
    return CopyTimes(latency_ns=latency_ns, per_s=batches * batch_size / (wall_ns / 1e9), batches=batches)


def _overlaps(records: Sequence[Measured]) -> list[float]:
    """The share of the longest window that all devices had in common, for each joint window in order."""
    each = [[window for window in record.windows if window.situation == "together"] for record in records]
    return [_overlap(beside) for beside in zip(*each, strict=True)]


def _overlap(windows: Sequence[TimedWindow]) -> float:
    common_ns = min(window.end_ns for window in windows) - max(window.start_ns for window in windows)
    return max(0, common_ns) / max(window.end_ns - window.start_ns for window in windows)


@dataclass(frozen=True)
class SlotScaling:
    """One device. alone_per_s, together_per_s, alone_ns, together_ns: medians over rounds of its processes.

    slowdown: latency together / alone. against: throughput divided by the median of all devices, by situation.
    """

    slot: DeviceSlot
    alone_per_s: float
    together_per_s: float
    alone_ns: float
    together_ns: float
    slowdown: Ratio
    against: Mapping[Situation, Ratio]

    @property
    def straggles(self) -> tuple[Situation, ...]:
        """The situations in which it is slower than the others."""
        return tuple(name for name, ratio in self.against.items() if ratio.ci95 and ratio.ci95.high < STRAGGLES_BELOW)


@dataclass(frozen=True)
class Scaling:
    """A case on all devices. alone_per_s: sum over the devices, each alone; together_per_s: all at once.

    efficiency: together_per_s / alone_per_s, 1 where the devices do not hold each other up. interference: latency
    together / alone, geometric mean over the devices. Intervals are over rounds.
    """

    rounds: int
    alone_per_s: float
    together_per_s: float
    efficiency: Ratio
    interference: Ratio
    slots: tuple[SlotScaling, ...]
    overlap: float

    @property
    def ran_together(self) -> bool:
        """Whether all devices worked during almost all of every window together."""
        return self.overlap >= FULL_OVERLAP


def scaling(copies: Copies) -> Scaling | None:
    """The figures of a case; None without a complete round."""
    if not copies.processes or copies.least_overlap is None:
        return None
    numbers = sorted({process.round for process in copies.processes})
    by_round = [[process for process in copies.processes if process.round == number] for number in numbers]
    alone = [math.fsum(process.alone.per_s for process in processes) for processes in by_round]
    together = [math.fsum(process.together.per_s for process in processes) for processes in by_round]
    slowdowns = [
        [process.together.latency_ns / process.alone.latency_ns for process in processes] for processes in by_round
    ]
    return Scaling(
        rounds=len(numbers),
        alone_per_s=median(alone),
        together_per_s=median(together),
        efficiency=mean_ratio([both / single for both, single in zip(together, alone, strict=True)]),
        interference=mean_ratio([float(np.exp(np.mean(np.log(ratios)))) for ratios in slowdowns]),
        slots=tuple(_slot_scaling(copies, place, by_round) for place in range(len(copies.slots))),
        overlap=copies.least_overlap,
    )


def _slot_scaling(copies: Copies, place: int, by_round: Sequence[Sequence[CopyProcess]]) -> SlotScaling:
    own = [next(process for process in processes if process.slot == place) for processes in by_round]
    return SlotScaling(
        slot=copies.slots[place],
        alone_per_s=median([process.alone.per_s for process in own]),
        together_per_s=median([process.together.per_s for process in own]),
        alone_ns=median([process.alone.latency_ns for process in own]),
        together_ns=median([process.together.latency_ns for process in own]),
        slowdown=mean_ratio([process.together.latency_ns / process.alone.latency_ns for process in own]),
        against={
            "alone": mean_ratio(
                [
                    mine.alone.per_s / median([process.alone.per_s for process in processes])
                    for mine, processes in zip(own, by_round, strict=True)
                ]
            ),
            "together": mean_ratio(
                [
                    mine.together.per_s / median([process.together.per_s for process in processes])
                    for mine, processes in zip(own, by_round, strict=True)
                ]
            ),
        },
    )


@dataclass(frozen=True)
class Disturbance:
    """The slow-down of one case beside working neighbours: spread / alone. verdict: in a word."""

    value: float
    ci95: Interval | None
    verdict: str


def disturbance(sample: NeighbourSample) -> Disturbance | None:
    """The slow-down of a sample by its neighbours; None where it was not measured on both sides."""
    if not sample.alone_ns or not sample.spread_ns:
        return None
    change = change_between(sample.alone_ns, sample.spread_ns)
    if change is None:
        return Disturbance(median(sample.spread_ns) / median(sample.alone_ns), None, "unknown")
    low, high = change.ci95.low, change.ci95.high
    if low > DISTURBED_ABOVE:
        verdict = "disturbed"
    elif low > 1 / DISTURBED_ABOVE and high < DISTURBED_ABOVE:
        verdict = "not disturbed"
    else:
        verdict = "undecided"
    return Disturbance(change.value, change.ci95, verdict)
