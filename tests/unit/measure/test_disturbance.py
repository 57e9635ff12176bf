"""Each disturbance at its threshold, and how many rounds it takes to cost the rank."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.schemas import Measured, UsageSummary
from harness.measure import disturbance, utilisation
from harness.measure.grades import Finding
from tests.synthetic_results import EFFICIENTNET, case_of, environment, measured, usage_of, usage_sample

CASE = case_of(EFFICIENTNET, "onnxruntime", "fp32", 1)


def usage(**changes: Any) -> UsageSummary:
    """Two seconds of a round, all samples alike but for the changes."""
    found = utilisation.timed(
        usage_of(CASE.case_id, 1, [usage_sample(at * 250_000_000, **changes) for at in range(1, 9)])
    )
    assert found is not None
    return found


def found(
    *rounds: UsageSummary, threads: int = 2, room: int | None = None, cpus: int | None = None
) -> dict[str, Finding]:
    records: list[Measured] = [measured(CASE, EFFICIENTNET, number, 200, threads=threads) for number in (1, 2, 3)]
    where = environment(threads=room or threads)
    if cpus:
        where = where.model_copy(update={"machine": where.machine.model_copy(update={"logical_cpus": cpus})})
    watched = dict(zip((1, 2, 3), rounds, strict=False))
    return {one.flag.name: one for one in disturbance.findings(records, watched, where)}


def test_a_quiet_machine_has_nothing_to_say() -> None:
    assert found(usage(), usage(), usage()) == {}
    assert disturbance.findings([], {}, None) == []


@pytest.mark.parametrize(
    ("others", "threads", "cpus", "flagged"),
    [
        (9.9, 2, 2, False),  # 5% of two threads' CPUs
        (10.1, 2, 2, True),
        (100.0, 1, 2, False),  # all on the CPU that the case leaves free
        (106.0, 1, 2, True),
        (300.0, 8, 64, False),
        (5_700.0, 8, 64, True),
    ],
)
def test_others_count_where_they_take_what_the_case_wants(
    others: float, threads: int, cpus: int, flagged: bool
) -> None:
    flags = found(*[usage(others_percent=others)] * 3, threads=threads, cpus=cpus)
    assert ("COTENANT" in flags) == flagged


@pytest.mark.parametrize(("rounds", "caps"), [(1, "B"), (2, "C"), (3, "C")])
def test_a_minority_of_rounds_cannot_move_the_median_far(rounds: int, caps: str) -> None:
    disturbed = [usage(others_percent=90.0)] * rounds + [usage()] * (3 - rounds)
    assert found(*disturbed)["COTENANT"].caps_at == caps


def test_the_numbers_stand_in_the_detail() -> None:
    one = found(usage(), usage(others_percent=48.0), usage())["COTENANT"].flag
    assert one.detail == "round 2: other processes used 0.48 CPUs with all 2 CPUs wanted: 24% lost, 5% allowed"
    assert one.remedy.endswith(".")


def test_a_short_window_is_not_judged_by_ticks() -> None:
    short = usage(others_percent=90.0, steal_percent=90.0).model_copy(update={"watched_ns": 400_000_000})
    assert found(short, short, short) == {}


@pytest.mark.parametrize(
    ("steal", "own", "others", "flagged"),
    [
        (9.9, 190.0, 0.0, False),  # 5% of the two CPUs that the case wants
        (10.1, 190.0, 0.0, True),
        (10.1, 190.0, 100.0, False),  # others wanted more, and lost their share of it
        (None, 190.0, 0.0, False),
        (0.0, 0.0, 0.0, False),
    ],
)
def test_stolen_time_is_a_share_of_the_time_that_was_wanted(
    steal: float | None, own: float, others: float, flagged: bool
) -> None:
    rounds = [usage(steal_percent=steal, cpu_percent=own, others_percent=others)] * 3
    assert ("STEAL" in found(*rounds, cpus=64)) == flagged


@pytest.mark.parametrize(("periods", "flagged"), [(0, False), (1, True), (None, False)])
def test_any_throttled_period_is_a_flag(periods: int | None, flagged: bool) -> None:
    assert ("CPU_QUOTA" in found(*[usage(throttled_periods=periods)] * 3)) == flagged


def test_heat_is_known_where_the_processor_counts_it() -> None:
    flag = found(usage(thermal_events=1, temperature_c=97.0), usage(thermal_events=0), usage(thermal_events=0))[
        "THERMAL"
    ]
    assert flag.caps_at == "B"
    assert "8 times, up to 97 °C" in flag.flag.detail


@pytest.mark.parametrize(("faults", "flagged"), [(10, False), (11, True)])
def test_a_few_pages_tell_nothing_and_more_are_a_flag(faults: int, flagged: bool) -> None:
    one = usage().model_copy(update={"major_faults": faults})  # 200 inferences
    assert ("MAJOR_FAULTS" in found(one, one, one)) == flagged


@pytest.mark.parametrize(("slowest", "flagged"), [(2_912.0, False), (2_908.0, True)])
def test_the_clock_may_not_drift_between_rounds(slowest: float, flagged: bool) -> None:
    flags = found(usage(frequency_mhz=3_000.0), usage(frequency_mhz=slowest), usage(frequency_mhz=2_990.0))
    assert ("CLOCK_DRIFT" in flags) == flagged
    if flagged:
        assert flags["CLOCK_DRIFT"].caps_at == "C"


def test_more_threads_than_room() -> None:
    flag = found(usage(), threads=4, room=2)["OVERSUBSCRIBED"]
    assert flag.caps_at == "B"
    assert "4 threads on 2 CPUs" in flag.flag.detail
    assert "OVERSUBSCRIBED" not in found(usage(), threads=2, room=2)


@pytest.mark.parametrize(("ran", "device", "flagged"), [(4, "cpu", True), (8, "cpu", False), (1, "cuda:0", False)])
def test_a_library_that_takes_other_threads_than_it_is_given_is_told_and_costs_no_grade(
    ran: int, device: str, flagged: bool
) -> None:
    record = measured(CASE, EFFICIENTNET, 1, 200, threads=8)
    placement = record.placement.model_copy(update={"settings": {"threads": ran}, "device": device})
    flags = {
        one.flag.name: one
        for one in disturbance.findings([record.model_copy(update={"placement": placement})], {}, None)
    }
    assert ("OTHER_THREADS" in flags) == flagged
    if flagged:
        assert flags["OTHER_THREADS"].caps_at == "A"
        assert "4 threads of its own choice where it was given 8" in flags["OTHER_THREADS"].flag.detail


def test_nobody_watched_is_no_finding() -> None:
    assert found() == {}
