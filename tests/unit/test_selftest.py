"""The self-test's parts: known durations, the slow-down hook, and the counting of right and wrong verdicts."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scipy.stats import beta

from harness import selftest
from harness.backends.base import BackendJob
from harness.backends.batches import NO_BATCHES, empty_export
from harness.backends.calibration import slowdown
from harness.backends.calibration.noop import Noop
from harness.backends.calibration.spin import Spin
from harness.comparison import selftest_evidence
from harness.core import store
from harness.core.errors import CaseError, CasesFailedError, ConfigError, UsageError
from harness.core.schemas import Case, Plan, SelfTest, SelfTestKind, SelfTestRow
from harness.planning.config import read_config
from harness.planning.matrix import make_plan
from harness.reporting.tables.harness_error_tables import selftest_line, selftest_table
from harness.zoo import model_info
from harness.zoo.families.known_duration import (
    KINDS,
    SCATTER,
    SLOW,
    SPREAD,
    STEADY,
    TWO_SPEEDS,
    VARIABLE,
    duration_ns,
    factor,
    kind_of,
    slug,
)
from tests.synthetic_results import environment

EXPECTED = {"a": 1_000_000}


def verdicts(*names: str) -> list[Any]:
    return [SimpleNamespace(verdict=name) for name in names]


def summary(case_id: str, median_ns: float) -> Any:
    row = SimpleNamespace(
        case_id=case_id, latency_ns=SimpleNamespace(median=median_ns), clock=SimpleNamespace(overhead_ns=50)
    )
    return SimpleNamespace(rows=[row])


def outcome(**changes: Any) -> SelfTest:
    row = SelfTestRow(case_id="a", nominal_ns=1_000_000, reported_ns=1_002_000.0, allowed_ns=10_100.0, within=True)
    two_speeds = SelfTestKind(
        name=TWO_SPEEDS,
        what=KINDS[TWO_SPEEDS],
        false_alarms=0,
        refused=12,
        equal_trials=30,
        missed=30,
        slowed_trials=30,
    )
    result = SelfTest(
        created_at="2026-11-28T00:00:00+00:00",
        machine=environment().machine,
        rounds=5,
        slowdown=1.05,
        rows=(row,),
        false_alarms=0,
        equal_trials=30,
        missed=0,
        slowed_trials=30,
        rate=0.1,
        kinds=(two_speeds,),
        passed=True,
    )
    return result.model_copy(update=changes)


@pytest.mark.parametrize(
    ("name", "expected_ns"),
    [
        ("spin:50us", 50_000),
        ("spin:1ms", 1_000_000),
        ("spin:1.5ms", 1_500_000),
        ("spin:1ms:two-speeds", 1_000_000),
        ("spin:50us:scatter", 50_000),
    ],
)
def test_a_duration_is_read_from_the_name(name: str, expected_ns: int) -> None:
    assert duration_ns(name) == expected_ns
    assert model_info(name).slug == slug(name)


@pytest.mark.parametrize("name", ["spin:", "spin:1s", "spin:-1ms", "spin:1 ms", "spin:../1ms", "spin:1ms:three-speeds"])
def test_a_value_that_is_no_duration_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match="names no duration"):
        model_info(name)


@pytest.mark.parametrize(("reported_ns", "within"), [(1_010_099.0, True), (1_010_101.0, False), (989_899.0, False)])
def test_bias_may_be_one_percent_and_two_clock_reads(reported_ns: float, within: bool) -> None:
    (row,) = selftest_evidence.bias_rows(EXPECTED, [summary("a", reported_ns)])
    assert row.within is within


def test_bias_is_of_the_middle_report() -> None:
    (row,) = selftest_evidence.bias_rows(EXPECTED, [summary("a", value) for value in (1e6, 1.001e6, 5e6)])
    assert row.reported_ns == 1.001e6


def test_a_case_that_was_never_measured_proves_nothing() -> None:
    with pytest.raises(ValueError, match="never measured"):
        selftest_evidence.bias_rows(EXPECTED, [summary("b", 1e6)])


def test_equal_work_may_only_be_same_or_ambiguous() -> None:
    rows = verdicts("SAME", "AMBIGUOUS", "SLOWER", "FASTER", "NOT COMPARABLE")
    assert selftest_evidence.false_alarms(rows) == (3, 5)


def test_slowed_work_may_only_be_slower() -> None:
    assert selftest_evidence.missed_count(verdicts("SLOWER", "SAME", "AMBIGUOUS", "NOT COMPARABLE")) == (3, 4)


def passing(true_rate: float, count: int, asked: float) -> float:
    """Probability that so many trials of a harness with that rate of wrong verdicts exclude the rate asked for."""
    right = 1 - true_rate
    chances = [math.comb(count, wrong) * true_rate**wrong * right ** (count - wrong) for wrong in range(count + 1)]
    return sum(chance for wrong, chance in enumerate(chances) if selftest_evidence.excluded_rate(wrong, count) <= asked)


@pytest.mark.parametrize(
    ("wrong", "count", "excluded"), [(0, 29, 0.0981), (0, 59, 0.0495), (1, 48, 0.0951), (2, 21, 0.2706)]
)
def test_the_rate_that_trials_exclude_is_clopper_and_pearsons_bound(wrong: int, count: int, excluded: float) -> None:
    assert selftest_evidence.excluded_rate(wrong, count) == pytest.approx(excluded, abs=1e-4)
    assert selftest_evidence.excluded_rate(wrong, count) == pytest.approx(beta.ppf(0.95, wrong + 1, count - wrong))


@pytest.mark.parametrize(("wrong", "count"), [(0, 0), (3, 3)])
def test_trials_that_are_all_wrong_and_none_at_all_exclude_nothing(wrong: int, count: int) -> None:
    assert selftest_evidence.excluded_rate(wrong, count) == 1.0


@pytest.mark.parametrize(("rate", "count"), [(0.10, 29), (0.05, 59), (0.01, 299)])
def test_clean_trials_that_exclude_a_rate(rate: float, count: int) -> None:
    assert selftest_evidence.trials_for(rate) == count
    assert selftest_evidence.excluded_rate(0, count) <= rate < selftest_evidence.excluded_rate(0, count - 1)


@pytest.mark.parametrize("count", [21, 29, 30, 48, 59, 61, 100, 200])
def test_a_harness_that_is_wrong_in_ten_of_a_hundred_passes_in_no_more_than_five(count: int) -> None:
    assert passing(0.10, count, 0.10) <= 0.05
    # A harness that is always right passes where there are trials enough.
    assert passing(0.0, count, 0.10) == (1.0 if count >= 29 else 0.0)


def test_the_default_number_of_trials_excludes_the_default_rate() -> None:
    plan = selftest_plan()
    number, rate = selftest.trials_and_rate(None, None, selftest.durations(plan))
    assert (number, rate) == (10, 0.10)
    assert passing(0.10, number * selftest.durations(plan), rate) <= 0.05
    said = selftest.announcement(plan, number, rate)
    assert (
        "10 trials with 30 verdicts of each kind, to exclude 10.0% of wrong ones at 95%: 1350 processes, about " in said
    )


def test_trials_and_rate_follow_from_each_other() -> None:
    assert selftest.trials_and_rate(None, 0.05, 3) == (20, 0.05)
    number, rate = selftest.trials_and_rate(7, None, 3)
    assert (number, rate) == (7, selftest_evidence.excluded_rate(0, 21))
    assert selftest.trials_and_rate(16, 0.10, 3) == (16, 0.10)
    with pytest.raises(UsageError, match=r"cannot exclude a rate of 10.0%") as caught:
        selftest.trials_and_rate(7, 0.10, 3)
    assert "RATE=10% TRIALS=10" in caught.value.hint


def test_the_text_names_conditions_bias_trials_and_the_excluded_rates() -> None:
    text = selftest_table(outcome())
    assert "All targets met" in text
    assert "+0.200%" in text
    assert "| 0 of 30" in text
    assert "above 9.5%" in text
    assert "0 of 30 (12 not compared)" in text
    assert "two-speeds: a process takes" in text
    assert "A target was missed" in selftest_table(outcome(passed=False))


def test_a_file_without_requested_rates_is_shown_with_the_rates_that_it_excludes() -> None:
    old = Path(__file__).parents[1] / "golden/format-1/selftest.json"
    result = store.load(old, SelfTest, "make selftest")
    assert (result.rate, result.kinds) == (None, ())
    text = selftest_table(result)
    assert "above 13.3%" in text
    assert "at least 95% of the verdicts right" in text
    assert "excludes rates above 13.3% of each" in selftest_line(result, "selftest.md")


def test_a_report_says_when_the_self_test_was_not_run() -> None:
    assert "make selftest" in selftest_line(None, "selftest.md")
    assert "[Self-test](selftest.md)" in selftest_line(outcome(), "selftest.md")
    assert "1 of 60 false alarms" in selftest_line(outcome(false_alarms=1), "selftest.md")


# --- work whose processes differ -----------------------------------------------------------------------------------


PROCESSES = [f"1/case/{number}" for number in range(2000)]


def test_two_speeds_come_about_equally_often() -> None:
    counter = Counter(factor("spin:1ms:two-speeds", process) for process in PROCESSES)
    assert set(counter) == {1.0, SLOW}
    assert abs(counter[SLOW] / len(PROCESSES) - 0.5) < 0.05


def test_scatter_is_log_normal_around_the_named_duration() -> None:
    logs = [math.log(factor("spin:1ms:scatter", process)) for process in PROCESSES]
    assert abs(statistics.mean(logs)) < 0.005
    assert statistics.stdev(logs) == pytest.approx(SPREAD, rel=0.1)


@pytest.mark.parametrize("name", ["spin:1ms:two-speeds", "spin:1ms:scatter"])
def test_a_process_draws_the_same_speed_again_and_another_draw_gives_others(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    for text in ("1-a", "1-a", "1-b"):
        monkeypatch.setenv(VARIABLE, text)
        drawn.append([factor(name, process) for process in PROCESSES[:20]])
    assert drawn[0] == drawn[1] != drawn[2]


def test_steady_work_takes_the_same_time_in_every_process() -> None:
    assert {factor("spin:1ms", process) for process in PROCESSES[:20]} == {1.0}


def test_work_whose_processes_differ_says_so_in_its_records() -> None:
    steady, slow = (spin(name, "1/case/1") for name in ("spin:1ms", "spin:1ms:two-speeds"))
    assert steady.on_purpose() is None
    assert "at random" in (slow.on_purpose() or "")
    expected = round(1_000_000 * factor("spin:1ms:two-speeds", "1/case/1"))
    assert slow.placement().settings["duration_ns"] == expected


def test_the_self_test_measures_every_kind_of_work() -> None:
    kinds = Counter(kind_of(case.model) for case in selftest_plan().cases)
    assert set(kinds) == set(KINDS)
    assert len(set(kinds.values())) == 1, "one kind has fewer trials than the others"


ALARM, REFUSED = "SLOWER", "NOT COMPARABLE"


@pytest.mark.parametrize(
    ("kind", "equal", "slowed", "passed"),
    [
        (STEADY, "SAME", "SLOWER", True),
        (STEADY, ALARM, "SLOWER", False),
        (STEADY, REFUSED, "SLOWER", False),
        (STEADY, "SAME", "AMBIGUOUS", False),
        (TWO_SPEEDS, ALARM, "SLOWER", False),
        (TWO_SPEEDS, REFUSED, "AMBIGUOUS", True),
        (SCATTER, ALARM, "SLOWER", False),
        (SCATTER, "AMBIGUOUS", REFUSED, True),
    ],
)
def test_one_wrong_verdict_in_thirty_fails_where_it_is_asked_for(
    kind: str, equal: str, slowed: str, passed: bool
) -> None:
    findings, plan = selftest.Findings(), selftest_plan()
    first = next(case.case_id for case in plan.cases if kind_of(case.model) == kind)
    for trial in range(10):
        findings.summaries.append(summary_of(plan))
        for case in plan.cases:
            own = trial == 0 and case.case_id == first
            findings.equal.append(compared(case, equal if own else "SAME"))
            findings.slowed.append(compared(case, slowed if own else "SLOWER"))
    judged = selftest.judge(plan, findings, 0.10)
    assert judged.passed is passed
    assert [entry.name for entry in judged.kinds] == [TWO_SPEEDS, SCATTER]
    assert {entry.equal_trials for entry in judged.kinds} == {30}


def selftest_plan() -> Plan:
    path = Path(__file__).parents[2] / "configs/selftest.yaml"
    return make_plan(read_config(path), str(path), "")


def compared(case: Case, verdict: str) -> Any:
    return SimpleNamespace(case_id=case.case_id, verdict=verdict)


def summary_of(plan: Plan) -> Any:
    rows = [summary(case.case_id, duration_ns(case.model)).rows[0] for case in plan.cases]
    return SimpleNamespace(rows=rows)


def spin(name: str, process: str) -> Spin:
    case = case_of(name)
    result = Spin(BackendJob(case, empty_export(case), Path(), NO_BATCHES.inputs, 1, Path(), process=process))
    result.load()
    return result


@pytest.fixture
def backend() -> Noop:
    case = case_of("spin:1ms")
    return Noop(BackendJob(case, empty_export(case), Path(), NO_BATCHES.inputs, 1, Path()))


def case_of(model: str) -> Case:
    return Case(
        case_id="x",
        model=model,
        slug="spin-1ms",
        backend="noop",
        device="cpu",
        precision="fp32",
        batch_size=1,
        sequence_length=None,
        boundary="compute",
        mode="sync",
        weights="own",
    )


def test_a_slowed_inference_ends_by_the_factor_later(backend: Noop, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0, 100, 104, 106, 999])
    monkeypatch.setattr(slowdown, "now_ns", lambda: next(ticks))
    slowdown.slow_down(backend, 1.05)
    backend.infer()
    # Began at 0, done at 100: waits through 104 and ends at the first read of at least 105.
    assert next(ticks) == 999


def test_only_the_named_backend_is_slowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(slowdown.VARIABLE, "openvino:1.05")
    assert slowdown.slowdown_of("openvino") == 1.05
    assert slowdown.slowdown_of("onnxruntime") is None


@pytest.mark.parametrize("value", ["openvino:", "openvino:fast", "openvino:0.5", "openvino:nan", "openvino:1e9"])
def test_a_factor_that_cannot_be_is_an_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(slowdown.VARIABLE, value)
    with pytest.raises(CaseError, match="factor from 1 to 10"):
        slowdown.slowdown_of("openvino")


def test_a_stage_that_fails_is_reported_in_its_own_two_lines(tmp_path: Path) -> None:
    with pytest.raises(CasesFailedError) as caught:
        selftest._stage("aggregate", ["--results", str(tmp_path)])
    assert caught.value.problem == f"The self-test's aggregate stage failed: {tmp_path}/plan.json does not exist."
    assert caught.value.hint == f"Run `make plan RESULTS={tmp_path}` first."


@pytest.mark.parametrize("trials", ["0", "-1"])
def test_no_trials_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trials: str) -> None:
    monkeypatch.chdir(tmp_path)  # the configuration of the package is known in every folder
    with pytest.raises(UsageError, match="exclude no rate"):
        selftest.stage(["--trials", trials, "--results", str(tmp_path)])
