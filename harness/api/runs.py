"""Runs the stages in turn for one configuration, in a folder whose name follows from the configuration."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from harness import pipeline
from harness.api.regressions import Regressions
from harness.backends import backend_info
from harness.core import cli, hints
from harness.core.errors import (
    CaseError,
    FormatError,
    MissingInputError,
    RegressionError,
    UnavailableError,
    UsageError,
)
from harness.core.layout import Models, Results
from harness.core.raw_files import RawFiles
from harness.core.schemas import Case, Comparison, GenerationCase, GenerationRow, LoadRow, Measured, Plan, Row, Summary
from harness.core.schemas.profile_record import MemoryTimeline, ModelProfile, PartsProfile
from harness.core.store import digest_of, load, save_bytes
from harness.core.units import count
from harness.pipeline import Step
from harness.planning.exports import known_exports
from harness.planning.load_cases import load_time_in_words
from harness.planning.run_time import expected_sample_times, time_in_words
from harness.processes.code_states import BOTH_STATES
from harness.processes.stage_process import Show, run_stage
from harness.profile_ops import DEFAULT_RUNS
from harness.profiling.read_profiles import with_launch_gaps

_HEAD = "# Written by harness.api; the folder of this file belongs to this very configuration.\n"


@dataclass(frozen=True)
class CaseProfile:
    """The profile of one case; parts and memory are None where its backend exposes none."""

    model: ModelProfile
    parts: PartsProfile | None
    memory: MemoryTimeline | None


@dataclass(frozen=True)
class Run:
    """One configuration's folder, and the stages that run there. The same configuration has the same folder, so nothing
    is measured twice without `force`."""

    results: Results
    models: Models
    force: bool
    show: Show | None

    def plan(self, config: Mapping[str, Any], every: bool = False, measured: bool = False) -> Plan:
        """Write the configuration, expand it, export its model and, on a GPU, build the engines that backends load.

        every: raise UnavailableError, before the export, where one of the cases cannot run. measured: `measure` comes
        next; samples of other calls are taken over, and a line says how long the others take.
        """
        self._write(config)
        for step in self._steps("prepare", CONFIG=[str(self.results.config)]):
            if not step.on_gpu or self._plan().device == "cuda":
                self._start(step)
            if step.stage == "plan" and every:
                require_runnable(self._plan().cases)
            if step.stage == "plan" and measured:
                if not self.force:
                    adopt(self._plan(), self.results)
                self._announce()
        return self._plan()

    def measure(self) -> Summary:
        """Measure the limits of the device, run rounds of fresh processes, and return their summary."""
        for step in self._steps("measure"):
            self._start(step, *(self._forced() if step.stage in ("run", "aggregate") else ()))
        return with_typed_hints(load(self.results.summary, Summary, "make aggregate"))

    def load(self, config: Mapping[str, Any]) -> Summary:
        """Plan the configuration's scenarios alone, export, build engines, load, and return the summary."""
        self._write(config)
        chosen = {**self._folders(), "CONFIG": [str(self.results.config)]}
        for step in pipeline.steps(pipeline.PARTS["load"], chosen):
            if not step.on_gpu or self._plan().device == "cuda":
                self._start(step, *(self._forced() if step.stage in ("load", "aggregate") else ()))
            if step.stage == "plan":
                self._announce()
        return with_typed_hints(load(self.results.summary, Summary, "make aggregate"))

    def generate(self, config: Mapping[str, Any]) -> Summary:
        """Plan, export, measure generation, and return the summary."""
        self._write(config)
        for step in pipeline.steps(
            pipeline.PARTS["generation"], {**self._folders(), "CONFIG": [str(self.results.config)]}
        ):
            self._start(step, *(self._forced() if step.stage in ("generate", "aggregate") else ()))
            if step.stage == "plan":
                self._announce()
        return with_typed_hints(load(self.results.summary, Summary, "make aggregate"))

    def ab(
        self,
        config: Mapping[str, Any],
        against: str,
        rounds: int,
        max_regression: str | None,
        equivalence: str | None,
    ) -> Regressions:
        """Measure two states of the model in one run; returns the verdict of `compare`, with or without regressions."""
        self._write(config)
        more = ["--max-regression", max_regression] if max_regression else []
        more += ["--equivalence", equivalence] if equivalence else []
        where = ["--against", against, "--config", str(self.results.config), "--rounds", str(rounds)]
        with suppress(RegressionError):  # it is a result, recorded in the file
            self._start(
                Step("ab", pipeline.arguments("ab", self._folders())),
                *where,
                *more,
                *self._forced(),
                show=self.show or _time_and_progress(self._progress("ab")),
            )
        place = self.results.ab
        return Regressions(place.root, load(place.comparison, Comparison, "make ab"))

    def profile(self, plan: Plan, num_runs: int | None) -> list[CaseProfile]:
        """Profiles of all cases, in the plan's order, from at most DEFAULT_RUNS inferences under a profiler: more runs
        make a trace longer and shares no better.

        Raises CaseError with the reason where a case could not be profiled, and UnavailableError where the combination
        is not supported.
        """
        require_runnable(plan.cases)
        warnings = self._stage(
            "profile_ops", "--runs", str(min(num_runs or DEFAULT_RUNS, DEFAULT_RUNS)), *self._forced()
        )
        return [self._profile_of(case, warnings) for case in plan.cases]

    def _announce(self) -> None:
        """Print how long the cases take that have no samples yet, unless the caller sees the output of the stages."""
        if self.show is not None:
            return
        plan = self._plan() if self.force else self._unmeasured(self._plan())
        every: list[Case | GenerationCase] = [*plan.cases, *plan.generations]
        cases = sum(case.skip_reason is None for case in every)
        loads = sum(load.skip_reason is None for load in plan.loads)
        if cases:
            known = expected_sample_times(plan, known_exports(plan, self.results, self.models))
            cli.notice(f"{count(cases, 'case')}: {time_in_words(plan, known)}")
        if loads:
            cli.notice(f"{count(loads, 'load case')}: {load_time_in_words(plan.loads)}")

    def _unmeasured(self, plan: Plan) -> Plan:
        """The plan without what was measured in earlier calls."""
        raw = RawFiles(self.results, plan.cases)
        summary = self._summary_of(plan)
        loads, generations = (summary.loads, summary.generations) if summary else ((), ())
        done = {row.load_id for row in loads if row.status == "measured"}
        done |= {row.case_id for row in generations if row.status == "measured"}

        def has(case: Case, number: int) -> bool:
            with suppress(FormatError, MissingInputError):  # `run` measures what it cannot read
                record = raw.load(case.case_id, number)
                return isinstance(record, Measured) and record.settings_id == plan.settings_id
            return False

        rounds = range(1, plan.measurement.rounds + 1)
        return plan.model_copy(
            update={
                "cases": tuple(case for case in plan.cases if not all(has(case, number) for number in rounds)),
                "generations": tuple(case for case in plan.generations if case.case_id not in done),
                "loads": tuple(load for load in plan.loads if load.load_id not in done),
            }
        )

    def _summary_of(self, plan: Plan) -> Summary | None:
        """The summary of an earlier call with this plan; None where there is none."""
        try:
            summary = load(self.results.summary, Summary, "make aggregate")
        except (FormatError, MissingInputError):  # it is made again
            return None
        return summary if summary.plan_id == plan.plan_id else None

    def report(self) -> Path:
        """Write the page of the measured and profiled cases."""
        self._stage("report")
        return self.results.report_page

    def _profile_of(self, case: Case, warnings: tuple[str, ...]) -> CaseProfile:
        has_profiler = backend_info(case.backend).profiler is not None
        timeline = self.results.memory_profile(case.case_id)
        try:
            parts = (
                load(self.results.parts_profile(case.case_id), PartsProfile, "make profile") if has_profiler else None
            )
            return CaseProfile(
                load(self.results.model_profile(case.case_id), ModelProfile, "make profile"),
                parts and with_launch_gaps(parts, self.results.profile(case.case_id), cli.warn),
                load(timeline, MemoryTimeline, "make profile") if timeline.is_file() else None,
            )
        except MissingInputError:
            raise CaseError(
                " ".join(warnings) or f"{case.case_id} has no profile.",
                f"The logs are in {self.results.profile(case.case_id)}.",
            ) from None

    def _write(self, config: Mapping[str, Any]) -> None:
        text = _HEAD + yaml.safe_dump(dict(config), sort_keys=False)
        save_bytes(self.results.config, text.encode())

    def _forced(self) -> tuple[str, ...]:
        return ("--force",) if self.force else ()

    def settings(self) -> dict[str, Any]:
        """The configuration's section `measurement`, completed with defaults."""
        return self._plan().measurement.model_dump(mode="json")

    def _plan(self) -> Plan:
        return load(self.results.plan, Plan, "make plan")

    def _folders(self) -> dict[str, list[str]]:
        return {"RESULTS": [str(self.results.root)], "MODELS_DIR": [str(self.models.root)]}

    def _steps(self, part: str, **choices: list[str]) -> tuple[Step, ...]:
        return pipeline.steps(pipeline.PARTS[part], {**self._folders(), **choices})

    def _start(self, step: Step, *more: str, show: Show | None = None) -> tuple[str, ...]:
        cli.progress(f"{step.stage} …")
        shown = show or self.show or self._progress(step.stage)
        try:
            return run_stage(step.stage, *step.arguments, *more, show=shown, front="api")
        finally:
            cli.progress("")

    def _stage(self, name: str, *arguments: str) -> tuple[str, ...]:
        return self._start(Step(name, pipeline.arguments(name, self._folders())), *arguments)

    @staticmethod
    def _progress(stage: str) -> Show:
        return lambda line: cli.progress(f"{stage}: {line}")


def _time_and_progress(progress: Show) -> Show:
    """Shows the line of `ab` that says how long its pairs take, and the others as progress: their number is known only
    after both states are exported."""

    def show(line: str) -> None:
        (cli.notice if line.startswith(BOTH_STATES) else progress)(line)

    return show


def adopt(plan: Plan, results: Results) -> None:
    """Copy samples that other calls took of the plan's cases with the same settings, so that a case has one result.

    The newer samples win, unless they are fewer. `run` checks them like its own: samples of another export or another
    machine are measured again.
    """
    for other in sorted(results.root.parent.glob(f"*/{results.plan.name}")):
        earlier = Results(other.parent)
        if earlier.root == results.root or _settings_of(other) != plan.settings_id:
            continue
        for case in plan.cases:
            source, target = earlier.raw_case(case.case_id), results.raw_case(case.case_id)
            if _age(source) > _age(target) and _rounds_in(source) >= _rounds_in(target):
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(source, target)
                shutil.copytree(earlier.environments, results.environments, dirs_exist_ok=True)
        if earlier.roof.is_file() and not results.roof.is_file():
            shutil.copy2(earlier.roof, results.roof)


def _settings_of(plan: Path) -> str | None:
    try:
        return load(plan, Plan, "make plan").settings_id
    except FormatError:
        return None


def _rounds_in(folder: Path) -> int:
    return sum(path.stem.isdecimal() for path in folder.glob("*.json"))


def _age(folder: Path) -> int:
    """When the folder's newest sample was written, in ns since 1970; 0 without samples."""
    return max((path.stat().st_mtime_ns for path in folder.glob("*.json") if path.stem.isdecimal()), default=0)


def with_typed_hints(summary: Summary) -> Summary:
    """The summary with hints that name the arguments of the API."""
    return summary.model_copy(
        update={
            "rows": tuple(map(_typed_row, summary.rows)),
            "loads": tuple(map(_typed_row, summary.loads)),
            "generations": tuple(map(_typed_row, summary.generations)),
        }
    )


_R = TypeVar("_R", Row, LoadRow, GenerationRow)


def _typed_row(row: _R) -> _R:
    def typed(text: str) -> str:
        return hints.typed(text, hints.HintContext("api"))

    texts: dict[str, Any] = {
        name: typed(text) for name in ("reason", "hint", "void") if isinstance(text := getattr(row, name, None), str)
    }
    if isinstance(row, LoadRow | GenerationRow):
        texts["notes"] = tuple(map(typed, row.notes))
    if isinstance(row, Row | GenerationRow):
        texts["flags"] = tuple(flag.model_copy(update={"remedy": typed(flag.remedy)}) for flag in row.flags)
    return row.model_copy(update=texts)


def require_runnable(cases: Sequence[Case]) -> None:
    """Raise UnavailableError for the first case that cannot run."""
    for case in cases:
        if case.skip_reason is not None:
            raise UnavailableError(f"{case.case_id}: {case.skip_reason}.", "Choose another precision or backend.")


def folder_of(folder: Path, label: str, config: Mapping[str, Any]) -> Results:
    """The results folder of a configuration, with a readable name of its own. Raises UsageError for values that cannot
    be written to a file."""
    try:
        digits = digest_of(dict(config))[:8]
    except TypeError as error:
        raise UsageError(
            f"A setting is no plain value: {error}.", "Give strings, numbers or lists of them: `int()` of NumPy's."
        ) from error
    return Results(folder / f"{label}-{digits}")


def require_measured(row: Row) -> None:
    """Raise the reason why a row was not measured: UnavailableError where it cannot be measured, CaseError where it
    failed."""
    if row.status != "measured":
        kind = UnavailableError if row.status == "skipped" else CaseError
        hint = row.hint or "Choose another backend or precision."
        raise kind(f"{row.case_id} was {row.status}: {row.reason}", hint)
