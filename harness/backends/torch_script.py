"""torch-script: one infer() is one call of the traced, frozen module after optimize_for_inference."""

from __future__ import annotations

import warnings

import torch

from harness.backends.torch_base import TorchBackend


class TorchScript(TorchBackend):
    """Traced for exactly the shape of the case; tracing and optimising are the compile cost."""

    compiles = True
    provider = "TorchScript"

    def compile(self) -> None:
        """Trace with the first input, freeze, optimise."""
        with warnings.catch_warnings():
            # Tracing warns about shapes that become constants; the case has one shape, and its outputs are checked.
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(self._module, self._inputs[0], check_trace=False)  # type: ignore[no-untyped-call]
            self._script = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
            self._call = self._script

    def _settings(self) -> dict[str, str | int | float | bool]:
        nodes = [node.kind() for node in self._script.inlined_graph.nodes()]
        return {"graph_nodes": len(nodes), "mkldnn_nodes": sum("mkldnn" in kind for kind in nodes)}
