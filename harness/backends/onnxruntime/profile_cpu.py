"""The profilers of onnxruntime and its decoder: per node, by a copy of the timed session that profiles itself; and rows
from ONNX Runtime's own profile, a list of events in Chrome's format (pure).

A run is a `Session` event named model_run (or SequentialExecutor::Execute) that spans `Node` events, whose names are
the optimised graph's nodes followed by `_kernel_time`. Times are whole µs, so nodes below 1 µs count as 0.
"""

from __future__ import annotations

import json
import tempfile
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.backends.base import BackendJob, Batch
from harness.backends.decoder import DecoderJob, DecoderPhase
from harness.backends.onnx_node_names import (
    Node,
    NodeIndex,
    exported_graph,
    fused_nodes,
    module_and_group,
    read_graph,
)
from harness.backends.onnxruntime.cpu import OnnxRuntime
from harness.backends.onnxruntime.decoder import OnnxDecoder
from harness.backends.profile_timing import inference_span, load_and_warm_up, spans_alone
from harness.core.errors import UnavailableError
from harness.core.schemas.profile_record import GenerationPhase, LayerRow, PartsProfile
from harness.core.store import save_bytes
from harness.profiling.launch_gaps import GPU_WORK, LAUNCHES
from harness.profiling.reconcile import middle_mean, middle_runs

Event = Mapping[str, Any]
_KERNEL = "_kernel_time"
_RUN = "model_run"


@dataclass
class ProfiledRun:
    """One run: its wall time in µs, and the events of its nodes in their order."""

    span_us: int
    nodes: list[Event] = field(default_factory=list)


def is_node(event: Event) -> bool:
    """Whether an event is the time of a node, not of a fence before or after it."""
    return bool(event["cat"] == "Node" and event["name"].endswith(_KERNEL))


def profiled_runs(events: Sequence[Event]) -> list[ProfiledRun]:
    """The runs in a profile, in their order; events outside all runs are left out."""
    spans = sorted((event["ts"], event["dur"]) for event in events if event["name"] == _RUN)
    nodes = sorted(filter(is_node, events), key=lambda event: event["ts"])
    runs, place = [], 0
    for start, length in spans:
        run = ProfiledRun(length)
        while place < len(nodes) and nodes[place]["ts"] <= start + length:
            if nodes[place]["ts"] >= start:
                run.nodes.append(nodes[place])
            place += 1
        runs.append(run)
    return runs


def last_runs(events: Sequence[Event], count: int) -> list[Event]:
    """The events of the last `count` runs, for a trace that opens quickly whatever the number of runs."""
    starts = sorted(event["ts"] for event in events if event["name"] == _RUN)[-count:]
    return [event for event in events if starts and event["ts"] >= starts[0]]


def layer_rows(runs: Sequence[ProfiledRun], members: Mapping[str, Sequence[Node]]) -> tuple[LayerRow, ...]:
    """One row per node of the optimised graph, in the order of the run; means over the runs of typical length.

    members: name of a node → the nodes of the exported graph that it computes.
    """
    typical = [runs[place] for place in middle_runs([run.span_us for run in runs])]
    spent: dict[str, float] = {}
    calls: dict[str, int] = {}
    first: dict[str, Event] = {}
    for run in typical:
        for event in run.nodes:
            name = _name(event)
            spent[name] = spent.get(name, 0) + event["dur"]
            calls[name] = calls.get(name, 0) + 1
            first.setdefault(name, event)
    return tuple(
        _row(name, event, calls[name] / len(typical), round(spent[name] * 1000 / len(typical)), members.get(name, ()))
        for name, event in first.items()
    )


def _row(name: str, event: Event, calls: float, spent_ns: int, members: Sequence[Node]) -> LayerRow:
    about = event["args"]
    module, group = module_and_group(members, about["op_name"])
    return LayerRow(
        name=name,
        kind=about["op_name"],
        parent=module,
        calls=calls,
        self_ns=spent_ns,
        total_ns=spent_ns,
        output_shapes=tuple(tuple(shape) for output in about.get("output_type_shape", ()) for shape in output.values()),
        output_bytes=int(about["output_size"]) if "output_size" in about else None,
        members=tuple(node.name for node in members) if [node.name for node in members] != [name] else (),
        group=group,
    )


def _name(event: Event) -> str:
    return str(event["name"]).removesuffix(_KERNEL)


LEAST = 0.98
"""The share of the GPU's time that nodes must have launched; below it, the two clocks may differ."""

_TRUNCATED_US = 1.0
"""ONNX Runtime reports whole microseconds: a node may end so much later than it says."""


def with_gpu_times(
    profiled: Sequence[Event], profile_from_ns: int, trace: Sequence[Event], trace_from_ns: int
) -> tuple[list[Event], float]:
    """(ONNX Runtime's events, nodes with the GPU's time in µs in place of the host's; the share of the GPU's time that
    belongs to nodes, 0 without GPU time).

    profiled: ONNX Runtime's profile. trace: torch.profiler's. profile_from_ns, trace_from_ns: when their times begin.
    """
    shift_us = (trace_from_ns - profile_from_ns) / 1e3
    nodes = sorted(filter(is_node, profiled), key=lambda event: event["ts"])
    starts = [event["ts"] for event in nodes]
    lasting: dict[int | None, float] = {}
    for event in trace:
        if event.get("cat") in GPU_WORK:  # a launch may start several kernels
            launch = event["args"].get("correlation")
            lasting[launch] = lasting.get(launch, 0.0) + event["dur"]
    spent = [0.0] * len(nodes)
    for event in trace:
        launch = event["args"].get("correlation") if event.get("cat") in LAUNCHES else None
        if launch is None or launch not in lasting:
            continue
        at = event["ts"] + shift_us
        place = bisect_right(starts, at) - 1
        if place >= 0 and at <= starts[place] + nodes[place]["dur"] + _TRUNCATED_US:
            spent[place] += lasting[launch]
    every = sum(lasting.values())
    others = [event for event in profiled if not is_node(event)]
    timed = [{**event, "dur": work_us} for event, work_us in zip(nodes, spent, strict=True)]
    return [*others, *timed], sum(spent) / every if every else 0.0


TRACE = "nodes.trace.json"
MAX_TRACED_RUNS = 10
"""Of a 12-layer encoder a run has some hundred events with many arguments; a trace of more runs opens slowly."""
_NO_FLOPS = "No FLOPs by node: kernels contain parts of several modules."
_MICROSECONDS = "ONNX Runtime reports whole microseconds: shorter nodes count as 0."


def _profiling_options(options: Any, folder: Path, name: str) -> Any:
    """Session options with profiling into `folder`, and a copy of the optimised graph there."""
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / name)
    options.optimized_model_filepath = str(folder / f"{name}.onnx")
    options.log_severity_level = 3  # else it warns that the copy is for this machine alone
    return options


class ProfiledOnnxRuntime(OnnxRuntime):
    """The timed session with a profile and a copy of the graph that it made from the file."""

    def __init__(self, job: BackendJob, folder: Path) -> None:
        super().__init__(job)
        self._scratch, self.graph = folder, folder / "optimised.onnx"

    def session_options(self) -> Any:
        """The usual options, with profiling."""
        return _profiling_options(super().session_options(), self._scratch, self.graph.stem)


class ProfiledOnnxDecoder(OnnxDecoder):
    """The decoder of one phase, whose session profiles itself."""

    def __init__(self, job: DecoderJob, folder: Path, phase: GenerationPhase) -> None:
        super().__init__(job)
        self._scratch, self.graph = folder, folder / "optimised.onnx"
        # A seq2seq model has a file of its own for the first step; of a causal one the same file serves both phases.
        self._in_first = phase == "prefill" and job.shape.kind == "seq2seq"

    def end_profiling(self) -> Path:
        """Ends the profile of the phase's session; the file that has it."""
        session: Any = self._first if self._in_first else self._session
        return Path(session.end_profiling())

    @property
    def phase_file(self) -> Path:
        """The file of the phase's session."""
        return self.prefill_file if self._in_first else self.file

    def _options(self, file: Path) -> Any:
        options = super()._options(file)
        profiled = (file == self.file) != self._in_first
        return _profiling_options(options, self._scratch, self.graph.stem) if profiled else options


def profile(job: BackendJob, batches: Sequence[Batch], folder: Path, runs: int) -> PartsProfile:
    """Nodes of the optimised graph on a CPU, kernels on a GPU.

    batches: rotated through while profiling. folder: where the trace goes. runs: inferences with profile and without.
    """
    job = replace(job, batches=batches)
    if job.case.device == "cpu":
        return _nodes(job, folder, runs)
    from harness.backends.onnxruntime import profile_cuda  # noqa: PLC0415 - imports pycuda, which a CPU machine lacks

    return profile_cuda.profile(job, folder, runs)


def _nodes(job: BackendJob, folder: Path, runs: int) -> PartsProfile:
    before = spans_alone(OnnxRuntime(job), runs)
    spans, events, kernels = _profiled(job, runs)
    after = spans_alone(OnnxRuntime(job), runs)
    original, unknown = exported_graph(job)
    members = fused_nodes(original, kernels) if original.nodes else {}
    save_bytes(folder / TRACE, json.dumps(last_runs(events, MAX_TRACED_RUNS)).encode())
    return PartsProfile(
        layers=layer_rows(profiled_runs(events)[-runs:], members),
        operators=(),
        traces=(TRACE,),
        window_ns=middle_mean(spans),
        plain_ns=middle_mean(before + after),
        notes=(_NO_FLOPS, _MICROSECONDS, *unknown),
    )


def _profiled(job: BackendJob, runs: int) -> tuple[list[int], list[Any], NodeIndex]:
    """(wall times in ns, all events, the optimised graph) of a session that profiles itself and is then closed."""
    with tempfile.TemporaryDirectory(prefix="inferometer-") as scratch:
        backend = ProfiledOnnxRuntime(job, Path(scratch))
        load_and_warm_up(backend)
        spans = [inference_span(backend, index) for index in range(runs)]
        events = json.loads(backend.end_profiling().read_bytes())
        return spans, events, read_graph(backend.graph)


def decoder(
    job: DecoderJob, prompts: NDArray[np.int64], phase: GenerationPhase, folder: Path, runs: int
) -> PartsProfile:
    """Nodes of one phase on a CPU. prompts: (samples, length), taken in turn. folder, runs: as in profile()."""
    before = spans_alone(DecoderPhase(OnnxDecoder(job), prompts, phase), runs)
    with tempfile.TemporaryDirectory(prefix="inferometer-") as scratch:
        profiled = ProfiledOnnxDecoder(job, Path(scratch), phase)
        backend = DecoderPhase(profiled, prompts, phase)
        load_and_warm_up(backend)
        spans = [inference_span(backend, index) for index in range(runs)]
        events = json.loads(profiled.end_profiling().read_bytes())
        kernels = read_graph(profiled.graph)
        original = read_graph(profiled.phase_file)
        backend.close()
    after = spans_alone(DecoderPhase(OnnxDecoder(job), prompts, phase), runs)
    # The session of a seq2seq phase runs that phase alone.
    order = [kind for kind in backend.ran if job.shape.kind == "causal" or kind == phase]
    phase_runs = [run for run, kind in zip(profiled_runs(events), order, strict=True) if kind == phase]
    save_bytes(folder / TRACE, json.dumps(last_runs(events, MAX_TRACED_RUNS)).encode())
    return PartsProfile(
        layers=layer_rows(phase_runs[-runs:], fused_nodes(original, kernels)),
        operators=(),
        traces=(TRACE,),
        window_ns=middle_mean(spans),
        plain_ns=middle_mean(before + after),
        notes=(_NO_FLOPS, _MICROSECONDS),
    )


_IN_USE = "mem_bytes_requested_in_use"
_CHANGE = "mem_requested_in_use_delta"

_BY = (
    "measured: most bytes in use of ONNX Runtime's arena after any node of a warm pass, less those before the first "
    "pass; what a kernel frees before it returns is not seen"
)


def peak_bytes(job: BackendJob) -> tuple[int, str]:
    """(bytes beyond weights, inputs and outputs at the peak of one warm pass, how they were measured).

    UnavailableError on a GPU, and where this version reports no memory.
    """
    if job.case.device != "cpu":
        raise UnavailableError("ONNX Runtime's memory figures are read on a CPU only", "The estimate is beside it.")
    with tempfile.TemporaryDirectory(prefix="inferometer-") as scratch:
        backend = ProfiledOnnxRuntime(job, Path(scratch))
        load_and_warm_up(backend)
        return peak_beyond_start(profiled_runs(json.loads(backend.end_profiling().read_bytes()))), _BY


def peak_beyond_start(runs: Sequence[ProfiledRun]) -> int:
    """Most bytes in use after any node of the last run, less those before the first node of the first run.

    The first run shows the memory in use without a pass. From the second run on, ONNX Runtime takes its planned memory
    as one block before any node runs, so that it is missing in these runs. UnavailableError where nodes report no
    memory.
    """
    first, last = runs[0].nodes[0]["args"], [node["args"] for node in runs[-1].nodes]
    if _IN_USE not in first:
        raise UnavailableError("this ONNX Runtime reports no memory in its profile", "1.32 does.")
    return max(int(node[_IN_USE]) for node in last) - (int(first[_IN_USE]) - int(first[_CHANGE]))
