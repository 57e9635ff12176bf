"""The stage history: a store that only grows, its page, its exit codes, and the baseline that compare takes from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import compare, history
from harness.core import store
from harness.core.errors import InferometerError, MalformedFileError, MissingInputError, RegressionError, UsageError
from harness.core.layout import Results, RunStore
from harness.core.schemas import Comparison, Decision, History, Summary
from harness.planning.run_store import add_run, baseline_in, load_runs
from tests import synthetic_results as made
from tests.fixtures.histories import filled, saved, summary
from tests.synthetic_history import ab, nights

AT = "2026-11-30T00:00:00+00:00"


def test_a_run_is_added_once_and_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, files = saved(tmp_path / "r", summary()), RunStore(tmp_path / "s")
    arguments = ["--results", str(results.root), "--store", str(files.root), "--commit", "abc"]
    history.stage(arguments)
    assert "is added" in capsys.readouterr().out
    (path,) = files.runs.glob("*/run.json")
    before = path.read_bytes()
    history.stage([*arguments[:-1], "def"])
    said = capsys.readouterr()
    assert "in the store already" in said.out
    assert "keeps abc as its state of the code, not def" in said.err
    assert path.read_bytes() == before
    assert store.load(files.summary(path.parent.name), Summary, "x").measured_from == summary().measured_from
    other = summary(slower=1.5)
    with pytest.raises(MalformedFileError, match="never overwritten"):
        add_run(files, other, "abc")


def test_a_folder_of_results_is_no_store(tmp_path: Path) -> None:
    results = saved(tmp_path / "r", summary())
    results.plan.touch()
    with pytest.raises(UsageError, match="which `make clean` empties"):
        history.stage(["--results", str(results.root), "--store", str(results.root)])


def test_without_a_run_to_add_the_store_is_shown_and_the_stage_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, files = saved(tmp_path / "r", summary()), RunStore(tmp_path / "s")
    history.stage(["--results", str(results.root), "--store", str(files.root)])
    results.summary.unlink()
    with pytest.raises(MissingInputError, match="no run was added"):
        history.stage(["--results", str(results.root), "--store", str(files.root)])
    assert f"Page: {files.page}" in capsys.readouterr().out


def test_a_damaged_run_is_named_and_the_others_are_used(tmp_path: Path) -> None:
    files = RunStore(tmp_path)
    filled(files, nights([1.0, 1.0]))
    files.run("n00").write_text("{")
    runs, notes = load_runs(files)
    assert [run.run_id for run in runs] == ["n01"]
    assert len(notes) == 1
    assert "n00" in notes[0]


def test_a_run_counts_once_under_its_own_name(tmp_path: Path) -> None:
    files = RunStore(tmp_path)
    first, other = nights([1.0, 1.0])
    filled(files, [first, other])
    store.save(files.run("n07"), first)  # the folder was copied
    renamed = first.model_copy(update={"run_id": "n08"})
    store.save(files.run("n08"), renamed)
    runs, notes = load_runs(files)
    assert [run.run_id for run in runs] == ["n00", "n01"]
    assert "it was moved or copied" in notes[0]
    assert "is the run n00 under another name" in notes[1]


def test_a_store_and_a_result_are_needed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no store"):
        history.stage(["--results", str(tmp_path)])
    with pytest.raises(MissingInputError, match="the store is empty"):
        history.stage(["--results", str(tmp_path), "--store", str(tmp_path / "s")])


def test_a_candidate_is_decided_by_the_ab_run_of_its_commits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, results = RunStore(tmp_path / "s"), Results(tmp_path / "r")
    runs = [
        run.model_copy(update={"commit": "aaaaaaaaaabb" if place < 15 else "bbbbbbbbbbcc"})
        for place, run in enumerate(nights([1.0] * 15 + [1.1] * 10))
    ]
    filled(files, runs)
    arguments = ["--results", str(results.root), "--store", str(files.root)]
    with pytest.raises(MissingInputError, match="no run was added"):
        history.stage(arguments)
    shown = capsys.readouterr().out
    shifts = store.load(files.history, History, "x").shifts
    assert f"make history STORE=… CONFIRM={shifts[0].shift_id}" in shown
    assert "AGAINST=aaaaaaaaaabb" in shown
    store.save(results.ab.comparison, ab("AMBIGUOUS", 1.01, "commit aaaaaaaaaa", "working folder at bbbbbbbbbb"))
    with pytest.raises(UsageError, match="does not decide"):
        history.stage([*arguments, "--confirm", shifts[0].shift_id])
    store.save(results.ab.comparison, ab("SLOWER", 1.09, "commit aaaaaaaaaa", "working folder at bbbbbbbbbb"))
    with pytest.raises(RegressionError, match="confirmed"):
        history.stage([*arguments, "--confirm", shifts[0].shift_id])
    assert store.load(files.decision(shifts[0].shift_id), Decision, "x").shift.state == "confirmed"
    after = store.load(files.history, History, "x").shifts
    assert sorted(shift.state for shift in after) == ["candidate", "candidate", "confirmed"]
    with pytest.raises(UsageError, match="candidate"):
        history.stage([*arguments, "--confirm", shifts[0].shift_id])
    assert "confirmed" in files.page.read_text()


def test_the_page_needs_no_network_and_has_every_series(tmp_path: Path) -> None:
    files = RunStore(tmp_path / "s")
    runs = nights([1.0] * 15 + [1.1] * 10)
    runs = [
        run.model_copy(update={"conditions": {"driver": "1" if place < 5 else "<2>"}}) for place, run in enumerate(runs)
    ]
    filled(files, runs)
    with pytest.raises(MissingInputError, match="no run was added"):
        history.stage(["--results", str(tmp_path / "r"), "--store", str(files.root)])
    text = files.page.read_text()
    assert not any(part in text for part in ("http:", "https:", "src="))
    assert "<2>" not in text
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert len(data["series"]) == 3
    first = data["series"][0]
    assert len(first["values"]) == 25
    assert first["values"][20][1] == pytest.approx(1.1, abs=0.01)
    assert first["changes"] == [[5, "driver: 1 → <2>"]]
    assert first["shifts"] == [[15, "candidate", "+10.0%"]]


def test_compare_takes_the_latest_earlier_run_of_the_same_machine(tmp_path: Path) -> None:
    files = RunStore(tmp_path / "s")
    for day in (1, 3, 9):
        add_run(files, summary(day), None)
    other = made.environment(cpu="Another CPU")
    add_run(files, summary(4).model_copy(update={"environments": {made.ENVIRONMENT_ID: other}}), None)
    now = summary(5)
    result = store.load(files.summary(baseline_in(files, now)), Summary, "x")
    assert result.measured_from == summary(3).measured_from
    results = saved(tmp_path / "r", now)
    with pytest.raises(InferometerError):  # three rounds give no verdict
        compare.stage(["--results", str(results.root), "--baseline", str(files.root)])
    side = store.load(results.comparison, Comparison, "x").baseline
    assert side is not None
    assert side.measured_from == summary(3).measured_from
    with pytest.raises(MissingInputError, match="no earlier run"):
        baseline_in(files, summary(1))
