"""Fidelity: does the harness report what a bare loop of the same calls shows?

For ResNet-50 batch 1 in fp32, alternates the harness's own process with a bare loop in a process of its own, and
prints the ratio of medians. The bare loops: ONNX Runtime by hand with `perf_counter_ns`, PyTorch by
`torch.utils.benchmark`, OpenVINO by its own `benchmark_app`. Also: a forked case against a freshly started
interpreter, and the cost of one empty inference.

Run: make bench MODELS=resnet50 RESULTS=results/fidelity, then
     .venv/bin/python -m benchmarks.fidelity --results results/fidelity
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.backends.base import BackendJob
from harness.backends.batches import empty_export
from harness.backends.calibration.noop import Noop
from harness.core import store
from harness.core.host import environment, limits
from harness.core.layout import Models, Results
from harness.core.protocol import CaseJob
from harness.core.schemas import Case, ExportRecord, Measured, Measurement, Plan
from harness.processes.launcher import Worker
from harness.timing.loop import measure
from harness.timing.modes import Sync

SETTINGS = Measurement(warmup_max_s=2.0, max_s=4.0, parity_samples=16)

PAIRS = (("torch-eager", "torch.utils.benchmark"), ("onnxruntime", "bare loop"), ("openvino", "benchmark_app"))

BARE = {
    "onnxruntime": """
import sys, time, statistics, numpy as np, onnxruntime as ort
folder, threads = sys.argv[1], int(sys.argv[2])
options = ort.SessionOptions(); options.intra_op_num_threads = threads; options.inter_op_num_threads = 1
session = ort.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])
data = np.load(f"{folder}/inputs.npz"); name = data.files[0]
bindings = []
for i in range(16):
    binding = session.io_binding()
    binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(data[name][i:i + 1]))
    binding.bind_output(session.get_outputs()[0].name, "cpu")
    bindings.append(binding)
for i in range(40): session.run_with_iobinding(bindings[i % 16])
samples = []
end = time.perf_counter() + 4
while time.perf_counter() < end:
    binding = bindings[len(samples) % 16]
    start = time.perf_counter_ns(); session.run_with_iobinding(binding); samples.append(time.perf_counter_ns() - start)
print(statistics.median(samples))
""",
    "torch-eager": """
import sys, numpy as np, torch, torch.utils.benchmark as benchmark
from pathlib import Path
from harness.core.schemas import ExportRecord
from harness.zoo.construct import build_module
folder, threads = Path(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(threads)
module = build_module(ExportRecord.model_validate_json((folder / "export.json").read_bytes()), folder)
data = np.load(folder / "inputs.npz")
x = torch.from_numpy(data[data.files[0]][:1])
with torch.inference_mode():
    for _ in range(20): module(x)
    timer = benchmark.Timer("module(x)", globals={"module": module, "x": x}, num_threads=threads)
    print(timer.blocked_autorange(min_run_time=4).median * 1e9)
""",
}


class _Silent:
    """The progress of the case is not needed."""

    def started(self, pid: int) -> None: ...

    def entered(self, phase: str) -> None: ...


def bare_median_ns(backend: str, folder: Path, threads: int) -> float:
    """Median of the bare loop in nanoseconds."""
    if backend == "openvino":
        return _benchmark_app(folder, threads)
    command = [sys.executable, "-c", BARE[backend], str(folder), str(threads)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def _benchmark_app(folder: Path, threads: int) -> float:
    with tempfile.TemporaryDirectory() as out:
        command = [
            str(Path(sys.executable).parent / "benchmark_app"),
            *("-m", str(folder / "model.onnx"), "-d", "CPU", "-api", "sync", "-hint", "none", "-nstreams", "1"),
            *("-nthreads", str(threads), "-infer_precision", "f32", "-shape", "[1,3,224,224]", "-t", "4"),
            *("-report_type", "no_counters", "-json_stats", "-report_folder", out),
        ]
        subprocess.run(command, check=True, capture_output=True, text=True)
        report = json.loads((Path(out) / "benchmark_report.json").read_text())
        return float(report["execution_results"]["latency (ms)"]) * 1e6


def harness_median_ns(worker: Worker, job: CaseJob, results: Results) -> float:
    """Median of one process of the harness in nanoseconds."""
    worker.run(job, _Silent())
    record = store.load_raw(results.raw_file(job.case.case_id, job.round))
    if not isinstance(record, Measured):
        raise SystemExit(f"{job.case.case_id} failed: {record.error}")
    return float(statistics.median(record.latency_ns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--models-dir", type=Path, default=Path("models"))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--backends", nargs="+", default=[backend for backend, _ in PAIRS], help="only these")
    options = parser.parse_args()
    plan = store.load(Results(options.results).plan, Plan, "make plan")
    models, path = Models(options.models_dir), Results(options.results).export("resnet50").record
    folder = models.folder("resnet50", store.load(path, ExportRecord, "make export").folder).root
    threads = limits.thread_count()
    machine = environment.collect({}).machine
    print(f"{machine.cpu}, {threads} threads, {options.pairs} alternating pairs, ResNet-50 batch 1 fp32\n")
    print("| pair | harness, ms | other, ms | ratio of medians | lowest to highest ratio |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        results = Results(Path(scratch))
        for backend, other in (pair for pair in PAIRS if pair[0] in options.backends):
            case = next(c for c in plan.cases if c.case_id == f"resnet50-{backend}-cpu-fp32-b1")
            job = CaseJob(
                case=case,
                round=1,
                settings_id=plan.settings_id,
                measurement=SETTINGS,
                threads=threads,
                results=scratch,
                models=str(options.models_dir),
                export=str(path),
            )
            forked = Worker(backend, threads, results.worker_log(backend))
            pairs = [
                (harness_median_ns(forked, job, results), bare_median_ns(backend, folder, threads))
                for _ in range(options.pairs)
            ]
            _print(f"{backend} / {other}", pairs)
            fresh = Worker(backend, threads, results.worker_log(f"{backend}-spawn"), fork=False)
            pairs = [
                (harness_median_ns(forked, job, results), harness_median_ns(fresh, job, results))
                for _ in range(options.pairs)
            ]
            _print(f"{backend}: fork / fresh interpreter", pairs)
            forked.close()
    print(f"\nnoop, one iteration of the whole loop: {_noop_iteration_ns(plan, threads):.0f} ns (goal: 1,000 ns)")


def _print(label: str, pairs: list[tuple[float, float]]) -> None:
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(a / b for a, b in pairs)
    print(
        f"| {label} | {ours / 1e6:.2f} | {theirs / 1e6:.2f} | {statistics.median(ratios):.3f} "
        f"| {ratios[0]:.3f} to {ratios[-1]:.3f} |",
        flush=True,
    )


def _noop_iteration_ns(plan: Plan, threads: int) -> float:
    case = Case.model_validate({**plan.cases[0].model_dump(), "backend": "noop"})
    backend = Noop(BackendJob(case, empty_export(case), Path(), [{}] * 8, threads, Path()))
    timed = [measure(Sync(backend, 8), Measurement(), lambda index: None) for _ in range(20)]
    return statistics.median(block.wall_ns / block.iterations for entry in timed for block in entry.blocks)


if __name__ == "__main__":
    main()
