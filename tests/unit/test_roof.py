"""The roof stage with a card and limits that a test makes up: what is measured, kept, and refused."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness import backends, roof
from harness.core import store
from harness.core.errors import UnavailableError
from harness.core.layout import Results
from harness.core.schemas import Environment, Roof
from tests.fixtures.nvml import CARD, FakeDriver, FakeNvml
from tests.synthetic_results import RESNET, case_of, plan_of


class FakePeaks(ModuleType):
    """harness.backends.peaks: every measurement is counted."""

    def __init__(self) -> None:
        super().__init__("harness.backends.peaks")
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
    found = FakePeaks()
    monkeypatch.setitem(sys.modules, "harness.backends.peaks", found)
    monkeypatch.setattr(backends, "peaks", found, raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: FakeDriver())
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())  # type: ignore[arg-type]
    return found


def planned(root: Path, device: str = "cuda") -> Results:
    results = Results(root)
    case = case_of(RESNET, "torch-eager", "fp32", 1)
    store.save(results.plan, plan_of((RESNET,), [case]).model_copy(update={"device": device}))
    return results


def run(results: Results, *more: str) -> Roof:
    roof.stage(["--results", str(results.root), *more])
    return store.load(results.roof, Roof, "make roof")


def test_limits_are_saved_with_the_card_and_the_environment(
    tmp_path: Path, peaks: FakePeaks, capsys: pytest.CaptureFixture[str]
) -> None:
    results = planned(tmp_path)
    found = run(results)
    assert (found.device, found.uuid) == ("A Card", f"GPU-{CARD}")
    assert found.flops == {"fp32": 50e12, "fp16": 700e12}
    assert (found.copy_bytes_per_s, found.launch_ns) == (3e12, 1_150.0)
    assert (found.h2d_bytes_per_s, found.d2h_bytes_per_s) == (55e9, 54e9)
    here = store.load(results.environment(found.environment_id), Environment, "make roof")
    assert here.gpu is not None
    assert here.gpu.uuid == found.uuid
    assert here.software.build == {"torch_cuda_runtime": "13.0"}
    assert peaks.calls[0] == "require"
    said = capsys.readouterr().out
    assert said == "A Card: 50 fp32, 700 fp16 TFLOP/s, copies 3,000 GB/s, 1.15 µs a kernel.\n"


def test_limits_of_this_card_are_kept_and_of_another_or_forced_are_not(tmp_path: Path, peaks: FakePeaks) -> None:
    results = planned(tmp_path)
    first = run(results)
    peaks.answers["launch_ns"] = 900.0
    assert run(results) == first
    assert run(results, "--force").launch_ns == 900.0
    store.save(results.roof, first.model_copy(update={"uuid": "GPU-another"}))
    assert run(results).uuid == first.uuid
    results.roof.write_text("{")
    assert run(results).uuid == first.uuid


def test_a_plan_on_a_cpu_asks_nothing_of_a_card(
    tmp_path: Path, peaks: FakePeaks, capsys: pytest.CaptureFixture[str]
) -> None:
    results = planned(tmp_path, "cpu")
    roof.stage(["--results", str(results.root)])
    assert peaks.calls == []
    assert not results.roof.exists()
    assert capsys.readouterr() == ("", "")


def test_without_pytorch_it_says_so(tmp_path: Path, peaks: FakePeaks, monkeypatch: pytest.MonkeyPatch) -> None:
    results = planned(tmp_path)
    monkeypatch.delattr(backends, "peaks")
    monkeypatch.setitem(sys.modules, "harness.backends.peaks", None)  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match="measured with PyTorch, which cannot be imported") as caught:
        run(results)
    assert "no roofline" in caught.value.hint
    assert not results.roof.exists()
