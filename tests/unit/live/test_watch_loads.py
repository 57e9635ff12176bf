"""Load cases and generation in the live progress: replications on disk, what is at work, what comes next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.core import lock, store
from harness.core.layout import LoadFiles, Results
from harness.core.schemas import Clock, LatencyBound, LoadCase, LoadFailure, Plan, Prediction, Replication, ServiceRun
from harness.core.schemas.raw_record import Placement
from harness.core.timestamps import utc_now
from harness.live import terminal_view
from harness.live.progress import CaseProgress, Progress
from harness.live.reader import WatchedFolder
from harness.processes.presence import Presence
from harness.serving.load_case import (
    planned_points,
    prediction_digest,
    replication_digest,
    requests_at_rate,
    service_digest,
)
from harness.serving.load_verdict import parse_bounds
from tests import synthetic_generation as tokens
from tests.fixtures.watching import PLAN
from tests.synthetic_results import MINILM

MS = 1_000_000
SERVER = LoadCase(
    load_id="minilm-l6-onnxruntime-cpu-fp32-s32-server-b4-f2",
    model=MINILM.name,
    slug=MINILM.name,
    backend="onnxruntime",
    device="cpu",
    precision="fp32",
    sequence_length=32,
    weights="pretrained",
    scenario="server",
    bound=LatencyBound(quantile=0.99, limit_ns=50 * MS),
    max_batch=4,
    in_flight=2,
    replications=2,
    requests=20,
    replication_s=0.1,
)
OFFLINE = SERVER.model_copy(
    update={"load_id": "offline", "scenario": "offline", "bound": None, "in_flight": None, "replications": 1}
)
SKIPPED = SERVER.model_copy(update={"load_id": "skipped", "skip_reason": "torch-eager has no batches in flight"})
LOADS = PLAN.model_copy(update={"cases": (), "loads": (SERVER, OFFLINE, SKIPPED)})
ONE: dict[str, Any] = {
    "threads": 1,
    "workers": 2,
    "clock": Clock(name="simulated", resolution_ns=1, overhead_ns=0),
}


def base(load: LoadCase, digest: str) -> dict[str, Any]:
    return {
        "load_id": load.load_id,
        "settings_id": PLAN.settings_id,
        "load_sha256": digest,
        "artifacts_id": "a",
        "started_at": utc_now(),
        "environment_id": "e",
    }


def serve(files: LoadFiles, load: LoadCase = SERVER) -> None:
    placement = Placement(device="cpu", precision="fp32", provider="p", settings={}, dtype_census={})
    result = ServiceRun(
        **base(load, service_digest(load)),
        **ONE,
        artifacts={},
        load_ns={1: MS},
        service_ns={1: (MS,) * 20},
        parity={},
        placement=placement,
        peak_rss_bytes=1,
    )
    store.save(files.service, result)


def predict(files: LoadFiles, peak: float | None = 400.0) -> None:
    digest = prediction_digest(SERVER)
    more = {"service_sha256": "0" * 64, "bound": SERVER.bound, "seed": 1, "peak_per_s": peak}
    store.save(files.prediction, Prediction.model_validate({**base(SERVER, digest), **more}))


def replicate(files: LoadFiles, point: int, number: int, **changes: Any) -> None:
    step = planned_points(SERVER, 400.0)[point]
    assert step.rate_per_s is not None
    count = requests_at_rate(SERVER, step.rate_per_s)
    arrays = {name: tuple(range(count)) for name in ("scheduled_ns", "ready_ns", "start_ns")}
    fields = {
        **base(SERVER, replication_digest(SERVER)),
        **ONE,
        **arrays,
        "point": step.name,
        "number": number,
        "scenario": "server",
        "rate_per_s": step.rate_per_s,
        "max_batch": 4,
        "max_delay_ns": 0,
        "seed": 1,
        "requests": count,
        "sizes": (1,) * count,
        "done_ns": tuple(range(1, count + 1)),
        "worker": (0,) * count,
        "parity": None,
    }
    store.save(files.replication(step.name, number), Replication.model_validate({**fields, **changes}))


@pytest.fixture
def results(tmp_path: Path) -> Results:
    result = Results(tmp_path)
    store.save(result.plan, LOADS)
    return result


def looked(watched: WatchedFolder) -> Progress:
    result = watched.look()
    assert result is not None
    return result


def row(found: Progress, load: LoadCase = SERVER) -> CaseProgress:
    return next(entry for entry in found.rows if entry.case_id == load.load_id)


def test_a_load_run_shows_cases_loads_and_replications_as_they_come(results: Results) -> None:
    watched, files = WatchedFolder(results), results.load(SERVER.load_id)
    first = looked(watched)
    assert (first.state, first.command, first.done, first.planned) == ("waiting", "make load", 0, 7)
    assert [entry.state for entry in first.rows] == ["waiting", "waiting", "skipped"]
    assert row(first).way == "server · p99<50ms · 2 in flight"

    serve(files)
    presence = Presence(results, LOADS.plan_id)
    presence.turn(SERVER.load_id, 0, 0, 2)
    begun = looked(watched)
    assert (begun.state, row(begun).state, row(begun).planned) == ("running", "running", 6)
    assert begun.left_s is None
    assert "now: load  minilm-l6" in "".join(map(terminal_view.running_turn, begun.turning))

    predict(files)
    for point, number in ((0, 1), (0, 2), (1, 1)):
        replicate(files, point, number)
    half = looked(watched)
    assert (row(half).done, row(half).planned) == (3, 6)
    assert row(half).remarks == ("1 of 3 loads complete", "predicted peak 400/s")
    (line,) = terminal_view.changes(begun, half)
    assert line.startswith("[3/7]")
    assert "replications 3/6; 1 of 3 loads complete" in line

    presence.close()
    assert (looked(watched).state, row(looked(watched)).state) == ("stopped", "partly")
    assert "`make load` continues" in terminal_view.headline(looked(watched))
    for point, number in ((1, 2), (2, 1), (2, 2)):
        replicate(files, point, number)
    serve(results.load(OFFLINE.load_id), OFFLINE)
    assert row(looked(watched)).state == "done"
    assert looked(watched).state == "stopped", "the offline case has no replication yet"


def test_records_of_other_settings_and_damaged_ones_do_not_count(results: Results) -> None:
    watched, files = WatchedFolder(results), results.load(SERVER.load_id)
    serve(files)
    predict(files)
    replicate(files, 0, 1, settings_id="another")
    replicate(files, 0, 2, artifacts_id="another export")
    replicate(files, 1, 1)
    damaged = files.replication(planned_points(SERVER, 400.0)[1].name, 1)
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert row(looked(watched)).done == 0
    replicate(files, 1, 1)
    assert row(looked(watched)).done == 1


def test_no_load_within_the_bound_leaves_nothing_to_do_and_a_failure_has_its_reason(results: Results) -> None:
    watched, files = WatchedFolder(results), results.load(SERVER.load_id)
    serve(files)
    predict(files, None)
    assert (row(looked(watched)).state, row(looked(watched)).planned) == ("done", 0)
    assert "no load meets the bound" in row(looked(watched)).remarks
    failure = {"error": "No memory.", "hint": "Free some.", "phase": "load", "stderr_tail": ""}
    lost = results.load(OFFLINE.load_id)
    store.save(lost.failure, LoadFailure.model_validate({**base(OFFLINE, replication_digest(OFFLINE)), **failure}))
    result = looked(watched)
    assert (row(result, OFFLINE).state, result.failed, result.state) == ("failed", 1, "complete")
    assert row(result, OFFLINE).remarks == ("failed in load: No memory.",)


def test_a_record_of_load_is_read_once(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    load = store.load
    monkeypatch.setattr(store, "load", lambda path, *rest: (reads.append(path), load(path, *rest))[1])
    files = results.load(SERVER.load_id)
    serve(files)
    predict(files)
    replicate(files, 0, 1)
    watched = WatchedFolder(results)
    for _ in range(4):
        looked(watched)
    assert [reads.count(path) for path in (files.service, files.prediction)] == [1, 1]
    assert len([path for path in reads if path.parent.parent == files.root]) == 1


def test_generation_has_rows_with_the_median_of_a_step(tmp_path: Path) -> None:
    results, case = Results(tmp_path), tokens.CASE
    plan: Plan = PLAN.model_copy(update={"cases": (), "generations": (case,)})
    store.save(results.plan, plan)
    watched = WatchedFolder(results)
    assert (looked(watched).state, looked(watched).command) == ("waiting", "make generate")
    record = tokens.record(1, case=case, settings_id=PLAN.settings_id)
    store.save_raw(results.of_generation.raw_file(case.case_id, 1), record)
    (single,) = looked(watched).rows
    assert (single.done, single.planned, single.state) == (1, PLAN.measurement.rounds, "partly")
    assert single.median_ns is not None
    presence = Presence(results, plan.plan_id)
    presence.turn(case.case_id, 2, 1, 3)
    assert looked(watched).rows[0].state == "running"
    assert lock.place() in results.running.read_text()


def test_generation_under_load_needs_no_prediction_to_be_complete(results: Results) -> None:
    lengths = {"prompt_length": 8, "new_tokens": 4, "rates": (400.0,), "in_flight": None, "sequence_length": None}
    bounds = parse_bounds("ttft_p99<500ms,itl_p99<50ms")
    load = SERVER.model_copy(update={**lengths, "bound": bounds[0], "further_bounds": bounds[1:], "replications": 1})
    store.save(results.plan, LOADS.model_copy(update={"loads": (load,)}))
    watched, files = WatchedFolder(results), results.load(load.load_id)
    assert row(looked(watched)).way.startswith("server · ttft_p99<500ms, itl_p99<50ms")
    serve(files, load)
    count = requests_at_rate(load, 400.0)
    arrays = {name: tuple(range(count)) for name in ("scheduled_ns", "ready_ns", "start_ns", "done_ns")}
    changes = {**base(load, replication_digest(load)), **arrays, "requests": count, "sizes": (1,) * count}
    replicate(files, 1, 1, **changes, worker=(0,) * count)
    result = looked(watched)
    assert (row(result).state, row(result).done, result.state) == ("done", 1, "complete")
