"""The energy counter around replications: which phases it belongs to, and what is kept of an earlier process."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.aggregation.energy_per_inference import EnergySpent, Meter
from harness.core import store
from harness.core.layout import LoadFiles
from harness.core.protocol import LoadJob
from harness.core.schemas import LatencyBound, LoadCase, LoadEnergy, Measurement
from harness.processes import energy_meter
from harness.processes.energy_meter import ReplicationMeter, meter_for
from harness.serving.load_case import LoadPoint, parse_phase, replication_phase

S = 1_000_000_000


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> ReplicationMeter:
    """A GPU of 100 W, read once a second."""
    readings = (Meter(100_000 * number, number * S) for number in itertools.count())
    monkeypatch.setattr(energy_meter, "read", lambda _handle: next(readings))
    monkeypatch.setattr(energy_meter, "facts_of", lambda _handle: SimpleNamespace(name="GPU", uuid="u"))
    handle: Any = None
    return ReplicationMeter(handle, EnergySpent(40.0, S))


def job(**more: Any) -> LoadJob:
    load = LoadCase(
        load_id="l",
        model="m",
        slug="m",
        backend="b",
        device="cuda",
        precision="fp16",
        sequence_length=None,
        weights="seeded",
        scenario="server",
        bound=LatencyBound(quantile=0.99, limit_ns=1),
    )
    return LoadJob(
        load=load.model_copy(update=more),
        settings_id="s",
        measurement=Measurement(),
        threads=1,
        results="r",
        models="m",
    )


def test_energy_belongs_to_the_replication_that_it_was_spent_in(meter: ReplicationMeter) -> None:
    low, high = LoadPoint("r5", 5.0), LoadPoint("r9", 9.0)
    phases = [
        "load",
        "service times",
        replication_phase(low, 1),
        "outputs check",
        replication_phase(high, 1),
        replication_phase(low, 2),
        "end",
    ]
    for phase in phases:
        meter.entered(phase)
    assert {name: (point.energy_j, point.window_ns, point.numbers) for name, point in meter.points.items()} == {
        "r5": (200.0, 2 * S, (1, 2)),
        "r9": (100.0, S, (1,)),
    }
    assert parse_phase("prediction") is None


def test_a_running_service_has_no_meter_of_a_gpu_here(meter: ReplicationMeter) -> None:
    handle: Any = object()
    here, elsewhere = job().load, job(endpoint="kserve+http://h:1/v2/models/m").load
    result = meter_for(here, handle, meter.idle)
    assert result is not None
    assert result.handle is handle
    assert meter_for(elsewhere, handle, meter.idle) is None
    assert meter_for(here, None, meter.idle) is None


def test_an_earlier_process_of_the_same_case_keeps_its_replications(meter: ReplicationMeter, tmp_path: Path) -> None:
    files = LoadFiles(tmp_path)
    step = LoadPoint("r5", 5.0)
    meter.save(job(), files)
    assert not files.energy.exists()
    for number in (1, 2):
        again = ReplicationMeter(meter.handle, meter.idle)
        again.entered(replication_phase(step, number))
        again.entered("end")
        again.save(job(), files)
    record = store.load(files.energy, LoadEnergy, "make load")
    assert (record.points["r5"].numbers, record.points["r5"].energy_j, record.idle_w) == ((1, 2), 200.0, 40.0)
    again.save(job(replication_s=9.0), files)
    assert store.load(files.energy, LoadEnergy, "make load").points["r5"].numbers == (2,)
