"""openvino: one infer() is one synchronous request on input tensors that share memory with the batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import openvino as ov

from harness.backends.base import Array, Backend, Batch
from harness.backends.precision import (
    INTEGER,
    computing_layers,
    floating_precision,
    has_integer_weights,
    precision_of,
)
from harness.core.errors import CaseError
from harness.core.schemas import Placement, TensorSpec

HINTS = {"fp32": ov.Type.f32, "bf16": ov.Type.bf16, "int8": ov.Type.f32}
"""Precision of layers that are not quantised; quantised layers follow the file."""

AS_LABELLED = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
"""Activations stay floats beside quantised weights: by default a processor with VNNI makes bytes of them."""


class OpenVino(Backend):
    """Latency hint, one stream, static shapes. A precision hint: by default OpenVINO runs bf16 where the CPU can."""

    compiles = True

    def load(self) -> None:
        """Read the ONNX file and fix its shapes to the case."""
        refuse_strings(self.job.batches[0])
        artifact = self.job.export.onnx["int8" if self.job.case.precision == "int8" else "fp32"]
        self._quantised = has_integer_weights(artifact)
        self._core = ov.Core()
        self._model = self._core.read_model(self.job.folder / artifact.path)
        # Before compiling: the plugin also gives a port the names of nodes that it removes after it.
        self._names = _matched_port(self._model.inputs, self.job.export.inputs)
        self._answers = _matched_port(self._model.outputs, self.job.export.outputs)
        first = self.job.batches[0]
        self._model.reshape({place: list(first[name].shape) for place, name in enumerate(self._names)})

    def compile(self) -> None:
        """Compile for the CPU and make the request and a tensor per input batch."""
        self._compiled = self._core.compile_model(self._model, "CPU", self.properties())
        # Still one stream: two requests in flight share it, and the second waits inside OpenVINO.
        count = 2 if self.job.case.mode == "pipelined" else 1
        self._requests = [self._compiled.create_infer_request() for _ in range(count)]
        self._request = self._requests[0]
        self._submitted = self._waited = 0
        self._ports = list(zip(self._compiled.inputs, self._names, strict=True))
        self._tensors = [self._bound(batch) for batch in self.job.batches]
        if self.job.in_flight:
            self._queue = ov.AsyncInferQueue(self._compiled, self.job.in_flight)
            self._queue.set_callback(_complete)

    def properties(self) -> dict[str, Any]:
        """The properties that the model is compiled with."""
        return {
            "PERFORMANCE_HINT": "LATENCY",
            # Passes in flight share the threads; one stream needs one thread at least.
            "NUM_STREAMS": str(max(1, min(self.job.in_flight, self.job.threads))),
            "INFERENCE_NUM_THREADS": str(self.job.threads),
            "INFERENCE_PRECISION_HINT": HINTS[self.job.case.precision],
            **AS_LABELLED,
        }

    def counters(self) -> list[Any]:
        """OpenVINO's ProfilingInfo of each node, where the properties requested it."""
        counters: list[Any] = self._request.get_profiling_info()
        return counters

    def executed(self) -> list[Any]:
        """The nodes of the execution graph that really ran."""
        operators: list[Any] = self._compiled.get_runtime_model().get_ops()
        return operators

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

    def issue(self, index: int, done: Callable[[str | None], None]) -> None:
        """Start the next free request of the AsyncInferQueue on a batch."""
        self._queue.start_async(dict(self._tensors[index]), (index, done), share_inputs=True)

    def issued(self) -> list[tuple[int, dict[str, Array]]]:
        """Outputs of the last pass of each request of the queue."""
        passes = zip(self._queue, self._queue.userdata, strict=True)
        return [(own[0], self._copied(request)) for request, own in passes if own is not None]

    def outputs(self) -> dict[str, Array]:
        """Copies of the request's output tensors, by the export's names."""
        return self._copied(self._request)

    def _copied(self, request: Any) -> dict[str, Array]:
        outputs = {name: request.get_output_tensor(i).data.copy() for i, name in enumerate(self._answers)}
        return {spec.name: outputs[spec.name] for spec in self.job.export.outputs}

    def placement(self) -> Placement:
        """Precision by layer from the execution graph that really ran."""
        layers = [layer_of(node) for node in self.executed()]
        census = Counter(precision for _, precision in layers)
        ran = computing_layers(layers)
        counted = ran
        if self._quantised and self.job.case.precision != "int8":
            # In such a file integer layers are expected: the others have the precision of the row.
            counted = computing_layers(layer for layer in layers if layer[1] not in INTEGER)
        ports = [_types(ports) for ports in (self._compiled.inputs, self._compiled.outputs)]
        read = self._compiled.get_property
        return Placement(
            device="+".join(read("EXECUTION_DEVICES")).lower(),
            precision=precision_of(counted) if counted else floating_precision(*ports),
            provider="OpenVINO CPU plugin",
            settings={
                "threads": int(read("INFERENCE_NUM_THREADS")),
                "streams": int(read("NUM_STREAMS")),
                "requests": len(self._requests),
                **({"async_queue": len(self._queue)} if self.job.in_flight else {}),
                "precision_hint": str(read("INFERENCE_PRECISION_HINT").get_type_name()),
                "computing_layers": sum(ran.values()),
                "integer_layers": ran.get("int8", 0),
            },
            dtype_census=dict(census),
        )

    def _bound(self, batch: Batch) -> list[tuple[Any, ov.Tensor]]:
        return [(port, ov.Tensor(np.asarray(batch[name], order="C"), shared_memory=True)) for port, name in self._ports]

    def build_facts(self) -> dict[str, str]:
        """OpenVINO's own version line."""
        return {"openvino": ov.get_version()}


def _complete(_request: Any, own: tuple[int, Callable[[str | None], None]]) -> None:
    """The callback of the queue's requests, on a thread of OpenVINO. Where a pass fails, OpenVINO does not call it."""
    own[1](None)


def matched_ports(ports: Sequence[Collection[str]], names: Sequence[str]) -> tuple[str, ...]:
    """The export's tensor of each port. ports: the names of each, in the order of the graph.

    A port may have several names, or others than the file's: OpenVINO removes Identity and Dropout and keeps any of
    their names. Where no name matches, the order decides, which is the file's. CaseError where the numbers differ.
    """
    if len(ports) != len(names):
        raise CaseError(
            f"OpenVINO's graph has {len(ports)} tensors where the ONNX file has {len(names)}: {', '.join(names)}.",
            "Leave openvino out of this model's backends.",
        )
    names_of = [next((name for name in names if name in own), None) for own in ports]
    if len(set(names_of) - {None}) < sum(name is not None for name in names_of):
        return tuple(names)  # two ports with the same name: only the order is left
    rest = iter([name for name in names if name not in names_of])
    return tuple(next(rest) if name is None else name for name in names_of)


def refuse_strings(batch: Batch) -> None:
    """Raise CaseError for an input of strings, which OpenVINO has no tensors for without an extension."""
    for name, array in batch.items():
        if array.dtype.kind == "U":
            raise CaseError(
                f"Input `{name}` contains strings, which OpenVINO does not take.", "Leave openvino out of it."
            )


def _matched_port(ports: Sequence[Any], specs: Sequence[TensorSpec]) -> tuple[str, ...]:
    return matched_ports([port.get_names() for port in ports], [spec.name for spec in specs])


def _types(ports: Sequence[Any]) -> Counter[str]:
    return Counter(str(port.get_element_type().get_type_name()) for port in ports)


def layer_of(node: Any) -> tuple[str, str]:
    """(layer type, runtime precision) of one node of the execution graph."""
    info = node.get_rt_info()
    return str(info["layerType"].astype(str)), str(info["runtimePrecision"].astype(str))
