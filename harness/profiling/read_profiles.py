"""Rows with their profiles, read from results/profiles/."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from harness.aggregation.join import blank_summary
from harness.aggregation.row import missing_row
from harness.core import store
from harness.core.errors import FormatError, MalformedFileError
from harness.core.layout import Results
from harness.core.safe_files import SizeLimit, read
from harness.core.schemas import GenerationCase, GenerationRow, Plan, Row, Summary
from harness.core.schemas.profile_record import (
    LaunchGaps,
    LayerRow,
    MemoryTimeline,
    ModelProfile,
    OperatorRow,
    PartsProfile,
)
from harness.profiling.launch_gaps import launch_gaps_of
from harness.profiling.phases import phase_case, phase_rows, phases_of
from harness.profiling.profile_grades import reason_for_doubt
from harness.profiling.what_if import achieved_rates


def with_launch_gaps(parts: PartsProfile, folder: Path, warn: Callable[[str], None]) -> PartsProfile:
    """The profile with the gaps of its first trace that has GPU work; unchanged where it already has gaps, or has no
    kernels or no such trace. folder: of the traces. A trace that cannot be read gives a warning."""
    if parts.launch_gaps is not None or not any(row.self_device_ns for row in parts.operators):
        return parts
    for name in parts.traces:
        gaps = _gaps(folder / name, parts.operators, warn)
        if gaps is not None and gaps.kernels_ns:
            return parts.model_copy(update={"launch_gaps": gaps})
    return parts


def _gaps(path: Path, operators: tuple[OperatorRow, ...], warn: Callable[[str], None]) -> LaunchGaps | None:
    try:
        trace = json.loads(read(path, SizeLimit.TRACE))
        return launch_gaps_of(trace["traceEvents"] if isinstance(trace, dict) else trace, operators)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, MalformedFileError) as error:
        warn(
            f"{path} is no trace that can be read ({type(error).__name__}: {error}). `make profile FORCE=1` writes it."
        )
        return None


R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class Profiled:
    """A row and its profiles; parts and memory are None where its backend reports none."""

    row: Row
    model: ModelProfile
    parts: PartsProfile | None
    memory: MemoryTimeline | None = None

    @property
    def layers(self) -> Sequence[LayerRow]:
        """The layers; empty without any."""
        return self.parts.layers if self.parts else ()

    @property
    def doubt(self) -> str | None:
        """Why nothing may be concluded from its parts; None where conclusions are allowed, or without parts."""
        return reason_for_doubt(self.parts, self.row.device == "cuda") if self.parts else None


def profiled_rows(summary: Summary, results: Results, warn: Callable[[str], None]) -> list[Profiled]:
    """The rows that were profiled with the summary's settings, phases of generation too. An unreadable file gives a
    warning and is left out."""
    profiled = []
    for row in (*summary.rows, *phase_rows(summary.generations, lambda _: True)):
        model = _loaded(results.model_profile(row.case_id), ModelProfile, warn)
        if model is None or model.settings_id != summary.settings_id:
            continue
        # From the current rows: they may have been measured after the profile was taken.
        facts = {"model": row.model, "achieved": achieved_rates(row, model.flops_per_batch, summary.roof)}
        model = model.model_copy(update=facts)
        parts = _loaded(results.parts_profile(row.case_id), PartsProfile, warn)
        if parts is not None:
            parts = with_launch_gaps(parts, results.profile(row.case_id), warn)
        profiled.append(Profiled(row, model, parts, _loaded(results.memory_profile(row.case_id), MemoryTimeline, warn)))
    return profiled


def only_profiled(plan: Plan, summary: Summary | None, results: Results, created_at: str) -> Summary:
    """A summary of the plan's cases that have a profile: with the rows of `summary`, else with missing rows.

    summary: of this or another plan; its rows are used only if they were measured with the plan's settings.
    """
    known = summary if summary is not None and summary.settings_id == plan.settings_id else None
    rows = {(row.case_id, row.weights): row for row in known.rows} if known else {}
    kinds = {model.slug: model.kind for model in plan.models}
    cases = [case for case in plan.cases if results.model_profile(case.case_id).is_file()]
    measured = {row.case_id: row for row in known.generations} if known else {}
    generations = [
        measured.get(case.case_id)
        or GenerationRow(**_shared_fields(case), status="missing", reason=_PROFILED, hint=_MEASURE)
        for case in plan.generations
        if any(results.model_profile(phase_case(case, phase).case_id).is_file() for phase in phases_of(case))
    ]
    blank = blank_summary(plan, {}, created_at)
    taken = ("measured_from", "measured_to", "environments", "exports", "engines", "roof", "custom", "energies")
    own = {name: getattr(known, name) for name in taken} if known else {}
    profiled = [
        rows.get((case.case_id, case.weights))
        or missing_row(case, kinds[case.slug], _PROFILED, "`make bench` measures it.")
        for case in cases
    ]
    title = f"{plan.report.title}: profile"
    return blank.model_copy(update={**own, "title": title, "rows": tuple(profiled), "generations": tuple(generations)})


_PROFILED, _MEASURE = "profiled, and not measured", "`make generate` measures it."


def _shared_fields(case: GenerationCase) -> dict[str, Any]:
    """The fields that a case and its row share."""
    return {name: value for name, value in case.model_dump().items() if name in GenerationRow.model_fields}


def _loaded(path: Path, kind: type[R], warn: Callable[[str], None]) -> R | None:
    if not path.is_file():
        return None
    try:
        return store.load(path, kind, "make profile")
    except FormatError as error:
        warn(f"{error.problem} {error.hint}")
        return None
