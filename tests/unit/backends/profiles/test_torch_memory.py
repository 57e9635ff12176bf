"""The record of one pass: categories that add up to the peak, on a CPU and with a GPU's allocator in fakes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from harness.backends.torch import profile_memory
from harness.backends.torch.profile_memory import GpuSnapshot, memory_profile
from harness.core.schemas.profile_record import Fragmentation, MemoryTimeline
from tests.fixtures.memory_events import CUDA, call, change
from tests.synthetic_results import RESNET, case_of

FRAGMENTATION = Fragmentation(
    reserved_bytes=4096,
    allocated_bytes=2048,
    unused_bytes=2048,
    unused_share=0.5,
    largest_free_bytes=1024,
    unused_at_peak_bytes=0,
)


@dataclass(frozen=True)
class Job:
    """What of a job is looked at."""

    case: Any
    options: dict[str, Any] = field(default_factory=lambda: {"graph": True, "mode": "reduce-overhead"})


class Running:
    """A backend whose two inputs lie in one tensor. `passes`: how often it ran."""

    def __init__(self, job: Job) -> None:
        self.job, self.passes = job, 0
        self.module = torch.nn.Linear(4, 4)
        whole = torch.ones(2, 4)
        self.input_sets = [(whole[0],), (whole[1],)]

    def load(self) -> None: ...
    def compile(self) -> None: ...
    def select(self, index: int) -> None: ...
    def synchronize(self) -> None: ...
    def close(self) -> None: ...

    def infer(self) -> None:
        self.passes += 1
        self.module(self.input_sets[0][0])


def profiled(device: str, made: list[Running], folder: Path) -> MemoryTimeline:
    def make(job: Job) -> Running:
        made.append(Running(job))
        return made[-1]

    case = case_of(RESNET, "torch-eager", "fp32", 1).model_copy(update={"device": device})
    return memory_profile(Job(case), make, folder)  # type: ignore[arg-type]


def test_a_cpu_is_watched_by_the_profiler_itself(tmp_path: Path) -> None:
    made: list[Running] = []
    result = profiled("cpu", made, tmp_path)
    assert (result.at_peak["parameters"], result.at_peak["inputs"], result.at_peak["held"]) == (80, 32, 0)
    assert sum(result.at_peak.values()) == result.peak_bytes == max(result.allocated_bytes)
    assert result.pass_peak_bytes >= 16
    assert "aten::linear" in {entry.operator for entry in result.alive_at_peak}
    assert (result.reserved_bytes, result.fragmentation, result.snapshot) == (None, None, None)
    assert made[0].job.options == {"graph": False, "mode": "default"}
    assert made[0].passes == 3


def test_on_a_gpu_the_allocator_reports_earlier_and_reserved_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [
        change(0, -88, 9, CUDA, reserved=2048),  # the result of the pass before
        call("aten::conv2d", 1, 10),
        change(2, 512, 1, CUDA, reserved=2048),
        change(3, 1024, 2, CUDA, reserved=4096),
        change(4, -1024, 2, CUDA, reserved=4096),
        change(5, 64, 7),  # the host's
    ]
    monkeypatch.setattr(profile_memory, "_events", lambda _running: events)
    monkeypatch.setattr(profile_memory, "allocated_before", lambda: 1000)
    monkeypatch.setattr(
        profile_memory, "on_gpu", lambda _one_pass, _folder: GpuSnapshot(FRAGMENTATION, "s.pickle", ("n",))
    )
    result = profiled("cuda", [], tmp_path)
    assert result.at_peak == {
        "parameters": 80,
        "inputs": 32,
        "held": 1000 - 80 - 32 - 88,
        "activations": 512,
        "temporaries": 1024,
        "unattributed": 0,
    }
    assert result.peak_bytes == sum(result.at_peak.values()) == max(result.allocated_bytes) == 1000 - 88 + 512 + 1024
    assert (result.pass_peak_bytes, result.activations_peak_bytes) == (512 + 1024 - 88, 512)
    assert (result.allocations, result.frees) == (2, 2)
    assert result.reserved_bytes == (2048, 2048, 4096, 4096)
    assert result.fragmentation is not None
    assert result.fragmentation.unused_at_peak_bytes == 4096 - result.peak_bytes
    assert (result.snapshot, result.notes) == ("s.pickle", ("n",))


def test_of_a_very_long_pass_the_highest_changes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_memory, "MAX_CHANGES", 2)
    monkeypatch.setattr(profile_memory, "_events", lambda _running: [change(at, 10 - at, at) for at in range(1, 6)])
    result = profiled("cpu", [], tmp_path)
    assert len(result.at_ns) == 2
    assert max(result.allocated_bytes) == result.peak_bytes
    assert any(note.startswith("timeline: ") for note in result.notes)
    assert result.activations_peak_bytes is None
