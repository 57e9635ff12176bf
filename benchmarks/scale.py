"""How plan, aggregate and report grow: 1,000 and 10,000 synthetic cases × 3 rounds × 200 samples.

    .venv/bin/python benchmarks/scale.py [--cases 1000 10000] [--keep FOLDER]

Each stage runs as its own process, as in `make bench`. Wall and CPU seconds and peak resident memory are of that
process: where wall is far above CPU, something else had the cores.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tabulate import tabulate  # noqa: E402

from tests.synthetic_results import FakeModel, Synthetic, case_of  # noqa: E402 - after the path is set

ROUNDS, SAMPLES, BACKENDS, BATCHES = 3, 200, 10, 20
GOAL_S, GOAL_BYTES = 20.0, 1 << 30


def main() -> None:
    options = _options()
    rows: dict[str, list[tuple[float, float, int]]] = {}
    for cases in options.cases:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(options.keep or folder) / str(cases)
            print(f"writing {cases:,} cases …", file=sys.stderr, flush=True)
            _write(root, cases)
            for stage, arguments in _stages(root):
                rows.setdefault(stage, []).append(_measure(stage, arguments))
    print(_table(options.cases, rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--keep", help="write the synthetic results here and leave them")
    return parser.parse_args()


def _models(cases: int) -> list[FakeModel]:
    number = cases // (BACKENDS * BATCHES)
    return [FakeModel(f"model-{index:03d}", "image", "pretrained", 1e6 + 1e4 * index, 5e5) for index in range(number)]


def _write(root: Path, cases: int) -> None:
    """A results folder, and a configuration whose plan has as many cases."""
    models = _models(cases)
    backends = ["torch-eager", *(f"backend-{index}" for index in range(1, BACKENDS))]
    planned = [
        case_of(model, backend, "fp32", batch)
        for model in models
        for batch in range(1, BATCHES + 1)
        for backend in backends
    ]
    synthetic = Synthetic(models=tuple(models), cases=planned, rounds=ROUNDS, samples=SAMPLES)
    fsync, os.fsync = os.fsync, lambda _handle: None  # 30,000 synthetic files need not survive a power cut
    try:
        synthetic.write(root / "results", root / "models")
    finally:
        os.fsync = fsync
    _config(root / "scale.yaml", cases)


def _config(path: Path, cases: int) -> None:
    """The same number of cases as a configuration: 5 backends × cases / 5 batch sizes of one model."""
    batches = ", ".join(str(batch) for batch in range(1, cases // 5 + 1))
    names = "torch-eager, torch-script, torch-compile, onnxruntime, openvino"
    path.write_text(
        "models:\n  - name: resnet50\n    weights: seeded\n"
        f"matrix:\n  - backends: [{names}]\n    precisions: [fp32]\n    batch_sizes: [{batches}]\n"
    )


def _stages(root: Path) -> list[tuple[str, list[str]]]:
    results, models = str(root / "results"), str(root / "models")
    return [
        ("plan", ["--config", str(root / "scale.yaml"), "--results", str(root / "planned")]),
        ("aggregate", ["--results", results, "--models-dir", models]),
        ("report", ["--results", results]),
    ]


def _measure(stage: str, arguments: list[str]) -> tuple[float, float, int]:
    """(wall seconds, CPU seconds, peak resident bytes) of one stage."""
    started = time.perf_counter()
    command = [sys.executable, "-m", f"harness.{stage}", *arguments]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    if child.returncode:
        raise SystemExit(f"{stage} ended with exit code {child.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def _table(cases: list[int], rows: dict[str, list[tuple[float, float, int]]]) -> str:
    columns = [list(zip(*(found[place] for found in rows.values()), strict=True)) for place in range(len(cases))]
    totals = [(sum(wall), sum(cpu), max(memory)) for wall, cpu, memory in columns]
    headers = ["stage", *(f"{number:,} cases: {unit}" for number in cases for unit in ("wall s", "CPU s", "MiB"))]
    lines = []
    for name, found in {**rows, "together": totals}.items():
        cells = [
            text for wall, cpu, size in found for text in (f"{wall:.1f}", f"{cpu:.1f}", f"{size / (1 << 20):,.0f}")
        ]
        growth = [f"{found[-1][1] / found[0][1]:.1f}×"] if len(cases) > 1 else []
        lines.append([name, *cells, *growth])
    if len(cases) > 1:
        headers.append(f"CPU time for {cases[-1] / cases[0]:g}× the cases")
    goal = f"Goal at 10,000 cases: ≤ {GOAL_S:g} s together, ≤ {GOAL_BYTES >> 20} MiB each."
    return f"{tabulate(lines, headers, tablefmt='github', disable_numparse=True)}\n\n{goal}"


if __name__ == "__main__":
    main()
