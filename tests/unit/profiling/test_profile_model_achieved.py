"""Counted work over measured time; what is missing says why."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.schemas import Case, Row
from harness.planning.matrix import profiled_cases
from harness.profiling.what_if import achieved_rates
from tests.synthetic_results import MINILM, RESNET, case_of, voided
from tests.synthetic_roof import BASE, CPU_ROOF, ROOF, WORK, profile, row


def test_figures_of_a_batch_follow_from_those_of_a_sample() -> None:
    result = profile(case_of(RESNET, "onnxruntime", "fp16", 8))
    assert (result.macs, result.macs_per_batch, result.flops_per_batch) == (35 * 10**8, 28 * 10**9, 56 * 10**9)
    assert result.least_bytes == 50_000_000 + 8 * (300_000 + 2_000)
    assert result.flops_per_byte == pytest.approx(56e9 / 52.416e6)
    assert (result.activation_estimated_bytes, result.activation_measured_bytes) == (80_000_000, None)
    assert (result.activation_measured_by, result.environment_id) == ("not measured: why", "e1")
    assert result.count_notes == ("a note",)
    assert [(file.kind, file.name, file.size_bytes) for file in result.files] == [
        ("weights", "fp32", 90 << 20),
        ("onnx", "fp32", 91 << 20),
    ]


def test_weights_of_int8_have_one_byte_at_least_and_a_note() -> None:
    result = profile(case_of(RESNET, "onnxruntime", "int8", 1))
    assert result.least_bytes == 25_000_000 + 600_000 + 4 * 1_000
    assert "one byte a weight" in result.count_notes[-1]


def test_rates_are_taken_over_the_device_time_where_it_is_known() -> None:
    flops = 100 * WORK.flops_per_item
    on_gpu = achieved_rates(row(2.0, batch=100), flops, ROOF)
    assert on_gpu.flops_per_s == pytest.approx(350e12)
    assert (on_gpu.peak_share, on_gpu.notes) == (pytest.approx(0.5), ())
    assert BASE.latency_ns is not None
    on_cpu = achieved_rates(BASE, WORK.flops_per_item, None)
    assert on_cpu.flops_per_s == pytest.approx(WORK.flops_per_item / BASE.latency_ns.median * 1e9)
    assert (on_cpu.latency_ns, on_cpu.device_ns) == (BASE.latency_ns.median, None)
    assert (on_cpu.items_per_s, on_cpu.tokens_per_s) == (BASE.throughput_per_s, None)
    assert on_cpu.peak_share is None
    assert on_cpu.notes == ("peak_share: what this CPU can do at most was not measured",)
    held = achieved_rates(BASE, WORK.flops_per_item, CPU_ROOF)
    assert held.peak_share == pytest.approx(held.flops_per_s / 400e9)
    assert (held.device_ns, held.notes) == (None, ())


def test_tokens_are_samples_times_the_sequence() -> None:
    text = BASE.model_copy(update={"sequence_length": 128, "throughput_per_s": 10.0})
    assert achieved_rates(text, None, None).tokens_per_s == 1280
    assert achieved_rates(text, None, None).flops_per_s is None


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "the case has no row in summary.json"),
        (voided(BASE.model_copy(update={"grade": "F"})), "its row is void (grade F)"),
        (BASE.model_copy(update={"latency_ns": None, "reason": "out of memory"}), "out of memory"),
    ],
)
def test_a_case_without_a_valid_row_has_no_rates(found: Row | None, why: str) -> None:
    nothing = achieved_rates(found, 1, ROOF)
    assert nothing.notes == (f"not measured: {why}",)
    assert set(nothing.model_dump(exclude={"notes"}).values()) == {None}


def test_cells_that_compute_at_the_compute_boundary_come_once() -> None:
    def case(backend: str = "onnxruntime", **changes: Any) -> Case:
        named = case_of(MINILM, backend, "fp32", 1, 32)
        return named.model_copy(update={"case_id": f"{named.case_id}{len(changes)}", **changes})

    first, offline = case(), case(mode="offline")
    others = [case(boundary="e2e"), case(skip_reason="cannot"), case("noop")]
    another = case("torch-eager")
    assert profiled_cases([first, *others, offline, another], ["onnxruntime", "torch-eager"]) == [first, another]
