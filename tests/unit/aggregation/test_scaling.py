"""Figures of several devices at once: right values from windows made by hand."""

from __future__ import annotations

import math

import pytest

from harness.aggregation.flags import Criteria
from harness.aggregation.scaling import copies_of, disturbance, scaling
from harness.core.schemas import (
    Block,
    Copies,
    DeviceSlot,
    Failed,
    Measured,
    NeighbourSample,
    Situation,
    TimedWindow,
    Tolerance,
)
from tests import synthetic_results as made
from tests.synthetic_results import MINILM

MS = 1_000_000
CHECKS = Criteria(tolerance=Tolerance(relative_l2=1e-3), judge_top1=False, target_ci=0.01, calibration=False)
CASE = made.case_of(MINILM, "onnxruntime", "fp32", 4, 32)
SLOTS = [DeviceSlot(name=str(n), device="cpu", gpu=None, uuid=None, cpus=(n,), near=False) for n in range(3)]


def measured(number: int, windows: list[tuple[Situation, int, int]], start_ms: int = 0) -> Measured:
    """A process whose windows are (situation, samples, ms of each sample), back to back."""
    record = made.measured(CASE, MINILM, number)
    blocks, times, at = [], [], start_ms * MS
    for situation, count, ms in windows:
        blocks.append(Block(iterations=count, wall_ns=count * ms * MS))
        times.append(TimedWindow(situation=situation, start_ns=at, end_ns=at + count * ms * MS))
        at += count * ms * MS
    samples = tuple(ms * MS for _, count, ms in windows for _ in range(count))
    return record.model_copy(update={"blocks": tuple(blocks), "windows": tuple(times), "latency_ns": samples})


def process(number: int, alone_ms: int, together_ms: int) -> Measured:
    return measured(
        number,
        [
            ("alone", 10, alone_ms),
            ("together", 10, together_ms),
            ("together", 10, together_ms),
            ("alone", 10, alone_ms),
        ],
    )


def copies(records: dict[tuple[int, int], Measured | Failed]) -> Copies:
    return copies_of(CASE, SLOTS, records, "settings", 0.1, "2026-11-30T00:00:00+00:00", CHECKS)


def test_throughput_efficiency_and_interference_of_equal_devices() -> None:
    result = scaling(copies({(number, place): process(number, 10, 20) for number in (1, 2, 3) for place in range(3)}))
    assert result is not None
    # A batch of 4 in 10 ms is 400/s alone; three devices in 20 ms each are 600/s together.
    assert result.alone_per_s == pytest.approx(1200)
    assert result.together_per_s == pytest.approx(600)
    assert result.efficiency.value == pytest.approx(0.5)
    assert result.interference.value == pytest.approx(2.0)
    assert result.rounds == 3
    assert not any(slot.straggles for slot in result.slots)
    assert result.slots[1].alone_ns == 10 * MS
    assert result.slots[1].together_ns == 20 * MS


def test_the_interval_is_over_rounds() -> None:
    together = {1: 11, 2: 12, 3: 13}
    result = scaling(copies({(n, place): process(n, 10, ms) for n, ms in together.items() for place in range(3)}))
    assert result is not None
    assert result.interference.value == pytest.approx((1.1 * 1.2 * 1.3) ** (1 / 3))
    logs = [math.log(ms / 10) for ms in together.values()]
    mean = sum(logs) / 3
    error = math.sqrt(sum((log - mean) ** 2 for log in logs) / 2 / 3)
    assert result.interference.ci95 is not None
    # 4.302653 is Student's t for two degrees of freedom.
    assert result.interference.ci95.high == pytest.approx(math.exp(mean + 4.302653 * error), rel=1e-4)
    single = scaling(copies({(1, place): process(1, 10, 11) for place in range(3)}))
    assert single is not None
    assert single.interference.ci95 is None


def test_a_device_that_is_slower_only_together_is_a_straggler_there() -> None:
    records = {(n, place): process(n, 100, 150 + n if place == 2 else 110) for n in (1, 2, 3) for place in range(3)}
    result = scaling(copies(records))
    assert result is not None
    assert [slot.straggles for slot in result.slots] == [(), (), ("together",)]


def test_a_round_with_a_failed_process_does_not_count() -> None:
    records: dict[tuple[int, int], Measured | Failed] = {
        (n, place): process(n, 10, 20) for n in (1, 2) for place in range(3)
    }
    records[2, 1] = made.failed(CASE, 2)
    results = copies(records)
    assert {entry.round for entry in results.processes} == {1}
    assert [(failure.round, failure.slot) for failure in results.failures] == [(2, 1)]
    records[1, 0] = measured(1, [("alone", 10, 10), ("alone", 10, 10)])
    nothing = copies(records)
    assert nothing.processes == ()
    assert scaling(nothing) is None


@pytest.mark.parametrize(
    ("field", "changes", "reason"),
    [
        ("parity_timed", {"nonfinite": 3}, "NaN"),
        ("parity_before", {"relative_l2": 0.5, "item_relative_l2": 0.5}, "above the tolerance"),
        ("placement", {"device": "cuda"}, "fp32 on cuda"),
    ],
)
def test_a_process_with_wrong_outputs_or_elsewhere_does_not_count(
    field: str, changes: dict[str, object], reason: str
) -> None:
    records: dict[tuple[int, int], Measured | Failed] = {
        (n, place): process(n, 10, 20) for n in (1, 2) for place in range(3)
    }
    wrong = process(2, 10, 20)
    records[2, 1] = wrong.model_copy(update={field: getattr(wrong, field).model_copy(update=changes)})
    results = copies(records)
    assert {entry.round for entry in results.processes} == {1}
    assert [(failure.round, failure.slot) for failure in results.failures] == [(2, 1)]
    assert reason in results.failures[0].reason


def test_the_overlap_is_of_the_time_that_all_devices_worked() -> None:
    late = measured(1, [("together", 10, 10), ("alone", 10, 10)], start_ms=25)
    records = {(1, place): measured(1, [("together", 10, 10), ("alone", 10, 10)]) for place in range(2)} | {
        (1, 2): late
    }
    results = copies(records)
    assert results.least_overlap == pytest.approx(0.75)
    figures = scaling(results)
    assert figures is not None
    assert not figures.ran_together


def sample(*, spread: tuple[float, ...], alone: tuple[float, ...]) -> NeighbourSample:
    return NeighbourSample(case_id="c", slot=0, spread_ns=spread, alone_ns=alone)


def test_a_neighbour_disturbs_where_the_whole_interval_says_so() -> None:
    alone = (100.0, 100.2, 99.9, 100.1, 100.0)
    verdicts = [
        result.verdict
        for factor in (1.0, 1.1, 1.02)
        if (result := disturbance(sample(spread=tuple(factor * entry for entry in alone), alone=alone)))
    ]
    assert verdicts == ["not disturbed", "disturbed", "undecided"]
    single = disturbance(sample(spread=(110.0,), alone=(100.0,)))
    assert single is not None
    assert (single.verdict, single.ci95, single.value) == ("unknown", None, pytest.approx(1.1))
    assert disturbance(sample(spread=(), alone=(100.0,))) is None
