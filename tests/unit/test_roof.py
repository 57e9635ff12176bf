"""The roof stage with devices and limits that a test makes up: what is measured, kept, and refused."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness import backends, roof
from harness.core import store
from harness.core.errors import BusyError, UnavailableError
from harness.core.host import environment
from harness.core.layout import Results
from harness.core.lock import exclusive
from harness.core.schemas import CpuLimits, CpuRoof, Environment, Precision, Roof
from harness.processes import cpu_peaks
from tests.fixtures.nvml import CARD, FakeDriver, FakeNvml
from tests.synthetic_results import RESNET, case_of, plan_of


class FakePeaks(ModuleType):
    """harness.backends.gpu_peaks: every measurement is counted."""

    def __init__(self) -> None:
        super().__init__("harness.backends.gpu_peaks")
        self.calls: list[str] = []
        self.answers: dict[str, Any] = {
            "require": None,
            "build_facts": {"torch_cuda_runtime": "13.0"},
            "flops_per_s": {"fp32": 50e12, "fp16": 700e12},
            "copy_bytes_per_s": 3e12,
            "link_bytes_per_s": (55e9, 54e9),
            "launch_ns": 1_150.0,
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda: self.calls.append(name) or self.answers[name]


@pytest.fixture
def peaks(monkeypatch: pytest.MonkeyPatch) -> FakePeaks:
    results = FakePeaks()
    monkeypatch.setitem(sys.modules, "harness.backends.gpu_peaks", results)
    monkeypatch.setattr(backends, "gpu_peaks", results, raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: FakeDriver())
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())  # type: ignore[arg-type]
    return results


def planned(root: Path, device: str = "cuda") -> Results:
    results = Results(root)
    case = case_of(RESNET, "torch-eager", "fp32", 1)
    store.save(results.plan, plan_of((RESNET,), [case]).model_copy(update={"device": device}))
    return results


def run(results: Results, *more: str) -> Roof:
    roof.stage(["--results", str(results.root), *more])
    return store.load(results.roof, Roof, "make roof")


def test_limits_are_saved_with_the_gpu_and_the_environment(
    tmp_path: Path, peaks: FakePeaks, capsys: pytest.CaptureFixture[str]
) -> None:
    results = planned(tmp_path)
    result = run(results)
    assert (result.device, result.uuid) == ("A GPU", f"GPU-{CARD}")
    assert result.flops == {"fp32": 50e12, "fp16": 700e12}
    assert (result.copy_bytes_per_s, result.launch_ns) == (3e12, 1_150.0)
    assert (result.h2d_bytes_per_s, result.d2h_bytes_per_s) == (55e9, 54e9)
    here = store.load(results.environment(result.environment_id), Environment, "make roof")
    assert here.gpu is not None
    assert here.gpu.uuid == result.uuid
    assert here.software.build["torch_cuda_runtime"] == "13.0"
    assert peaks.calls[0] == "require"
    said = capsys.readouterr().out
    assert said == "A GPU: 50 fp32, 700 fp16 TFLOP/s, copies 3,000 GB/s, 1.15 µs a kernel.\n"


def test_limits_of_this_gpu_are_kept_and_of_another_or_forced_are_not(tmp_path: Path, peaks: FakePeaks) -> None:
    results = planned(tmp_path)
    first = run(results)
    peaks.answers["launch_ns"] = 900.0
    assert run(results) == first
    assert run(results, "--force").launch_ns == 900.0
    store.save(results.roof, first.model_copy(update={"uuid": "GPU-another"}))
    assert run(results).uuid == first.uuid
    results.roof.write_text("{")
    assert run(results).uuid == first.uuid


def test_without_pytorch_it_says_so(tmp_path: Path, peaks: FakePeaks, monkeypatch: pytest.MonkeyPatch) -> None:
    results = planned(tmp_path)
    monkeypatch.delattr(backends, "gpu_peaks")
    monkeypatch.setitem(sys.modules, "harness.backends.gpu_peaks", None)  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match="measured with PyTorch, which cannot be imported") as caught:
        run(results)
    assert "no roofline" in caught.value.hint
    assert not results.roof.exists()


class FakeCpu:
    """harness.processes.cpu_peaks.measure_limits: what was asked for, and answers of 100 GFLOP/s a thread."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], list[Precision]]] = []
        self.unmeasured: dict[Precision, str] = {}
        self.without: tuple[str, ...] = ()

    def __call__(self, threads: list[int], precisions: list[Precision]) -> cpu_peaks.MeasuredRoof:
        self.asked.append((threads, precisions))
        known = [precision for precision in precisions if precision not in self.unmeasured]
        limits = [
            CpuLimits(threads=n, flops=dict.fromkeys(known, n * 100e9), copy_bytes_per_s=n * 10e9) for n in threads
        ]
        return cpu_peaks.MeasuredRoof(tuple(limits), self.unmeasured, self.without)


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> FakeCpu:
    result = FakeCpu()
    monkeypatch.setattr(cpu_peaks, "measure_limits", result)
    monkeypatch.setattr(roof.limits, "thread_count", lambda: 2)
    return result


def planned_on_cpu(root: Path, *cases: tuple[str, str, str]) -> Results:
    """Of (backend, precision, setting) each."""
    results = Results(root)
    matches = [case_of(RESNET, name, precision, 1, setting=setting) for name, precision, setting in cases]
    store.save(results.plan, plan_of((RESNET,), matches))
    return results


def run_on_cpu(results: Results, *more: str) -> CpuRoof:
    roof.stage(["--results", str(results.root), *more])
    return store.load(results.roof, CpuRoof, "make roof")


FP32 = ("openvino", "fp32", "default")


def test_every_number_of_threads_and_precision_of_the_plan_is_measured_once(
    tmp_path: Path, cpu: FakeCpu, peaks: FakePeaks, capsys: pytest.CaptureFixture[str]
) -> None:
    results = planned_on_cpu(tmp_path, ("onnxruntime", "int8", "1-thread"), ("openvino", "bf16", "default"))
    result = run_on_cpu(results)
    assert cpu.asked == [([1, 2], ["fp32", "int8", "bf16"])]  # fp32 as well: any other may be computed by way of it
    assert peaks.calls == []
    here = store.load(results.environment(result.environment_id), Environment, "make roof")
    assert (result.device, result.machine) == (here.machine.cpu, here.machine)
    assert result.of(2) == CpuLimits(
        threads=2, flops=dict.fromkeys(("fp32", "int8", "bf16"), 200e9), copy_bytes_per_s=20e9
    )
    assert result.of(3) is None
    said = capsys.readouterr().out
    assert "with 2 threads 200 fp32, 200 int8, 200 bf16 GFLOP/s, copies 20.0 GB/s" in said
    assert "GPU" not in said
    assert run_on_cpu(results) == result
    assert len(cpu.asked) == 1


def test_the_limits_of_a_cpu_are_measured_again_where_they_do_not_fit(
    tmp_path: Path, cpu: FakeCpu, peaks: FakePeaks
) -> None:
    results = planned_on_cpu(tmp_path, FP32)
    first = run_on_cpu(results)
    run_on_cpu(results, "--force")
    assert len(cpu.asked) == 2
    other = first.machine.model_copy(update={"cpu": "another CPU"})
    store.save(results.roof, first.model_copy(update={"machine": other}))
    assert run_on_cpu(results).machine == first.machine
    planned_on_cpu(tmp_path, FP32, ("openvino", "bf16", "default"))
    run_on_cpu(results)
    planned_on_cpu(tmp_path, ("openvino", "fp32", "1-thread"))
    run_on_cpu(results)
    assert cpu.asked[2:] == [([2], ["fp32"]), ([2], ["fp32", "bf16"]), ([1], ["fp32"])]
    store.save(results.roof, Roof.model_construct(device="A GPU"))
    assert run_on_cpu(results).of(1) is not None


def test_an_unmeasurable_peak_is_reported_and_not_tried_again(
    tmp_path: Path, cpu: FakeCpu, capsys: pytest.CaptureFixture[str]
) -> None:
    cpu.unmeasured, cpu.without = {"int8": "why"}, ("PyTorch",)
    results = planned_on_cpu(tmp_path, ("onnxruntime", "int8", "default"))
    result = run_on_cpu(results)
    assert (result.unmeasured, result.without) == ({"int8": "why"}, ("PyTorch",))
    said = capsys.readouterr().err
    assert "No matrix product in int8 could be measured (why)" in said
    assert "without PyTorch" in said
    run_on_cpu(results)
    assert len(cpu.asked) == 1


def test_a_plan_in_which_nothing_computes_needs_no_limits(
    tmp_path: Path, cpu: FakeCpu, capsys: pytest.CaptureFixture[str]
) -> None:
    results = planned_on_cpu(tmp_path, ("noop", "fp32", "default"), ("spin", "fp32", "default"))
    roof.stage(["--results", str(results.root)])
    assert cpu.asked == []
    assert not results.roof.exists()
    assert capsys.readouterr() == ("", "")


def test_the_limits_take_the_results_for_themselves(tmp_path: Path, cpu: FakeCpu) -> None:
    results = planned_on_cpu(tmp_path, FP32)
    with exclusive(results.lock), pytest.raises(BusyError):
        run_on_cpu(results)
    assert cpu.asked == []


def test_last_level_caches_are_added_and_unlisted_ones_are_not_known(tmp_path: Path) -> None:
    def cache(cpu: int, index: int, **facts: object) -> None:
        folder = tmp_path / f"cpu{cpu}/cache/index{index}"
        folder.mkdir(parents=True)
        for name, value in facts.items():
            (folder / name).write_text(f"{value}\n")

    assert environment.last_level_cache_bytes(tmp_path) is None
    for cpu, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3")):
        cache(cpu, 0, level=1, type="Instruction", size="64K", shared_cpu_list=cpu)
        cache(cpu, 2, level=2, type="Unified", size="2048K", shared_cpu_list=cpu)
        cache(cpu, 3, level=3, type="Unified", size="32768K", shared_cpu_list=shared)
    assert environment.last_level_cache_bytes(tmp_path) == 64 << 20
    (tmp_path / "cpu0/cache/index3/size").write_text("unknown")
    assert environment.last_level_cache_bytes(tmp_path) is None
