"""Which records of a load case are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.aggregate import load_loads
from harness.aggregation.join import Notes
from harness.core import store
from harness.core.layout import LoadFiles, Results
from harness.core.schemas import Clock, LatencyBound, LoadCase, Placement, Replication, ServiceRun
from harness.planning.resume import LoadState, foreign_of, state_of
from harness.serving.load_case import LoadStep, replication_digest, requests_at, service_digest
from tests import synthetic_results as made
from tests.fixtures.engines import PATH, engine_record

MS = 1_000_000
EXPORT = made.export_record(made.RESNET)
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
    found = Results(tmp_path).load(LOAD.load_id)
    count = requests_at(LOAD, 100)
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
        scheduled_ns=tuple(range(count)),
        sizes=(1,) * count,
        ready_ns=tuple(range(count)),
        start_ns=tuple(range(count)),
        done_ns=tuple(range(1, count + 1)),
        worker=(0,) * count,
        parity=None,
    )
    store.save(found.replication("r100", 1), record)
    put(found, INTACT)
    return found


def put(files: LoadFiles, artifacts: dict[str, str]) -> None:
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


def look(files: LoadFiles, load: LoadCase = LOAD, **engines: Any) -> LoadState:
    export_files = Results(files.root).export(load.slug)
    foreign = foreign_of(load, EXPORT, engines.get("engines", ()), export_files)
    return state_of(load, files, "s", lambda _: True, foreign=foreign)


def test_records_of_the_present_export_are_complete(files: LoadFiles) -> None:
    state = look(files)
    assert state.complete
    assert state.notes == []


@pytest.mark.parametrize("artifacts", [{"model.onnx": "0" * 64}, {"gone.onnx": "0" * 64}])
def test_records_of_an_earlier_export_are_measured_again(files: LoadFiles, artifacts: dict[str, str]) -> None:
    put(files, artifacts)
    state = look(files)
    assert not state.complete
    assert next(iter(artifacts)) in state.notes[0]


def test_an_engine_is_judged_by_its_record_if_it_has_one(files: LoadFiles) -> None:
    put(files, {PATH: "0" * 64})
    assert look(files).complete
    assert not look(files, engines=[engine_record(EXPORT)]).complete


def test_another_bound_keeps_the_replications_that_have_as_many_requests(files: LoadFiles) -> None:
    longer = LOAD.model_copy(update={"bound": LatencyBound(quantile=0.9, limit_ns=80 * MS)})
    assert requests_at(longer, 100) != requests_at(LOAD, 100)
    assert look(files, longer).missing == [(LoadStep("r100", 100), 1)]
    assert look(files, LOAD.model_copy(update={"bound": LatencyBound(quantile=0.99, limit_ns=50 * MS)})).complete


@pytest.mark.parametrize(("artifacts", "status"), [(INTACT, "measured"), ({"model.onnx": "0" * 64}, "missing")])
def test_the_summary_leaves_out_records_of_an_earlier_export(
    tmp_path: Path, files: LoadFiles, artifacts: dict[str, str], status: str
) -> None:
    put(files, artifacts)
    plan = made.plan_of([made.RESNET], []).model_copy(update={"loads": (LOAD,), "settings_id": "s"})
    slug, notes = made.RESNET.name, Notes()
    here = {"e": made.environment()}
    (row,) = load_loads(plan, Results(tmp_path), {slug: EXPORT}, {slug: ()}, here, notes, {})
    assert row.status == status
    assert any("model.onnx has changed" in note for note in notes.other) == (status == "missing")
