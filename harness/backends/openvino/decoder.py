"""openvino generates: keys and values are states of the request, so that a step is one infer() on the latest tokens."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as opset
from openvino._offline_transformations import apply_make_stateful_transformation

from harness.backends.decoder import Decoder, DecoderJob
from harness.backends.openvino.runtime import AS_LABELLED, HINTS, layer_of
from harness.backends.precision import computing_layers, floating_precision, precision_of
from harness.core.errors import CaseError
from harness.core.schemas import Placement

_PAST, _PRESENT, _CROSS, _ORDER = "past_key_values.", "present.", "cross.", "beam_idx"


class OpenVinoDecoder(Decoder):
    """On the CPU, from the ONNX file of fp32; the precision hint decides the rest.

    The batch is fixed, or the first states would have no sequence. Keys and values keep the case's precision: by
    default the plugin stores them in 8 bits.
    """

    compiles = True

    def __init__(self, job: DecoderJob) -> None:
        super().__init__(job)
        if job.onnx is None:
            raise CaseError(f"{job.model} has no ONNX file for generation.", "Export it again: `make generate`.")
        self._file = job.folder / job.onnx
        self._seq2seq = job.shape.kind == "seq2seq"
        self._reads = "decoder_input_ids" if self._seq2seq else "input_ids"
        self._start = np.full((job.batch_size, 1), job.shape.start_token or 0, np.int64)

    def load(self) -> None:
        """Read the files and make the keys and values states."""
        file = self._file
        self._core = ov.Core()
        self._model = self._core.read_model(file)
        self._fix_batch(self._model)
        self._make_states(self._model)
        self._first: Any = None
        if self._seq2seq:
            self._first = self._core.read_model(file.with_name(f"{file.stem}-prefill.onnx"))
            self._fix_batch(self._first)

    def compile(self) -> None:
        """Compile for the CPU and make the requests."""
        job, hint = self.job, HINTS[self.job.precision]
        properties = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(job.threads),
            "INFERENCE_PRECISION_HINT": hint,
            "KV_CACHE_PRECISION": hint,
            **AS_LABELLED,
        }
        self._compiled = self._core.compile_model(self._model, "CPU", properties)
        self._request = self._compiled.create_infer_request()
        self._prefill: Any = None
        if self._first is not None:
            compiled = self._core.compile_model(self._first, "CPU", properties)
            self._prefill = compiled.create_infer_request()
            self._state_names = {state.name: _present_of(state.name) for state in self._request.query_state()}
        order = np.arange(job.batch_size, dtype=np.int32)
        self._request.set_tensor(_ORDER, ov.Tensor(order))
        self._answering = self._request
        self._token = self._start

    def prefill(self, ids: NDArray[np.int64]) -> None:
        """Empty the states and run over the prompts."""
        if self._prefill is None:
            self._request.reset_state()
            self._run(ids)
        else:
            self._encode(ids)

    def step(self) -> None:
        """Run on the latest tokens."""
        self._run(self._token)

    def tokens(self) -> NDArray[np.int64]:
        """The tokens that the graph chose."""
        ids: NDArray[np.int64] = self._token.reshape(-1).copy()
        return ids

    def logits(self) -> NDArray[np.float32]:
        """Logits of the latest request."""
        logits: NDArray[np.float32] = self._answering.get_tensor("logits").data.astype(np.float32)
        return logits

    def force(self, ids: NDArray[np.int64]) -> None:
        """Replace the latest tokens."""
        self._token = np.array(ids, np.int64)[:, None]

    def cache_bytes(self) -> int:
        """Bytes of the states, and of the encoder's keys and values."""
        states = sum(int(state.state.byte_size) for state in self._request.query_state())
        if self._prefill is None:
            return states
        names = [name for port in self._prefill.model_outputs for name in port.get_names() if name.startswith(_CROSS)]
        return states + sum(int(self._prefill.get_tensor(name).byte_size) for name in names)

    def placement(self) -> Placement:
        """Precision by layer from the execution graph that really ran."""
        layers = [layer_of(node) for node in self._compiled.get_runtime_model().get_ops()]
        ran = computing_layers(layers)
        read = self._compiled.get_property
        return Placement(
            device="+".join(read("EXECUTION_DEVICES")).lower(),
            precision=precision_of(ran),
            provider="OpenVINO CPU plugin",
            settings={
                "threads": int(read("INFERENCE_NUM_THREADS")),
                "streams": int(read("NUM_STREAMS")),
                "precision_hint": str(read("INFERENCE_PRECISION_HINT").get_type_name()),
                "cache_precision": floating_precision({str(read("KV_CACHE_PRECISION").get_type_name()): 1}),
                "states": len(self._request.query_state()),
                "fused_attention": sum(kind == "ScaledDotProductAttention" for kind, _ in layers),
            },
            dtype_census=dict(Counter(precision for _, precision in layers)),
        )

    def build_facts(self) -> dict[str, str]:
        """OpenVINO's own version line."""
        return {"openvino": ov.get_version()}

    def _fix_batch(self, model: Any) -> None:
        shapes = {}
        for port in model.inputs:
            shape = port.partial_shape
            shape[0] = self.job.batch_size
            shapes[port] = shape
        model.reshape(shapes)

    def _make_states(self, model: Any) -> None:
        """Past and present become states, read in the order of the input `beam_idx` (batch,), as for a beam search.

        The plugin puts keys, values and attention into one node only where this order is part of the graph.
        """
        order = opset.parameter([self.job.batch_size], np.int32, name=_ORDER)
        order.output(0).get_tensor().set_names({_ORDER})
        pairs = {}
        for port in model.inputs:
            name = next((port_name for port_name in port.get_names() if port_name.startswith(_PAST)), None)
            if name is not None:
                pairs[name] = name.replace(_PAST, _PRESENT)
                readers = port.get_target_inputs()
                ordered = opset.gather(port, order, opset.constant(0, np.int64))
                for reader in readers:
                    reader.replace_source_output(ordered.output(0))
        model.add_parameters([order])
        model.validate_nodes_and_infer_types()
        apply_make_stateful_transformation(model, pairs)
        for node in model.get_ops():
            if node.get_type_name() == "ReadValue" and not node.inputs():
                node.set_arguments([self._no_positions()])
        model.validate_nodes_and_infer_types()

    def _no_positions(self) -> Any:
        """The first content of a state."""
        shape = self.job.shape
        sizes = np.array([self.job.batch_size, shape.kv_heads, 0, shape.head_dim], np.int64)
        return opset.broadcast(opset.constant(0, np.float32), opset.constant(sizes))

    def _run(self, ids: NDArray[np.int64]) -> None:
        self._request.set_tensor(self._reads, ov.Tensor(np.ascontiguousarray(ids), shared_memory=True))
        self._request.infer(share_outputs=True)
        self._took(self._request)

    def _took(self, request: Any) -> None:
        self._answering = request
        self._token = request.get_tensor("next_token").data.copy()

    def _encode(self, ids: NDArray[np.int64]) -> None:
        """A seq2seq model's first pass; its keys and values become the states and inputs of the steps."""
        first: Any = self._prefill
        first.set_tensor("input_ids", ov.Tensor(np.ascontiguousarray(ids), shared_memory=True))
        first.set_tensor("decoder_input_ids", ov.Tensor(self._start, shared_memory=True))
        first.infer(share_outputs=True)
        for state in self._request.query_state():
            state.state = first.get_tensor(self._state_names[state.name])
        for port in self._compiled.inputs:
            name = next((port_name for port_name in port.get_names() if port_name.startswith(_CROSS)), None)
            if name is not None:
                self._request.set_tensor(port, first.get_tensor(name))
        self._took(first)


def _present_of(variable: str) -> str:
    """The tensor whose content a state of the transformation holds: its name joins the names of the pair."""
    return variable[variable.index(_PRESENT) :]
