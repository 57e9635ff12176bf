"""Load of the calibration backend, from the plan to the bundle: records, resuming, Ctrl-C, and what verify checks."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from harness import aggregate, bundle, load, plan, report, verify
from harness.api import ModelProfiler
from harness.core import store
from harness.core.errors import MissingInputError, StorageError, UsageError
from harness.core.layout import Models, Results
from harness.core.schemas import LoadRow, Plan, Prediction, Replication, ServiceRun, Summary
from harness.reporting.prose.load_answer import load_section
from harness.serving.arrivals import digest, poisson
from harness.serving.load_case import replication_seed, requests_at_rate
from tests.fixtures.stages import QUICK, TINY

CONFIG = """
models: ["spin:1ms"]
matrix:
  - backends: [spin]
measurement: {threads: 1}
scenarios:
  - {scenario: server, bound: p50<9s, max_batch: [2], replications: 2, duration: 0.1s, service_duration: 0.2s}
  - {scenario: concurrency, clients: [1, 2], replications: 1, duration: 0.1s, service_duration: 0.1s}
  - {scenario: offline, max_batch: [2], replications: 1, duration: 0.1s, service_duration: 0.1s}
"""


STAGES: Mapping[str, Callable[[Sequence[str]], None]] = {
    "plan": plan.stage,
    "load": load.stage,
    "aggregate": aggregate.stage,
    "report": report.stage,
    "bundle": bundle.stage,
}


def options(stage: str, root: Path, *arguments: str) -> list[str]:
    folders = ["--results", str(root / "results")]
    return [*folders, *([] if stage == "report" else ["--models-dir", str(root / "models")]), *arguments]


def run(stage: str, root: Path, *arguments: str) -> None:
    STAGES[stage](options(stage, root, *arguments))


def planned(root: Path, *arguments: str) -> Results:
    (root / "load.yaml").write_text(CONFIG)
    run("plan", root, "--load", "--config", str(root / "load.yaml"), *arguments)
    return Results(root / "results")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished load of three scenarios."""
    folder = tmp_path_factory.mktemp("load")
    planned(folder)
    run("load", folder)
    run("aggregate", folder)
    return folder


def test_a_plan_of_loads_alone_names_its_models_and_no_rounds(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    planned(tmp_path)
    said = capfd.readouterr().out
    assert "models    spin:1ms (own)" in said
    assert "3 load cases" in said
    assert "cases   " not in said.replace("load cases", "")
    run("aggregate", tmp_path)
    assert "3 load cases, 0 measured" in (said := capfd.readouterr().out)
    assert "0 rows" not in said


def rows_of(root: Path) -> dict[str, LoadRow]:
    summary = store.load(Results(root / "results").summary, Summary, "make aggregate")
    assert summary.rows == ()
    return {row.scenario: row for row in summary.loads}


def test_every_scenario_has_a_row_with_its_points(root: Path) -> None:
    rows = rows_of(root)
    assert {name: (row.status, len(row.points)) for name, row in rows.items()} == {
        "server": ("measured", 3),
        "concurrency": ("measured", 2),
        "offline": ("measured", 1),
    }
    server = rows["server"]
    assert server.predicted_peak_per_s is not None
    assert [point.factor for point in server.points] == [0.9, 1.0, 1.1]
    assert all(point.verdict is not None and point.predicted is not None for point in server.points)
    assert {(cell.max_batch, cell.max_delay_ns) for cell in server.map} >= {(1, 0), (2, 0)}
    assert [(point.clients, point.verdict) for point in rows["concurrency"].points] == [(1, None), (2, None)]
    assert rows["offline"].points[0].latency == {}
    assert all(point.failed == 0 for row in rows.values() for point in row.points)
    assert all(row.memory_bytes is not None and row.memory_bytes > 1 << 20 for row in rows.values())


def test_a_replication_serves_the_schedule_of_its_seed_to_the_end(root: Path) -> None:
    results = Results(root / "results")
    result = store.load(results.plan, Plan, "make plan")
    case = next(case for case in result.loads if case.scenario == "server")
    files = results.load(case.load_id)
    service = store.load(files.service, ServiceRun, "make load")
    assert sorted(service.service_ns) == [1, 2]
    assert all(len(times) >= 20 for times in service.service_ns.values())
    paths = sorted(files.root.glob("r*/*.json"))
    assert len(paths) == 6
    for path in paths:
        record = store.load(path, Replication, "make load")
        assert record.rate_per_s is not None
        count = requests_at_rate(case, record.rate_per_s)
        schedule = poisson(record.rate_per_s, count, replication_seed(result.measurement.seed, record.number))
        assert record.scheduled_ns == tuple(schedule.tolist())
        assert record.schedule_sha256 == digest(schedule)
        assert (sum(record.sizes), record.failed, record.timed_out) == (count, (), False)
        scheduled = np.array(record.scheduled_ns)
        start, done = (np.repeat(times, record.sizes) for times in (record.start_ns, record.done_ns))
        assert np.all(scheduled <= start)
        assert np.all(start < done)
        assert np.all(np.array(record.ready_ns) <= record.start_ns)


def test_only_missing_or_damaged_records_are_measured_again(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    results = Results(root / "results")
    before = {path: path.stat().st_mtime_ns for path in results.loads.rglob("*.json")}
    run("load", root)
    assert "3 measured before are kept" in capfd.readouterr().out
    gone, damaged, *_ = sorted(path for path in before if path.parent.name.startswith("r"))
    gone.unlink()
    damaged.write_bytes(damaged.read_bytes().replace(b'"number":', b'"number": ', 1))
    run("load", root)
    said = "".join(capfd.readouterr())
    assert "1 load case to measure; 2 measured before are kept" in said
    assert "has changed since it was written" in said
    changed = {path for path in before if path.stat().st_mtime_ns != before[path]}
    assert changed == {gone, damaged}


def test_a_summary_with_more_measured_load_cases_is_not_replaced(root: Path) -> None:
    run("aggregate", root)
    places = sorted((root / "results/load").iterdir())
    for place in places:
        place.rename(place.with_name(f"away-{place.name}"))
    with pytest.raises(MissingInputError, match="3 of them would be missing now") as error:
        run("aggregate", root)
    assert "make load" in error.value.hint
    for place in places:
        place.with_name(f"away-{place.name}").rename(place)
    run("aggregate", root)


def test_the_bundle_has_every_record_and_verify_makes_the_same_report(root: Path) -> None:
    run("aggregate", root)
    run("report", root)
    run("bundle", root)
    (archive,) = (root / "results").glob("*.tar.xz")
    verify.stage(["--bundle", str(archive)])  # raises where a checksum or the report differs
    with tarfile.open(archive) as packed:
        names = [name for name in packed.getnames() if "/results/load/" in name]
    assert len(names) == 3 + 1 + 6 + 2 + 1  # service times, prediction, replications


def test_another_bound_is_predicted_again_on_the_same_service_times(root: Path) -> None:
    results = planned(root, "--scenarios", "server", "--bound", "p60<9s")
    (case,) = store.load(results.plan, Plan, "make plan").loads
    files = results.load(case.load_id)
    before = files.service.read_bytes()
    run("load", root)
    assert files.service.read_bytes() == before
    prediction = store.load(files.prediction, Prediction, "make load")
    assert prediction.bound.quantile == 0.6


def test_forced_load_stops_where_old_records_cannot_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = planned(tmp_path, "--scenarios", "offline")
    (case,) = store.load(results.plan, Plan, "make plan").loads
    files = results.load(case.load_id)
    store.save_bytes(files.service, b"old")

    def refuse(path: str, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(StorageError, match="Permission denied"):
        run("load", tmp_path, "--force")


def test_batches_in_flight_of_real_libraries_have_rows_of_their_own(tmp_path: Path, exports: Models) -> None:
    """OpenVINO's AsyncInferQueue and ONNX Runtime's run_async serve; PyTorch is skipped with its reason."""
    scenario = {"scenario": "server", "bound": "p50<9s", "rates": [200], "replications": 2, "requests": 40}
    lengths = {"duration": "0.2s", "service_duration": "0.2s", "max_batch": [2], "in_flight": [2]}
    config = {
        "models": [TINY],
        "matrix": [{"backends": ["onnxruntime", "openvino", "torch-eager"]}],
        "measurement": {**QUICK, "threads": 2},
        "scenarios": [{**scenario, **lengths}],
    }
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    folders = ["--results", str(tmp_path / "results"), "--models-dir", str(exports.root)]
    plan.stage(["--load", "--config", str(tmp_path / "c.yaml"), *folders])
    load.stage(folders)
    aggregate.stage(folders)
    rows = {row.backend: row for row in store.load(Results(tmp_path / "results").summary, Summary, "x").loads}
    assert rows["torch-eager"].status == "skipped"
    assert "no batches in flight" in str(rows["torch-eager"].reason)
    for name, key in (("onnxruntime", "run_async"), ("openvino", "async_queue")):
        row = rows[name]
        assert (row.status, row.void, row.in_flight, row.workers) == ("measured", None, 2, 1), row.reason
        assert row.placement is not None
        assert row.placement.settings[key] == 2
        (point,) = row.points
        assert (point.failed, point.requests) == (0, 80)
        assert point.dispatch_p99_ns is not None
        assert point.parity is not None
        assert row.load_id.endswith("-f2")
    records = [store.load(path, Replication, "x") for path in Results(tmp_path / "results").loads.glob("*/r*/*.json")]
    assert {record.workers for record in records} == {2}
    assert {number for record in records for number in record.worker} == {0, 1}
    text = "".join(map(str, load_section(store.load(Results(tmp_path / "results").summary, Summary, "x"), {})))
    assert "2 in flight" in text


INTERRUPTED = """
import signal
from harness import load
from harness.core import cli
from harness.processes.load_launcher import LoadWatcher

entered = LoadWatcher.entered

def entered_and_interrupted(watcher, phase):
    entered(watcher, phase)
    if phase.startswith("replication 2 of"):
        signal.raise_signal(signal.SIGINT)

LoadWatcher.entered = entered_and_interrupted
cli.main(load.stage)
"""
"""Ctrl-C while the second replication is measured, however fast or slow the machine is."""


def test_ctrl_c_keeps_the_measured_records_and_the_same_command_goes_on(tmp_path: Path) -> None:
    results = planned(tmp_path, "--scenarios", "server", "--replications", "12")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else a background job's children ignore it
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *options("load", tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 130, done.stderr
    assert "Measured results are kept" in done.stderr
    kept = {path: path.stat().st_mtime_ns for path in results.loads.rglob("*.json")}
    assert 0 < len(kept) < 38
    run("load", tmp_path)
    now = {path: path.stat().st_mtime_ns for path in results.loads.rglob("*.json")}
    assert len(now) == 38
    assert {path: now[path] for path in kept} == kept


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--load"], ["the server scenario needs a bound", "BOUND='p99<50ms'"]),
        (["--load", "--bound", "p99<50"], ["has no unit", "p99<50ms"]),
        (
            ["--load", "--bound", "p99<50ms", "--rates", "0"],
            ["A rate of 0 requests a second gives no load", "RATES=50"],
        ),
        (["--load", "--scenarios", "serve"], ["serve", "server"]),
        (["--bound", "p99<50ms"], ["belongs to a scenario", "SCENARIOS=server"]),
    ],
)
def test_a_mistake_names_the_next_command(arguments: Sequence[str], words: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text('models: ["spin:1ms"]\nmatrix:\n  - backends: [spin]\n')
    with pytest.raises(UsageError) as error:
        run("plan", tmp_path, "--config", str(tmp_path / "c.yaml"), *arguments)
    assert all(word in f"{error.value.problem} {error.value.hint}" for word in words)


def test_a_plan_without_a_scenario_has_nothing_to_load(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text('models: ["spin:1ms"]\nmatrix:\n  - backends: [spin]\n')
    run("plan", tmp_path, "--config", str(tmp_path / "c.yaml"))
    run("load", tmp_path, "--if-planned")
    assert not Results(tmp_path / "results").loads.exists()
    with pytest.raises(UsageError, match="has no scenario to load"):
        run("load", tmp_path)


@pytest.mark.slow
def test_from_python(tmp_path: Path) -> None:
    profiler = ModelProfiler("spin:1ms", backend="spin", folder=tmp_path, measurement={"threads": 1})
    short = {"service_duration": "0.1s", "duration": "0.1s", "replications": 2}
    result = profiler.load("p50<9s", ["server", "single-stream"], max_batch=1, rates=None, **short)
    assert [row.scenario for row in result.rows] == ["server", "single-stream"]
    assert list(result.peaks) == [result.rows[0].load_id]
    assert len(result.records()) == 4
    assert "spin" in result.markdown()
    with pytest.raises(UsageError, match="has no unit"):
        profiler.load("p50<9")
