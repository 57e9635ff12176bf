"""Answers from memory and work left to outputs(), at each threshold; and what was never looked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.aggregation import checks as judged
from harness.aggregation.checks import check_work, repeat_interval
from harness.aggregation.grades import Finding
from harness.aggregation.load_rows import MIN_REPEAT_RATIO
from harness.core.schemas import Block, Check, Measured, OutputsTime, Repeats
from harness.statistics.estimators import median_interval
from tests import synthetic_results as made

CASE = made.case_of(made.RESNET, "onnxruntime", "fp32", 1)
MS = 1_000_000
HONEST = Repeats(fresh_ns=(10 * MS,) * 16, repeated_ns=(10 * MS,) * 16, compared=8, waited_share=0.05)
COPIES = OutputsTime(outputs_ns=(20_000,) * 8, copy_ns=(10_000,) * 8, arrays=1)


def record(number: int, **changes: Any) -> Measured:
    fields = {"repeats": HONEST, "outputs_time": COPIES, "latency_ns": (10 * MS,) * 50, **changes}
    return made.measured(CASE, made.RESNET, number, **fields)


def findings_by_name(*records: Measured, boundary: str = "compute") -> dict[str, Finding]:
    findings, _ = check_work(CASE.model_copy(update={"boundary": boundary}), records)
    assert all(finding.flag.detail and finding.flag.remedy.endswith(".") for finding in findings)
    return {finding.flag.name: finding for finding in findings}


def checks(*records: Measured, boundary: str = "compute") -> Any:
    return check_work(CASE.model_copy(update={"boundary": boundary}), records)[1]


def times(ratio: float, pairs: int = 16, scatter: float = 0.0, seed: int = 0) -> Repeats:
    random = np.random.default_rng(seed)
    repeated = 10 * MS * np.exp(scatter * random.normal(size=pairs))
    fresh = 10 * MS * ratio * np.exp(scatter * random.normal(size=pairs))
    return Repeats(
        fresh_ns=tuple(int(entry) for entry in fresh), repeated_ns=tuple(int(entry) for entry in repeated), compared=8
    )


def test_honest_rounds_have_no_flag_and_count_as_checked() -> None:
    records = [record(number) for number in (1, 2, 3)]
    assert findings_by_name(*records) == {}
    whole = Check(rounds=3, of=3, missing=None)
    assert checks(*records) == {"REPEATS_FASTER": whole, "LAZY_OUTPUTS": whole}


@pytest.mark.parametrize(("ratio", "flagged"), [(0.9, False), (1.0, False), (1.009, False), (1.02, True), (40.0, True)])
def test_new_inputs_may_take_one_per_cent_longer(ratio: float, flagged: bool) -> None:
    flags = findings_by_name(*[record(number, repeats=times(ratio)) for number in (1, 2, 3)])
    assert ("REPEATS_FASTER" in flags) is flagged
    assert not flagged or flags["REPEATS_FASTER"].caps_at == "C"


def test_the_interval_decides_and_not_the_middle() -> None:
    wide = [record(number, repeats=times(1.02, scatter=0.2, seed=number)) for number in (1, 2, 3)]
    assert findings_by_name(*wide) == {}
    narrow = [record(number, repeats=times(1.05, scatter=0.01, seed=number)) for number in (1, 2, 3)]
    assert set(findings_by_name(*narrow)) == {"REPEATS_FASTER"}


def test_thirty_honest_rows_rarely_raise_an_alarm() -> None:
    tables = 200
    alarms = 0
    for table in range(tables):
        rows = [
            [record(1, repeats=times(1.0, scatter=0.05, seed=1000 * table + 10 * row + number)) for number in range(3)]
            for row in range(3)
        ]
        alarms += any(findings_by_name(*row) for row in rows)
    assert alarms / tables * 10 <= 0.05  # a tenth of thirty rows a table


def test_a_95_percent_interval_would_void_one_honest_service_of_a_hundred_on_a_busy_machine() -> None:
    random, voided = np.random.default_rng(7), {"95%": 0, "99.9%": 0}
    for _ in range(1_000):
        ratios = np.exp(0.8 * random.normal(size=12)).tolist()
        intervals = {"95%": median_interval(ratios), "99.9%": judged.ratio_interval(ratios)}
        for name, interval in intervals.items():
            voided[name] += interval is not None and interval.high < MIN_REPEAT_RATIO
    assert 5 <= voided["95%"] <= 15
    assert voided["99.9%"] == 0


@pytest.mark.parametrize(("pairs", "rank"), [(0, 0), (10, 0), (11, 1), (16, 2), (24, 4), (48, 13)])
def test_ranks_are_those_of_the_binomial(pairs: int, rank: int) -> None:
    assert judged.lower_rank(pairs) == rank
    ratios = tuple(range(1, pairs + 1))
    interval = repeat_interval([Repeats(fresh_ns=ratios, repeated_ns=(1,) * pairs)])
    assert interval is None if rank == 0 else (interval is not None and interval.low == rank)


def test_the_same_answer_to_a_new_input_is_an_answer_from_memory() -> None:
    stuck = HONEST.model_copy(update={"unchanged": 8})
    flags = findings_by_name(record(1, repeats=stuck))
    assert flags["REPEATS_FASTER"].caps_at == "C"
    assert "refresh()" in flags["REPEATS_FASTER"].flag.remedy
    by_chance = HONEST.model_copy(update={"unchanged": 7})
    few = HONEST.model_copy(update={"compared": 7, "unchanged": 7})
    assert set(findings_by_name(record(1, repeats=stuck), record(2, repeats=by_chance))) == {"REPEATS_FASTER"}
    assert findings_by_name(record(1, repeats=by_chance)) == findings_by_name(record(1, repeats=few)) == {}


def test_a_check_that_was_not_made_is_reported_with_its_reason() -> None:
    older = record(1, repeats=None, outputs_time=None)
    refused = record(2, repeats=Repeats(missing="it cannot"))
    found_checks = checks(older, refused, record(3))
    assert found_checks["REPEATS_FASTER"] == Check(
        rounds=1, of=3, missing="measured before there was this check; it cannot"
    )
    assert found_checks["LAZY_OUTPUTS"] == Check(rounds=2, of=3, missing="measured before there was this check")
    few = checks(record(1, repeats=times(1.0, pairs=8)))["REPEATS_FASTER"]
    assert few == Check(rounds=0, of=1, missing="8 pairs are too few: measure more rounds")


def test_answers_to_new_samples_are_a_check_of_records_that_know_of_them() -> None:
    answered, refused = HONEST.model_copy(update={"new_l2": (0.0,)}), HONEST.model_copy(update={"new_missing": "why"})
    assert checks(record(1, repeats=answered))["NEW_ANSWERS"] == Check(rounds=1, of=1, missing=None)
    both = checks(record(1, repeats=answered), record(2, repeats=refused))
    assert both["NEW_ANSWERS"] == Check(rounds=1, of=2, missing="why")
    older = checks(record(1, repeats=answered), record(2), record(3, repeats=None))
    assert older["NEW_ANSWERS"] == Check(rounds=1, of=3, missing="measured before there was this check")
    assert "NEW_ANSWERS" not in checks(record(1), record(2))


def test_a_short_pass_that_outputs_could_hide_is_a_check_that_was_not_made() -> None:
    for device, latency_ns, outputs_ns, known in (
        ("cpu", 12_000, 80_000, False),
        ("cpu", 12_000, 20_000, False),  # ten copies, of which three are honest
        ("cpu", 30_000, 20_000, True),
        ("cpu", 110_000, 80_000, False),
        ("cpu", 160_000, 80_000, True),
        ("cuda", 12_000, 80_000, True),  # its event clock sees lazy work
    ):
        rounds = [record(n, latency_ns=(latency_ns,) * 50, outputs_time=time(outputs_ns, 2_000)) for n in (1, 2, 3)]
        findings, done = check_work(CASE.model_copy(update={"device": device}), rounds)
        assert (done["LAZY_OUTPUTS"].missing is None) is known
        assert "LAZY_OUTPUTS" not in [finding.flag.name for finding in findings]


def test_cold_copies_of_small_arrays_excuse_no_work_in_outputs() -> None:
    cost = OutputsTime(outputs_ns=(200_000,) * 5, copy_ns=(1_500, 40_000, 40_000), arrays=1)
    assert "LAZY_OUTPUTS" in findings_by_name(
        *[record(n, latency_ns=(6_000,) * 50, outputs_time=cost) for n in (1, 2, 3)]
    )


def time(outputs_ns: int, copy_ns: int, arrays: int = 1) -> OutputsTime:
    return OutputsTime(outputs_ns=(outputs_ns,) * 5, copy_ns=(copy_ns,) * 5, arrays=arrays)


@pytest.mark.parametrize(
    ("latency_ns", "cost", "flagged"),
    [
        (50_000, time(5 * MS, 2_000), True),  # computes there: 50 µs in the clock
        (10 * MS, time(1_250_000, 10_000), True),  # 1.05 ms beyond copying is more than 10% of the median
        (10 * MS, time(1_190_000, 10_000), False),
        (MS, time(8 * MS, 2 * MS), False),  # 25 MB off a GPU at 3 GB/s
        (MS, time(MS, 1_000, arrays=24), False),  # many small ones
        (20_000, time(60_000, 1_000), False),  # a small model: reading its answer takes longer than it
    ],
)
def test_outputs_may_copy_and_not_compute(latency_ns: int, cost: OutputsTime, flagged: bool) -> None:
    records = [record(number, latency_ns=(latency_ns,) * 50, outputs_time=cost) for number in (1, 2, 3)]
    flags = findings_by_name(*records)
    assert ("LAZY_OUTPUTS" in flags) is flagged
    assert not flagged or flags["LAZY_OUTPUTS"].caps_at == "C"


def test_a_minority_of_rounds_cannot_move_the_headline_far() -> None:
    slow = time(50 * MS, 1_000)
    assert findings_by_name(record(1, outputs_time=slow), record(2), record(3))["LAZY_OUTPUTS"].caps_at == "B"


def test_the_e2e_boundary_has_outputs_in_the_clock() -> None:
    records = [record(number, outputs_time=time(50 * MS, 1_000)) for number in (1, 2, 3)]
    assert findings_by_name(*records, boundary="e2e") == {}
    older = [record(1, outputs_time=None)]
    assert checks(*older, boundary="e2e")["LAZY_OUTPUTS"] == Check(rounds=1, of=1, missing=None)


def test_work_left_to_outputs_in_most_passes_is_seen_and_a_wait_in_few_is_not() -> None:
    costs = [((20_000, 8 * MS, 8 * MS), True), ((20_000,) * 9 + (8 * MS,), False), ((20_000, 20_000, 5 * MS), False)]
    for outputs_ns, flagged in costs:
        cost = OutputsTime(outputs_ns=outputs_ns, copy_ns=(10_000,) * 3, arrays=1)
        assert ("LAZY_OUTPUTS" in findings_by_name(*[record(n, outputs_time=cost) for n in (1, 2, 3)])) is flagged


def test_a_call_that_waits_for_a_cpu_is_not_lazy() -> None:
    for waited_ns, flagged in [((), True), ((0,), True), ((6 * MS,), True), ((7_990_000,), False), ((9 * MS,), False)]:
        cost = OutputsTime(outputs_ns=(8 * MS,), copy_ns=(10_000,), arrays=1, waited_ns=waited_ns)
        assert ("LAZY_OUTPUTS" in findings_by_name(*[record(n, outputs_time=cost) for n in (1, 2, 3)])) is flagged


@pytest.mark.parametrize(
    ("lazy", "flagged"), [((1, 1, 1), True), ((0, 0, 2), False), ((0, 0, 3), True), ((9, 0, 0), True)]
)
def test_work_left_to_a_minority_of_calls_makes_the_throughput_wrong(lazy: tuple[int, ...], flagged: bool) -> None:
    costs = [OutputsTime(outputs_ns=(20_000,) * (9 - n) + (8 * MS,) * n, copy_ns=(10_000,), arrays=1) for n in lazy]
    flags = findings_by_name(*[record(n, outputs_time=cost) for n, cost in enumerate(costs, 1)])
    assert ("LAZY_OUTPUTS" in flags) is flagged


def test_passes_left_out_between_others_are_seen_in_the_throughput() -> None:
    samples = (10 * MS,) * 26 + (1_000,) * 24
    blocks = (Block(iterations=50, wall_ns=sum(samples)),)
    rounds = [record(n, latency_ns=samples).model_copy(update={"blocks": blocks}) for n in (1, 2, 3)]
    assert "does less while it is timed" in findings_by_name(*rounds)["REPEATS_FASTER"].flag.remedy


@pytest.mark.parametrize(("factor", "flagged"), [(1.0, False), (1.4, False), (1.5, True), (4.0, True)])
def test_passes_that_are_checked_take_as_long_as_those_that_are_timed(factor: float, flagged: bool) -> None:
    timed = (int(10 * MS / factor),) * 50
    flags = findings_by_name(*[record(n, latency_ns=timed) for n in (1, 2, 3)])
    assert ("REPEATS_FASTER" in flags) is flagged
    assert not flagged or "does less while it is timed" in flags["REPEATS_FASTER"].flag.remedy
    minority = [record(1, latency_ns=timed), record(2), record(3)]
    assert "REPEATS_FASTER" not in findings_by_name(*minority)
    for share, explains in ((None, True), (0.65, True), (0.5, factor < 4)):  # unknown, or it shared its CPU
        beside = HONEST.model_copy(update={"waited_share": share})
        shared = findings_by_name(*[record(n, latency_ns=timed, repeats=beside) for n in (1, 2, 3)])
        assert ("REPEATS_FASTER" not in shared) is explains


def test_a_short_pass_after_a_pause_may_wake_threads() -> None:
    repeats = HONEST.model_copy(update={"fresh_ns": (100_000,) * 16, "repeated_ns": (100_000,) * 16})
    for threads, flagged in ((4, False), (3, True), (1, True)):
        records = [record(n, latency_ns=(20_000,) * 50, repeats=repeats, threads=threads) for n in (1, 2, 3)]
        assert ("REPEATS_FASTER" in findings_by_name(*records)) is flagged


@pytest.mark.parametrize(
    ("device", "mode", "each_ns", "flagged"),
    [
        ("cpu", "offline", 4 * MS, False),  # two threads may run two passes at a time
        ("cpu", "offline", 3 * MS, True),
        ("cpu", "pipelined", 5 * MS, True),
        ("cuda", "offline", 3 * MS, False),  # on a GPU single passes wait for the host
    ],
)
def test_every_mode_of_a_cpu_is_held_against_the_check(device: str, mode: str, each_ns: int, flagged: bool) -> None:
    case = CASE.model_copy(update={"device": device, "mode": mode})
    blocks = (Block(iterations=50, wall_ns=50 * each_ns),) * 4
    samples = () if mode == "offline" else (each_ns,) * 200
    findings, _ = check_work(
        case, [record(n, latency_ns=samples).model_copy(update={"blocks": blocks}) for n in (1, 2)]
    )
    assert (bool(findings)) is flagged


def test_inputs_that_a_pass_wrote_into_cost_the_rank() -> None:
    flags = findings_by_name(record(1, inputs_changed=True), record(2), record(3))
    assert flags["INPUTS_CHANGED"].caps_at == "C"
    assert "in 1 of 3 rounds" in flags["INPUTS_CHANGED"].flag.detail
