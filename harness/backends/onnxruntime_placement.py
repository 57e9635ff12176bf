"""Which provider ran which nodes: ONNX Runtime's own profile of one run, never the list that was asked for."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.backends.base import Batch

_ABOUT_SHAPES = frozenset(
    {
        *("Shape", "Gather", "Unsqueeze", "Squeeze", "Concat", "Cast", "Slice", "Range", "ConstantOfShape", "Expand"),
        *("Equal", "Where", "Add", "Sub", "Mul", "Div", "Reshape", "Max", "Min", "Size"),
    }
)
"""Operators that ONNX Runtime keeps on the CPU on purpose when they compute the extent of a tensor and not its content
(its GetCpuPreferredNodes); with nothing but these there, no data of the model left the GPU."""


@dataclass(frozen=True)
class Ran:
    """Nodes and kernel time by provider, and nodes by provider and operator."""

    nodes: Mapping[str, int]
    time_us: Mapping[str, float]
    operators: Mapping[tuple[str, str], int]

    def computing_elsewhere(self, provider: str) -> int:
        """Nodes beyond shape arithmetic that another provider ran."""
        return sum(
            count
            for (ran, operator), count in self.operators.items()
            if ran != provider and operator not in _ABOUT_SHAPES and not operator.startswith("Memcpy")
        )

    def shares(self) -> dict[str, str | int | float | bool]:
        """`nodes_cuda`, `time_share_cuda`, … for a row's settings."""
        total = sum(self.time_us.values())
        found: dict[str, str | int | float | bool] = {}
        for name, number in self.nodes.items():
            short = name.removesuffix("ExecutionProvider").lower()
            found[f"nodes_{short}"] = number
            if total:
                found[f"time_share_{short}"] = round(self.time_us[name] / total, 4)
        return found


def ran_on(open_session: Callable[[Path], Any], batch: Batch) -> Ran:
    """Profile one run after one that warms up. `open_session`: prefix of the profile's file → a session."""
    with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
        session = open_session(Path(folder) / "profile")
        inputs = {one.name: one.type for one in session.get_inputs()}
        for _ in range(2):
            session.run(None, {name: batch[name] for name in inputs})
        events = json.loads(Path(session.end_profiling()).read_text())
    return count(events)


def count(events: Iterable[Mapping[str, Any]]) -> Ran:
    """Events of a profile → nodes of one run by provider (pure). Every node of the runs together counts once."""
    kernels = [one for one in events if one.get("cat") == "Node" and str(one["name"]).endswith("_kernel_time")]
    last = {str(one["name"]): one for one in kernels}  # of two runs, the one that was warm
    nodes: Counter[str] = Counter()
    operators: Counter[tuple[str, str]] = Counter()
    spent: Counter[str] = Counter()
    for one in last.values():
        provider = str(one["args"]["provider"])
        nodes[provider] += 1
        operators[provider, str(one["args"]["op_name"])] += 1
        spent[provider] += int(one["dur"])
    return Ran(dict(nodes), {name: float(value) for name, value in spent.items()}, dict(operators))
