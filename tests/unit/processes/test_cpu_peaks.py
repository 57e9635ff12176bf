"""The limits of a CPU with rates that a test makes up: what is asked of whom, and what is kept of the answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.processes import cpu_peaks
from harness.processes.cpu_peaks import COPY_BYTES, PASSES, WAYS, Task, TaskRefused, measure_limits


@pytest.fixture(autouse=True)
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_peaks.limits, "affinity", lambda: (0, 1, 2, 3))


class Rates:
    """Answers by product; 1e9 a second of what has none; half of it in the first pass."""

    def __init__(self, answers: dict[str, float | TaskRefused]) -> None:
        self.asked: list[tuple[str, int]] = []
        self.copied: list[int] = []
        self._answers = answers

    def __call__(self, task: Task, processes: int) -> Sequence[float] | TaskRefused:
        first = (task.product, processes) not in self.asked
        self.asked.append((task.product, processes))
        self.copied += [] if task.product else [task.copy_bytes]
        answer = self._answers.get(task.product, 1e9)
        return (
            answer if isinstance(answer, TaskRefused) else [answer * (0.5 if first and task.product else 1)] * processes
        )


def test_the_best_library_and_pass_count_and_threads_are_added() -> None:
    rates = Rates({"OpenVINO MatMul f32": 100e9, "torch._int_mm": 400e9, "": 10e9})
    result = measure_limits([1, 3], ["fp32", "int8"], rates)
    assert [limits.threads for limits in result.limits] == [1, 3]
    first, three = result.limits
    assert (first.flops, three.flops) == ({"fp32": 100e9, "int8": 400e9}, {"fp32": 300e9, "int8": 1200e9})
    assert three.by == {"fp32": "OpenVINO MatMul f32", "int8": "torch._int_mm"}
    assert (first.copy_bytes_per_s, three.copy_bytes_per_s) == (10e9, 30e9)
    assert (result.unmeasured, result.without) == ({}, ())
    for name in (*WAYS["fp32"], *WAYS["int8"]):
        assert rates.asked.count((name, 1)) == rates.asked.count((name, 3)) == PASSES
    assert rates.copied == [COPY_BYTES, COPY_BYTES // 3]


def test_more_threads_than_cpus_do_no_more() -> None:
    result = measure_limits([8], ["fp32"], Rates({}))
    assert result.limits[0].flops["fp32"] == 4e9


def test_a_library_that_cannot_is_asked_once_and_costs_nothing_else() -> None:
    rates = Rates({"torch.mm fp32": TaskRefused("its process crashed"), "NumPy": TaskRefused("not there", absent=True)})
    result = measure_limits([2], ["fp32"], rates)
    assert rates.asked.count(("torch.mm fp32", 2)) == 1
    assert (result.unmeasured, result.without) == ({}, ("NumPy",))


def test_a_precision_that_no_library_can_do_says_why() -> None:
    refused = {name: TaskRefused(f"no {name}", absent=name.startswith("torch")) for name in WAYS["bf16"]}
    result = measure_limits([1], ["fp32", "bf16", "tf32"], Rates({**refused, "": TaskRefused("no memory")}))
    assert result.limits[0].flops.keys() == {"fp32"}
    assert result.limits[0].copy_bytes_per_s is None
    assert result.unmeasured["bf16"].startswith("torch.mm bf16: no torch.mm bf16; OpenVINO")
    assert result.unmeasured["tf32"] == "no product in tf32 is known for a CPU"
    assert result.without == ("PyTorch",)
