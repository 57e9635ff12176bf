"""What disturbs a card, at its threshold, and what a row on a card needs of the processor."""

from __future__ import annotations

from typing import Any

import pytest

from harness.aggregation import checks
from harness.aggregation import usage as gpu_usage
from harness.aggregation.grades import Finding
from harness.core.schemas import Check, GpuUsage, Measured, UsageSummary
from tests.synthetic_results import EFFICIENTNET, case_of, cpu_use, environment, measured
from tests.synthetic_usage import look, usage

CASE = case_of(EFFICIENTNET, "onnxruntime", "fp32", 1)


def card(*reasons: tuple[str, ...], **changes: Any) -> GpuUsage:
    """Ten looks, all alike but for the reasons that the first of them give."""
    before = changes.pop("before", 0)
    each = [*reasons, *[()] * (10 - len(reasons))]
    result = gpu_usage.gpu_usage_of([look(reasons=names, **changes) for names in each], before)
    assert result is not None
    return result


def judged(
    *cards: GpuUsage | None, threads: int = 16, cpus: int = 16, **changes: Any
) -> tuple[dict[str, Finding], dict[str, Check]]:
    records: list[Measured] = []
    for number in (1, 2, 3):
        record = measured(CASE, EFFICIENTNET, number, 60, threads=threads)
        placed = record.placement.model_copy(update={"device": "cuda:0"})
        records.append(record.model_copy(update={"placement": placed}))
    where = environment(threads=2)
    limits = where.limits.model_copy(update={"affinity": tuple(range(cpus))})
    machine = where.machine.model_copy(update={"logical_cpus": cpus})
    where = where.model_copy(update={"machine": machine, "limits": limits})
    watched: dict[int, UsageSummary] = {
        number: usage(**changes).model_copy(update={"gpu": entry}) for number, entry in enumerate(cards, 1)
    }
    findings, made = checks.check_rounds(CASE, checks.timed_rounds(records, watched, {}, where))
    return {finding.flag.name: finding for finding in findings}, made


def flags_by_name(*cards: GpuUsage | None, **conditions: Any) -> dict[str, Finding]:
    return judged(*cards, **conditions)[0]


ON_CARD = {"THERMAL", "HW_SLOWDOWN", "POWER_CAP", "CLOCK_DRIFT"}


def test_a_quiet_gpu_has_nothing_to_say() -> None:
    findings, made = judged(card(), card(), card())
    assert findings == {}
    assert checks.unchecked_findings(made) == []
    assert made.keys() >= {*ON_CARD, "GPU_SHARED"}
    assert "THREADS" not in made  # the card decides how fast such a row is


def test_a_gpu_that_was_not_seen_was_not_checked() -> None:
    findings, made = judged(None, card(), card())
    assert findings == {}
    assert {name for name, check in made.items() if check.rounds == 2} == {*ON_CARD, "GPU_SHARED"}


def test_a_set_clock_and_an_idle_gpu_are_no_disturbance() -> None:
    quiet = card(*[("gpu_idle", "applications_clocks_setting")] * 10)
    assert flags_by_name(quiet, quiet, quiet) == {}


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("sw_thermal", "THERMAL"),
        ("hw_thermal", "THERMAL"),
        ("hw_slowdown", "HW_SLOWDOWN"),
        ("hw_power_brake", "HW_SLOWDOWN"),
    ],
)
@pytest.mark.parametrize(("rounds", "caps"), [(1, "B"), (2, "C")])
def test_one_look_is_enough_to_know_that_the_gpu_was_held_back(reason: str, name: str, rounds: int, caps: str) -> None:
    flags = flags_by_name(*[card((reason,))] * rounds, *[card()] * (3 - rounds))
    assert set(flags) == {name}
    assert flags[name].caps_at == caps
    assert f"{reason} in 10% of the looks, up to 50 °C" in flags[name].flag.detail


def test_heat_that_slows_the_hardware_is_heat() -> None:
    hot = card(("hw_slowdown", "hw_thermal"))
    assert set(flags_by_name(hot, hot, hot)) == {"THERMAL"}


@pytest.mark.parametrize(("capped", "flagged"), [(2, False), (3, True), (30, True)])
def test_a_power_cap_costs_the_a_and_never_the_rank(capped: int, flagged: bool) -> None:
    shares = [card(*[("sw_power_cap",)] * min(10, max(0, capped - 10 * index)), power_w=699.6) for index in range(3)]
    flags = flags_by_name(*shares)
    assert set(flags) == ({"POWER_CAP"} if flagged else set())
    if flagged:
        assert flags["POWER_CAP"].caps_at == "B"
        assert "up to 700 W" in flags["POWER_CAP"].flag.detail


@pytest.mark.parametrize(("slowest", "flagged"), [(1_921, False), (1_920, True)])
def test_the_clock_of_the_gpu_may_not_drift_between_rounds(slowest: int, flagged: bool) -> None:
    flags = flags_by_name(card(), card(sm_mhz=slowest), card())
    assert ("CLOCK_DRIFT" in flags) == flagged
    if flagged:
        assert flags["CLOCK_DRIFT"].caps_at == "B"  # one of three
        assert "the GPU's mean clocks" in flags["CLOCK_DRIFT"].flag.detail


def test_a_single_look_gives_no_mean_clock_and_says_so() -> None:
    single = gpu_usage.gpu_usage_of([look(sm_mhz=345)], 0)
    findings, made = judged(card(), single, card())
    assert findings == {}
    assert made["CLOCK_DRIFT"] == Check(rounds=2, of=3, missing="1 of 2 looks at the GPU that it takes")
    (lacking,) = checks.unchecked_findings(made)
    assert "CLOCK_DRIFT" in lacking.flag.detail


def test_the_clock_of_the_processor_does_not_decide_a_row_on_a_gpu() -> None:
    rounds = [
        usage(frequency_mhz=mhz, cpu_percent=98.0).model_copy(update={"gpu": card()}) for mhz in (3_000.0, 2_000.0)
    ]
    works = {1: (10_000,), 2: (12_000,)}
    records = [
        measured(CASE, EFFICIENTNET, number, 60, threads=1, cpu_use=cpu_use(2_000_000_000, 1, work_ns=work))
        for number, work in works.items()
    ]
    on_card = [
        record.model_copy(update={"placement": record.placement.model_copy(update={"device": "cuda"})})
        for record in records
    ]
    watched = dict(zip((1, 2), rounds, strict=True))
    assert [
        entry.flag.name for entry in checks.check_rounds(CASE, checks.timed_rounds(records, watched, {}, None))[0]
    ] == ["CLOCK_DRIFT"]
    assert checks.check_rounds(CASE, checks.timed_rounds(on_card, watched, {}, None))[0] == []


@pytest.mark.parametrize(("rounds", "caps"), [(1, "B"), (3, "C")])
def test_company_on_the_gpu(rounds: int, caps: str) -> None:
    flags = flags_by_name(*[card(other_processes=2)] * rounds, *[card()] * (3 - rounds))
    assert flags["GPU_SHARED"].caps_at == caps
    assert "2 other processes" in flags["GPU_SHARED"].flag.detail


MIB = 1 << 20


@pytest.mark.parametrize(
    ("before", "others", "flagged"),
    [
        (256 * MIB, None, False),
        (257 * MIB, None, True),
        (40_000 * MIB, 0, False),  # held by something that does not compute
        (None, None, False),
    ],
)
def test_memory_betrays_company_where_processes_cannot_be_distinguished(
    before: int | None, others: int | None, flagged: bool
) -> None:
    first = card(other_processes=others, before=before)
    flags = flags_by_name(first, first, first)
    assert set(flags) == ({"GPU_SHARED"} if flagged else set())
    if flagged:
        assert flags["GPU_SHARED"].caps_at == "B"


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"others_percent": 1_490.0}, None),  # 15 of 16 CPUs are not needed
        ({"others_percent": 1_510.0}, "CPU_SHARED"),
        ({"steal_percent": 4.9, "cpu_percent": 95.0, "others_percent": 0.0}, None),
        ({"steal_percent": 5.1, "cpu_percent": 95.0, "others_percent": 0.0}, "STEAL"),
    ],
)
def test_a_row_on_a_gpu_needs_the_cpu_that_submits(changes: dict[str, float], flag: str | None) -> None:
    assert set(flags_by_name(card(), card(), card(), **changes)) == ({flag} if flag else set())
