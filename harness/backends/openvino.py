"""openvino: one infer() is one synchronous request on input tensors that share memory with the batches."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import openvino as ov

from harness.backends.base import Array, Backend, Batch
from harness.backends.ran import precision_of
from harness.core.schemas import Placement

_HINTS = {"fp32": ov.Type.f32, "bf16": ov.Type.bf16, "int8": ov.Type.f32}
"""What layers run in that are not quantised; quantised ones follow the file."""
_NAMES = {"f32": "fp32", "bf16": "bf16", "f16": "fp16", "i8": "int8", "u8": "int8"}
_COMPUTE = frozenset({"Convolution", "GroupConvolution", "FullyConnected", "MatMul", "ScaledDotProductAttention"})
"""Execution-graph layers whose precision decides what the numbers were computed in."""


class OpenVino(Backend):
    """Latency hint, one stream, static shapes. Left alone, OpenVINO runs bf16 where the CPU has it: so it is told."""

    compiles = True

    def load(self) -> None:
        """Read the ONNX file and fix its shapes to the case."""
        artifact = self.job.export.onnx["int8" if self.job.case.precision == "int8" else "fp32"]
        self._core = ov.Core()
        self._model = self._core.read_model(self.job.folder / artifact.path)
        self._model.reshape({name: list(array.shape) for name, array in self.job.batches[0].items()})

    def compile(self) -> None:
        """Compile for the CPU and make the request and a tensor per input batch."""
        self._compiled = self._core.compile_model(self._model, "CPU", self.properties())
        # One stream all the same: two requests in flight share it, and the second waits its turn inside OpenVINO.
        count = 2 if self.job.case.mode == "pipelined" else 1
        self._requests = [self._compiled.create_infer_request() for _ in range(count)]
        self._request = self._requests[0]
        self._submitted = self._waited = 0
        self._ports = [(port, port.get_any_name()) for port in self._compiled.inputs]
        self._tensors = [self._bound(batch) for batch in self.job.batches]

    def properties(self) -> dict[str, Any]:
        """What the model is compiled with."""
        return {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(self.job.threads),
            "INFERENCE_PRECISION_HINT": _HINTS[self.job.case.precision],
        }

    def counters(self) -> list[Any]:
        """OpenVINO's ProfilingInfo of each node, where the properties asked for it."""
        found: list[Any] = self._request.get_profiling_info()
        return found

    def executed(self) -> list[Any]:
        """The nodes of the execution graph that really ran."""
        found: list[Any] = self._compiled.get_runtime_model().get_ops()
        return found

    def select(self, index: int) -> None:
        """Point the next request at a batch."""
        request = self._requests[self._submitted % len(self._requests)]
        for port, tensor in self._tensors[index]:
            request.set_tensor(port, tensor)

    def feed(self, batch: Batch) -> None:
        """Point the request at arrays where they lie."""
        for port, tensor in self._bound(batch):
            self._request.set_tensor(port, tensor)
        self._fed = batch

    def submit(self) -> None:
        """Start the next request."""
        self._requests[self._submitted % len(self._requests)].start_async()
        self._submitted += 1

    def wait(self) -> None:
        """Wait for the oldest request."""
        self._request = self._requests[self._waited % len(self._requests)]
        self._request.wait()
        self._waited += 1

    def infer(self) -> None:
        """Run the request once; its outputs stay in the request."""
        self._request.infer(share_outputs=True)

    def outputs(self) -> dict[str, Array]:
        """Copies of the request's output tensors, by the export's names."""
        specs = self.job.export.outputs
        return {spec.name: self._request.get_output_tensor(i).data.copy() for i, spec in enumerate(specs)}

    def placement(self) -> Placement:
        """Precision by layer from the execution graph that really ran."""
        layers = [_layer(node) for node in self.executed()]
        census = Counter(precision for _, precision in layers)
        computing = Counter(precision for kind, precision in layers if kind in _COMPUTE)
        ran: Counter[str] = Counter()
        for name, layers_of in (computing or census).items():
            ran[_NAMES.get(name, name)] += layers_of
        read = self._compiled.get_property
        return Placement(
            device="+".join(read("EXECUTION_DEVICES")).lower(),
            precision=precision_of(ran),
            provider="OpenVINO CPU plugin",
            settings={
                "threads": int(read("INFERENCE_NUM_THREADS")),
                "streams": int(read("NUM_STREAMS")),
                "requests": len(self._requests),
                "precision_hint": str(read("INFERENCE_PRECISION_HINT").get_type_name()),
                "computing_layers": sum(computing.values()),
                "integer_layers": ran["int8"],
            },
            dtype_census=dict(census),
        )

    def _bound(self, batch: Batch) -> list[tuple[Any, ov.Tensor]]:
        return [(port, ov.Tensor(np.ascontiguousarray(batch[name]), shared_memory=True)) for port, name in self._ports]

    def build_facts(self) -> dict[str, str]:
        """OpenVINO's own version line."""
        return {"openvino": ov.get_version()}


def _layer(node: Any) -> tuple[str, str]:
    """(layer type, runtime precision) of one node of the execution graph."""
    info = node.get_rt_info()
    return str(info["layerType"].astype(str)), str(info["runtimePrecision"].astype(str))
