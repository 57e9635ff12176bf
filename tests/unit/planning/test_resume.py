"""Which turns of a run are already answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.core import store
from harness.core.host import environment
from harness.core.layout import Results
from harness.core.schemas import Environment
from harness.planning.resume import Finished, finished_turns
from tests import synthetic_results as made
from tests.fixtures.engines import PATH, engine_record

CASE = made.case_of(made.RESNET, "onnxruntime", "fp32", 1)
PLAN = made.plan_of([made.RESNET], [CASE], rounds=2)
TURNS = [(1, CASE), (2, CASE)]
EXPORT = made.export_record(made.RESNET)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """A folder with round 1 measured here, by the present plan, on the present export."""
    found = Results(tmp_path)
    monkeypatch.setattr(environment, "collect", lambda build, device="cpu", also=(): made.environment())
    store.save(found.environment(made.ENVIRONMENT_ID), made.environment())
    put(found)
    return found


def put(results: Results, **changes: Any) -> None:
    store.save_raw(results.raw_file(CASE.case_id, 1), made.measured(CASE, made.RESNET, 1, samples=10, **changes))


def look(results: Results) -> Finished:
    return finished_turns(PLAN, TURNS, {made.RESNET.name: EXPORT}, results)


def test_what_was_measured_is_kept_and_what_is_missing_is_not(results: Results) -> None:
    found = look(results)
    assert [found.has(turn) for turn in TURNS] == [True, False]
    assert found.notes == []


def test_other_settings_are_measured_again(results: Results) -> None:
    put(results, settings_id="another")
    assert not look(results).medians


def test_a_plan_with_one_more_backend_keeps_what_the_smaller_one_measured(results: Results) -> None:
    more = made.case_of(made.RESNET, "openvino", "fp32", 1)
    larger = made.plan_of([made.RESNET], [CASE, more], rounds=2).model_copy(update={"plan_id": "larger"})
    found = finished_turns(larger, [*TURNS, (1, more)], {made.RESNET.name: EXPORT}, results)
    assert [found.has(turn) for turn in [*TURNS, (1, more)]] == [True, False, False]


@pytest.mark.parametrize("artifacts", [{"model.onnx": "0" * 64}, {"gone.onnx": "0" * 64}])
def test_another_artifact_is_measured_again(results: Results, artifacts: dict[str, str]) -> None:
    put(results, artifacts=artifacts)
    assert not look(results).medians


@pytest.mark.parametrize("change", [{"cpu": "another CPU"}, {"threads": 64}, {"libraries": {"torch": "9.9"}}])
def test_another_machine_or_library_is_measured_again(results: Results, change: dict[str, Any]) -> None:
    store.save(results.environment("elsewhere"), made.environment(**change))
    put(results, environment_id="elsewhere")
    assert not look(results).medians


def test_another_commit_or_python_is_kept(results: Results) -> None:
    here = made.environment()
    software = here.software.model_copy(update={"git_commit": "fffffff", "git_dirty": True})
    store.save(results.environment("earlier"), here.model_copy(update={"software": software}))
    put(results, environment_id="earlier")
    assert look(results).has(TURNS[0])


@pytest.mark.parametrize("identity", [None, "never-written"])
def test_an_unknown_machine_is_measured_again(results: Results, identity: str | None) -> None:
    put(results, environment_id=identity)
    assert not look(results).medians


def test_a_damaged_environment_is_measured_again(results: Results) -> None:
    results.environment(made.ENVIRONMENT_ID).write_text("{}")
    assert not look(results).medians


def test_a_failed_turn_is_tried_again(results: Results) -> None:
    store.save_raw(results.raw_file(CASE.case_id, 1), made.failed(CASE, 1))
    assert not look(results).medians
    assert not look(results).notes


def test_a_damaged_file_is_named_and_measured_again(results: Results) -> None:
    path = results.raw_file(CASE.case_id, 1)
    path.write_bytes(path.read_bytes()[:-20])
    found = look(results)
    assert not found.medians
    assert len(found.notes) == 1
    assert str(path) in found.notes[0]
    assert "measured again" in found.notes[0]


def test_a_record_of_another_case_or_round_is_measured_again(results: Results) -> None:
    for changes in ({"case_id": "another"}, {"round": 2}):
        put(results, **changes)
        assert not look(results).medians


def test_the_environment_of_this_machine_is_comparable_with_itself(tmp_path: Path) -> None:
    here: Environment = environment.collect({})
    results = Results(tmp_path)
    store.save(results.environment("here"), here)
    put(results, environment_id="here")
    assert look(results).has(TURNS[0])


@pytest.mark.parametrize(("sha256", "kept"), [("e" * 64, True), ("f" * 64, False)])
def test_what_loaded_the_present_engine_is_kept(results: Results, sha256: str, kept: bool) -> None:
    put(results, artifacts={PATH: "e" * 64})
    engines = {made.RESNET.name: (engine_record(EXPORT, sha256),)}
    found = finished_turns(PLAN, TURNS, {made.RESNET.name: EXPORT}, results, engines=engines)
    assert found.has(TURNS[0]) is kept
