"""Two calls of one profiler that give a case different figures say why."""

from __future__ import annotations

from pathlib import Path

from harness.api.profiler import CallResult, answers_of, contradictions
from harness.api.results import Benchmark
from tests.synthetic_results import Synthetic

DAY = "2026-11-29"


def test_equal_figures_need_no_word() -> None:
    same = {"case": CallResult(1e6, 300, {"max_s": 1.0}, DAY)}
    assert contradictions(same, dict(same)) == ()
    assert contradictions({}, same) == ()


def test_other_settings_are_named() -> None:
    before = {"case": CallResult(1e6, 300, {"max_s": 1.0, "rounds": 3}, DAY)}
    (said,) = contradictions(before, {"case": CallResult(1.5e6, 50, {"max_s": 1.0, "rounds": 5}, DAY)})
    assert said == (
        "`case`: an earlier call gave 1 ms, this one 1.5 ms. They asked for different settings: rounds 3 and 5."
    )


def test_the_same_settings_are_said_with_when_each_was_measured() -> None:
    before = {"case": CallResult(1e6, 300, {}, "09:00")}
    (said,) = contradictions(before, {"case": CallResult(1.5e6, 1200, {}, "10:00")})
    assert said.endswith("Same settings, other samples: 300 from 09:00 and 1,200 from 10:00.")


def test_a_result_shows_its_remarks(tmp_path: Path) -> None:
    summary = Synthetic().summary()
    found = Benchmark(tmp_path, summary, remarks=("They differ.",))
    assert found.markdown().endswith("They differ.")
    assert repr(found).endswith("They differ.")
    medians = {case: answer.median for case, answer in answers_of(found, {}).items()}
    assert medians == {row.case_id: row.latency_ns.median for row in summary.rows if row.latency_ns}
