"""Profile the cost of each case's model in a separate pass, by layer where the backend can.

Every level of every case has a fresh process: counting, one pass whose allocations are recorded, and some passes under
the backend's own profiler. The last level is repeated, each time in a fresh process beside a monitor, until the sums
agree. Latencies are those that `run` measured; the times of this stage include the profiler.

The two phases of a case of generation have separate profiles: <case_id>-prefill and <case_id>-decode.

reads   results/plan.json, exports/<slug>/{export,generation}.json and the files that they name;
        results/summary.json if there is one
writes  results/profiles/<case_id>/{model,parts,memory}.json, parts.md, memory.{png,svg}, memory.pickle, *.trace.json,
        <repeat>.usage.json, and events.out.tfevents.profile where TensorBoard is installed

--layers and --depth choose the layers that parts.md and the terminal show; parts.json holds every layer. Profiles that
exist already are only shown again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.backends import BACKENDS, backend_info
from harness.core import cli, store, units
from harness.core.errors import (
    CasesFailedError,
    InferometerError,
    StorageError,
    UsageError,
)
from harness.core.host import gpu, limits
from harness.core.layout import Models, Results
from harness.core.lock import exclusive
from harness.core.protocol import CaseJob, GenerationCaseJob
from harness.core.schemas import (
    Case,
    Environment,
    ExportRecord,
    GenerationCase,
    GenerationExport,
    Plan,
    Summary,
    Usage,
)
from harness.core.schemas.profile_record import (
    Counts,
    GenerationPhase,
    MeasuredMemory,
    ModelProfile,
    PartsProfile,
    Tokenising,
)
from harness.core.text import paragraphs
from harness.core.timestamps import utc_now
from harness.planning.block_settings import parse_interpreters, threads_of
from harness.planning.exports import (
    ExportReasons,
    GenerationExports,
    built_engines,
    export_files,
    onnx_refusal,
    read_export,
    read_generation_exports,
)
from harness.planning.matrix import model_file_sizes, profiled_cases
from harness.planning.schedule import select_models
from harness.processes import profile_launcher
from harness.processes.profile_launcher import (
    Level,
    ProfileJob,
    profile_in_a_process,
    profile_with_monitor,
)
from harness.profiling.layers import LayerChoice, near_names, unmatched_words
from harness.profiling.phases import generation_files, phase_bytes, phase_case, phase_rows, phases_of, with_phases
from harness.profiling.profile_grades import graded_profile, until_steady
from harness.profiling.read_profiles import with_launch_gaps
from harness.profiling.what_if import model_profile, profile_of_counts
from harness.reporting.tables.profile_tables import profile_blocks, progress_line, terminal_layers, tokenising_line
from harness.reporting.tables.what_if_table import terminal_what_if
from harness.reporting.writers.markdown import blocks_text, document_text
from harness.timing.clock import now_ns

DEFAULT_RUNS = 20


def stage(arguments: Sequence[str]) -> None:
    """Profile every case of the plan that has no profile yet, and show the layers of all."""
    parser = cli.parser("harness.profile_ops", __doc__)
    parser.add_argument(
        "--runs", type=int, help=f"inferences under a profiler ({DEFAULT_RUNS}); a profile of fewer is made again"
    )
    parser.add_argument("--layers", default="", help="layers to show: groups, paths of modules with *, or classes")
    parser.add_argument("--depth", type=int, help="layers down to this depth of the module tree; the model is 0")
    parser.add_argument("--force", action="store_true", help="profile again what is already there")
    cli.add_models(parser)
    cli.add_interpreters(parser)
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    if options.runs is not None and options.runs < 1:
        raise UsageError(f"--runs {options.runs} profiles nothing.", "At least 1.")
    if options.depth is not None and options.depth < 0:
        raise UsageError(f"--depth {options.depth} is above the model itself.", "At least 0: the model as a whole.")
    choice = LayerChoice(tuple(filter(None, (word.strip() for word in options.layers.split(",")))), options.depth)
    others = parse_interpreters(options.python)
    results = Results(options.results)
    plan = select_models(store.load(results.plan, Plan, "make plan"), options.models)
    cases = profiled_cases(plan.cases, [name for name, info in BACKENDS.items() if info.computes])
    subjects = [*map(_Subject, cases), *_phases(plan.generations)]
    if not subjects:
        raise UsageError(
            "No case of this plan can be profiled: none of them computes at the compute boundary.",
            "make plan BOUNDARIES=compute",
        )
    gpu.require(plan.device)
    with exclusive(results.lock):
        summary = _summary(results)
        models, generated = Models(options.models_dir), list(dict.fromkeys(case.model for case in plan.generations))
        exports = read_generation_exports(plan, generated, results, models)
        work = _ProfilePass(plan, results, models, options.runs or DEFAULT_RUNS, others, summary, exports)
        todo = [subject for subject in subjects if options.force or not work.has(subject, options.runs or 1)]
        if not todo:
            cli.say("Every case has its profile already; `make profile FORCE=1` profiles again.")
        failures = sum(not work.profile(subject) for subject in todo)
        parts = _show(results, [subject for subject in subjects if work.has(subject)], choice)
    if (
        summary is not None
        and summary.settings_id == plan.settings_id
        and (what_if := terminal_what_if(with_phases(summary, parts.__contains__), parts))
    ):
        cli.say(f"\n{what_if}")
    if failures:
        raise CasesFailedError(
            f"{units.count(failures, 'case')} could not be profiled to the end; the others are.",
            "Each was named above with its reason; the same command tries only those again.",
        )


@dataclass(frozen=True)
class _Subject:
    """A case to be profiled: a model's pass, or one phase of generation, whose `case` describes the phase."""

    case: Case
    generation: GenerationCase | None = None
    phase: GenerationPhase | None = None

    @property
    def has_parts(self) -> bool:
        """Whether its backend can time its layers or operators."""
        info = backend_info(self.case.backend)
        return (info.profiler if self.phase is None else info.decoder_profilers.get(self.case.device)) is not None


def _phases(cases: Sequence[GenerationCase]) -> list[_Subject]:
    """Every phase of the cases of generation that read a model; a profile of the others would show nothing."""
    able = [case for case in cases if case.skip_reason is None and backend_info(case.backend).decoder_reads != "none"]
    return [_Subject(phase_case(case, phase, case.slug), case, phase) for case in able for phase in phases_of(case)]


def _show(results: Results, subjects: Sequence[_Subject], choice: LayerChoice) -> dict[str, PartsProfile]:
    """Write the chosen layers into the parts.md of cases that have a profile, and print the longest.

    Returns the profiles by case id. Raises UsageError for a word that matches no layer, before anything is written.
    """
    profiled = [subject.case for subject in subjects if subject.has_parts]
    profiles = [_parts(results, case) for case in profiled]
    layers = [parts.layers for parts in profiles]
    for word in unmatched_words(choice.words, layers) if profiles else ():
        near = (
            ", ".join(f"`{name}`" for name in near_names(word, layers))
            or "none, no backend here has a per-layer profile"
        )
        raise UsageError(
            f"No layer matches `{word}` in {units.count(len(profiles), 'profile')}; parts.json of each has all layers.",
            f"Near: {near}. A group, a path of modules with * or a class.",
        )
    for case, parts in zip(profiled, profiles, strict=True):
        model = store.load(results.model_profile(case.case_id), ModelProfile, "make profile")
        latency_ns = model.achieved.latency_ns
        measured_ns = None if latency_ns is None else round(latency_ns)
        text = blocks_text(profile_blocks(parts, case.device == "cuda", measured_ns, choice=choice))
        besides = (tokenising_line(parts), profile_launcher.memory_text(results, case.case_id))
        text = cli.typed(paragraphs((text, *besides)))
        store.save_bytes(results.parts_report(case.case_id), document_text(f"# {case.case_id}\n\n{text}\n").encode())
        profile_launcher.write_events(results, model, parts, text)
        cli.say(f"\n{terminal_layers(case.case_id, parts, choice)}")
    return {case.case_id: parts for case, parts in zip(profiled, profiles, strict=True)}


def _parts(results: Results, case: Case) -> PartsProfile:
    parts = store.load(results.parts_profile(case.case_id), PartsProfile, "make profile")
    return with_launch_gaps(parts, results.profile(case.case_id), cli.warn)


def _summary(results: Results) -> Summary | None:
    return store.load(results.summary, Summary, "make aggregate") if results.summary.is_file() else None


@dataclass(frozen=True)
class _ProfilePass:
    plan: Plan
    results: Results
    models: Models
    runs: int
    interpreters: Mapping[str, Path]
    summary: Summary | None
    exports: GenerationExports
    counted: dict[tuple[object, ...], Counts] = field(default_factory=dict)
    tokenised: dict[tuple[str, int | None, int], Tokenising] = field(default_factory=dict)
    reasons: ExportReasons = field(default_factory=ExportReasons)

    def has(self, subject: _Subject, runs: int = 1) -> bool:
        """Whether a case has a profile of the current settings and export, with parts from at least `runs` runs."""
        case = subject.case
        try:
            model = store.load(self.results.model_profile(case.case_id), ModelProfile, "make profile")
            if subject.has_parts:
                parts = store.load(self.results.parts_profile(case.case_id), PartsProfile, "make profile")
                if parts.runs is not None and parts.runs < runs:
                    return False
            request = self._generated(subject.generation) if subject.generation else self._export(case)
        except InferometerError:
            return False
        return model.settings_id == self.plan.settings_id and model.export_sha256 in (None, request.request_sha256)

    def profile(self, subject: _Subject) -> bool:
        """Profile one case and print a line; False where a level failed. Results of the other levels are kept."""
        case = subject.case
        try:
            profile = self._phase_level(subject) if subject.phase else self._model_level(case)
            files = profile_launcher.memory_files(self.results, case.case_id)
            profile = profile.model_copy(update={"memory_files": files})
            store.save(self.results.model_profile(case.case_id), profile)
            cli.say(progress_line(profile))
            if subject.has_parts:
                parts = self._repeated(subject, profile.environment_id)
                parts = parts.model_copy(update={"tokenising": None if subject.phase else self._tokenised(case)})
                store.save(self.results.parts_profile(case.case_id), parts)
        except StorageError:
            raise
        except InferometerError as error:
            cli.warn(self.reasons.text(f"{case.case_id} is not profiled", error))
            return False
        return True

    def _phase_level(self, subject: _Subject) -> ModelProfile:
        case, generation, phase = subject.case, subject.generation, subject.phase
        if generation is None or phase is None:
            raise TypeError("this case is no phase of generation")
        export = self._generated(generation)
        key = (case.slug, generation.prompt_length, generation.new_tokens, phase)
        if key not in self.counted:
            self.counted[key] = Counts.model_validate_json(self._ask("count", subject, own=False))
        memory = MeasuredMemory.model_validate_json(self._ask("memory", subject, own=True))
        rows = phase_rows(self.summary.generations, lambda _: True) if self.summary else ()
        return profile_of_counts(
            case,
            (self.plan.settings_id, utc_now()),
            export.request_sha256,
            generation_files(export),
            phase_bytes(generation, phase, export),
            self.counted[key],
            memory,
            next((row for row in rows if (row.case_id, row.weights) == (case.case_id, case.weights)), None),
            self.summary.roof if self.summary else None,
            phase,
        )

    def _generated(self, case: GenerationCase) -> GenerationExport:
        """The export of a case of generation; raises the reason why there is none that serves it."""
        reason = self.exports.reason_against(case)
        if reason is not None:
            raise reason
        return self.exports.intact[case.model]

    def _model_level(self, case: Case) -> ModelProfile:
        export = self._export(case)
        refusal = onnx_refusal(export, case)
        if refusal is not None:
            raise refusal
        folder = self.models.folder(case.slug, export.folder)
        counts = self._counted(case)
        memory = MeasuredMemory.model_validate_json(self._ask("memory", _Subject(case), own=True))
        rows = self.summary.rows if self.summary else ()
        unread: list[str] = []
        engines = built_engines(folder, unread)
        for note in unread:
            cli.warn(note)
        return model_profile(
            case,
            (self.plan.settings_id, utc_now()),
            export,
            model_file_sizes(export, engines),
            counts,
            memory,
            next((row for row in rows if (row.case_id, row.weights) == (case.case_id, case.weights)), None),
            self.summary.roof if self.summary else None,
        )

    def _repeated(self, subject: _Subject, environment_id: str) -> PartsProfile:
        """Layers and operators, profiled until the sums of two repeats agree, and graded by the monitor's records."""
        case = subject.case
        profile_launcher.forget_usage(self.results, case.case_id)
        watched: list[Usage | None] = []

        def take(repeat: int) -> PartsProfile:
            profile_job = self._profile_job("parts", subject, repeat)
            answer, usage = profile_with_monitor(
                profile_job, self.results.profile_log(case.case_id, "parts"), self._interpreter(case)
            )
            watched.append(usage)
            return PartsProfile.model_validate_json(answer)

        on_gpu, begin = case.device == "cuda", now_ns()
        parts = until_steady(take, on_gpu, lambda: (now_ns() - begin) / 1e9)
        environment = store.load(self.results.environment(environment_id), Environment, "make profile")
        return graded_profile(parts, watched[-1], self._threads(subject), on_gpu, environment)

    def _export(self, case: Case) -> ExportRecord:
        planned = next(planned for planned in self.plan.models if planned.name == case.model)
        return read_export(self.plan, planned, self.results, self.models)

    def _counted(self, case: Case) -> Counts:
        """Counts of one sample, the same for every backend and batch size."""
        key = (case.slug, case.sequence_length, case.precision)
        if key not in self.counted:
            self.counted[key] = Counts.model_validate_json(self._ask("count", _Subject(case), own=False))
        return self.counted[key]

    def _tokenised(self, case: Case) -> Tokenising | None:
        """Cost of tokenising a batch, the same for every backend; None where the inputs are no text."""
        if self._export(case).kind != "text":
            return None
        key = (case.slug, case.sequence_length, case.batch_size)
        if key not in self.tokenised:
            self.tokenised[key] = Tokenising.model_validate_json(self._ask("tokenising", _Subject(case), own=False))
        return self.tokenised[key]

    def _ask(self, level: Level, subject: _Subject, own: bool) -> bytes:
        """The answer of a fresh process. own: in the backend's interpreter, which may differ from this one."""
        log = self.results.profile_log(subject.case.case_id, level)
        return profile_in_a_process(
            self._profile_job(level, subject), log, self._interpreter(subject.case) if own else None
        )

    def _interpreter(self, case: Case) -> Path | None:
        return self.interpreters.get(case.backend)

    def _threads(self, subject: _Subject) -> int:
        case, usual = subject.case, self.plan.measurement.threads or limits.thread_count()
        if subject.phase is None:
            return threads_of(case, usual)
        return backend_info(case.backend).decoder_setting(case.device, case.setting).threads or usual

    def _profile_job(self, level: Level, subject: _Subject, repeat: int = 1) -> ProfileJob:
        case = subject.case
        if subject.generation is not None:
            task = GenerationCaseJob(
                case=subject.generation.model_copy(update={"case_id": case.case_id}),
                round=repeat,
                settings_id=self.plan.settings_id,
                measurement=self.plan.measurement,
                threads=self._threads(subject),
                results=str(self.results.root),
                models=str(self.models.root),
                export=str(self.results.export(case.slug).generation),
                options=self.plan.generation,
            )
            return ProfileJob(level=level, job=task, runs=self.runs, phase=subject.phase)
        job = CaseJob(
            case=case,
            round=repeat,
            settings_id=self.plan.settings_id,
            measurement=self.plan.measurement,
            threads=self._threads(subject),
            results=str(self.results.root),
            models=str(self.models.root),
            export=str(export_files(case.slug, self.results, self.models).record),
            engines=self.plan.engines,
        )
        return ProfileJob(level=level, job=job, runs=self.runs)


if __name__ == "__main__":
    cli.main(stage)
