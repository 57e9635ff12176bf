"""A roof and work of which everything is known."""

from __future__ import annotations

from typing import Any

from harness.core.schemas import (
    Case,
    Clock,
    CpuLimits,
    CpuRoof,
    DeviceTimes,
    Roof,
    Row,
    Work,
)
from harness.core.schemas.profile_record import Counts, MeasuredMemory, ModelProfile
from harness.planning.matrix import model_file_sizes
from harness.profiling.what_if import model_profile
from tests.synthetic_results import RESNET, Synthetic, case_of, environment, export_record, voided

WORK = Work(
    sequence_length=None,
    flops_per_item=7_000_000_000,
    parameters=25_000_000,
    input_bytes_per_item=600_000,
    output_elements_per_item=1_000,
)


CPU_ROOF = CpuRoof(
    created_at="2026-11-29T00:00:00+00:00",
    environment_id="e",
    device=environment().machine.cpu,
    machine=environment().machine,
    cpus=2,
    cache_bytes=32 << 20,
    limits=(
        CpuLimits(threads=1, flops={"fp32": 100e9, "int8": 400e9, "bf16": 50e9}, copy_bytes_per_s=10e9),
        CpuLimits(threads=2, flops={"fp32": 400e9, "int8": 1600e9, "bf16": 200e9}, copy_bytes_per_s=20e9),
    ),
    unmeasured={"fp16": "no library can"},
)


MS = 1e6


ROOF = Roof(
    created_at="2026-11-28T00:00:00+00:00",
    environment_id="e",
    device="A GPU",
    uuid="GPU-1",
    flops={"fp32": 50e12, "fp16": 700e12},
    copy_bytes_per_s=3e12,
    launch_ns=1_200.0,
)


BASE = Synthetic(models=(RESNET,), cases=[case_of(RESNET, "torch-eager", "fp32", 1)]).summary().rows[0]


def row(device_ms: float, batch: int = 1, enqueue_ms: float = 0.0, **changes: Any) -> Row:
    """A row on a GPU, fp16 unless named."""
    clock = Clock(name="events", resolution_ns=500.0, overhead_ns=1_500)
    times = DeviceTimes(clock=clock, device=device_ms * MS, device_ci95=None, enqueue=enqueue_ms * MS)
    given = {"device": "cuda", "precision": "fp16", "batch_size": batch, "device_ns": times}
    return voided(BASE.model_copy(update={**given, **changes}))


COUNTS = Counts(
    parameters=25_000_000,
    trainable_parameters=25_000_000,
    parameters_by_type={"Conv2d": 25_000_000},
    macs=3_500_000_000,
    flops=7_000_000_000,
    counted_by="torch's FlopCounterMode",
    uncounted=(),
    onnx_count=None,
    count_notes=("a note",),
    weight_bytes={"fp32": 100_000_000},
    activation_bytes=10_000_000,
    activation_bytes_by="estimate",
)


MEMORY = MeasuredMemory(peak_bytes=None, by="not measured: why", environment_id="e1")


EXPORT = export_record(RESNET).model_copy(update={"work": (WORK,)})


def profile(case: Case, row: Row | None = None) -> ModelProfile:
    return model_profile(case, ("plan", "now"), EXPORT, model_file_sizes(EXPORT, ()), COUNTS, MEMORY, row, ROOF)
