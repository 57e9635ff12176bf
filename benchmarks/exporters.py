"""Which exporter, opset and attention give the faster ONNX file? Run by hand; prints a markdown table.

    .venv/bin/python -m benchmarks.exporters [--models minilm-l6 …] [--rounds 15]

Every variant of a model is loaded into this one process and measured in turn, in random order within a round, so that
drift of the machine meets all of them alike. A cell is the smallest sample: neighbours on the same cores only ever add
time, and the question is which file asks for less work, not how steady the machine is.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import openvino

from harness.core.host import limits
from harness.core.schemas import Exporter, Weights
from harness.timing.clock import now_ns
from harness.zoo import model_info
from harness.zoo.construct import family_of
from harness.zoo.identity import ExportChoices, versions
from harness.zoo.input_files import Arrays
from harness.zoo.loaded import Request
from harness.zoo.onnx import torch_to_onnx

MODELS = ("minilm-l6", "efficientnet-lite0", "resnet50", "mobilenet_v2")
SEQUENCE_LENGTH = 128
EXPORTERS: tuple[tuple[Exporter, int], ...] = (("torchscript", 17), ("dynamo", 18), ("dynamo", 20))
ROUND_NS = 300_000_000
"""Length of one turn of one variant."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--threads", type=int, default=limits.thread_count(), help="fewer than all meet fewer neighbours"
    )
    given = parser.parse_args()
    tools = {**versions(), "openvino": openvino.__version__}
    print(f"{datetime.date.today()}, {platform.processor() or platform.machine()}, {given.threads} threads, batch 1")
    print(", ".join(f"{name} {version}" for name, version in tools.items()))
    print("\n| model | exporter | opset | attention | ONNX Runtime, ms | OpenVINO f32, ms | nodes |")
    print("|---|---|---|---|---|---|---|")
    for name in given.models:
        with tempfile.TemporaryDirectory() as folder:
            compare(name, Path(folder), given.rounds, given.threads)


def compare(name: str, folder: Path, rounds: int, threads: int) -> None:
    info = model_info(name)
    weights: Weights = "pretrained" if info.package else "seeded"
    loaded = family_of(info).load(Request(info, weights, seed=1, cache=None, folder=folder))
    arrays = loaded.make_inputs(2, SEQUENCE_LENGTH if loaded.sequence_inputs else None).arrays
    entry = {key: values[:1] for key, values in arrays.items()}
    variants: dict[tuple[str, int, str], Path] = {}
    for attention in ("sdpa", "eager") if loaded.attention else ("",):
        for exporter, opset in EXPORTERS:
            path = folder / f"{exporter}-{opset}-{attention}.onnx"
            options = ExportChoices(exporter, opset, None, None, None, attention)
            torch_to_onnx.write_fp32(loaded, arrays, path, options)
            variants[exporter, opset, attention] = path
    engines: dict[str, Callable[[Path, Arrays, int], Callable[[], object]]] = {"ort": ort_runner, "ov": openvino_runner}
    runners = {
        (key, engine): make(path, entry, threads) for key, path in variants.items() for engine, make in engines.items()
    }
    samples_ns: dict[tuple[tuple[str, int, str], str], list[int]] = {cell: [] for cell in runners}
    for _ in range(rounds):
        for cell in random.sample(list(runners), len(runners)):
            samples_ns[cell] += turn(runners[cell])
    for key, path in variants.items():
        ort, ov = (min(samples_ns[key, engine]) / 1e6 for engine in engines)
        nodes = len(onnx.load(path, load_external_data=False).graph.node)
        print(f"| {name} | {key[0]} | {key[1]} | {key[2] or '–'} | {ort:.2f} | {ov:.2f} | {nodes} |", flush=True)


def turn(run: Callable[[], object]) -> list[int]:
    """Samples of one turn, after three calls that bring the caches back."""
    for _ in range(3):
        run()
    samples: list[int] = []
    end = now_ns() + ROUND_NS
    while now_ns() < end:
        start = now_ns()
        run()
        samples.append(now_ns() - start)
    return samples


def ort_runner(path: Path, arrays: Arrays, threads: int) -> Callable[[], object]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, arrays)


def openvino_runner(path: Path, arrays: Arrays, threads: int) -> Callable[[], object]:
    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    settings["INFERENCE_NUM_THREADS"] = threads
    model = core.read_model(path)
    model.reshape({key: list(values.shape) for key, values in arrays.items()})
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    inputs = {key: np.ascontiguousarray(values) for key, values in arrays.items()}
    return lambda: request.infer(inputs)


if __name__ == "__main__":
    main()
