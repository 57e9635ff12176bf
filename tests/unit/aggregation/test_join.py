"""Rows of a GPU: admitted by the engine that they loaded, and held against the limits of their own card."""

from __future__ import annotations

from typing import Any

import pytest

from harness.aggregation.join import Notes, join
from harness.aggregation.row import CaseRecords, draft_of
from harness.core.schemas import Clock, DeviceSamples, Environment, Gpu, Measured, Roof, Summary, Unavailable, Work
from tests.fixtures.engines import PATH, engine_record
from tests.synthetic_results import (
    CALIBRATION,
    ENVIRONMENT_ID,
    RESNET,
    case_of,
    environment,
    export_record,
    failed,
    measured,
    plan_of,
)

CASES = [case_of(RESNET, backend, "fp16", 1).model_copy(update={"device": "cuda"}) for backend in ("noop", "tensorrt")]
NOOP, TRT = CASES
PLAN = plan_of((RESNET,), CASES, rounds=1).model_copy(update={"device": "cuda"})
WORK = Work(
    sequence_length=None,
    flops_per_item=8_000_000_000,
    parameters=25_000_000,
    input_bytes_per_item=600_000,
    output_elements_per_item=1_000,
)
EXPORT = export_record(RESNET).model_copy(update={"work": (WORK,)})
ENGINE = engine_record(EXPORT)
LOADED = {PATH: ENGINE.engine.sha256}
ROOF = Roof(
    created_at="2026-11-28T00:00:00+00:00",
    environment_id="e",
    device="A GPU",
    uuid="GPU-1",
    flops={"fp16": 800e12},
    copy_bytes_per_s=3e12,
    launch_ns=1_200.0,
)


def on_card() -> Environment:
    names = "vbios persistence ecc mig power_limit_w power_limit_default_w max_sm_mhz max_memory_mhz pcie bar1_bytes"
    facts: dict[str, Any] = dict.fromkeys(names.split(), Unavailable(unavailable="x"))
    card = Gpu(name="A GPU", uuid="GPU-1", sm="9.0", memory_bytes=1, driver="580", cuda="13.0", **facts)
    return environment().model_copy(update={"gpu": card})


def joined(device_ns: int = 20_000, **changes: Any) -> tuple[Summary, Notes]:
    """Of one round of both cases; the limits allow nothing below 10 µs."""
    clock = Clock(name="events", resolution_ns=500.0, overhead_ns=10)

    def load(case_id: str, _number: int) -> Measured:
        case = next(entry for entry in CASES if entry.case_id == case_id)
        record = measured(case, RESNET, 1, 100, artifacts={} if case is NOOP else LOADED)
        times = DeviceSamples(clock=clock, device_ns=(device_ns,) * 100, enqueue_ns=(1_000,) * 100)
        placement = record.placement.model_copy(update={"device": "cuda"})
        latency_ns = (device_ns + 1_000,) * 100
        return record.model_copy(update={"device": times, "latency_ns": latency_ns, "placement": placement})

    notes = Notes()
    given: dict[str, Any] = {"engines": {RESNET.name: (ENGINE,)}, "roof": ROOF, **changes}
    exports = {RESNET.name: given.pop("export", EXPORT)}
    shared = {"calibration": CALIBRATION, "notes": notes, "created_at": "2026-11-28T00:00:00+00:00"}
    result = join(PLAN, exports, {ENVIRONMENT_ID: on_card()}, load, lambda *_: None, **shared, **given)
    return result, notes


def test_a_row_with_an_engine_is_admitted_and_the_engine_is_in_the_summary() -> None:
    summary, _ = joined()
    assert [row.status for row in summary.rows] == ["measured", "measured"]
    assert summary.engines == {f"{RESNET.name}/{PATH}": ENGINE}


@pytest.mark.parametrize(
    ("engines", "why"),
    [
        ((), "is not in the current export"),
        ((engine_record(EXPORT, sha256="f" * 64),), "has changed since"),
        ((engine_record(EXPORT, onnx_sha256="an earlier export"),), "is not in the current export"),
    ],
)
def test_a_row_whose_engine_is_not_the_present_one_is_left_out(engines: tuple[Any, ...], why: str) -> None:
    summary, notes = joined(engines={RESNET.name: engines})
    assert [row.status for row in summary.rows] == ["measured", "missing"]
    assert summary.engines == {}
    assert any(PATH in line and why in line for line in notes.lines())


def test_an_engine_that_no_row_loaded_is_left_out_of_the_summary() -> None:
    other = ENGINE.model_copy(update={"engine": ENGINE.engine.model_copy(update={"path": "engines/other.plan"})})
    assert list(joined(engines={RESNET.name: (ENGINE, other)})[0].engines) == [f"{RESNET.name}/{PATH}"]


def test_rows_have_their_roofline_and_the_summary_its_limits() -> None:
    summary, _ = joined()
    noop, row = summary.rows
    assert noop.roofline is None
    assert row.roofline is not None
    assert row.roofline.flops_share == pytest.approx(0.5)
    assert summary.roof == ROOF


def test_a_row_that_is_faster_than_can_be_is_void() -> None:
    noop, row = joined(device_ns=9_000)[0].rows
    assert (noop.grade == "F", row.grade) == (False, "F")
    assert "ABOVE_ROOF" in [flag.name for flag in row.flags]


def test_limits_of_another_gpu_are_not_used_and_it_is_said() -> None:
    summary, notes = joined(device_ns=9_000, roof=ROOF.model_copy(update={"device": "B GPU"}))
    assert summary.roof is None
    assert [row.roofline for row in summary.rows] == [None, None]
    assert "ABOVE_ROOF" not in [flag.name for row in summary.rows for flag in row.flags]
    assert any("another GPU (B GPU)" in line for line in notes.lines())


@pytest.mark.parametrize(("refused", "status"), [(True, "skipped"), (False, "failed")])
def test_a_case_that_a_backend_does_not_run_is_a_skipped_row_with_its_reason(refused: bool, status: str) -> None:
    record = failed(TRT, 1, refused=refused, error="It does not run Erf.", hint="Leave it out.")
    draft = draft_of(TRT, "image", CaseRecords((), (record,)), PLAN.measurement, {})
    assert (draft.row.status, draft.row.hint) == (status, "Leave it out.")
    assert "It does not run Erf." in (draft.row.reason or "")
