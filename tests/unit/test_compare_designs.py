"""compare --across and --paired, and the comment for pull requests, on synthetic summaries."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import compare
from harness.comparison.paired import ENOUGH_ROUNDS
from harness.core import store
from harness.core.errors import MalformedFileError, MissingInputError, NotComparableError, RegressionError, UsageError
from harness.core.schemas import Case, Failed, Measured, StateId, States, Summary
from harness.reporting.writers.github import MARKER, MAX_LINES, pr_comment
from tests.fixtures.comparing import CASES, SLOWED, Folders, slower, summary
from tests.synthetic_comparison import with_itself
from tests.synthetic_results import slowed

pytestmark = pytest.mark.usefixtures("outside_github")

RESTLESS = (1.0, 1.4, 1.1, 1.8, 1.2, 1.6)
"""How much slower the machine is in each round."""


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


# --- across machines ----------------------------------------------------------------------------------------------


def elsewhere(factor: float = 1.0) -> Summary:
    """Another processor, on which everything takes 3 times as long, and one row more than that."""
    everything = slower(3.0, *(case.case_id for case in CASES))
    single = slower(factor, SLOWED)

    def event(case: Case, record: Measured) -> Measured | Failed | None:
        result = everything(case, record)
        return single(case, result) if isinstance(result, Measured) else result

    return summary(2, event, cpu="AMD EPYC 9B14", threads=4)


def test_across_machines_only_ratios_over_the_baseline_backend_are_judged(folders: Folders) -> None:
    result = folders.put(summary(1), elsewhere())("--across")
    compared = [row for row in result.rows if row.ratio is not None]
    assert compared
    # All took three times as long: no ratio changed, and no time is shown.
    assert {row.verdict for row in compared} <= {"SAME", "AMBIGUOUS"}
    assert all(row.relative and row.baseline_ns is None and row.current_ns is None for row in compared)
    reasons = {row.reason for row in result.rows if row.backend == "torch-eager" and row.precision == "fp32"}
    assert reasons == {"the ratios of the other rows are over this one"}


def test_across_machines_every_difference_is_named_and_none_forbids(folders: Folders) -> None:
    folders.put(summary(1), elsewhere())("--across")
    text = folders.current.comparison_report.read_text()
    assert "machine.cpu" in text
    assert "AMD EPYC 9B14" in text
    assert "threads" in text
    assert "forbids comparing" not in text


def test_a_backend_that_lost_its_lead_on_the_other_machine_fails(folders: Folders) -> None:
    folders.put(summary(1), elsewhere(1.2))
    with pytest.raises(RegressionError):
        folders("--across", "--max-regression", "10%")
    (row,) = (row for row in folders.saved().rows if row.fails)
    assert (row.case_id, row.ratio) == (SLOWED, pytest.approx(1.2, rel=0.02))
    assert "of the baseline backend's time" in folders.current.junit.read_text()


def test_across_needs_another_run(folders: Folders) -> None:
    folders.put(summary(1), elsewhere())
    with pytest.raises(UsageError, match="--across compares two runs"):
        compare.stage(["--results", str(folders.current.root), "--threshold", "latency_p50<1s", "--across"])


# --- two states in turn -------------------------------------------------------------------------------------------


def restless(seed: int, factor: float = 1.0, lost: int | None = None) -> Summary:
    """A run whose rounds are slow alike, with one row slower by a factor; `lost`: a round of it that failed."""
    single = slower(factor, SLOWED)

    def event(case: Case, record: Measured) -> Measured | Failed | None:
        if case.case_id == SLOWED and record.round == lost:
            return None
        result = single(case, record)
        return slowed(result, RESTLESS[record.round - 1]) if isinstance(result, Measured) else result

    return summary(seed, event, rounds=len(RESTLESS))


def in_turn(folders: Folders, baseline: Summary, current: Summary) -> Folders:
    states = States(against=StateId(name="commit 0a1b2c3", stamp="a"), here=StateId(name="working folder", stamp="b"))
    store.save(folders.current.states, states)
    return folders.put(baseline, current)


def test_rounds_that_are_slow_for_both_states_hide_no_slow_down(folders: Folders) -> None:
    assert len(RESTLESS) == ENOUGH_ROUNDS
    in_turn(folders, restless(1), restless(2, 1.10))
    with pytest.raises(RegressionError):
        folders("--paired")
    (row,) = (row for row in folders.saved().rows if row.fails)
    assert (row.case_id, row.ratio) == (SLOWED, pytest.approx(1.10, rel=0.02))
    assert "**commit 0a1b2c3**" in folders.current.comparison_report.read_text()
    # As two separate runs the same figures say nothing.
    folders()
    assert folders.verdicts()[SLOWED] in ("AMBIGUOUS", "NOT COMPARABLE")


def test_equal_states_end_well_on_any_machine(folders: Folders) -> None:
    result = in_turn(folders, restless(1), restless(2))("--paired")
    compared = {row.verdict for row in result.rows if row.ratio is not None}
    assert compared
    assert compared <= {"SAME", "AMBIGUOUS"}


def test_rounds_are_paired_by_their_number_where_one_is_lost(folders: Folders) -> None:
    in_turn(folders, restless(1), restless(2, lost=1))("--paired")
    (row,) = (row for row in folders.saved().rows if row.case_id == SLOWED)
    assert row.rounds == (len(RESTLESS) - 1, len(RESTLESS) - 1)
    assert row.ratio == pytest.approx(1, rel=0.02)
    assert "too few rounds" in (row.reason or "")


def test_two_runs_that_were_not_measured_in_turn_are_no_pairs(folders: Folders) -> None:
    folders.put(restless(1), restless(2))
    with pytest.raises(MissingInputError, match=r"states\.json"):
        folders("--paired")


# --- the comment --------------------------------------------------------------------------------------------------


def test_a_comment_is_short_and_names_changes_first() -> None:
    rows = summary(1)
    many = rows.model_copy(
        update={
            "rows": tuple(
                row.model_copy(update={"case_id": f"{row.case_id}-{copy}", "model": f"onnx:./{row.model}{copy}.onnx"})
                for copy in range(5)
                for row in rows.rows
            )
        }
    )
    text = pr_comment(with_itself(many, "latency_p50<1ns"))
    lines = text.splitlines()
    assert len(lines) <= MAX_LINES
    assert lines[:2] == [MARKER, "### Performance: regressed"]
    cells = [line.split("|")[1].strip() for line in lines if line.startswith("| ") and "verdict" not in line]
    assert cells
    assert set(cells) == {"SLOWER"}


def test_a_comment_on_equal_runs_says_so(folders: Folders) -> None:
    folders.put(summary(1), summary(2))()
    text = folders.current.pr_comment.read_text()
    assert "### Performance: no regression detected\n" in text
    assert len(text.splitlines()) <= MAX_LINES


def test_a_comment_on_two_runs_without_a_comparable_row_says_so(folders: Folders) -> None:
    same = summary(1)
    with pytest.raises(NotComparableError, match="Nothing could be compared; most often: the very same samples"):
        folders.put(same, same)()
    assert "### Performance: nothing compared\n" in folders.current.pr_comment.read_text()


def test_a_damaged_baseline_is_made_again_in_its_own_folder(folders: Folders) -> None:
    folders.put(summary(1), summary(2))()
    content = folders.baseline.summary.read_bytes()
    for damaged in (content[:300], content.replace(b"rounds", b"ruonds", 1)):
        folders.baseline.summary.write_bytes(damaged)
        with pytest.raises(MalformedFileError) as caught:
            compare.stage(["--baseline", str(folders.baseline.root), "--results", str(folders.current.root)])
        assert f"make aggregate RESULTS={folders.baseline.root}" in caught.value.hint


def test_the_reason_of_most_rows_counts_those_of_one_side(folders: Folders) -> None:
    before = summary(1)
    first, *_ = after = summary(2).rows
    kept = first.model_copy(update={"case_id": first.case_id, "grade": "F"})
    assert len(after) > 2
    with pytest.raises(NotComparableError, match="most often: only in the baseline"):
        folders.put(before, summary(2).model_copy(update={"rows": (kept,)}))()


def test_a_file_whose_name_is_not_its_cases_is_compared_with_itself(folders: Folders) -> None:
    """The id of a case begins with the slug of its model, which for `onnx:` and `hf:` is not its name."""

    def named(found: Summary) -> Summary:
        rows = tuple(row.model_copy(update={"model": f"onnx:./exported/{row.model}.onnx"}) for row in found.rows)
        return found.model_copy(update={"rows": rows})

    result = folders.put(named(summary(1)), named(summary(2)))()
    assert {row.verdict for row in result.rows} == {"SAME", "AMBIGUOUS", "NOT COMPARABLE"}
