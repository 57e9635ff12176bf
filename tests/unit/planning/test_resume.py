"""What of a run is already measured: which turns are already answered, and which records of a load case are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.aggregate import load_rows
from harness.aggregation.join import Notes
from harness.core import store
from harness.core.host import environment
from harness.core.layout import LoadFiles, Results
from harness.core.schemas import Clock, Environment, LatencyBound, LoadCase, Placement, Replication, ServiceRun
from harness.planning.resume import Finished, LoadState, finished_turns, foreign_file_check, read_load_state
from harness.serving.load_case import (
    LoadPoint,
    replication_digest,
    replication_schedule,
    requests_at_rate,
    service_digest,
)
from tests import synthetic_results as made
from tests.fixtures.engines import PATH, engine_record

CASE = made.case_of(made.RESNET, "onnxruntime", "fp32", 1)
PLAN = made.plan_of([made.RESNET], [CASE], rounds=2)
TURNS = [(1, CASE), (2, CASE)]
EXPORT = made.export_record(made.RESNET)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """A folder with round 1 measured here, by the present plan, on the present export."""
    result = Results(tmp_path)
    monkeypatch.setattr(environment, "collect", lambda build, device="cpu", also=(): made.environment())
    store.save(result.environment(made.ENVIRONMENT_ID), made.environment())
    put(result)
    return result


def put(results: Results, **changes: Any) -> None:
    store.save_raw(results.raw_file(CASE.case_id, 1), made.measured(CASE, made.RESNET, 1, samples=10, **changes))


def look(results: Results) -> Finished:
    return finished_turns(PLAN, TURNS, {made.RESNET.name: EXPORT}, results)


def test_measured_records_are_kept_and_missing_ones_are_pending(results: Results) -> None:
    result = look(results)
    assert [result.has(turn) for turn in TURNS] == [True, False]
    assert result.notes == []


def test_other_settings_are_measured_again(results: Results) -> None:
    put(results, settings_id="another")
    assert not look(results).medians


def test_a_plan_with_one_more_backend_keeps_the_records_of_the_smaller_plan(results: Results) -> None:
    more = made.case_of(made.RESNET, "openvino", "fp32", 1)
    larger = made.plan_of([made.RESNET], [CASE, more], rounds=2).model_copy(update={"plan_id": "larger"})
    matches = finished_turns(larger, [*TURNS, (1, more)], {made.RESNET.name: EXPORT}, results)
    assert [matches.has(turn) for turn in [*TURNS, (1, more)]] == [True, False, False]


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
    result = look(results)
    assert not result.medians
    assert len(result.notes) == 1
    assert str(path) in result.notes[0]
    assert "measured again" in result.notes[0]


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
def test_records_of_the_present_engine_are_kept(results: Results, sha256: str, kept: bool) -> None:
    put(results, artifacts={PATH: "e" * 64})
    engines = {made.RESNET.name: (engine_record(EXPORT, sha256),)}
    matches = finished_turns(PLAN, TURNS, {made.RESNET.name: EXPORT}, results, engines=engines)
    assert matches.has(TURNS[0]) is kept


MS = 1_000_000
INTACT = {"model.onnx": EXPORT.onnx["fp32"].sha256}
LOAD = LoadCase(
    load_id="resnet50-server",
    model=made.RESNET.name,
    slug=made.RESNET.name,
    backend="endpoint",
    device="cpu",
    precision="fp32",
    sequence_length=None,
    weights="pretrained",
    scenario="server",
    bound=LatencyBound(quantile=0.9, limit_ns=50 * MS),
    rates=(100.0,),
    replications=1,
    requests=20,
    endpoint="kserve+http://127.0.0.1:1/v2/models/m",
)
BASE: dict[str, Any] = {
    "load_id": LOAD.load_id,
    "settings_id": "s",
    "artifacts_id": "a",
    "started_at": "now",
    "environment_id": "e",
}
ONE: dict[str, Any] = {"threads": 1, "workers": 1, "clock": Clock(name="simulated", resolution_ns=1, overhead_ns=0)}


@pytest.fixture
def files(tmp_path: Path) -> LoadFiles:
    """A folder with the service times and the one replication of the load case."""
    result = Results(tmp_path).load(LOAD.load_id)
    count, scheduled = requests_at_rate(LOAD, 100), replication_schedule(LOAD, LoadPoint("r100", 100), 1)
    record = Replication(
        **BASE,
        **ONE,
        load_sha256=replication_digest(LOAD),
        point="r100",
        number=1,
        scenario="server",
        rate_per_s=100,
        max_batch=1,
        max_delay_ns=0,
        seed=1,
        requests=count,
        scheduled_ns=tuple(scheduled),
        sizes=(1,) * count,
        ready_ns=tuple(scheduled),
        start_ns=tuple(scheduled),
        done_ns=tuple(instant + MS for instant in scheduled),
        worker=(0,) * count,
        parity=None,
    )
    store.save(result.replication("r100", 1), record)
    put_replication(result, INTACT)
    return result


def put_replication(files: LoadFiles, artifacts: dict[str, str]) -> None:
    placement = Placement(device="cpu", precision="fp32", provider="p", settings={}, dtype_census={})
    service = ServiceRun(
        **BASE,
        **ONE,
        load_sha256=service_digest(LOAD),
        artifacts=artifacts,
        load_ns={1: MS},
        service_ns={1: (MS,) * 20},
        parity={},
        placement=placement,
        peak_rss_bytes=1,
    )
    store.save(files.service, service)


def look_at_load(files: LoadFiles, load: LoadCase = LOAD, **engines: Any) -> LoadState:
    export_files = Results(files.root).export(load.slug)
    foreign = foreign_file_check(load, EXPORT, engines.get("engines", ()), export_files)
    return read_load_state(load, files, "s", lambda _: True, foreign=foreign)


def test_records_of_the_present_export_are_complete(files: LoadFiles) -> None:
    state = look_at_load(files)
    assert state.complete
    assert state.notes == []


@pytest.mark.parametrize("artifacts", [{"model.onnx": "0" * 64}, {"gone.onnx": "0" * 64}])
def test_records_of_an_earlier_export_are_measured_again(files: LoadFiles, artifacts: dict[str, str]) -> None:
    put_replication(files, artifacts)
    state = look_at_load(files)
    assert not state.complete
    assert next(iter(artifacts)) in state.notes[0]


def test_an_engine_is_judged_by_its_record_if_it_has_one(files: LoadFiles) -> None:
    put_replication(files, {PATH: "0" * 64})
    assert look_at_load(files).complete
    assert not look_at_load(files, engines=[engine_record(EXPORT)]).complete


def test_another_bound_keeps_the_replications_that_have_as_many_requests(files: LoadFiles) -> None:
    longer = LOAD.model_copy(update={"bound": LatencyBound(quantile=0.9, limit_ns=80 * MS)})
    assert requests_at_rate(longer, 100) != requests_at_rate(LOAD, 100)
    assert look_at_load(files, longer).missing == [(LoadPoint("r100", 100), 1)]
    assert look_at_load(
        files, LOAD.model_copy(update={"bound": LatencyBound(quantile=0.99, limit_ns=50 * MS)})
    ).complete


@pytest.mark.parametrize(("artifacts", "status"), [(INTACT, "measured"), ({"model.onnx": "0" * 64}, "missing")])
def test_the_summary_leaves_out_records_of_an_earlier_export(
    tmp_path: Path, files: LoadFiles, artifacts: dict[str, str], status: str
) -> None:
    put_replication(files, artifacts)
    plan = made.plan_of([made.RESNET], []).model_copy(update={"loads": (LOAD,), "settings_id": "s"})
    slug, notes = made.RESNET.name, Notes()
    here = {"e": made.environment()}
    (row,) = load_rows(plan, Results(tmp_path), {slug: EXPORT}, {slug: ()}, here, notes, {})
    assert row.status == status
    assert any("model.onnx has changed" in note for note in notes.other) == (status == "missing")


COUNT = requests_at_rate(LOAD, 100)


def put_changed(files: LoadFiles, number: int = 1, **changes: Any) -> None:
    record = store.load(files.replication("r100", 1), Replication, "make load")
    store.save(files.replication("r100", number), record.model_copy(update={"number": number, **changes}))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"done_ns": tuple(range(-COUNT - 1, -1))}, "end before they start"),
        ({"sizes": (2,) * COUNT}, "other numbers of requests than were scheduled"),
        ({"worker": (0,) * (COUNT - 1)}, "more sizes than times"),
        ({"seed": 2}, "its schedule is not that of its seed and rate"),
        ({"scheduled_ns": tuple(5 * MS * at for at in range(COUNT))}, "its schedule is not that of its seed and rate"),
    ],
)
def test_a_replication_that_nothing_can_have_served_is_measured_again(
    files: LoadFiles, changes: dict[str, Any], why: str
) -> None:
    put_changed(files, **changes)
    state = look_at_load(files)
    assert (state.replications, state.missing) == ({}, [(LoadPoint("r100", 100), 1)])
    assert why in state.notes[0]


def test_a_copy_of_a_replication_is_none(files: LoadFiles) -> None:
    put_changed(files, number=2)
    state = look_at_load(files, LOAD.model_copy(update={"replications": 2}))
    assert [len(records) for records in state.replications.values()] == [1]
    assert "it was copied" in state.notes[0]
