"""Two results against each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.api import Benchmark, detect_regressions
from harness.core.errors import MissingInputError, UsageError
from harness.core.layout import Results
from harness.core.schemas import Row, Summary
from harness.core.store import save
from tests.synthetic_results import Synthetic


def slowed(row: Row, factor: float) -> Row:
    if row.latency_ns is None:
        return row
    latency = row.latency_ns
    medians = tuple(median * factor for median in latency.process_medians)
    changed = {"median": latency.median * factor, "mean": latency.mean * factor, "process_medians": medians}
    return row.model_copy(update={"latency_ns": latency.model_copy(update=changed)})


def stored(summary: Summary, folder: Path, factor: float = 1.0) -> Benchmark:
    now = summary.model_copy(update={"rows": tuple(slowed(row, factor) for row in summary.rows)})
    save(Results(folder).summary, now)
    return Benchmark(folder, now)


@pytest.fixture(scope="module")
def summary() -> Summary:
    return Synthetic(rounds=5).summary()


def test_a_slower_run_regresses_and_the_answer_is_returned(summary: Summary, tmp_path: Path) -> None:
    before, after = stored(summary, tmp_path / "before"), stored(summary, tmp_path / "after", 2.0)
    results = detect_regressions(before, after)
    assert results
    assert {row.verdict for row in results.regressed} == {"SLOWER"}
    assert results.folder == after.folder
    record = next(row for row in results.records() if row["case_id"] == results.regressed[0].case_id)
    assert record["fails"]
    assert record["ratio"] == pytest.approx(2.0, rel=0.01)
    assert "regressed" in repr(results)
    assert "SLOWER" in results._repr_html_()


def test_a_change_within_the_allowance_does_not_regress(summary: Summary, tmp_path: Path) -> None:
    before, after = stored(summary, tmp_path / "before"), stored(summary, tmp_path / "after", 1.2)
    assert detect_regressions(before, after)
    assert not detect_regressions(str(before.folder), after.folder, "50%")


def test_a_folder_without_a_summary_is_missing_input(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"summary\.json does not exist"):
        detect_regressions(tmp_path / "before", tmp_path / "after")


def test_a_run_and_itself_are_nothing_to_compare(summary: Summary, tmp_path: Path) -> None:
    run = stored(summary, tmp_path)
    with pytest.raises(UsageError, match="at once"):
        detect_regressions(run, run)
