"""Measure the energy of an inference, in a separate pass that does not affect the timings.

The GPU's idle power is read before the first case. Then every case runs back to back in a fresh process for some
seconds, and the GPU's energy counter is read at the start and at the end. Settings that `run` tried and dropped are
left out. No setting of the GPU is ever changed.

Cases of generation are metered in the same way, request after request.

reads   results/plan.json, results/raw/<case_id>/1.json, exports/<slug>/{export,generation}.json and the files that they
        name; NVML
writes  results/energy/<case_id>.json; the timings of this pass below results/energy/runs/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from harness.aggregation.across_rows import FIRST_ROUND, slower_settings
from harness.aggregation.energy_per_inference import (
    MIN_WINDOW_S,
    EnergySpent,
    energy_of,
    metered_cases,
    settings_with_window,
)
from harness.backends import BACKENDS
from harness.core import cli, store
from harness.core.errors import CaseError, CasesFailedError, FormatError, MissingInputError, UsageError
from harness.core.host import gpu, limits
from harness.core.host.gpu import GpuHandle, first_gpu
from harness.core.layout import Models, Results
from harness.core.lock import exclusive
from harness.core.protocol import CaseJob, GenerationCaseJob
from harness.core.raw_files import RawFiles
from harness.core.schemas import Case, Energy, Failed, Generated, GenerationCase, Measured, Plan
from harness.core.units import count, significant
from harness.planning.block_settings import parse_interpreters
from harness.planning.exports import export_files
from harness.planning.resume import Finished, refuse_folder_of_ab
from harness.planning.schedule import select_models
from harness.processes.energy_meter import PhaseMeter, idle_energy
from harness.processes.launcher import Worker
from harness.processes.pool import generate_turn, measure_turn

DEFAULT_WINDOW_S = 6.0

MAX_WINDOW_S = 3600.0

MANY_REQUESTS = 10_000
"""Time ends the pass of a case of generation, not a number of requests."""


def stage(arguments: Sequence[str]) -> None:
    """Measure the energy of every case of the plan that has none yet."""
    parser = cli.parser("harness.energy", __doc__)
    parser.add_argument(
        "--window",
        type=float,
        default=DEFAULT_WINDOW_S,
        help=f"seconds for each case, at least 5 ({DEFAULT_WINDOW_S:g})",
    )
    parser.add_argument("--force", action="store_true", help="measure again what is already there")
    cli.add_models(parser)
    cli.add_interpreters(parser)
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    if not MIN_WINDOW_S <= options.window <= MAX_WINDOW_S:
        raise UsageError(
            f"--window {options.window:g} is too short or too long.",
            f"At least {MIN_WINDOW_S:g} seconds and at most {MAX_WINDOW_S:g}.",
        )
    others = parse_interpreters(options.python)
    results, models = Results(options.results), Models(options.models_dir)
    refuse_folder_of_ab(results, "energy")
    plan = select_models(store.load(results.plan, Plan, "make plan"), options.models)
    if plan.device != "cuda":
        raise UsageError("Energy is read from a GPU, and this plan is for a CPU.", "make plan DEVICE=cuda")
    gpu.require(plan.device)
    with exclusive(results.lock):
        computing = [name for name, info in BACKENDS.items() if info.computes]
        dropped = _dropped(plan, results)
        todo = [
            (name, case)
            for name, case in metered_cases(plan.cases, computing)
            if name not in dropped
            if options.force or not _has(results.energy_file(name), plan.settings_id)
        ]
        generating = [
            case
            for case in plan.generations
            if case.skip_reason is None and case.backend in computing
            if options.force or not _has(results.energy_file(case.case_id), plan.settings_id)
        ]
        if not todo and not generating:
            cli.say("Every case has its energy already; `make energy FORCE=1` measures again.")
            return
        with _EnergyPass(plan, results, models, first_gpu(), options.window, others) as measuring:
            failures = sum(not measuring.measure(name, case) for name, case in todo)
            failures += sum(not measuring.measure_generation(case) for case in generating)
    if failures:
        raise CasesFailedError(
            f"The energy of {count(failures, 'case')} is not known; the others are measured.",
            "Each was named above with its reason; the same command tries only those again.",
        )


def _dropped(plan: Plan, results: Results) -> frozenset[str]:
    """Case ids of the settings that `run` tried and that were slower than another setting: not used for serving."""
    tried, raw = Finished(plan), RawFiles(results, plan.cases)
    for case in sorted(plan.cases, key=lambda case: case.slug):  # the samples of a model are in one file
        if case.tuned:
            # aggregate reports a damaged file; here no setting is dropped because of it
            with suppress(FormatError, MissingInputError):
                record = raw.load(case.case_id, FIRST_ROUND)
                if isinstance(record, Measured) and record.settings_id == plan.settings_id:
                    tried.add(record, case)
    return slower_settings(plan.cases, tried.medians, tried.unsound)


def _has(path: Path, settings_id: str) -> bool:
    if not path.is_file():
        return False
    try:
        return store.load(path, Energy, "make energy").settings_id == settings_id
    except FormatError:
        return False


class _EnergyPass:
    """One pass over cases: a worker per backend, one GPU; a context manager that ends every process it started."""

    def __init__(
        self,
        plan: Plan,
        results: Results,
        models: Models,
        handle: GpuHandle,
        window_s: float,
        interpreters: Mapping[str, Path],
    ) -> None:
        self._plan, self._results, self._models = plan, results, models
        self._gpu, self._facts = handle, gpu.facts_of(handle)
        self._settings = settings_with_window(plan.measurement, window_s)
        self._window_s = window_s
        self._threads = plan.measurement.threads or limits.thread_count()
        self._interpreters = interpreters
        self._workers: dict[str, Worker] = {}
        self._stack = ExitStack()

    def __enter__(self) -> _EnergyPass:
        self._idle: EnergySpent = idle_energy(self._gpu, MIN_WINDOW_S)
        cli.say(f"{self._facts.name}: {self._idle.watts:.0f} W idle.")
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def measure(self, name: str, case: Case) -> bool:
        """Measure one case, save and print its energy; False where it is unknown."""
        runs, meter = Results(self._results.energy_runs), PhaseMeter(self._gpu)
        export = export_files(case.slug, self._results, self._models).record
        job = CaseJob(case=case, engines=self._plan.engines, **self._job_fields(runs, export))
        record = measure_turn(job, self._worker(case.backend, runs), runs, meter)
        return self._save(name, record, case.batch_size, meter)

    def measure_generation(self, case: GenerationCase) -> bool:
        """As measure, for a case of generation: an inference is a request, an item a sequence."""
        runs, meter = Results(self._results.energy_runs), PhaseMeter(self._gpu)
        options = self._plan.generation.model_copy(update={"requests": MANY_REQUESTS, "max_s": self._window_s})
        export = self._results.export(case.slug).generation
        job = GenerationCaseJob(case=case, options=options, **self._job_fields(runs, export))
        record = generate_turn(job, self._worker(case.backend, runs), runs.of_generation, meter)
        return self._save(case.case_id, record, case.batch_size, meter)

    def _job_fields(self, runs: Results, export: Path) -> dict[str, Any]:
        """The fields that jobs of both kinds have. export: the record of the export."""
        return {
            "round": 1,
            "settings_id": self._plan.settings_id,
            "measurement": self._settings,
            "threads": self._threads,
            "results": str(runs.root),
            "models": str(self._models.root),
            "export": str(export),
        }

    def _save(self, name: str, record: Measured | Generated | Failed, batch_size: int, meter: PhaseMeter) -> bool:
        spent = meter.spent()
        if isinstance(record, Failed) or spent is None:
            cli.warn(f"{name}: {record.error if isinstance(record, Failed) else 'it was never timed'}")
            return False
        try:
            energy = energy_of(record, batch_size, spent, self._idle, self._facts)
        except CaseError as error:
            cli.warn(f"{name}: {error.problem} {error.hint}")
            return False
        store.save(self._results.energy_file(name), energy)
        cli.say(
            f"{name}: {significant(energy.joules_per_inference)} J an inference, "
            f"{significant(energy.joules_per_item)} J a sample, at {spent.watts:.0f} W of which "
            f"{self._idle.watts:.0f} W idle."
        )
        return True

    def _worker(self, backend: str, runs: Results) -> Worker:
        if backend not in self._workers:
            self._workers[backend] = Worker(
                backend, self._threads, runs.worker_log(backend), True, self._interpreters.get(backend)
            )
            self._stack.callback(self._workers[backend].close)
        return self._workers[backend]


if __name__ == "__main__":
    cli.main(stage)
