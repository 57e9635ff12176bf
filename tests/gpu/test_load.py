"""Load on a real GPU: one thread that issues to several streams, through the stages. Half a minute without TensorRT."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from harness.core import store
from harness.core.schemas import LoadRow, Plan, Replication, ServiceRun, Summary
from harness.statistics.estimators import median
from harness.zoo.families.known_duration import duration_ns
from tests.gpu.conftest import CONVOLUTIONAL, Gpu, has, pythons

SPIN = "spin:1ms"
LENGTHS = {"duration": "0.3s", "service_duration": "0.2s", "replications": 2, "requests": 200}


def loaded(
    gpu: Gpu, block: Mapping[str, Any], scenarios: Sequence[Mapping[str, Any]], model: str = CONVOLUTIONAL
) -> tuple[Mapping[str, LoadRow], Mapping[str, list[Replication]]]:
    """Rows and replications by the id of the load case."""
    path = gpu.configure(block, models=(model,))
    path.write_text(json.dumps({**json.loads(path.read_text()), "scenarios": list(scenarios)}))
    gpu.must("plan", "--load", "--config", str(path), "--device", "cuda")
    gpu.must("export")
    gpu.must("build_engine", *pythons())
    gpu.must("load", *pythons())
    gpu.must("aggregate")
    rows = {row.load_id: row for row in store.load(gpu.results.summary, Summary, "make aggregate").loads}
    results: dict[str, list[Replication]] = {}
    for file in sorted(gpu.results.loads.glob("*/*/*.json")):
        replication = store.load(file, Replication, "make load")
        results.setdefault(replication.load_id, []).append(replication)
    return rows, results


def test_two_kernels_of_known_duration_run_at_the_same_time_and_their_ends_are_seen(gpu: Gpu) -> None:
    rows, records = loaded(
        gpu,
        {"backends": ["spin"]},
        [{"scenario": "server", "bound": "p50<9s", "rates": [1200], "max_batch": [1], "in_flight": [1, 2], **LENGTHS}],
        SPIN,
    )
    nominal = duration_ns(SPIN)
    assert {row.in_flight for row in rows.values()} == {1, 2}
    for load_id, row in rows.items():
        assert (row.status, row.void) == ("measured", None), row.reason
        service = store.load(gpu.results.load(load_id).service, ServiceRun, "make load")
        # On one stream the second kernel would wait for the first, and each pass would take two durations.
        assert 0.99 * nominal <= median(service.service_ns[1]) < 1.5 * nominal
        assert row.points[0].failed == 0
        for record in records[load_id]:
            assert set(record.worker) == set(range(row.in_flight or 0))
            assert len(record.unseen_ns) == len(record.sizes)
            times = zip(record.ready_ns, record.start_ns, record.done_ns, record.unseen_ns, strict=True)
            for ready, start, done, unseen in times:
                assert ready <= start
                assert done - start >= 0.99 * nominal
                assert 0 < unseen < done - start
    two = next(records[name] for name, row in rows.items() if row.in_flight == 2)
    overlapping = [
        start < before for record in two for start, before in zip(record.start_ns[1:], record.done_ns[:-1], strict=True)
    ]
    assert any(overlapping)


SETTINGS = {
    "torch-eager": ["graph", "default"],
    "torch-script": ["default"],
    "torch-compile": ["default+graph", "reduce-overhead"],
    "torch-aoti": ["graph"],
    "onnxruntime": ["graph", "plain"],
    "tensorrt": ["dynamic+graph", "static"],
}


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "tensorrt" or has("tensorrt")])
def test_every_answer_is_right_with_two_batches_in_flight(name: str, gpu: Gpu) -> None:
    rows, records = loaded(
        gpu,
        {"backends": [name], "precisions": ["fp32"], "settings": SETTINGS[name]},
        [{"scenario": "server", "bound": "p50<9s", "rates": [300], "max_batch": [2], "in_flight": [2], **LENGTHS}],
    )
    assert {row.setting for row in rows.values()} == set(SETTINGS[name])
    plan = store.load(gpu.results.plan, Plan, "make plan")
    assert len(plan.loads) == len(SETTINGS[name])
    for load_id, row in rows.items():
        if row.setting == "reduce-overhead":
            assert row.status == "skipped"
            assert "default+graph" in (row.reason or "")
            continue
        assert (row.status, row.void) == ("measured", None), (load_id, row.reason)
        (point,) = row.points
        assert (point.failed, point.unseen_p99_ns is not None) == (0, True)
        # Of the last pass of each object on each stream, which was timed.
        assert all(entry.parity is not None and entry.parity.samples >= 1 for entry in records[load_id])
