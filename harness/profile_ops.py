"""profile_ops: what each case's model costs, layer by layer where its backend tells, in a pass of its own.

Every level of every case has a fresh process: counting, one pass whose allocations are watched, and some passes under
the backend's own profiler. Latencies are those that `run` measured; nothing here is one.

reads   results/plan.json, models/<model>/export.json and the files that it names; results/summary.json if there is one
writes  results/profiles/<case_id>/{model,parts}.json, parts.md, *.trace.json
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.backends import BACKENDS, backend_info
from harness.core import cli, devices, limits, store
from harness.core.errors import (
    CasesFailedError,
    FormatError,
    InferometerError,
    MissingInputError,
    StorageError,
    UsageError,
)
from harness.core.jobs import Job
from harness.core.layout import Models, Results
from harness.core.lock import exclusive
from harness.core.schemas import Case, ExportRecord, Plan, Precision, Summary
from harness.core.schemas.profile import Counts, MeasuredMemory, ModelProfile
from harness.core.schemas.profile_parts import PartsProfile
from harness.core.timestamps import utc_now
from harness.measure.achieved import model_profile
from harness.planning.built_engines import built_engines
from harness.planning.interpreters import interpreters
from harness.planning.part import of_models
from harness.planning.profiled import files_of, profiled_cases
from harness.render.profile_layers import profile_text
from harness.render.profile_model import progress_line
from harness.render.units import count
from harness.running.profiling import Level, ProfileJob, profile_in_a_process

DEFAULT_RUNS = 20


def stage(arguments: Sequence[str]) -> None:
    """Profile every case of the plan that has no profile yet."""
    parser = cli.parser("harness.profile_ops", __doc__)
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS, help=f"inferences under a profiler ({DEFAULT_RUNS})")
    parser.add_argument("--force", action="store_true", help="profile anew what is already there")
    cli.add_models(parser)
    cli.add_interpreters(parser)
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    if options.runs < 1:
        raise UsageError(f"--runs {options.runs} profiles nothing.", "At least 1.")
    others = interpreters(options.python)
    results = Results(options.results)
    plan = of_models(store.load(results.plan, Plan, "make plan"), options.models)
    cases = profiled_cases(plan.cases, [name for name, info in BACKENDS.items() if info.computes])
    if not cases:
        raise UsageError(
            "No case of this plan can be profiled: none of them computes at the compute boundary.",
            "make plan BOUNDARIES=compute",
        )
    devices.require(plan.device)
    with exclusive(results.lock):
        todo = [case for case in cases if options.force or not _has(results, case, plan.plan_id)]
        if not todo:
            cli.say("Every case has its profile already; --force profiles anew.")
            return
        work = _Pass(plan, results, Models(options.models_dir), options.runs, others, _summary(results))
        failures = sum(not work.profile(case) for case in todo)
    if failures:
        raise CasesFailedError(
            f"{count(failures, 'case')} could not be profiled to the end; the others are.",
            "Each was named above with its reason; the same command tries only those again.",
        )


def _has(results: Results, case: Case, plan_id: str) -> bool:
    try:
        model = store.load(results.model_profile(case.case_id), ModelProfile, "make profile")
        if backend_info(case.backend).profiler is not None:
            store.load(results.parts_profile(case.case_id), PartsProfile, "make profile")
    except (FormatError, MissingInputError):
        return False
    return model.plan_id == plan_id


def _summary(results: Results) -> Summary | None:
    return store.load(results.summary, Summary, "make aggregate") if results.summary.is_file() else None


@dataclass(frozen=True)
class _Pass:
    plan: Plan
    results: Results
    models: Models
    runs: int
    interpreters: Mapping[str, Path]
    summary: Summary | None
    counted: dict[tuple[str, int | None, Precision], Counts] = field(default_factory=dict)

    def profile(self, case: Case) -> bool:
        """Profile one case and say so; False where a level failed, and what the others told is kept."""
        try:
            found = self._model_level(case)
            store.save(self.results.model_profile(case.case_id), found)
            cli.say(progress_line(found))
            if backend_info(case.backend).profiler is not None:
                parts = PartsProfile.model_validate_json(self._ask("parts", case, own=True))
                store.save(self.results.parts_profile(case.case_id), parts)
                self._write_report(case, found, parts)
        except StorageError:
            raise
        except InferometerError as error:
            cli.warn(f"{case.case_id}: {error.problem} {error.hint}")
            return False
        return True

    def _write_report(self, case: Case, found: ModelProfile, parts: PartsProfile) -> None:
        """The parts as tables that can be read."""
        latency_ns = found.achieved.latency_ns
        text = profile_text(parts, case.device == "cuda", None if latency_ns is None else round(latency_ns))
        store.save_bytes(self.results.parts_report(case.case_id), f"# {case.case_id}\n\n{text}\n".encode())

    def _model_level(self, case: Case) -> ModelProfile:
        folder = self.models.folder(case.slug)
        export = store.load(folder.record, ExportRecord, "make export")
        counts = self._counted(case)
        memory = MeasuredMemory.model_validate_json(self._ask("memory", case, own=True))
        rows = self.summary.rows if self.summary else ()
        unread: list[str] = []
        engines = built_engines(folder, unread)
        for note in unread:
            cli.warn(note)
        return model_profile(
            case,
            (self.plan.plan_id, utc_now()),
            export,
            files_of(export, engines),
            counts,
            memory,
            next((row for row in rows if (row.case_id, row.weights) == (case.case_id, case.weights)), None),
            self.summary.roof if self.summary else None,
        )

    def _counted(self, case: Case) -> Counts:
        """Of an item, and so the same for every backend and batch."""
        key = (case.slug, case.sequence_length, case.precision)
        if key not in self.counted:
            self.counted[key] = Counts.model_validate_json(self._ask("count", case, own=False))
        return self.counted[key]

    def _ask(self, level: Level, case: Case, own: bool) -> bytes:
        """The answer of a fresh process. own: in the backend's interpreter, which may not be this one."""
        job = Job(
            case=case,
            round=1,
            plan_id=self.plan.plan_id,
            measurement=self.plan.measurement,
            threads=self.plan.measurement.threads or limits.threads(),
            results=str(self.results.root),
            models=str(self.models.root),
            engines=self.plan.engines,
        )
        log = self.results.profile_log(case.case_id, level)
        interpreter = self.interpreters.get(case.backend) if own else None
        return profile_in_a_process(ProfileJob(level=level, job=job, runs=self.runs), log, interpreter)


if __name__ == "__main__":
    cli.main(stage)
