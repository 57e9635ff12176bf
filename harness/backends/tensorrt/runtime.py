"""tensorrt: one infer() is one execute_async_v3, or one launch of the CUDA graph that holds it; nothing is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorrt as trt
from pycuda import driver

from harness.backends.base import (
    Array,
    BackendJob,
    Batch,
    is_out_of_memory,
    out_of_memory,
)
from harness.backends.cuda.context import BufferedBackend, Buffers, Cuda, DeviceArray, InferTensors
from harness.backends.cuda.graph import Graph
from harness.backends.tensorrt import layers, versions
from harness.backends.tensorrt.versions import Log
from harness.core.errors import CaseError
from harness.core.schemas import ExportRecord, Placement

"""The words of TensorRT's log, where its functions report their reasons."""


class TensorRt(BufferedBackend):
    """An engine built for this GPU. Each set of inputs on the device (cuda/context.py) has its own graph."""

    def __init__(self, job: BackendJob) -> None:
        super().__init__(job)
        if job.engine is None:
            raise CaseError(f"No engine was found for {job.case.case_id}.", "Run `make engines` first.")
        self._record = job.engine
        self._graphs: list[Graph] = []

    @property
    def context(self) -> Any:
        """TensorRT's IExecutionContext, from load() on."""
        return self._context

    def load(self) -> None:
        """Deserialise the engine, put every input batch on the device, and capture a graph for each."""
        try:
            self._load()
        except driver.MemoryError as error:
            raise self._out_of_memory() from error

    def _load(self) -> None:
        self._log = Log()
        self._cuda = Cuda(copies_apart=self.job.slots > 1)
        self.stream, self.copy_streams = self._cuda.stream, self._cuda.copy_streams
        self._runtime = trt.Runtime(self._log)
        file = (self.job.engine_folder or self.job.folder) / self._record.engine.path
        self._engine = self._runtime.deserialize_cuda_engine(file.read_bytes())
        if self._engine is None:
            raise self._refused("was not deserialised")
        self._context = self._engine.create_execution_context()
        if self._context is None:
            raise self._refused("has no execution context")
        # Looked up once: they are called for every inference where there is no graph.
        self._execute, self._handle = self._context.execute_async_v3, int(self.stream.handle)
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        inputs = [name for name in names if self._engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        self._input_names = inputs
        prepared = [self._typed(batch) for batch in self.job.batches]
        for name in inputs:
            if not self._context.set_input_shape(name, prepared[0][name].shape):
                raise self._refused(f"does not take {name} of shape {prepared[0][name].shape}")
        outputs = {name: self._output(name) for name in names if name not in inputs}
        self._buffers = Buffers(self._cuda, self.job, prepared, outputs)
        self._calls = [self._call(tensors) for tensors in self._buffers.sets]
        self._infer = self._calls[0]

    def select(self, index: int) -> None:
        """Point the next launch at a batch, or the next upload at pinned arrays."""
        number = self._buffers.select(index)
        self._infer = self._calls[number]
        if not self._graphs and len(self._calls) > 1:
            self._bind(self._buffers.sets[number])

    def infer(self) -> None:
        """Enqueue once."""
        self._infer()

    def outputs(self) -> dict[str, Array]:
        """Copies as fp32, by the export's names."""
        outputs = self._buffers.fetched()
        return {spec.name: outputs[spec.name] for spec in self.job.export.outputs}

    def placement(self) -> Placement:
        """The precision of the engine's own layers; see harness/backends/tensorrt/layers.py for the evidence."""
        record = self._record
        precision = layers.precision_of(
            record.precisions,
            record.request.precision,
            record.engine.size_bytes,
            self.job.export.parameters,
            _lookup_parameters(self.job.export),
        )
        return Placement(
            device="cuda",
            precision=precision,
            provider=f"TensorRT {versions.version()}",
            settings={
                "profiles": str(self.job.options.get("profiles", "static")),
                "cuda_graph": bool(self._graphs),
                "fp16_io": record.request.fp16_io,
                "kept_fp32": len(record.kept_fp32),
                "layers": record.layers,
                **record.builder,
            },
            dtype_census=record.precisions,
        )

    def build_facts(self) -> dict[str, str]:
        """TensorRT's version."""
        return {"tensorrt": versions.version()}

    def close(self) -> None:
        """Graphs first, then the memory that they use, then the context. Safe after a load() that failed half-way."""
        for graph in self._graphs:
            graph.close()
        for name in ("_infer", "_calls", "_buffers", "_execute", "_context", "_engine", "_runtime"):
            vars(self).pop(name, None)
        if "_cuda" in vars(self):
            self._cuda.close()

    def _call(self, tensors: InferTensors) -> Callable[[], None]:
        """The function that one infer() calls on these tensors."""
        self._bind(tensors)
        self._enqueue()  # TensorRT allocates on the first call of a shape, which no graph could capture
        self.stream.synchronize()
        if not self.job.options.get("graph"):
            return self._enqueue
        graph = Graph(self.stream, self._enqueue)
        self._graphs.append(graph)
        return graph.launch

    def _bind(self, tensors: InferTensors) -> None:
        for named in (tensors.inputs, tensors.outputs):
            for name, tensor in named.items():
                self._context.set_tensor_address(name, tensor.address)

    def _enqueue(self) -> None:
        if not self._execute(self._handle):
            raise self._refused("could not be enqueued")

    def _output(self, name: str) -> DeviceArray:
        shape = tuple(self._context.get_tensor_shape(name))
        return self._cuda.empty(shape, np.dtype(trt.nptype(self._engine.get_tensor_dtype(name))))

    def _typed(self, batch: Batch) -> Batch:
        """The arrays in the types that the engine reads: TensorRT 8 has no int64 inputs."""
        kinds = {name: np.dtype(trt.nptype(self._engine.get_tensor_dtype(name))) for name in self._input_names}
        return {name: np.ascontiguousarray(batch[name], dtype=kind) for name, kind in kinds.items()}

    def _refused(self, thing: str) -> CaseError:
        reasons = " | ".join(self._log.errors) or "TensorRT gave no reason"
        if is_out_of_memory(reasons):
            return self._out_of_memory()
        return CaseError(
            f"The engine {self._record.engine.path} {thing}: {reasons}", "Build it again: `make engines FORCE=1`."
        )

    def _out_of_memory(self) -> CaseError:
        return CaseError(*out_of_memory("cuda", self.job.case.batch_size))


def _lookup_parameters(export: ExportRecord) -> int:
    """Parameters in lookup tables; 0 where the parameters that a pass multiplies were not counted."""
    multiplied = max((work.parameters for work in export.work), default=None)
    return 0 if multiplied is None or export.parameters is None else max(0, export.parameters - multiplied)
