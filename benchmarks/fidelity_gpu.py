"""Is the harness's TensorRT row that of a bare loop over the same engine? Runs in TensorRT's interpreter.

    python -m benchmarks.fidelity_gpu --results results --models-dir models

For each case of `tensorrt` in the plan with a CUDA graph at the compute boundary: one process deserialises the engine
twice, once through the harness's backend and once by TensorRT's own calls, with the same input batches on the GPU.
Blocks of the harness's loop and of the bare loop alternate, the first of each pair in turn. The bare loop records an
event, launches the graph, records an event and waits; nothing of the harness runs in it. Printed are the medians of the
block medians, the ratio with its 95% interval over the pairs, host − device of the harness's samples, and the SM clock
during the blocks of each side. The goal: 1% (docs/speed.md).
"""

from __future__ import annotations

import argparse
import statistics
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pynvml
import tensorrt
from cuda.bindings import runtime
from pycuda import driver

from harness.backends import backend_info
from harness.backends.base import Batch, construct
from harness.backends.batches import load_batches
from harness.backends.case_files import make_backend_job, read_case_export
from harness.core import store
from harness.core.host import limits
from harness.core.layout import Results
from harness.core.protocol import CaseJob
from harness.core.schemas import Case, Measurement, Plan
from harness.statistics.estimators import log_t_interval
from harness.timing.session import mode_for

BLOCK_NS = 150_000_000
WARM_UP_NS = 1_000_000_000
MOST_SAMPLES = 200_000


class BareLoop:
    """The engine by TensorRT's calls alone: a context, a graph for each batch, two events."""

    def __init__(self, plan: Path, batches: Sequence[Batch]) -> None:
        self._library = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.ERROR))
        self._engine = self._library.deserialize_cuda_engine(plan.read_bytes())
        self._execution = self._engine.create_execution_context()
        self._stream = driver.Stream()
        self._handle = runtime.cudaStream_t(self._stream.handle)
        self._events = driver.Event(), driver.Event()
        self._held: list[Any] = []
        self._graphs = [self._captured(batch) for batch in batches]
        self._next = 0

    def block(self, duration_ns: int) -> float:
        """Median device time of one launch in microseconds, over launches that last so long on the device."""
        before, after = self._events
        times: list[float] = []
        left_us = duration_ns / 1e3
        while left_us > 0:
            graph = self._graphs[self._next % len(self._graphs)]
            self._next += 1
            before.record(self._stream)
            runtime.cudaGraphLaunch(graph, self._handle)
            after.record(self._stream)
            after.synchronize()
            times.append(float(after.time_since(before)) * 1e3)
            left_us -= times[-1]
        return statistics.median(times)

    def close(self) -> None:
        """Free the memory while its context is current."""
        for graph in self._graphs:
            runtime.cudaGraphExecDestroy(graph)
        for memory in self._held:
            memory.free()
        del self._execution, self._engine, self._library

    def _captured(self, batch: Batch) -> Any:
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        for name in names:
            if name in batch:
                self._execution.set_input_shape(name, batch[name].shape)
        for name in names:
            kind = np.dtype(tensorrt.nptype(self._engine.get_tensor_dtype(name)))
            shape = tuple(self._execution.get_tensor_shape(name))
            values = np.ascontiguousarray(batch[name], kind) if name in batch else np.empty(shape, kind)
            memory = driver.mem_alloc(values.nbytes)
            driver.memcpy_htod(memory, values)
            self._held.append(memory)
            self._execution.set_tensor_address(name, int(memory))
        self._execution.execute_async_v3(self._stream.handle)
        self._stream.synchronize()
        runtime.cudaStreamBeginCapture(self._handle, runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal)
        self._execution.execute_async_v3(self._stream.handle)
        _, graph = runtime.cudaStreamEndCapture(self._handle)
        _, executable = runtime.cudaGraphInstantiate(graph, 0)
        return executable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--models-dir", type=Path, default=Path("models"))
    parser.add_argument("--pairs", type=int, default=20)
    options = parser.parse_args()
    plan = store.load(Results(options.results).plan, Plan, "make plan")
    cases = [case for case in plan.cases if _is_compared(case)]
    if not cases:
        sys.exit("The plan has no case of tensorrt with a CUDA graph.\nmake plan DEVICE=cuda BACKENDS=tensorrt")
    print(
        "| case | harness, device µs | bare loop µs | ratio [95%] | host − device µs | SM clock, MHz |\n|" + "---|" * 6
    )
    for case in cases:
        print(_line(case, plan, options.results, options.models_dir, options.pairs), flush=True)


def _is_compared(case: Case) -> bool:
    plain = case.backend == "tensorrt" and case.mode == "sync" and case.boundary == "compute"
    return plain and bool(backend_info(case.backend).setting(case.device, case.setting).all_options().get("graph"))


def _line(case: Case, plan: Plan, results: Path, models: Path, pairs: int) -> str:
    job = CaseJob(
        case=case,
        round=1,
        settings_id=plan.settings_id,
        measurement=Measurement(),
        threads=limits.thread_count(),
        results=str(results),
        models=str(models),
        export=str(Results(results).export(case.slug).record),
    )
    export, folder = read_case_export(job)
    batches = load_batches(folder.root, export, case, job.measurement.parity_samples).inputs
    given = make_backend_job(job, export, folder, batches)
    backend = construct(backend_info(case.backend).target_on(case.device), given)
    backend.load()
    engine = given.engine
    if engine is None:
        sys.exit(f"{case.case_id} has no engine.\nmake engines")
    bare = BareLoop((given.engine_folder or given.folder) / engine.engine.path, batches)
    mode = mode_for(case, backend, len(batches))
    samples = array("q", bytes(8 * MOST_SAMPLES))
    clock = _SmClock()

    def ours() -> tuple[float, float]:
        """Medians of a block in microseconds: (device, host − device)."""
        count = mode.block(samples, 0, BLOCK_NS, 20).iterations
        measured = mode.device_samples(count)
        device = statistics.median(measured.device_ns if measured else ()) / 1e3
        return device, statistics.median(samples[:count]) / 1e3 - device

    mode.block(samples, 0, WARM_UP_NS, 20)
    bare.block(WARM_UP_NS)
    sides: dict[str, list[float]] = {"ours": [], "bare": [], "gap": [], "our clock": [], "bare clock": []}
    for pair in range(pairs):
        for side in ("ours", "bare") if pair % 2 == 0 else ("bare", "ours"):
            if side == "ours":
                device, gap = ours()
                sides["ours"].append(device)
                sides["gap"].append(gap)
                sides["our clock"].append(clock.mhz())
            else:
                sides["bare"].append(bare.block(BLOCK_NS))
                sides["bare clock"].append(clock.mhz())
    ratios = [a / b for a, b in zip(sides["ours"], sides["bare"], strict=True)]
    interval = log_t_interval(ratios)
    span = "" if interval is None else f" [{interval.low:.4f}, {interval.high:.4f}]"
    middle = {name: statistics.median(values) for name, values in sides.items()}
    bare.close()
    backend.close()
    return (
        f"| {case.case_id} | {middle['ours']:.1f} | {middle['bare']:.1f} "
        f"| {statistics.geometric_mean(ratios):.4f}{span} | {middle['gap']:.1f} "
        f"| {middle['our clock']:.0f}, {middle['bare clock']:.0f} |"
    )


class _SmClock:
    def __init__(self) -> None:
        pynvml.nvmlInit()
        number = driver.Context.get_device().pci_bus_id()
        self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(number.encode())

    def mhz(self) -> float:
        return float(pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM))


if __name__ == "__main__":
    main()
