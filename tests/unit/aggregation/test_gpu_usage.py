"""Looks at a card → what it did while a case was timed, by round and over the rounds."""

from __future__ import annotations

import pytest

from harness.aggregation import usage
from harness.core.schemas import GpuSample, GpuUsage, UsageSample
from tests.synthetic_results import usage_of, usage_sample
from tests.synthetic_usage import look

MS = 1_000_000


def seen(*looks: GpuSample, before: int | None = 1 << 30) -> GpuUsage:
    gpu_usage = usage.gpu_usage_of(looks, before)
    assert gpu_usage is not None
    return gpu_usage


def test_one_window() -> None:
    result = seen(
        look(sm_mhz=1_980, power_w=300.0, temperature_c=50),
        look(sm_mhz=1_740, power_w=400.0, temperature_c=58, memory_used_bytes=4 << 30, reasons=("sw_power_cap",)),
        look(sm_mhz=1_740, power_w=500.0, temperature_c=55, other_processes=1),
        look(sm_mhz=1_740, power_w=600.0, utilisation_percent=50),
    )
    assert (result.sm_mhz_min, result.sm_mhz_mean, result.sm_mhz_max) == (1_740, 1_800, 1_980)
    assert (result.power_w_mean, result.power_w_max, result.temperature_c_max) == (450, 600, 58)
    assert (result.utilisation_percent_mean, result.memory_mhz_mean) == (80, 2_619)
    assert (result.memory_peak_bytes, result.memory_before_bytes) == (3 << 30, 1 << 30)
    assert (result.reasons, result.other_processes_max, result.samples) == ({"sw_power_cap": 0.25}, 1, 4)


def test_a_value_that_no_sample_reports_is_unknown() -> None:
    dark = {name: None for name in GpuSample.model_fields if name != "reasons"}
    result = seen(look(**dark))
    assert {getattr(result, name) for name in GpuUsage.model_fields if name not in ("reasons", "samples")} == {
        None,
        1 << 30,
    }
    assert seen(look(), before=None).memory_peak_bytes is None


def test_memory_that_others_gave_back_is_no_negative_growth() -> None:
    assert seen(look(memory_used_bytes=1), before=2).memory_peak_bytes == 0


def test_rounds_count_by_their_looks() -> None:
    result = seen(look(sm_mhz=1_500, reasons=("sw_thermal",)), before=0)
    three = seen(*[look(sm_mhz=1_900, other_processes=None)] * 3, before=1 << 30)
    gpu_usage = usage.gpu_usage_over([result, three])
    assert gpu_usage is not None
    assert (gpu_usage.sm_mhz_min, gpu_usage.sm_mhz_mean, gpu_usage.sm_mhz_max) == (1_500, 1_800, 1_900)
    assert (gpu_usage.reasons, gpu_usage.samples, gpu_usage.other_processes_max) == ({"sw_thermal": 0.25}, 4, 0)
    assert (gpu_usage.memory_peak_bytes, gpu_usage.memory_before_bytes) == (3 << 30, 1 << 30)
    assert usage.gpu_usage_over([]) is None


def sample(at_ms: int, phase: str, card: GpuSample | None) -> UsageSample:
    return usage_sample(at_ms * MS, phase).model_copy(update={"gpu": card})


def test_only_looks_of_the_timed_phase_count() -> None:
    samples = [
        sample(250, "load", look(sm_mhz=345)),
        sample(500, "measure", look(sm_mhz=1_980)),
        sample(600, "measure", None),
        sample(700, "outputs check", look(sm_mhz=1_000)),
    ]
    result = usage.timed_usage(usage_of("a-case", 1, samples, gpu_memory_before_bytes=0))
    assert result is not None
    assert result.gpu is not None
    assert (result.gpu.sm_mhz_min, result.gpu.sm_mhz_max, result.gpu.samples) == (1_980, 1_980, 1)
    merged = usage.merged_usage([result, result])
    assert merged is not None
    assert merged.gpu == usage.gpu_usage_over([result.gpu, result.gpu])


def test_a_cpu_has_no_gpu() -> None:
    result = usage.timed_usage(usage_of("a-case", 1, [sample(250, "measure", None)]))
    assert result is not None
    assert result.gpu is None


@pytest.mark.parametrize("name", sorted(GpuUsage.model_fields))
def test_every_figure_is_made(name: str) -> None:
    assert getattr(seen(look(reasons=("gpu_idle",), other_processes=1)), name)
