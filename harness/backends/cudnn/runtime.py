"""cudnn: one infer() is one launch of the CUDA graph that holds the fused kernels of all layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from pycuda import driver

from harness.backends.base import Array, BackendJob, Batch, is_out_of_memory, out_of_memory
from harness.backends.case_files import onnx_artifact
from harness.backends.cuda import libraries
from harness.backends.cuda.context import BufferedBackend, Buffers, Cuda, DeviceArray, InferTensors
from harness.backends.cuda.graph import Graph
from harness.backends.cudnn import tuning
from harness.backends.cudnn.layer_plan import (
    Convolution,
    Fold,
    LayerPlan,
    LayerStep,
    Pooling,
    channels_last,
    folded,
    in_blocks,
    layer_plan,
)
from harness.backends.cudnn.tuning import TunedStep, TuningPlace
from harness.backends.precision import precision_of
from harness.core.errors import CaseError, NotSupportedError
from harness.core.schemas import Placement

libraries.preload()  # cuDNN's frontend looks in one folder, and otherwise takes the library that is loaded
import cudnn  # noqa: E402

from harness.backends.cudnn.graphs import (  # noqa: E402
    BIAS,
    FORMS,
    NO_PLAN,
    RESIDUAL,
    RESULT,
    SOURCE,
    WEIGHT,
    FusedGraph,
)
from harness.backends.cudnn.pooling import OwnPooling, PoolingCall, load_kernels  # noqa: E402

CHANNELS = 4
"""The input's channels are padded to a multiple of it: cuDNN has kernels for first layers that read 4."""
MOST_WORKSPACE = 1 << 30
"""Plans that need more bytes are not tried."""
GENERATED = 5
"""So many of the kernels that cuDNN generates are tried, the best by its heuristics: each is compiled for half a
second. All precompiled ones are tried."""
PROMISING = 1.15
"""No further ones are generated when the first takes this many times the best precompiled one."""
LIBRARY, OWN = "library", "own"
"""Forms of a pooling's kernel."""
LAST_PLACE = 2.0**-10
"""Relative: how far averages in fp16 may differ. Maxima may not."""

Addresses = Mapping[int, int]
Kernel = Callable[[Addresses], None]


@dataclass(frozen=True)
class _Candidate:
    """A timed plan of a step's graph in one form; workspace in bytes."""

    device_ns: float
    form: str
    graph: FusedGraph
    index: int
    workspace: int


class CuDnn(BufferedBackend):
    """Values and weights in fp16 and NHWC, sums in fp32. Inputs are laid out on the host: at the compute and transfer
    boundaries before the clock starts, as inputs in PyTorch's channels_last are.

    Options: `graph` (a CUDA graph for each input batch), `folded` (layer_plan.py).
    """

    compiles = True

    def __init__(self, job: BackendJob) -> None:
        super().__init__(job)
        self._artifact = onnx_artifact(job.export, job.case.precision)
        self._graphs: list[Graph] = []
        self._kernels: dict[str, Kernel] = {}
        self._tuned: dict[str, TunedStep] = {}
        self._poolings: list[PoolingCall] = []
        self._fold: Fold | None = None

    @property
    def plan(self) -> LayerPlan:
        """The steps, from load() on."""
        return self._plan

    def load(self) -> None:
        """Read the file; put weights, every input batch and room for all values on the device."""
        try:
            self._load()
        except driver.MemoryError as error:
            raise self._out_of_memory() from error

    def _load(self) -> None:
        self._cuda = Cuda(copies_apart=self.job.slots > 1)
        self.stream, self.copy_streams = self._cuda.stream, self._cuda.copy_streams
        self._handle = cudnn.create_handle()
        cudnn.set_stream(handle=self._handle, stream=int(self.stream.handle))
        model = onnx.load(str(self.job.folder / self._artifact.path))
        if self.job.options.get("folded"):
            self._plan, self._fold = folded(layer_plan(model, _only(self.job.batches[0]).shape))
        else:
            self._plan = layer_plan(model, _only(self.job.batches[0]).shape, CHANNELS)
        plan = self._plan
        self._own_kernels = load_kernels() if any(isinstance(step, Pooling) for step in plan.steps) else None
        self._constants = {name: self._uploaded(name) for name in plan.constants}
        self._biases = {
            step.bias: {
                "precompiled": self._cuda.put(plan.constants[step.bias].astype(np.float16)),
                "generated": self._cuda.put(plan.constants[step.bias]),
            }
            for step in plan.steps
            if isinstance(step, Convolution)
        }
        outputs = {plan.output_name: self._room(plan.result)}
        self._buffers = Buffers(self._cuda, self.job, [self._typed(batch) for batch in self.job.batches], outputs)
        inner = plan.extents.keys() - {plan.source, plan.result}
        self._values = {name: self._room(name) for name in sorted(inner)}
        self._workspace = self._cuda.empty((1,), np.dtype(np.uint8))

    def compile_cached(self) -> bool:
        """Whether an earlier process tuned this case on this GPU with this cuDNN."""
        return bool(tuning.read_tuned(self._file, self._place))

    def compile(self) -> None:
        """Build the fastest plan of each step, as tuned by an earlier process or now; capture a graph per batch."""
        try:
            kept = tuning.read_tuned(self._file, self._place)
            tensors = self._buffers.sets[0]
            for step in self._plan.steps:
                signature = self._plan.signature(step)
                if signature not in self._kernels:
                    self._kernels[signature] = self._kernel(step, kept.get(signature), tensors)
                self._launch(step, tensors)  # so that the next step is tuned on what it reads in an inference
            self.stream.synchronize()
            if self._tuned != kept:
                tuning.write_tuned(self._file, self._place, self._tuned)
            self._reserve(max((step.workspace_bytes for step in self._tuned.values()), default=0), exactly=True)
            self._calls = [self._call(tensors) for tensors in self._buffers.sets]
        except driver.MemoryError as error:
            raise self._out_of_memory() from error
        self._infer = self._calls[0]

    def select(self, index: int) -> None:
        """Point the next launch at a batch, or the next upload at pinned arrays."""
        self._infer = self._calls[self._buffers.select(index)]

    def infer(self) -> None:
        """Enqueue once."""
        self._infer()

    def outputs(self) -> dict[str, Array]:
        """Copies as fp32, with channels before height and width."""
        outputs = self._buffers.fetched()
        if self._plan.flat:
            return outputs
        return {name: np.ascontiguousarray(values.transpose(0, 3, 1, 2)) for name, values in outputs.items()}

    def step_times(self) -> list[int]:
        """ns of each step alone, from compile() on, on the values of the first batch."""
        tensors = self._buffers.sets[0]
        self._enqueue(tensors)  # all values are those of one inference
        times = [tuning.launch_time(self.stream, partial(self._launch, step, tensors), 5) for step in self._plan.steps]
        return [round(ns) if ns is not None else 0 for ns in times]

    def placement(self) -> Placement:
        """Types of the weights on the device, and the plans that were built."""
        kinds = Counter(_KINDS[self._constants[step.weight].dtype] for step in self._convolutions())
        forms = Counter(self._tuned[self._plan.signature(step)].form for step in self._plan.steps)
        return Placement(
            device="cuda",
            precision=precision_of(kinds),
            provider=f"cuDNN {cudnn.backend_version_string()}",
            settings={
                "cuda_graph": bool(self._graphs),
                "layout": "NHWC",
                "input": "x".join(map(str, self._plan.extents[self._plan.source])),
                "kernels": len(self._plan.steps),
                **{f"{form}_kernels": forms[form] for form in FORMS},
                **{f"{form}_poolings": forms[form] for form in (LIBRARY, OWN)},
                "file": self._artifact.path,
                "opset": self._artifact.opset,
            },
            dtype_census=dict(kinds),
        )

    def build_facts(self) -> dict[str, str]:
        """Versions of cuDNN and its frontend."""
        return {"cudnn": cudnn.backend_version_string(), "cudnn_frontend": cudnn.__version__}

    def close(self) -> None:
        """Graphs first, then what they use, then the context. Safe after a load() that failed half-way."""
        for graph in self._graphs:
            graph.close()
        for pooling in self._poolings:
            pooling.close()
        held = ("_infer", "_calls", "_kernels", "_own_kernels")
        for name in (*held, "_buffers", "_values", "_constants", "_biases", "_workspace"):
            vars(self).pop(name, None)
        if "_handle" in vars(self):
            cudnn.destroy_handle(self._handle)
        if "_cuda" in vars(self):
            self._cuda.close()

    def _kernel(self, step: LayerStep, kept: TunedStep | None, tensors: InferTensors) -> Kernel:
        """The kernel of a signature; what was chosen for it is in self._tuned."""
        signature = self._plan.signature(step)
        if isinstance(step, Pooling):
            return self._pooling(signature, step, kept, tensors)
        if kept is not None:
            graph = self._fused(step, kept.form)
            if graph is not None and kept.plan in graph.names:
                index = graph.names.index(kept.plan)
                self._reserve(graph.build(index))
                self._tuned[signature] = kept
                return self._launcher(graph, index)
        return self._tune(signature, step, tensors)

    def _pooling(self, signature: str, step: Pooling, kept: TunedStep | None, tensors: InferTensors) -> Kernel:
        """cuDNN's kernel, or ours where it is faster and gives the same on the values of the first batch."""
        extents = self._plan.extents[step.source], self._plan.extents[step.result]
        call = PoolingCall(step, *extents)
        self._poolings.append(call)
        handle = self._handle.backend_handle
        kernels: dict[str, Kernel] = {LIBRARY: lambda at: call.launch(handle, at[SOURCE], at[RESULT])}
        if self._own_kernels is not None and OwnPooling.fits(*extents):
            own = OwnPooling(self._own_kernels, step, *extents)
            kernels[OWN] = lambda at: own.launch(self.stream, at[SOURCE], at[RESULT])
        if kept is None or kept.form not in kernels:
            addresses = self._addresses(step, tensors, "")
            results = {form: self._result(kernel, addresses, step, tensors) for form, kernel in kernels.items()}
            slack = 0.0 if step.kind == "max" else LAST_PLACE
            same = [
                form for form in kernels if np.allclose(results[form], results[LIBRARY], slack, slack, equal_nan=True)
            ]
            (best, *_) = tuning.fastest(self.stream, [partial(kernels[form], addresses) for form in same])
            kept = TunedStep(
                form=same[best.index],
                plan="cudnnPoolingForward" if same[best.index] == LIBRARY else "pooling.cu",
                workspace_bytes=0,
                device_ns=best.device_ns,
                tried=len(same),
            )
        self._tuned[signature] = kept
        return kernels[kept.form]

    def _result(self, kernel: Kernel, addresses: Addresses, step: LayerStep, tensors: InferTensors) -> Array:
        """The result of a kernel, as fp32 on the host."""
        kernel(addresses)
        return self._cuda.fetch(self._array(step.result, tensors)).astype(np.float32)

    def _tune(self, signature: str, step: Convolution, tensors: InferTensors) -> Kernel:
        """Time cuDNN's plans on this GPU. NotSupportedError where it has none that can be captured."""
        precompiled, generated = (self._fused(step, form) for form in FORMS)
        timed: list[_Candidate] = []
        if precompiled is not None:
            timed += self._timed(step, FORMS[0], precompiled, range(len(precompiled.names)), tensors)
        if generated is not None:
            first = self._timed(step, FORMS[1], generated, range(1), tensors)
            if not timed or (
                first and first[0].device_ns < PROMISING * min(candidate.device_ns for candidate in timed)
            ):
                first += self._timed(step, FORMS[1], generated, range(1, min(GENERATED, len(generated.names))), tensors)
            timed += first
        if not timed:
            raise NotSupportedError(
                f"cuDNN {cudnn.backend_version_string()} has no kernel for {', '.join(step.nodes)} ({signature}).",
                "Leave cudnn out for this model: BACKENDS=….",
            )
        best = min(timed, key=lambda candidate: candidate.device_ns)
        self._tuned[signature] = TunedStep(
            form=best.form,
            plan=best.graph.names[best.index],
            workspace_bytes=best.workspace,
            device_ns=best.device_ns,
            tried=len(timed),
        )
        return self._launcher(best.graph, best.index)

    def _timed(
        self, step: Convolution, form: str, graph: FusedGraph, indices: Iterable[int], tensors: InferTensors
    ) -> list[_Candidate]:
        """Those of a graph's plans that can be built and captured."""
        built = {index: workspace for index in indices if (workspace := _built(graph, index)) is not None}
        self._reserve(max(built.values(), default=0))
        addresses, numbers = self._addresses(step, tensors, form), list(built)
        launches = [partial(self._launcher(graph, index), addresses) for index in numbers]
        return [
            _Candidate(candidate.device_ns, form, graph, numbers[candidate.index], built[numbers[candidate.index]])
            for candidate in tuning.fastest(self.stream, launches)
        ]

    def _fused(self, step: Convolution, form: str) -> FusedGraph | None:
        """The graph in one form; None where cuDNN has no plan for it."""
        try:
            return FusedGraph(self._plan, step, form, self._handle)
        except NO_PLAN as error:
            if is_out_of_memory(str(error)):
                raise self._out_of_memory() from error
            return None

    def _launcher(self, graph: FusedGraph, index: int) -> Kernel:
        return lambda addresses: graph.launch(index, addresses, self._workspace.address)

    def _launch(self, step: LayerStep, tensors: InferTensors) -> None:
        signature = self._plan.signature(step)
        form = self._tuned[signature].form if signature in self._tuned else ""
        self._kernels[signature](self._addresses(step, tensors, form))

    def _enqueue(self, tensors: InferTensors) -> None:
        for step in self._plan.steps:
            self._launch(step, tensors)

    def _call(self, tensors: InferTensors) -> Callable[[], None]:
        """The function that one infer() calls on these tensors."""
        enqueue = partial(self._enqueue, tensors)
        enqueue()
        self.stream.synchronize()
        if not self.job.options.get("graph"):
            return enqueue
        graph = Graph(self.stream, enqueue)
        self._graphs.append(graph)
        return graph.launch

    def _addresses(self, step: LayerStep, tensors: InferTensors, form: str) -> dict[int, int]:
        addresses = {SOURCE: self._address(step.source, tensors), RESULT: self._address(step.result, tensors)}
        if isinstance(step, Convolution):
            addresses[WEIGHT] = self._constants[step.weight].address
            addresses[BIAS] = self._biases[step.bias][form].address
            if step.residual is not None:
                addresses[RESIDUAL] = self._address(step.residual, tensors)
        return addresses

    def _address(self, value: str, tensors: InferTensors) -> int:
        return self._array(value, tensors).address

    def _array(self, value: str, tensors: InferTensors) -> DeviceArray:
        if value == self._plan.source:
            return tensors.inputs[self._plan.input_name]
        if value == self._plan.result:
            return tensors.outputs[self._plan.output_name]
        return self._values[value]

    def _convolutions(self) -> list[Convolution]:
        return [step for step in self._plan.steps if isinstance(step, Convolution)]

    def _uploaded(self, name: str) -> DeviceArray:
        values = self._plan.constants[name]
        return self._cuda.put(channels_last(values) if values.ndim == 4 else values.astype(np.float16))

    def _room(self, value: str) -> DeviceArray:
        n, c, h, w = self._plan.extents[value]
        flat = value == self._plan.result and self._plan.flat
        return self._cuda.empty((n, c) if flat else (n, h, w, c), np.dtype(np.float16))

    def _reserve(self, workspace: int, exactly: bool = False) -> None:
        if workspace > self._workspace.nbytes or (exactly and workspace < self._workspace.nbytes):
            self._workspace = self._cuda.empty((max(workspace, 1),), np.dtype(np.uint8))

    def _typed(self, batch: Batch) -> Batch:
        pictures = _only(batch)
        if self._fold is not None:
            return {self._plan.input_name: in_blocks(pictures, self._fold)}
        return {self._plan.input_name: channels_last(pictures, self._plan.extents[self._plan.source][1])}

    @property
    def _file(self) -> Path:
        return (self.job.cache / self.job.case.case_id / "plans.json").resolve()

    @property
    def _place(self) -> TuningPlace:
        return TuningPlace(
            cudnn=cudnn.backend_version(),
            frontend=cudnn.__version__,
            gpu=driver.Device(0).name(),
            onnx_sha256=self._artifact.sha256,
        )

    def _out_of_memory(self) -> CaseError:
        return CaseError(*out_of_memory("cuda", self.job.case.batch_size))


_KINDS = {np.dtype(np.float16): "fp16", np.dtype(np.float32): "fp32"}


def _built(graph: FusedGraph, index: int) -> int | None:
    """Its bytes of workspace; None where a plan cannot be built or needs too many."""
    try:
        workspace = graph.build(index)
    except NO_PLAN:
        return None
    return workspace if workspace <= MOST_WORKSPACE else None


def _only(batch: Batch) -> Array:
    """The one input of a model; NotSupportedError where there are several."""
    if len(batch) != 1:
        raise NotSupportedError(
            f"The cudnn backend does not run a model with {len(batch)} inputs.", "Leave cudnn out for this model."
        )
    return next(iter(batch.values()))
