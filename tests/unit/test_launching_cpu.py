"""Which share of the scatter of launches belongs to processes, to CPUs and to chance."""

from __future__ import annotations

import math

import pytest

from benchmarks.launching_cpu import Sweep, parts


def _process(slow: float, of_cpu: tuple[float, float, float], second: float = 1.0) -> Sweep:
    pinned = {cpu: (1000 * slow * factor, 1000 * slow * factor * second) for cpu, factor in enumerate(of_cpu)}
    return Sweep(False, (1000.0,), 3, pinned, dict.fromkeys(pinned, 1.0))


def test_a_slow_process_is_scatter_between_processes() -> None:
    results = parts([_process(1, (1, 1, 1)), _process(math.e, (1, 1, 1))])
    assert (results.processes, results.cpus, results.repeats) == pytest.approx((math.sqrt(0.5), 0, 0))


def test_a_slow_cpu_is_scatter_between_cpus() -> None:
    results = parts([_process(1, (1, 1, math.e))] * 2)
    assert (results.processes, results.cpus, results.repeats) == pytest.approx((0, math.sqrt(1 / 3), 0))


def test_a_difference_between_two_sweeps_belongs_to_repeats() -> None:
    results = parts([_process(1, (1, 1, 1), second=math.e)] * 2)
    assert (results.processes, results.cpus, results.repeats) == pytest.approx((0, 0, math.sqrt(0.5)))
