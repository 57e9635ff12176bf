"""Measure the plan's scenarios: service times, replay, and real replications at the predicted peak.

A load case is served by one fresh process. It measures the service times of each batch size, replays arrivals on them,
which predicts the highest rate within the bound, and then serves real replications below, at and above that rate. Each
record is saved at once: after Ctrl-C the same command goes on with what is missing.

reads   results/plan.json, exports/<slug>/export.json and the files that it names, models/<slug>/engines/*.json
writes  results/load/<load_id>/{service,prediction,energy}.json, load/<load_id>/<point>/<replication>.json,
        results/environments/<id>.json; failed.json and load.log of a load case that failed; while it runs, running.json
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from harness.aggregation.energy_per_inference import MIN_WINDOW_S, EnergySpent
from harness.aggregation.join import checks_for
from harness.aggregation.load_rows import load_row
from harness.backends import backend_info
from harness.core import cli, store
from harness.core.errors import CasesFailedError, InferometerError, UnavailableError, UsageError
from harness.core.host import environment, gpu, limits
from harness.core.host.gpu import GpuHandle, first_gpu
from harness.core.layout import Models, Results
from harness.core.lock import exclusive
from harness.core.protocol import LoadJob
from harness.core.schemas import LoadBase, LoadCase, LoadFailure, LoadRow, Plan
from harness.core.units import count, significant
from harness.planning.block_settings import parse_interpreters, threads_of
from harness.planning.exports import (
    Exports,
    built_engines,
    export_failure,
    export_files,
    keep_exports,
    read_exports,
    unmeasured_lines,
)
from harness.planning.load_cases import backend_case, estimate_load
from harness.planning.resume import (
    LoadState,
    foreign_file_check,
    load_evidence,
    read_load_state,
    refuse_folder_of_ab,
    same_machine_check,
)
from harness.planning.run_time import range_in_words
from harness.planning.schedule import select_models
from harness.processes.energy_meter import idle_energy, meter_for
from harness.processes.launcher import Worker
from harness.processes.load_failure import save_failure
from harness.processes.load_launcher import LoadWatcher, measure_load, settings_with_time_limit
from harness.processes.presence import Presence
from harness.processes.run_progress import RunProgress


def stage(arguments: Sequence[str]) -> None:
    """Measure what the plan's load cases lack."""
    parser = cli.parser("harness.load", __doc__)
    parser.add_argument("--force", action="store_true", help="measure again what is already there")
    parser.add_argument("--if-planned", action="store_true", help="do nothing where the plan has no scenario")
    cli.add_models(parser)
    cli.add_interpreters(parser)
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    others = parse_interpreters(options.python)
    results, models = Results(options.results), Models(options.models_dir)
    refuse_folder_of_ab(results, "load")
    plan = select_models(store.load(results.plan, Plan, "make plan"), options.models)
    if not plan.loads:
        if options.if_planned:
            return
        raise UsageError(
            f"{results.plan} has no scenario to load.",
            "Plan one, with its bound in quotes: make load BOUND='p99<50ms'.",
        )
    gpu.require(plan.device)
    exports = read_exports(plan, results, models)
    with exclusive(results.lock):
        keep_exports(exports, results)
        todo = [load for load in plan.loads if load.skip_reason is None]
        if options.force:
            for load in todo:
                remove_records(results.load(load.load_id).root)
        with _LoadPass(plan, results, models, exports, others) as measuring:
            failures = measuring.run(todo)
    if failures:
        raise CasesFailedError(
            f"{count(failures, 'load case')} failed; the others are done.",
            "The report lists each with its reason; `make load` tries only the failed ones again.",
        )


def remove_records(folder: Path) -> None:
    """Delete the records of a load case. Raises StorageError where one remains: it would be taken for a new one."""

    def refuse(_function: object, path: str, error: tuple[type[BaseException], BaseException, object]) -> None:
        """Raise the error again with the whole path."""
        if isinstance(error[1], OSError):
            raise OSError(error[1].errno, error[1].strerror, path) from error[1]

    with store.translate_storage_errors(folder):
        if folder.exists():
            shutil.rmtree(folder, onerror=refuse)


_EXPORT = "export"
"""Phase of a load case whose model has no export."""


class _LoadPass:
    """One pass over load cases: a worker for each backend and number of threads; ends every process it started."""

    def __init__(
        self, plan: Plan, results: Results, models: Models, exports: Exports, others: Mapping[str, Path]
    ) -> None:
        self._plan, self._results, self._models, self._exports = plan, results, models, exports
        self._others = others
        self._threads = plan.measurement.threads or limits.thread_count()
        self._workers: dict[tuple[str, int], Worker] = {}
        self._same_machine: dict[tuple[tuple[str, ...], bool], Callable[[LoadBase], bool]] = {}
        self._stack = ExitStack()
        self._gpu: GpuHandle | None = None
        self._idle: EnergySpent | None = None

    def __enter__(self) -> _LoadPass:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def run(self, loads: Sequence[LoadCase]) -> int:
        """Measure the load cases that lack something; returns how many failed."""
        states = {load.load_id: self._state(load) for load in loads}
        for note in (note for state in states.values() for note in state.notes):
            cli.warn(note)
        todo = [load for load in loads if not states[load.load_id].complete]
        refused = [(load, reason) for load in todo if (reason := self._reason_against(load)) is not None]
        for line in unmeasured_lines(refused):
            cli.warn(line)
        kept = len(loads) - len(todo)
        before = f"; {kept} measured before are kept (`make load FORCE=1` measures again)" if kept else ""
        cli.say(f"Plan {self._plan.plan_id}: {count(len(todo), 'load case')} to measure{before}.")
        if not todo:
            return 0
        cli.say(f"It takes {range_in_words(estimate_load(todo))}; a case ends early where its replications are short.")
        if self._plan.device == "cuda" and any(load.endpoint is None for load in todo):
            self._read_idle()
        failures = 0
        with closing(Presence(self._results, self._plan.plan_id)) as presence, RunProgress(len(todo)) as progress:
            for done, load in enumerate(todo):
                presence.turn(load.load_id, 0, done, len(todo))
                failure = self._measure(load, progress)
                failures += failure is not None
                progress.finished(load.load_id, self._outcome(load, failure))
        return failures

    def _measure(self, load: LoadCase, progress: RunProgress) -> LoadFailure | None:
        generates = load.new_tokens is not None
        own = self._results.export(load.slug)
        files = own.generation if generates else export_files(load.slug, self._results, self._models).record
        job = LoadJob(
            load=load,
            settings_id=self._plan.settings_id,
            measurement=settings_with_time_limit(load, self._plan.measurement),
            threads=self._threads_of(load),
            results=str(self._results.root),
            models=str(self._models.root),
            export=str(files),
            engines=self._plan.engines,
        )
        reason = self._reason_against(load)
        if reason is not None:
            return save_failure(job, self._results.load(load.load_id), reason.problem, reason.hint, _EXPORT)
        meter = meter_for(load, self._gpu, self._idle)
        watcher = LoadWatcher(load.load_id, progress, meter)
        try:
            return measure_load(job, self._worker(load), self._results, watcher)
        finally:
            if meter is not None:
                meter.save(job, self._results.load(load.load_id))

    def _reason_against(self, load: LoadCase) -> InferometerError | None:
        """Why the model has no export for a load case; None where it has one."""
        if load.new_tokens is None:
            return self._exports.reason_against(backend_case(load, load.max_batch))
        return export_failure(self._results.export(load.slug).generation_failure)

    def _read_idle(self) -> None:
        """Mean power of an idle GPU, before the first process uses it; a warning where its energy is unknown."""
        try:
            self._gpu = first_gpu()
            self._idle = idle_energy(self._gpu, MIN_WINDOW_S)
            cli.say(f"The GPU uses {self._idle.watts:.0f} W idle.")
        except UnavailableError as error:
            cli.warn(f"No energy of a request: {error.problem} {error.hint}")

    def _outcome(self, load: LoadCase, failure: LoadFailure | None) -> str:
        if failure is not None:
            named = "" if failure.phase == _EXPORT else f": {failure.error}"  # a warning has the reason of the export
            return f"FAILED in {failure.phase}{named}"
        kind = next(model.kind for model in self._plan.models if model.slug == load.slug)
        calibration = frozenset(() if backend_info(load.backend).computes else (load.backend,))
        criteria = checks_for(self._plan, load, self._exports.intact.get(load.model), calibration)
        return outcome_line(load_row(load, kind, criteria, load_evidence(self._state(load), None)))

    def _state(self, load: LoadCase) -> LoadState:
        recorded, libraries = backend_info(load.backend).recorded, load.backend not in self._others
        if (recorded, libraries) not in self._same_machine:
            here = environment.collect({}, load.device, recorded)
            self._same_machine[recorded, libraries] = same_machine_check(self._results, here, libraries)
        files = self._results.load(load.load_id)
        unread: list[str] = []
        engines = built_engines(self._models.folder(load.slug), unread)
        export = self._exports.intact.get(load.model)
        foreign = foreign_file_check(load, export, engines, self._results.export(load.slug))
        same_machine = self._same_machine[recorded, libraries]
        state = read_load_state(load, files, self._plan.settings_id, same_machine, foreign=foreign)
        state.notes += unread
        return state

    def _threads_of(self, load: LoadCase) -> int:
        """Threads of each worker: together the workers have those of every backend in the plan."""
        if load.generates_here:
            return backend_info(load.backend).decoder_setting(load.device, load.setting).threads or self._threads
        return max(1, threads_of(backend_case(load, load.max_batch), self._threads) // load.workers)

    def _worker(self, load: LoadCase) -> Worker:
        key = load.backend, self._threads_of(load)
        if key not in self._workers:
            name = load.backend if key[1] == self._threads else f"{load.backend}-{key[1]}"
            log, interpreter = self._results.worker_log(f"load-{name}"), self._others.get(load.backend)
            self._workers[key] = Worker(load.backend, key[1], log, True, interpreter)
            self._stack.callback(self._workers[key].close)
        return self._workers[key]


def outcome_line(row: LoadRow) -> str:
    """The outcome of a load case on one line."""
    if row.status != "measured":
        return f"{row.status}: {row.reason}"
    if row.void is not None:
        return f"void: {row.void}"
    if row.scenario == "server":
        replayed = row.endpoint is None and row.new_tokens is None
        peak = ["no load meets the bound by replay"] if replayed else []
        if row.predicted_peak_per_s is not None:
            peak = [f"peak by replay {significant(row.predicted_peak_per_s)}/s"]
        points = [f"{significant(point.asked_per_s)}/s {point.verdict}" for point in row.points]
        return ", ".join([*peak, *points])
    parts = [
        f"{point.point if point.clients else ''} {significant(point.samples_per_s)} samples/s".strip()
        for point in row.points
    ]
    return ", ".join(parts)


if __name__ == "__main__":
    cli.main(stage)
