"""torch-script: one infer() is one call of the traced, frozen module after optimize_for_inference."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from harness.backends.torch.base import TorchBackend
from harness.backends.torch.place import Call
from harness.core.schemas import FIXED_WHEN_TRACED
from harness.zoo.reference import Flat


class TorchScript(TorchBackend):
    """Traced for exactly the shape of the case; tracing and optimising are the compile cost."""

    compiles = True
    provider = "TorchScript"
    takes_torchscript = True

    def _compiled(self) -> Call:
        """Trace with the first input, freeze, optimise."""
        module = Flat(self._module).eval() if self.job.export.nested_outputs else self._module
        with warnings.catch_warnings(record=True) as warned:
            # Tracing warns about constants: they are right for shapes, as the case has one shape, and wrong for values.
            warnings.simplefilter("always")
            traced = torch.jit.trace(module, self._inputs.sets[0], check_trace=False)  # type: ignore[no-untyped-call]
            self._script = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
        self._fixed = [
            f"{str(warning.message).partition(' might cause')[0]} ({Path(warning.filename).name}:{warning.lineno})"
            for warning in warned
            if issubclass(warning.category, torch.jit.TracerWarning)  # type: ignore[attr-defined]
        ]
        return self._script

    def _settings(self) -> dict[str, str | int | float | bool]:
        nodes = [node.kind() for node in self._script.inlined_graph.nodes()]
        facts: dict[str, str | int | float | bool] = {"graph_nodes": len(nodes)}
        if self._fixed:
            facts[FIXED_WHEN_TRACED] = self._fixed[0]
        if self.stream is None:
            return facts | {"mkldnn_nodes": sum("mkldnn" in kind for kind in nodes)}
        # The executor's changes are in the graph that ran last, not in the optimised graph that it was given.
        ran: Any = torch._C._last_executed_optimized_graph()
        return facts | {
            "cudnn_nodes": sum("::cudnn" in kind for kind in nodes),
            "fused_groups": len(ran.findAllNodes("prim::TensorExprGroup")),
        }
