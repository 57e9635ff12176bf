"""Every figure of docs/profiling.md and of decisions 15 and 21 about a published profile follows from its files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.core import store
from harness.core.layout import Results
from harness.core.schemas import Summary
from harness.core.schemas.profile_record import MemoryTimeline, PartsProfile
from harness.core.units import percent
from harness.profiling.launch_gaps import idle_share
from harness.profiling.layers import ns_by_group, total_ns
from harness.profiling.profile_grades import grade_of, reason_for_doubt
from harness.profiling.read_profiles import Profiled, profiled_rows
from harness.profiling.reconcile import parts_total, reconcile

ROOT = Path(__file__).parents[1]
CPU = Results(ROOT / "results/published/epyc-2-vcpu/2026-11-28-profile")
GPU = Results(ROOT / "results/published/h200/2026-11-29-profile")
MS = 1e6


def text_of(path: str) -> str:
    return re.sub(r"\s+", " ", (ROOT / path).read_text())


PROFILING = text_of("docs/profiling.md")


def of(results: Results) -> dict[str, Profiled]:
    summary = store.load(results.summary, Summary, "")
    return {entry.row.backend: entry for entry in profiled_rows(summary, results, pytest.fail)}


def parts(one: Profiled) -> PartsProfile:
    assert one.parts is not None
    return one.parts


def measured_ns(one: Profiled) -> float:
    assert one.row.latency_ns is not None
    return one.row.latency_ns.median


def share_without_kernel(one: Profiled, measured: bool = True) -> float:
    result = idle_share(parts(one), measured_ns(one) if measured else None)
    assert result is not None
    return result.share


def test_where_openvino_gains_on_eager() -> None:
    result = of(CPU)
    eager, openvino = result["torch-eager"], result["openvino"]
    slow, fast = (ns_by_group(parts(entry).layers) for entry in (eager, openvino))
    less = (measured_ns(eager) - measured_ns(openvino)) / MS
    assert f"{less:.2f} ms less than PyTorch eager by the measured latencies" in PROFILING
    assert f"{(total_ns(eager.layers) - total_ns(openvino.layers)) / MS:.2f} ms by the parts" in PROFILING
    ratios = sorted(total_ns(entry.layers) / measured_ns(entry) for entry in result.values())
    assert f"{ratios[0]:.2f} to {ratios[-1]:.2f} of them" in PROFILING
    assert f"{(slow['convolution'] - fast['convolution']) / MS:.2f} ms in convolutions" in PROFILING
    assert f"{(slow['pooling'] - fast['pooling']) / MS:.2f} in pooling" in PROFILING
    alone = slow["normalisation"] + slow["activation"] + slow["other"]
    assert not {"normalisation", "activation", "other"} & set(fast)
    assert f"{alone / MS:.2f} in operators that it fused" in PROFILING
    sums = [reconcile(parts(entry), False) for entry in result.values()]
    assert [entry.outcome for entry in sums if entry] == ["adds up"] * 3
    assert "The three profiles add up, with grade B" in PROFILING
    assert {grade_of(parts(entry)) for entry in result.values()} == {"B"}
    # Its grade is that of the summary as it is: other rules may raise or lower it, and this sentence with it.
    assert ("OpenVINO's row itself has grade C." in PROFILING) == (openvino.row.grade == "C")


def test_where_tensorrt_gains_on_eager() -> None:
    result = of(GPU)
    eager, compiled, ort, tensorrt = (result[n] for n in ("torch-eager", "torch-compile", "onnxruntime", "tensorrt"))
    assert f"TensorRT is measured at {measured_ns(tensorrt) / 1e3:.0f} µs" in PROFILING
    assert f"PyTorch eager at {measured_ns(eager) / MS:.2f} ms" in PROFILING
    assert f"eager's take {(parts_total(parts(eager), True) or 0) / MS:.2f} ms a pass" in PROFILING
    assert f"during {percent(share_without_kernel(eager))} of its measured latency no kernel runs" in PROFILING
    assert f"few such gaps ({percent(share_without_kernel(ort))})" in PROFILING
    assert f"torch.compile ({percent(share_without_kernel(compiled))} without a kernel)" in PROFILING
    latency_ns = measured_ns(ort)
    nodes_sum = f"{len(ort.layers)} nodes sum to {total_ns(ort.layers) / latency_ns:.2f} of its {latency_ns / MS:.2f}"
    assert nodes_sum in PROFILING
    first = next(row.self_ns for row in ort.layers if row.parent == "conv1")
    copy, convolution = tensorrt.layers[:2]
    assert f"first convolution takes {first / 1e3:.0f} µs" in PROFILING
    assert f"({convolution.self_ns / 1e3:.1f} in TensorRT, after a copy of {copy.self_ns / 1e3:.1f}" in PROFILING
    longest = max(parts(ort).operators, key=lambda row: row.self_device_ns or 0)
    whole_us = f"{(longest.self_device_ns or 0) / 1e3:.0f} µs together"
    assert f"after the {longest.calls:g} convolutions take {whole_us}, more than a third" in PROFILING
    assert (longest.self_device_ns or 0) > sum(row.self_device_ns or 0 for row in parts(ort).operators) / 3
    sums = reconcile(parts(tensorrt), True)
    assert sums is not None
    assert f"{len(tensorrt.layers)} layers sum to {total_ns(tensorrt.layers) / measured_ns(tensorrt):.2f}" in PROFILING
    assert f"and {sums.ratio:.2f} of the plain one" in PROFILING
    assert f"takes {1 + sums.overhead:.2f} times as long and explains the sum ({sums.corrected:.2f})" in PROFILING
    assert f"was {parts(eager).plain_ns / measured_ns(eager):.2f} times the measured one" in PROFILING
    assert "are explained by launch gaps" in PROFILING
    assert [reason_for_doubt(parts(entry), True) for entry in result.values()] == [None] * 4


def test_the_peak_of_a_pass() -> None:
    case_id = of(CPU)["torch-eager"].row.case_id
    timeline = store.load(CPU.memory_profile(case_id), MemoryTimeline, "")
    mib = 1 << 20
    assert f"activations alone {(timeline.activations_peak_bytes or 0) / mib:g} MiB" in PROFILING
    assert f"the peak is {timeline.pass_peak_bytes / mib:.2f} MiB" in PROFILING
    assert f"where activations have {timeline.at_peak['activations'] / mib:.2f} MiB" in PROFILING
    assert f"= {timeline.alive_at_peak[0].size_bytes / mib:.2f} MiB)" in PROFILING


def test_the_decisions_say_the_same() -> None:
    profiles, bounds = text_of("docs/decisions/0015-profiles.md"), text_of("docs/decisions/0021-what-if.md")
    result = of(GPU)
    eager = result["torch-eager"]
    ratios = {name: single.ratio for name in result if (single := reconcile(parts(result[name]), True))}
    assert f"torch-eager {ratios['torch-eager']:.2f} and torch.compile {ratios['torch-compile']:.2f}" in profiles
    assert f"TensorRT {ratios['tensorrt']:.2f}" in profiles
    plain, measured = share_without_kernel(eager, measured=False), share_without_kernel(eager)
    assert f"it is {plain:.0%}, of the measured one {percent(measured)}" in profiles
    assert f"is {1 / (1 - measured):.2f}× by the measured latency" in bounds
    assert f"would be {1 / (1 - plain):.1f}×" in bounds
