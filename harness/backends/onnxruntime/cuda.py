"""onnxruntime on CUDA: one infer() is one run_with_iobinding on the harness's stream, or one launch of its CUDA graph.
onnxruntime-tensorrt: the same with a session whose subgraphs are TensorRT engines.

Inputs and outputs are bound to device memory before; the run returns when its work is enqueued.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from harness.backends.base import (
    Array,
    BackendJob,
    Batch,
)
from harness.backends.case_files import onnx_artifact
from harness.backends.cuda import libraries
from harness.backends.cuda.context import BufferedBackend, Buffers, Cuda, InferTensors
from harness.backends.onnxruntime.placement import (
    Ran,
    device_of,
    node_counts,
    profiled_nodes,
)
from harness.backends.onnxruntime.session import (
    CUDA,
    Provider,
    SessionRequest,
    capture_refused,
    dimensions_of,
    open_session,
)
from harness.backends.precision import file_precision
from harness.core.schemas import Placement

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(double)": np.float64,
}

WARM_UP_RUNS = 3
"""Of each binding. ONNX Runtime repeats the first run of a graph's id until the graph is captured (two plain runs for
its memory, one run that captures); the next runs replay it."""

_NO_GRAPH = "-1"
"""The id with which ONNX Runtime neither captures nor replays."""


class OnnxRuntimeOnGpu(BufferedBackend):
    """Each set of inputs on the device (cuda/context.py) has a binding, and a CUDA graph, of its own."""

    def __init__(self, job: BackendJob) -> None:
        super().__init__(job)
        setting = job.options.get("variant")
        self._artifact = onnx_artifact(job.export, job.case.precision, str(setting) if setting else None)

    def load(self) -> None:
        """Create the session on the harness's stream, bind every batch, and capture a graph for each."""
        libraries.preload()
        self._cuda = Cuda(copies_apart=self.job.slots > 1)
        self.stream, self.copy_streams = self._cuda.stream, self._cuda.copy_streams
        with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
            self._session = open_session(self._wanted(Path(folder)))
            ports = self._session.get_inputs()
            self._kinds = {port.name: np.dtype(_TYPES[port.type]) for port in ports}
            self._fixed_shapes = all(isinstance(extent, int) for port in ports for extent in port.shape)
            prepared = [self._typed(batch) for batch in self.job.batches]
            first = self._first_run(prepared[0])
            self._ran = self._nodes_of_first_run()
        outputs = {name: self._cuda.empty(value.shape, value.dtype) for name, value in first.items()}
        self._buffers = Buffers(self._cuda, self.job, prepared, outputs)
        self._bindings = [self._bind(tensors) for tensors in self._buffers.sets]
        self._options = [self._run_options(index) for index in range(len(self._buffers.sets))]
        self._run = self._session.run_with_iobinding
        for binding, options in zip(self._bindings, self._options, strict=True):
            with capture_refused():
                for _ in range(WARM_UP_RUNS):
                    self._run(binding, options)
        self.stream.synchronize()
        self._binding, self._option = self._bindings[0], self._options[0]

    def select(self, index: int) -> None:
        """Point the next run at a batch, or the next upload at pinned arrays."""
        number = self._buffers.select(index)
        self._binding, self._option = self._bindings[number], self._options[number]

    def infer(self) -> None:
        """Enqueue once."""
        self._run(self._binding, self._option)

    def outputs(self) -> dict[str, Array]:
        """Copies as fp32 by output name."""
        return self._buffers.fetched()

    def placement(self) -> Placement:
        """Where the nodes of the timed session ran, and its own report of its options; never from the request."""
        options = self._session.get_provider_options().get(CUDA, {})
        tf32 = options.get("use_tf32") == "1"
        return Placement(
            device=device_of(self._ran),
            precision=self._precision(tf32),
            provider="+".join(self._session.get_providers()),
            settings={
                "tf32": tf32,
                "cuda_graph": options.get("enable_cuda_graph") == "1",
                "nhwc": options.get("prefer_nhwc") == "1",
                "fuse_conv_bias": options.get("fuse_conv_bias") == "1",
                "fixed_shapes": self._fixed_shapes,
                "file": self._artifact.path,
                "opset": self._artifact.opset,
                **node_counts(self._ran),
            },
            dtype_census=self._artifact.dtype_census,
        )

    def build_facts(self) -> dict[str, str]:
        """ONNX Runtime's own build line, and the CUDA that it was built for."""
        from onnxruntime.capi import build_and_package_info as info  # noqa: PLC0415

        cuda = getattr(info, "cuda_version", "unknown")
        return {"onnxruntime": ort.get_build_info(), "onnxruntime_cuda": str(cuda)}

    def close(self) -> None:
        """The session first: it holds graphs and memory on the context."""
        del self._run, self._bindings, self._binding, self._session
        self._cuda.close()

    def _wanted(self, folder: Path) -> SessionRequest:
        file = self.job.folder / self._artifact.path
        dimensions = dimensions_of(self.job.export.inputs, self.job.batches[0])
        return SessionRequest(file, self._providers(), self.job.threads, folder / "profile", dimensions=dimensions)

    def _nodes_of_first_run(self) -> Sequence[Ran]:
        """Its nodes; the session profiles nothing more."""
        return profiled_nodes(json.loads(Path(self._session.end_profiling()).read_bytes()))

    def _providers(self) -> Sequence[Provider]:
        return [(CUDA, self._cuda_options(graph=bool(self.job.options.get("graph"))))]

    def _cuda_options(self, graph: bool) -> dict[str, str]:
        return {
            "device_id": "0",
            "user_compute_stream": str(self.stream.handle),
            "use_tf32": "1" if self.job.case.precision == "tf32" or self.job.options.get("tf32") else "0",
            "cudnn_conv_algo_search": "EXHAUSTIVE",
            "cudnn_conv_use_max_workspace": "1",
            "fuse_conv_bias": "1" if self.job.options.get("fuse_conv_bias") else "0",
            "prefer_nhwc": "1" if self.job.options.get("nhwc") else "0",
            "enable_cuda_graph": "1" if graph else "0",
        }

    def _first_run(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs of one run from and to host memory: their shapes are not known before. This run is profiled."""
        options = ort.RunOptions()
        options.add_run_config_entry("gpu_graph_id", _NO_GRAPH)
        answer = self._session.run(None, dict(batch), options)
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, answer, strict=True))

    def _typed(self, batch: Batch) -> dict[str, Array]:
        return {name: np.ascontiguousarray(batch[name], kind) for name, kind in self._kinds.items()}

    def _bind(self, tensors: InferTensors) -> Any:
        binding = self._session.io_binding()
        for name, tensor in tensors.inputs.items():
            binding.bind_input(name, "cuda", 0, tensor.dtype.type, list(tensor.shape), tensor.address)
        for name, output in tensors.outputs.items():
            binding.bind_output(name, "cuda", 0, output.dtype.type, list(output.shape), output.address)
        return binding

    def _run_options(self, index: int) -> Any:
        options = ort.RunOptions()
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        if self.job.options.get("graph"):
            # A captured graph holds the addresses of its binding: each batch needs its own graph.
            options.add_run_config_entry("gpu_graph_id", str(index + 1))
        return options

    def _precision(self, tf32: bool) -> str:
        session = self._session
        precision = file_precision(
            self._artifact, [port.type for port in session.get_inputs()], [port.type for port in session.get_outputs()]
        )
        return "tf32" if precision == "fp32" and tf32 else precision


class OnnxRuntimeTensorrt(OnnxRuntimeOnGpu):
    """Engines and timing cache are kept below the model's folder: only the first process pays for building them."""

    compiles = True

    def load(self) -> None:
        """Everything that takes time is building."""

    def compile_cached(self) -> bool:
        """Whether an earlier process left engines for this case."""
        return self._cache.is_dir() and any(self._cache.iterdir())

    def compile(self) -> None:
        """Create the session, which builds or finds its engines, and bind every batch."""
        self._cache.mkdir(parents=True, exist_ok=True)
        super().load()

    @property
    def _cache(self) -> Path:
        return (self.job.cache / self.job.case.case_id).resolve()

    def _providers(self) -> Sequence[Provider]:
        own = {
            "device_id": "0",
            "user_compute_stream": str(self.stream.handle),
            "trt_fp16_enable": "1" if self.job.case.precision == "fp16" else "0",
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": str(self._cache),
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": str(self._cache),
        }
        return [("TensorrtExecutionProvider", own), (CUDA, self._cuda_options(graph=False))]
