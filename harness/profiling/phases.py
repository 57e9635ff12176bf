"""The two phases of a case of generation as cases of their own: profiled and compared as others are (pure).

A prefill is a pass over the prompts up to the first tokens; its latency is the TTFT. A decode step is one further token
of each sequence, mean over the contexts of the answer; its latency is the ITL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import get_args

from harness.aggregation.generation_rows import prefill_bytes, row_of_times, step_bytes
from harness.core.schemas import (
    Case,
    GenerationCase,
    GenerationExport,
    GenerationRow,
    Row,
    Summary,
)
from harness.core.schemas.profile_record import FileSize, GenerationPhase, MeasuredMemory

NO_MEMORY = "not measured: a row of generation has the bytes of its cache and of its process"


def phases_of(case: GenerationCase | GenerationRow) -> tuple[GenerationPhase, ...]:
    """Its phases; an answer of one token has no decode step."""
    return get_args(GenerationPhase) if case.new_tokens > 1 else ("prefill",)


def phase_case(case: GenerationCase | GenerationRow, phase: GenerationPhase, slug: str = "model") -> Case:
    """A phase as a case. sequence_length: of the prompts. slug: of the model."""
    label = "prefill" if phase == "prefill" else f"decode step, {case.new_tokens} tokens"
    return Case(
        case_id=f"{case.case_id}-{phase}",
        model=f"{case.model}: {label}",
        slug=slug,
        backend=case.backend,
        device=case.device,
        precision=case.precision,
        batch_size=case.batch_size,
        sequence_length=case.prompt_length,
        boundary="compute",
        mode="sync",
        weights=case.weights,
        setting=case.setting,
    )


def phase_rows(rows: Iterable[GenerationRow], profiled: Callable[[str], bool]) -> tuple[Row, ...]:
    """Rows of the phases that can be compared with a profiled one: same model, phase and prompt length.

    profiled: whether there is a profile of a case id.
    """
    by_phase = [_row(row, phase) for row in rows for phase in phases_of(row)]
    known = {(row.model, row.sequence_length) for row in by_phase if profiled(row.case_id)}
    return tuple(row for row in by_phase if (row.model, row.sequence_length) in known)


def with_phases(summary: Summary, profiled: Callable[[str], bool]) -> Summary:
    """The summary with the rows of phases (phase_rows), for conclusions from profiles."""
    return summary.model_copy(update={"rows": (*summary.rows, *phase_rows(summary.generations, profiled))})


def _row(row: GenerationRow, phase: GenerationPhase) -> Row:
    case = phase_case(row, phase)
    return row_of_times(row, case.case_id, case.model, row.ttft_ns if phase == "prefill" else row.itl_ns)


def phase_bytes(case: GenerationCase, phase: GenerationPhase, export: GenerationExport) -> int | None:
    """Least memory traffic of one pass: weights once, and the cache that it writes or reads; None where the size of an
    element is not known."""
    of = prefill_bytes if phase == "prefill" else step_bytes
    return of(case, export)


def empty_memory_record(environment_id: str) -> MeasuredMemory:
    """The record of a phase, whose allocations are not measured."""
    return MeasuredMemory(peak_bytes=None, by=NO_MEMORY, environment_id=environment_id)


def generation_files(export: GenerationExport) -> tuple[FileSize, ...]:
    """Sizes on disk of a model for generation."""
    weights = export.module
    onnx: Sequence[FileSize] = [
        FileSize(
            kind="onnx", name=name, path=file.path, size_bytes=sum(artifact.size_bytes for artifact in file.files())
        )
        for name, file in export.onnx.items()
    ]
    return (FileSize(kind="weights", name="fp32", path=weights.path, size_bytes=weights.size_bytes), *onnx)
