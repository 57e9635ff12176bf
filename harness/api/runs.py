"""The stages one after the other for one configuration, in a folder whose name follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.api.regressions import Regressions
from harness.backends import backend_info
from harness.core import cli
from harness.core.errors import CaseError, MissingInputError, RegressionError, UnavailableError, UsageError
from harness.core.layout import Models, Results
from harness.core.schemas import Case, Comparison, Plan, Row, Summary
from harness.core.schemas.profile import ModelProfile
from harness.core.schemas.profile_memory import MemoryProfile
from harness.core.schemas.profile_parts import PartsProfile
from harness.core.store import digest_of, load, save_bytes
from harness.measure.traced import with_launch_gaps
from harness.profile_ops import DEFAULT_RUNS
from harness.running.stages import Show, run_stage

_HEAD = "# Written by harness.api; the folder of this file belongs to this very configuration.\n"


@dataclass(frozen=True)
class Found:
    """The profile of one case; parts and memory None where its backend does not tell."""

    model: ModelProfile
    parts: PartsProfile | None
    memory: MemoryProfile | None


@dataclass(frozen=True)
class Run:
    """One configuration's folder, and what is done there. The same configuration has the same folder, so that nothing
    is measured twice unless `force` asks for it."""

    results: Results
    models: Models
    exporter: str
    force: bool
    show: Show | None

    def plan(self, config: Mapping[str, Any]) -> Plan:
        """Write the configuration, expand it, export its model and, on a GPU, build the engines that backends load."""
        self._write(config)
        self._stage("plan", "--config", str(self.results.config), models=False)
        self._stage("export", "--exporter", self.exporter)
        plan = load(self.results.plan, Plan, "make plan")
        if plan.device == "cuda":
            self._stage("build_engine")
        return plan

    def measure(self) -> Summary:
        """What the device can do at most, rounds of fresh processes, and their summary."""
        self._stage("roof", models=False)
        self._stage("run", *self._forced())
        self._stage("aggregate")
        return load(self.results.summary, Summary, "make aggregate")

    def ab(
        self,
        config: Mapping[str, Any],
        against: str,
        rounds: int,
        max_regression: str | None,
        equivalence: str | None,
    ) -> Regressions:
        """Two states of the model in one run; the verdict of `compare`, which regressed or not."""
        self._write(config)
        more = ["--max-regression", max_regression] if max_regression else []
        more += ["--equivalence", equivalence] if equivalence else []
        where = ["--against", against, "--config", str(self.results.config), "--rounds", str(rounds)]
        with suppress(RegressionError):  # it is an answer, and stands in the file
            self._stage("ab", *where, *more, *self._forced())
        place = self.results.ab
        return Regressions(place.root, load(place.comparison, Comparison, "make ab"))

    def profile(self, plan: Plan, num_runs: int | None) -> list[Found]:
        """What every case costs, in the plan's order, by at most DEFAULT_RUNS inferences under a profiler: more make a
        trace longer and shares no better.

        Raises CaseError where a case could not be profiled, with what was said about it, and UnavailableError where
        the combination cannot be.
        """
        for case in plan.cases:
            if case.skip_reason is not None:
                raise UnavailableError(f"{case.case_id}: {case.skip_reason}.", "Choose another precision or backend.")
        warnings = self._stage(
            "profile_ops", "--runs", str(min(num_runs or DEFAULT_RUNS, DEFAULT_RUNS)), *self._forced()
        )
        return [self._profile_of(case, warnings) for case in plan.cases]

    def report(self) -> Path:
        """The page of what was measured and profiled."""
        self._stage("report", models=False)
        return self.results.report_page

    def _profile_of(self, case: Case, warnings: tuple[str, ...]) -> Found:
        told = backend_info(case.backend).profiler is not None
        timeline = self.results.memory_profile(case.case_id)
        try:
            parts = load(self.results.parts_profile(case.case_id), PartsProfile, "make profile") if told else None
            return Found(
                load(self.results.model_profile(case.case_id), ModelProfile, "make profile"),
                parts and with_launch_gaps(parts, self.results.profile(case.case_id), cli.warn),
                load(timeline, MemoryProfile, "make profile") if timeline.is_file() else None,
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

    def _stage(self, name: str, *arguments: str, models: bool = True) -> tuple[str, ...]:
        folders = ["--results", str(self.results.root), *(["--models-dir", str(self.models.root)] if models else [])]
        return run_stage(name, *arguments, *folders, show=self.show)


def folder_of(folder: Path, label: str, config: Mapping[str, Any]) -> Results:
    """The results folder of a configuration: readable, and its own. Raises UsageError for what no file can hold."""
    try:
        digits = digest_of(dict(config))[:8]
    except TypeError as error:
        raise UsageError(
            f"A setting is no plain value: {error}.", "Give strings, numbers or lists of them: `int()` of NumPy's."
        ) from error
    return Results(folder / f"{label}-{digits}")


def require_measured(row: Row) -> None:
    """Raise what kept a row from being measured: UnavailableError where it cannot be, CaseError where it failed."""
    if row.status != "measured":
        kind = UnavailableError if row.status == "skipped" else CaseError
        hint = row.hint or "Choose another backend or precision."
        raise kind(f"{row.case_id} was {row.status}: {row.reason}", hint)
