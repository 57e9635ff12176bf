"""Spread a plan over several equal GPUs of one machine: first the builds of engines, then the models.

Each GPU builds one engine at a time, then measures one model at a time, so that cases that are compared with each other
run on the same GPU, one at a time. All measurements are those of `run`: this stage only starts other stages, each with
its own GPU and CPUs, and merges their records.

reads   results/plan.json, exports/<slug>/export.json
writes  what build_engine and run write; meanwhile results/cards/<gpu>/…
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from harness.core import cli, store
from harness.core.errors import CasesFailedError, UsageError
from harness.core.host import limits
from harness.core.layout import Results
from harness.core.lock import exclusive
from harness.core.safe_files import open_to_write
from harness.core.schemas import Plan

MIN_CPUS = 2
"""One CPU submits work to the GPU; the monitor and the stage itself need another."""

Command = Sequence[str]
Start = Callable[[Command, dict[str, str], Path], int]
"""(command, environment, file for its output) → exit code."""


def stage(arguments: Sequence[str]) -> None:
    """Build, then measure, with one process per GPU."""
    parser = cli.parser("harness.spread", __doc__)
    parser.add_argument("--cards", required=True, help="as CUDA_VISIBLE_DEVICES names them: 0,1,2,3")
    parser.add_argument("--force", action="store_true", help="build and measure again what is already there")
    cli.add_interpreters(parser)
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    results = Results(options.results)
    plan = store.load(results.plan, Plan, "make plan")
    gpus = [gpu for gpu in (part.strip() for part in options.cards.split(",")) if gpu]
    if len(set(gpus)) < len(gpus):
        raise UsageError(f"A GPU is named twice in {options.cards}.", "Name each once: CARDS=0,1.")
    if plan.device != "cuda" or not gpus:
        raise UsageError("Only a plan for GPUs can be spread over them.", "make plan DEVICE=cuda")
    passed = ["--models-dir", str(options.models_dir), *(["--force"] if options.force else [])]
    for text in options.python:
        passed += ["--python", text]
    with exclusive(results.lock):
        _spread(plan, results, _Pool(gpus, results, start), passed)


def _spread(plan: Plan, results: Results, pool: _Pool, passed: Sequence[str]) -> None:
    names = [model.name for model in plan.models]
    listed = _engines_to_build(results, passed)
    wanted = listed or []
    cli.say(f"{len(wanted)} engines to build and {len(names)} models to measure on {pool.gpus} GPUs.")
    build = [["build_engine", "--results", str(results.root), *passed, "--engines", name] for name in wanted]
    failures = pool.run(build, wanted) + (listed is None)
    for place, name in enumerate(names):
        share(plan, name, results, results.gpu_folder(place))
        shutil.copyfile(results.plan, results.gpu_folder(place).plan)
    own = [str(results.gpu_folder(place).root) for place in range(len(names))]
    measure = [["run", "--results", root, *passed, "--models", name] for root, name in zip(own, names, strict=True)]
    failures += pool.run(measure, names)
    for place, name in enumerate(names):
        share(plan, name, results.gpu_folder(place), results)
        shutil.rmtree(results.gpu_folder(place).root, ignore_errors=True)
    if failures:
        raise CasesFailedError(
            f"{failures} of the started stages did not end well.",
            f"Their messages are below {results.root / 'logs'}; the same command tries only what is missing.",
        )


class _Pool:
    """Runs stages on GPUs, one at a time on each."""

    def __init__(self, gpus: Sequence[str], results: Results, start: Start) -> None:
        self._start = start
        self._logs = results.root / "logs"
        self.gpus = len(gpus)
        self._free: SimpleQueue[tuple[str, tuple[int, ...]]] = SimpleQueue()
        for gpu, cpus in zip(gpus, parts(limits.affinity(), len(gpus)), strict=True):
            self._free.put((gpu, cpus))

    def run(self, stages: Sequence[Command], labels: Sequence[str]) -> int:
        """Run all stages as GPUs become free; returns how many ended with an exit code other than 0."""
        with ThreadPoolExecutor(self.gpus) as threads:
            codes = list(threads.map(self._one, stages, labels))
        return sum(code != 0 for code in codes)

    def _one(self, words: Command, label: str) -> int:
        with self._free_gpu() as (gpu, cpus):
            if cpus:
                # The CPUs of this thread, which runs one stage after the other; a process that it starts inherits them.
                os.sched_setaffinity(0, cpus)
            log = self._logs / f"spread-{label.replace('/', '-')}.log"
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
            code = self._start([sys.executable, "-m", f"harness.{words[0]}", *words[1:]], environment, log)
        cli.say(f"{words[0]} {label} on GPU {gpu}: " + ("done" if code == 0 else f"exit code {code}, see {log}"))
        return code

    @contextmanager
    def _free_gpu(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        gpu = self._free.get()
        try:
            yield gpu
        finally:
            self._free.put(gpu)


def parts(cpus: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """`count` equal, contiguous parts of the CPUs, so that models do not share CPUs; the remainder stays idle. Where
    there are too few CPUs or CPUs cannot be selected, the parts are empty and all stages share all CPUs."""
    each = len(cpus) // count
    if each < MIN_CPUS or not hasattr(os, "sched_setaffinity"):
        return [()] * count
    return [tuple(cpus[place * each : (place + 1) * each]) for place in range(count)]


def start(command: Command, environment: dict[str, str], log: Path) -> int:
    """Run one stage to its end."""
    with store.translate_storage_errors(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        handle = open_to_write(log)
    with os.fdopen(handle, "wb") as output:
        done = subprocess.run(command, env=environment, stdout=output, stderr=output, check=False)  # noqa: S603
    return done.returncode


def _engines_to_build(results: Results, passed: Sequence[str]) -> list[str] | None:
    """Names of missing engines, as listed by the stage that builds them; None where it failed."""
    command = [sys.executable, "-m", "harness.build_engine", "--results", str(results.root), *passed, "--only-list"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if listing.returncode:
        # No engines can be built here: their rows fail with the reason, and the other rows are measured.
        cli.warn(listing.stderr.strip() or "the engines could not be listed")
        return None
    return re.findall(r"engine (\S+) would be built", listing.stdout)


def share(plan: Plan, model: str, source: Results, target: Results) -> None:
    """Copy the records of one model and the environments; the target keeps its records of other models."""
    with store.translate_storage_errors(target.root):
        target.root.mkdir(parents=True, exist_ok=True)
        own = [source.raw_case(case.case_id) for case in plan.cases if case.model == model]
        slugs = [planned.slug for planned in plan.models if planned.name == model]
        for folder in (*own, source.environments, *(source.export(slug).root for slug in slugs)):
            if folder.is_dir():
                shutil.copytree(folder, target.root / folder.relative_to(source.root), dirs_exist_ok=True)


if __name__ == "__main__":
    cli.main(stage)
