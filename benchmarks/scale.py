"""How plan, aggregate, compare and report grow: 1,000 to 100,000 synthetic cases × 3 rounds × 200 samples.

    .venv/bin/python benchmarks/scale.py [--cases 1000 10000 100000] [--keep FOLDER]

Each stage runs as its own process, as in `make bench`; report writes the page too. compare has a baseline whose process
medians are up to 0.5% away. Beyond packed.PACK_FROM cases the raw records are in Parquet, as `run` leaves them. Wall
and CPU seconds and peak resident memory (looked at five times a second) are of a stage with all of its processes: where
wall is far above half of CPU, something else had the cores. Below the goal: adding the run to a history, and a look of
`watch` at results that it has read before.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tabulate import tabulate  # noqa: E402

from harness.core import file_sums, packed, store  # noqa: E402 - after the path is set
from harness.core.layout import Models, Results  # noqa: E402
from harness.core.parallel import map_forked  # noqa: E402
from harness.core.schemas import Row  # noqa: E402
from tests.synthetic_results import FakeModel, Synthetic, case_of, named, stretched  # noqa: E402 - after the path is set

Measured = tuple[float, float, int]
ROUNDS, SAMPLES, BACKENDS, BATCHES = 3, 200, 10, 20
GOAL_S, GOAL_BYTES, GOAL_CASES = 60.0, 2 << 30, 100_000


def main() -> None:
    options = _options()
    rows: dict[str, list[Measured]] = {}
    besides = []
    for cases in options.cases:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(options.keep or folder) / str(cases)
            if not (root / "scale.yaml").is_file():
                print(f"writing {cases:,} cases …", file=sys.stderr, flush=True)
                _write(root, cases)
            for stage, arguments in _stages(root):
                if stage == "compare":
                    _write_baseline(root)
                result = _measure(stage, arguments)
                rows.setdefault(stage, []).append(result)
                print(f"{cases:,} cases, {_in_words(stage, result)}", file=sys.stderr, flush=True)
            shutil.rmtree(root / "store", ignore_errors=True)
            added = _measure("history", ["--results", str(root / "results"), "--store", str(root / "store")])
            look = f"a look of watch again: {_look_again(root):.2f} CPU s"
            besides.append(f"{cases:,} cases, {_in_words('history', added)}; {look}")
    print("\n\n".join([_table(options.cases, rows), *besides]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--keep", help="write the synthetic results here and leave them, or use those that are here")
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
    if cases > packed.PACK_FROM:
        _write_packed(root, synthetic)
        _config(root / "scale.yaml", cases)
        return
    fsync, os.fsync = os.fsync, lambda fd: None  # 30,000 synthetic files need not survive a power cut
    try:
        synthetic.write(root / "results", root / "models")
    finally:
        os.fsync = fsync
    _config(root / "scale.yaml", cases)


def _write_packed(root: Path, synthetic: Synthetic) -> None:
    """The same as a run of so many cases leaves it: raw records in a Parquet file a model."""
    results, models = Results(root / "results"), Models(root / "models")
    store.save(results.plan, named(synthetic.plan), indent=None)
    for identity, result in synthetic.environments.items():
        store.save(results.environment(identity), result)
    results.raw.mkdir(parents=True)

    def write(model: FakeModel) -> None:
        store.save(models.folder(model.name).record, synthetic.export(model))
        cases = [case for case in synthetic.cases if case.model == model.name]
        ours = Synthetic(models=(model,), cases=cases, rounds=ROUNDS, samples=SAMPLES)
        packed.write_raw(results.packed_raw(model.name), _lines(ours))

    for _ in map_forked(write, synthetic.models):
        pass


def _lines(synthetic: Synthetic) -> Iterator[packed.RawLine]:
    for record in synthetic.records():
        usage = synthetic.watch(record.case_id, record.round)
        yield record, None if usage is None else stretched(usage, record)


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
        ("compare", ["--results", results, "--baseline", str(_baseline(root))]),
        ("report", ["--results", results]),
    ]


def _baseline(root: Path) -> Path:
    """Folder of the summary that `compare` compares with."""
    return root / "before"


def _write_baseline(root: Path) -> None:
    """The run of before: the same rows, each process median up to 0.5% away."""
    before, now = Results(_baseline(root)), file_sums.ByModel(Results(root / "results").summary)
    if not now.is_large:
        rows = tuple(row for model in now.models for row in map(_moved, now.rows(model)))
        store.save(before.summary, now.head.model_copy(update={"rows": rows}))
        return
    writer = packed.RowsWriter(before.packed_rows)
    for result in map_forked(lambda model: packed.written_rows(model, [*map(_moved, now.rows(model))]), now.models):
        writer.add(result)
    head = now.head.model_copy(update={"row_groups": writer.close()})
    writer.keep()
    store.save(before.summary, head)


def _moved(row: Row) -> Row:
    if row.latency_ns is None:
        return row
    random = np.random.default_rng(zlib.crc32(row.case_id.encode()))
    medians = tuple(value * (1 + random.uniform(-0.005, 0.005)) for value in row.latency_ns.process_medians)
    return row.model_copy(update={"latency_ns": row.latency_ns.model_copy(update={"process_medians": medians})})


def _in_words(stage: str, result: Measured) -> str:
    wall, cpu, size = result
    return f"{stage}: {wall:.1f} wall s, {cpu:.1f} CPU s, {size / (1 << 20):,.0f} MiB"


_LOOKS = """
import sys, time
from pathlib import Path
from harness.core.layout import Results
from harness.live import reader, server
reader._READING_NS = 10**15
watched = reader.WatchedFolder(Results(Path(sys.argv[1])))
watched.look()
began = time.process_time()
server.most_urgent(watched.look()).model_dump_json()
print(time.process_time() - began)
"""


def _look_again(root: Path) -> float:
    """CPU seconds of a look, and of what the page gets, after one that has read all results."""
    command = [sys.executable, "-c", _LOOKS, str(root / "results")]
    return float(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def _measure(stage: str, arguments: list[str]) -> Measured:
    """(wall seconds, CPU seconds, peak resident bytes) of one stage."""
    started = time.perf_counter()
    command = [sys.executable, "-m", f"harness.{stage}", *arguments]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    peak = 0
    while True:
        peak = max(peak, _resident(child.pid))
        result, status, usage = os.wait4(child.pid, os.WNOHANG)
        if result:
            break
        time.sleep(0.2)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    if child.returncode:
        raise SystemExit(f"{stage} ended with exit code {child.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, peak


def _resident(pid: int) -> int:
    """Bytes of a process and its children, a shared page counted once."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    total = 0
    for entry in family:
        try:
            total += entry.memory_full_info().pss
        except psutil.Error:
            continue
    return total


def _table(cases: list[int], rows: dict[str, list[Measured]]) -> str:
    columns = [list(zip(*(result[place] for result in rows.values()), strict=True)) for place in range(len(cases))]
    totals = [(sum(wall), sum(cpu), max(memory)) for wall, cpu, memory in columns]
    headers = ["stage", *(f"{number:,} cases: {unit}" for number in cases for unit in ("wall s", "CPU s", "MiB"))]
    lines = []
    for name, result in {**rows, "together": totals}.items():
        cells = [
            text for wall, cpu, size in result for text in (f"{wall:.1f}", f"{cpu:.1f}", f"{size / (1 << 20):,.0f}")
        ]
        growth = [f"{result[-1][1] / result[0][1]:.1f}×"] if len(cases) > 1 else []
        lines.append([name, *cells, *growth])
    if len(cases) > 1:
        headers.append(f"CPU time for {cases[-1] / cases[0]:g}× the cases")
    goal = f"Goal at {GOAL_CASES:,} cases: ≤ {GOAL_S:g} s together, ≤ {GOAL_BYTES >> 20:,} MiB."
    return f"{tabulate(lines, headers, tablefmt='github', disable_numparse=True)}\n\n{goal}"


if __name__ == "__main__":
    main()
