"""Does building engines at once, or on a busy host, change what TensorRT chooses? Runs in TensorRT's interpreter.

    python -m benchmarks.parallel_engines --models-dir models --engines fp16-b8-1a2b3c4d fp16-b128-5e6f7a8b

Every named engine, whose record `make engines` wrote, is built again in a process of its own with an empty timing
cache: twice in turn (two serial builds differ, too), in turn while every other CPU multiplies matrices, and all at
once on one GPU. For each build: seconds, layers with the same tactic as the first serial build, and the median time of
a pass in a CUDA graph. A way to build is safe where both are as near as the second serial build.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from harness.core import store
from harness.core.schemas import EngineRecord

Measured = tuple[Mapping[str, str], float]
"""Layer → its kernel, and the median time of a pass in microseconds."""

TIMED_NS = 1_000_000_000
BUSY = "import numpy; a = numpy.ones((512, 512), numpy.float32)\nwhile True: a @ a"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models-dir", type=Path, default=Path("models"))
    parser.add_argument("--engines", nargs="+", required=True, metavar="NAME")
    parser.add_argument("--ways", nargs="+", default=["serial", "serial again", "busy host", "parallel"])
    parser.add_argument("--into", type=Path, help="build the one engine into this folder, and end")
    options = parser.parse_args()
    records = {name: record_of(options.models_dir, name) for name in options.engines}
    if options.into:
        (name,) = options.engines
        build_into(options.models_dir, *records[name], options.into)
        return
    with tempfile.TemporaryDirectory(prefix="engines-") as folder:
        first: dict[str, Measured] = {}
        for way in options.ways:
            place, started = Path(folder) / way.replace(" ", "-"), time.perf_counter()
            with busy(len(os.sched_getaffinity(0)) // 2 if way == "busy host" else 0):
                build_all(options, place, at_once=way == "parallel")
            print(f"\n{way}: {time.perf_counter() - started:.0f} s for {len(records)} engines\n", flush=True)
            report(way, records, place, first)


def record_of(models: Path, name: str) -> tuple[Path, EngineRecord]:
    """The folder of the model that has an engine of this name, and the engine's record."""
    (path,) = models.glob(f"**/engines/{name}.json")
    return path.parents[1], store.load(path, EngineRecord, "make engines")


def build_all(options: argparse.Namespace, place: Path, at_once: bool) -> None:
    """Build all engines below a folder, each in a process of its own."""
    running = []
    for name in options.engines:
        words = ["--models-dir", str(options.models_dir), "--engines", name, "--into", str(place / name)]
        running.append(subprocess.Popen([sys.executable, "-m", "benchmarks.parallel_engines", *words]))
        if not at_once:
            running[-1].wait()
    if any(process.wait() for process in running):
        raise SystemExit("an engine was not built; its message is above")


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Processes that compute on the host until the block ends."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def build_into(models: Path, home: Path, record: EngineRecord, target: Path) -> None:
    """Build one engine with an empty timing cache: engine.plan, and layers.json with the seconds."""
    import tensorrt  # noqa: PLC0415
    from pycuda import driver  # noqa: PLC0415

    from harness.backends.tensorrt.builder import build  # noqa: PLC0415
    from harness.backends.tensorrt.layers import read_layers  # noqa: PLC0415

    driver.init()
    driver.Device(0).retain_primary_context().push()
    started = time.perf_counter()
    built = build(
        record.request, onnx_of(models / home.relative_to(models).parts[0], record), b"", bool(record.kept_fp32)
    )
    seconds = time.perf_counter() - started
    target.mkdir(parents=True)
    (target / "engine.plan").write_bytes(built.engine)
    with tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.ERROR)) as library:
        engine = library.deserialize_cuda_engine(built.engine)
    layers = read_layers(engine, tensorrt.LayerInformationFormat.JSON)
    (target / "layers.json").write_text(json.dumps({"seconds": seconds, "layers": layers}, default=str))
    driver.Context.pop()


def onnx_of(folder: Path, record: EngineRecord) -> Path:
    """The ONNX file of a record, in the export that it was built from."""
    result = [path for path in folder.rglob(Path(record.request.onnx).name) if path.is_file()]
    return next(path for path in result if store.sha256_file(path) == record.request.onnx_sha256)


def report(way: str, records: Mapping[str, tuple[Path, EngineRecord]], place: Path, first: dict[str, Measured]) -> None:
    """Print a line for every engine of one way; `first` keeps the first way, with which the others are compared."""
    from pycuda import driver  # noqa: PLC0415

    from benchmarks.fidelity_gpu import WARM_UP_NS, BareLoop  # noqa: PLC0415

    driver.init()
    driver.Device(0).retain_primary_context().push()
    print("| engine | built | s | layers | same tactic as the first | µs | ratio |")
    print("|---|---|---|---|---|---|---|")
    for name, (_, record) in records.items():
        made = json.loads((place / name / "layers.json").read_text())
        loop = BareLoop(place / name / "engine.plan", [inputs_of(record)])
        loop.block(WARM_UP_NS)
        chosen, pass_us = tactics(made["layers"]), loop.block(TIMED_NS)
        loop.close()
        del loop  # its stream and events, while the context is current
        others, others_us = first.setdefault(name, (chosen, pass_us))
        same = sum(others.get(layer) == tactic for layer, tactic in chosen.items())
        cells = f"{made['seconds']:.0f} | {len(chosen)} | {same} | {pass_us:.1f} | {pass_us / others_us:.3f}"
        print(f"| {name} | {way} | {cells} |", flush=True)
    driver.Context.pop()


def tactics(layers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Layer → its kernel, as the inspector names both. A fusion that differs has another name."""
    return {str(layer.get("Name")): str(layer.get("TacticName", layer.get("TacticValue"))) for layer in layers}


def inputs_of(record: EngineRecord) -> dict[str, np.ndarray]:
    """A batch of the shape that an engine was tuned for: ones for ids and masks, random numbers for all else."""
    random = np.random.default_rng(0)
    shapes = {name: profile.optimum for name, profile in record.request.profiles.items()}
    return {
        name: np.ones(shape) if len(shape) == 2 else random.standard_normal(shape) for name, shape in shapes.items()
    }


if __name__ == "__main__":
    main()
