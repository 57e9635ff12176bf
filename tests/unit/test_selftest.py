"""The self-test's parts: known durations, the slow-down hook, and the counting of right and wrong verdicts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import selftest
from harness.backends import slowdown
from harness.backends.base import Job
from harness.backends.batches import NO_BATCHES, nothing_exported
from harness.backends.noop import Noop
from harness.core.errors import CaseError, CasesFailedError, ConfigError, UsageError
from harness.core.schemas import Case, SelfTest, SelfTestRow
from harness.measure import trials
from harness.render.selftest import selftest_line, selftest_table
from harness.zoo import model_info
from harness.zoo.known_duration import duration_ns, slug
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
    found = SelfTest(
        created_at="2026-11-28T00:00:00+00:00",
        machine=environment().machine,
        rounds=5,
        slowdown=1.05,
        rows=(row,),
        false_alarms=0,
        equal_trials=21,
        missed=1,
        slowed_trials=21,
        passed=True,
    )
    return found.model_copy(update=changes)


@pytest.mark.parametrize(
    ("name", "expected_ns"), [("spin:50us", 50_000), ("spin:1ms", 1_000_000), ("spin:1.5ms", 1_500_000)]
)
def test_a_duration_is_read_from_the_name(name: str, expected_ns: int) -> None:
    assert duration_ns(name) == expected_ns
    assert model_info(name).slug == slug(name)


@pytest.mark.parametrize("name", ["spin:", "spin:1s", "spin:-1ms", "spin:1 ms", "spin:../1ms"])
def test_what_is_no_duration_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match="names no duration"):
        model_info(name)


@pytest.mark.parametrize(("reported_ns", "within"), [(1_010_099.0, True), (1_010_101.0, False), (989_899.0, False)])
def test_bias_may_be_one_percent_and_two_clock_reads(reported_ns: float, within: bool) -> None:
    (row,) = trials.bias_rows(EXPECTED, [summary("a", reported_ns)])
    assert row.within is within


def test_bias_is_of_the_middle_report() -> None:
    (row,) = trials.bias_rows(EXPECTED, [summary("a", value) for value in (1e6, 1.001e6, 5e6)])
    assert row.reported_ns == 1.001e6


def test_a_case_that_was_never_measured_proves_nothing() -> None:
    with pytest.raises(ValueError, match="never measured"):
        trials.bias_rows(EXPECTED, [summary("b", 1e6)])


def test_equal_work_may_only_be_same_or_ambiguous() -> None:
    rows = verdicts("SAME", "AMBIGUOUS", "SLOWER", "FASTER", "NOT COMPARABLE")
    assert trials.false_alarms(rows) == (3, 5)


def test_slowed_work_may_only_be_slower() -> None:
    assert trials.missed(verdicts("SLOWER", "SAME", "AMBIGUOUS", "NOT COMPARABLE")) == (3, 4)


@pytest.mark.parametrize(("wrong", "count", "enough"), [(1, 20, True), (2, 20, False), (0, 0, False)])
def test_ninety_five_of_a_hundred_must_be_right(wrong: int, count: int, enough: bool) -> None:
    assert trials.right_often_enough(wrong, count) is enough


def test_the_text_names_conditions_bias_and_trials() -> None:
    text = selftest_table(outcome())
    assert "All targets met" in text
    assert "+0.200%" in text
    assert "1 of 21" in text
    assert "A target was missed" in selftest_table(outcome(passed=False))


def test_a_report_says_when_the_self_test_was_not_run() -> None:
    assert "make selftest" in selftest_line(None, "selftest.md")
    assert "[Self-test](selftest.md)" in selftest_line(outcome(), "selftest.md")


@pytest.fixture
def backend() -> Noop:
    case = Case(
        case_id="x",
        model="spin:1ms",
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
    return Noop(Job(case, nothing_exported(case), Path(), NO_BATCHES.inputs, 1, Path()))


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


def test_a_stage_that_fails_is_told_in_its_own_two_lines(tmp_path: Path) -> None:
    with pytest.raises(CasesFailedError) as caught:
        selftest._stage("aggregate", ["--results", str(tmp_path)])
    assert caught.value.problem == f"The self-test's aggregate stage failed: {tmp_path}/plan.json does not exist."
    assert caught.value.hint == "Run `make plan` first."


@pytest.mark.parametrize("trials", ["0", "-1"])
def test_no_trials_are_refused(tmp_path: Path, trials: str) -> None:
    with pytest.raises(UsageError, match="prove nothing"):
        selftest.stage(["--trials", trials, "--results", str(tmp_path)])
