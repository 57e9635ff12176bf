"""How far is the harness's TensorRT row from a bare loop over the same engine? Runs in TensorRT's interpreter.

    python -m benchmarks.fidelity_gpu --results results --models-dir models

For every measured `tensorrt` row with a graph: deserialise its engine, bind random inputs, capture execute_async_v3,
launch it with an event on either side, and compare the median with the row's. Nothing of the harness runs in that
loop. The goals: the device medians within 2%, and host − device of the row at most 15 µs.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import numpy as np
import tensorrt
from cuda.bindings import runtime
from pycuda import driver

LAUNCHES = 1000
WARM_UP = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--models-dir", type=Path, default=Path("models"))
    options = parser.parse_args()
    driver.init()
    context = driver.Device(0).retain_primary_context()
    context.push()
    rows = json.loads((options.results / "summary.json").read_text())["rows"]
    print("| row | harness device µs | bare loop µs | ratio | host − device µs |")
    print("|---|---|---|---|---|")
    for row in rows:
        engines = [path for path in row["artifacts"] if path.endswith(".plan")]
        if row["status"] != "measured" or not engines or "graph" not in row["setting"] or row["mode"] != "sync":
            continue
        bare_us = bare_loop_us(options.models_dir / slug_of(row, options.models_dir, engines[0]), row)
        device_us, host_us = row["device_ns"]["device"] / 1e3, row["latency_ns"]["median"] / 1e3
        cells = f"{device_us:.1f} | {bare_us:.1f} | {device_us / bare_us:.3f} | {host_us - device_us:.1f}"
        print(f"| {row['case_id']} | {cells} |", flush=True)
    context.pop()


def slug_of(row: dict[str, object], models: Path, engine: str) -> Path:
    """The model's folder is the one whose name the case's id begins with."""
    folders = [folder for folder in models.iterdir() if str(row["case_id"]).startswith(f"{folder.name}-")]
    return Path(max(folders, key=lambda folder: len(folder.name)).name) / engine


def bare_loop_us(plan: Path, row: dict[str, object]) -> float:
    """Median device time of one launch, in microseconds."""
    with tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.ERROR)) as library:
        engine = library.deserialize_cuda_engine(plan.read_bytes())
    execution = engine.create_execution_context()
    stream = driver.Stream()
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    inputs = [name for name in names if engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT]
    for name in inputs:
        shape = [row["batch_size"], *list(engine.get_tensor_shape(name))[1:]]
        execution.set_input_shape(name, [row["sequence_length"] if extent == -1 else extent for extent in shape])
    held = []
    for name in names:
        kind = np.dtype(tensorrt.nptype(engine.get_tensor_dtype(name)))
        shape = tuple(execution.get_tensor_shape(name))
        # Never zeros: a card runs faster on them than on real data.
        ids = np.issubdtype(kind, np.integer)
        array = np.ones(shape, kind) if ids else np.random.default_rng(0).standard_normal(shape).astype(kind)
        held.append(driver.mem_alloc(array.nbytes))
        driver.memcpy_htod(held[-1], array)
        execution.set_tensor_address(name, int(held[-1]))
    execution.execute_async_v3(stream.handle)
    stream.synchronize()
    handle = runtime.cudaStream_t(stream.handle)
    runtime.cudaStreamBeginCapture(handle, runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal)
    execution.execute_async_v3(stream.handle)
    _, graph = runtime.cudaStreamEndCapture(handle)
    _, executable = runtime.cudaGraphInstantiate(graph, 0)
    before, after = driver.Event(), driver.Event()
    found = []
    for _ in range(WARM_UP + LAUNCHES):
        before.record(stream)
        runtime.cudaGraphLaunch(executable, handle)
        after.record(stream)
        after.synchronize()
        found.append(after.time_since(before) * 1e3)
    return statistics.median(found[WARM_UP:])


if __name__ == "__main__":
    main()
