"""Which stages a measurement of the API starts, with stages that only note their names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from harness.api import runs
from harness.core import store
from harness.core.errors import UnavailableError
from harness.core.layout import Models, Results
from harness.core.schemas import Case, Plan
from harness.core.schemas.vocabulary import Flag
from harness.planning.config import Config
from harness.planning.load_cases import load_time_in_words
from harness.planning.matrix import make_plan
from harness.planning.run_time import expected_sample_times, time_in_words, time_of_pairs_in_words
from harness.planning.schedule import select_cases
from harness.processes.code_states import BOTH_STATES
from tests.synthetic_loads import load_rows
from tests.synthetic_results import RESNET, Synthetic, case_of, measured


def test_limits_are_measured_before_the_rows_on_a_cpu_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results(tmp_path)
    case = case_of(RESNET, "torch-eager", "fp32", 1)
    store.save(results.summary, Synthetic(models=(RESNET,), cases=[case]).summary())
    started: list[str] = []

    def stage(name: str, *_arguments: str, show: runs.Show | None = None, front: str = "") -> tuple[str, ...]:
        started.append(name)
        return ()

    monkeypatch.setattr(runs, "run_stage", stage)
    runs.Run(results, Models(tmp_path / "models"), force=True, show=None).measure()
    assert started == ["roof", "run", "load", "aggregate"]


# --- one answer for one case --------------------------------------------------------------------------------------

EAGER, ONNX = case_of(RESNET, "torch-eager", "fp32", 1), case_of(RESNET, "onnxruntime", "fp32", 1)


def _folder(
    root: Path, *cases: Case, settings_id: str = "same", rounds: int = 2, age_s: int = 0
) -> tuple[Plan, Results]:
    """A results folder of some cases with samples of so many rounds, so much older than the others."""
    plan = Synthetic(models=(RESNET,), cases=list(cases)).plan.model_copy(update={"settings_id": settings_id})
    results = Results(root)
    store.save(results.plan, plan)
    for case in cases:
        for number in range(1, rounds + 1):
            path = results.raw_file(case.case_id, number)
            store.save_bytes(path, root.name.encode())
            os.utime(path, (1_000_000 - age_s, 1_000_000 - age_s))
    store.save_bytes(results.environment(f"of-{root.name}"), b"{}")
    return plan, results


def _origin(results: Results, case: Case) -> list[str]:
    return [path.read_text() for path in sorted(results.raw_case(case.case_id).glob("*.json"))]


def test_samples_of_another_call_are_taken_where_settings_are_the_same(tmp_path: Path) -> None:
    _, theirs = _folder(tmp_path / "benchmark", EAGER, ONNX)
    _folder(tmp_path / "other", EAGER, settings_id="other", age_s=-9)
    plan, own = _folder(tmp_path / "profile", EAGER, rounds=0)
    runs.adopt(plan, own)
    assert _origin(own, EAGER) == ["benchmark", "benchmark"]
    assert not own.raw_case(ONNX.case_id).exists()
    assert own.environment("of-benchmark").is_file()
    assert _origin(theirs, EAGER) == ["benchmark", "benchmark"]


@pytest.mark.parametrize(
    ("age_s", "rounds", "kept"), [(9, 2, "profile"), (-9, 2, "benchmark"), (-9, 1, "profile"), (-9, 3, "benchmark")]
)
def test_newer_samples_win_unless_they_are_fewer(age_s: int, rounds: int, kept: str, tmp_path: Path) -> None:
    _folder(tmp_path / "benchmark", EAGER, rounds=rounds, age_s=age_s)
    plan, own = _folder(tmp_path / "profile", EAGER)
    runs.adopt(plan, own)
    assert set(_origin(own, EAGER)) == {kept}


def test_a_plan_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    _, theirs = _folder(tmp_path / "benchmark", EAGER)
    theirs.plan.write_text("{")
    plan, own = _folder(tmp_path / "profile", EAGER, rounds=0)
    runs.adopt(plan, own)
    assert _origin(own, EAGER) == []


def test_a_case_that_cannot_run_is_refused_before_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, started = Results(tmp_path), []
    skipped = EAGER.model_copy(update={"skip_reason": "it has no int8"})

    def stage(name: str, *_arguments: str, show: runs.Show | None = None, front: str = "") -> tuple[str, ...]:
        started.append(name)
        store.save(results.plan, Synthetic(models=(RESNET,), cases=[skipped]).plan)
        return ()

    monkeypatch.setattr(runs, "run_stage", stage)
    with pytest.raises(UnavailableError, match="it has no int8"):
        runs.Run(results, Models(tmp_path / "models"), force=False, show=None).plan({}, every=True)
    assert started == ["plan"]


@pytest.mark.parametrize("force", [False, True])
def test_the_time_of_a_load_is_said_before_it_begins_and_not_where_it_is_measured(
    force: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results, said = Results(tmp_path), []
    data = {
        "models": [{"name": "spin:1ms"}],
        "matrix": [{"backends": ["spin"], "batch_sizes": [1]}],
        "scenarios": [{"scenario": "server", "bound": "p99<50ms"}],
    }
    config = Config.model_validate_json(json.dumps(data), strict=True)
    plan = make_plan(config, "config.yaml", "", loads_alone=True)

    def stage(name: str, *_arguments: str, show: runs.Show | None = None, front: str = "") -> tuple[str, ...]:
        if name == "plan":
            store.save(results.plan, plan)
        if name == "load":
            said.append(capsys.readouterr().err)
        if name == "aggregate":
            rows = [load_rows()[0].model_copy(update={"load_id": load.load_id}) for load in plan.loads]
            summary = Synthetic().summary().model_copy(update={"plan_id": plan.plan_id, "loads": tuple(rows)})
            store.save(results.summary, summary)
        return ()

    monkeypatch.setattr(runs, "run_stage", stage)
    run = runs.Run(results, Models(tmp_path / "models"), force=force, show=None)
    run.load({})
    run.load({})
    expected = f"1 load case: {load_time_in_words(plan.loads)}\n"
    assert said == [expected, expected if force else ""]


def _said_of_cases(
    call: Callable[[], object],
    plan: Plan,
    results: Results,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """What a call prints after its plan and before its export."""
    said = []

    def stage(name: str, *_arguments: str, show: runs.Show | None = None, front: str = "") -> tuple[str, ...]:
        if name == "plan":
            store.save(results.plan, plan)
        if name == "export":
            said.append(capsys.readouterr().err)
        return ()

    monkeypatch.setattr(runs, "run_stage", stage)
    call()
    (text,) = said
    return text


@pytest.mark.parametrize("force", [False, True])
def test_the_time_of_the_cases_without_samples_is_said_before_the_export(
    force: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = Synthetic(models=(RESNET,), cases=[EAGER, ONNX], rounds=2)
    results, plan = Results(tmp_path), world.plan
    run = runs.Run(results, Models(tmp_path / "models"), force=force, show=None)

    def said() -> str:
        return _said_of_cases(partial(run.plan, {}, measured=True), plan, results, monkeypatch, capsys)

    slow = expected_sample_times(plan, ())
    both = f"2 cases: {time_in_words(plan, slow)}\n"
    assert said() == both
    one = f"1 case: {time_in_words(select_cases(plan, [ONNX]), slow)}\n"
    for number, case, left in ((1, EAGER, both), (2, EAGER, one), (1, ONNX, one), (2, ONNX, "")):
        store.save_raw(results.raw_file(case.case_id, number), measured(case, RESNET, number))
        assert said() == (both if force else left)


def test_nothing_is_said_of_a_call_that_times_nothing_or_shows_all_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results, plan = Results(tmp_path), Synthetic(models=(RESNET,), cases=[EAGER]).plan
    for show, timed in ((None, False), (print, True)):
        run = runs.Run(results, Models(tmp_path / "models"), force=False, show=show)
        call = partial(run.plan, {}, measured=timed)
        assert _said_of_cases(call, plan, results, monkeypatch, capsys) == ""


def test_of_an_ab_run_the_time_of_the_pairs_stays_and_other_lines_are_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress: list[str] = []
    show = runs._time_and_progress(progress.append)
    show("10 pairs")
    time = f"{BOTH_STATES}{time_of_pairs_in_words([EAGER] * 10, Synthetic().plan.measurement)}"
    show(time)
    assert progress == ["10 pairs"]
    assert capsys.readouterr().err.endswith(f"{time}\n")


def test_hints_of_rows_are_arguments_of_the_api() -> None:
    summary = Synthetic().summary()
    flag = Flag(name="CPU_SHARED", detail="busy", remedy="Stop it, then `make run FORCE=1`.")
    missing = summary.rows[0].model_copy(update={"flags": (flag,), "hint": "`make bench ROUNDS=5` measures it."})
    (row,) = runs.with_typed_hints(summary.model_copy(update={"rows": (missing,)})).rows
    assert (row.flags[0].remedy, row.hint) == ("Stop it, then `force=True`.", "`rounds=5` measures it.")
