"""The part of a report on generation: conditions, a table and charts a model, flags, what was not measured (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from harness.aggregation.flags import is_calibration
from harness.core import units
from harness.core.schemas import GenerationRow, Summary
from harness.core.units import duration, significant
from harness.reporting.prose.conditions import library_versions, machine_text
from harness.reporting.table import Align, DocumentBlock, text_table, titled_blocks
from harness.reporting.tables.generation_table import by_model, generation_row_name, generation_table, shape
from harness.reporting.writers.markdown import escape
from harness.reporting.writers.terminal import table_text as terminal_table

QUANTISED = frozenset({"int8", "int4"})
"""Precisions whose weights are not those of the reference, rounded."""

Images = Mapping[str, Sequence[tuple[str, str]]]
"""Model → (alternative text, path relative to the report) of its charts."""


def generation_section(summary: Summary, images: Images | None = None) -> list[DocumentBlock]:
    """Everything on generation; empty without a planned case. images: charts of each model."""
    if not summary.generations:
        return []
    parts: list[DocumentBlock] = [generation_conditions(summary)]
    for model, rows in by_model(summary.generations).items():
        charts = [f"![{escape(text)}]({path})" for text, path in (images or {}).get(model, ())]
        parts += titled_blocks(escape(model), *model_blocks(rows, charts), level=3)
    return [*parts, *further_blocks(summary)]


def model_blocks(rows: Sequence[GenerationRow], charts: Sequence[DocumentBlock] = ()) -> list[DocumentBlock]:
    """The fastest row of a model, its facts, its table, charts and flags."""
    return [
        block for block in (fastest_text(rows), _about(rows), generation_table(rows), *charts, *_flags(rows)) if block
    ]


def further_blocks(summary: Summary) -> list[DocumentBlock]:
    """The blocks after the models: work of known duration, and cases without a result."""
    return [*_known_duration_blocks(summary), *_unmeasured(summary)]


def generation_first(summary: Summary) -> list[DocumentBlock]:
    """The part on the first page: conditions, and for each model the fastest and its table."""
    if not summary.generations:
        return []
    parts = [
        block
        for model, rows in by_model(summary.generations).items()
        for block in titled_blocks(escape(model), fastest_text(rows), generation_table(rows), level=3)
    ]
    return titled_blocks("Generation", generation_conditions(summary), *parts, *_unmeasured(summary))


def generation_conditions(summary: Summary) -> str:
    """One line with the conditions of all rows; empty where nothing was measured."""
    rows = [row for row in summary.generations if row.status == "measured"]
    if not rows:
        return "No case of generation was measured."
    threads = units.either(sorted({row.threads for row in rows if row.threads}), "thread")
    rounds = {row.ttft_ns.rounds for row in rows if row.ttft_ns}
    span = units.either(sorted(rounds), "round") if rounds else ""
    parts = [
        machine_text(summary.environments),
        threads,
        library_versions(summary.environments),
        "greedy, end token ignored, one batch at a time, prompts differ in every request",
        f"{span}, each in a fresh process" if span else "",
        f"plan {summary.plan_id}",
    ]
    return f"Conditions: {' · '.join(part for part in parts if part)}."


def short_generation_conditions(summary: Summary) -> str:
    """generation_conditions for a chart."""
    return generation_conditions(summary).removeprefix("Conditions: ")


def fastest_text(rows: Sequence[GenerationRow]) -> str:
    """One sentence a shape: the ranked row with the most tokens a second of one sequence, and its tokens."""
    lines = []
    for place in dict.fromkeys(map(shape, rows)):
        candidates = [row for row in rows if shape(row) == place and row.grade in ("A", "B") and row.itl_ns is not None]
        if not candidates:
            continue
        # Weights of fewer bits are another model: they are named beside, and not ranked with the others.
        full_precision = [row for row in candidates if row.precision not in QUANTISED]
        reduced = [row for row in candidates if row.precision in QUANTISED]
        candidates = full_precision or reduced
        best = min(candidates, key=_itl)
        others = [row for row in candidates if row is not best]
        clear = bool(others) and all(_clearly_faster(best, row) for row in others)
        mark = "**" if clear else ""
        rate = "" if best.rates is None else f", {significant(best.rates.per_sequence)} tokens/s a sequence"
        step = duration(best.itl_ns.median) if best.itl_ns else ""
        prompt, new, batch = place
        lines.append(
            f"- batch {batch}, {prompt} + {new} tokens: {mark}{generation_row_name(best)}{mark} {step} a token{rate}"
            + ("" if clear or not others else " (not clearly)")
            + (f"; with fewer bits a weight: {_row_text(min(reduced, key=_itl))}" if full_precision and reduced else "")
        )
    return "\n".join(lines)


def _itl(row: GenerationRow) -> float:
    return row.itl_ns.median if row.itl_ns else 0.0


def _row_text(row: GenerationRow) -> str:
    return f"{generation_row_name(row)} {duration(_itl(row))}"


def terminal_generation(summary: Summary) -> str:
    """The tables for a terminal; empty without a measured row."""
    tables = [
        f"{model}\n{terminal_table(generation_table(rows))}" for model, rows in by_model(summary.generations).items()
    ]
    return "\n\n".join(tables)


def _clearly_faster(best: GenerationRow, other: GenerationRow) -> bool:
    best_interval = best.itl_ns.ci95 if best.itl_ns else None
    other_interval = other.itl_ns.ci95 if other.itl_ns else None
    return best_interval is not None and other_interval is not None and best_interval.high < other_interval.low


def _about(rows: Sequence[GenerationRow]) -> str:
    prompts = list(dict.fromkeys(row.prompts for row in rows if row.prompts))
    weights = "random weights" if rows[0].weights == "seeded" else f"{rows[0].weights} weights"
    note = ""
    if rows[0].weights == "seeded":
        note = " Random weights have nearly equal logits, so that rounding changes tokens often."
    return f"{weights.capitalize()}. Prompts: {'; '.join(prompts)}.{note}"


def _flags(rows: Sequence[GenerationRow]) -> list[DocumentBlock]:
    flagged: dict[tuple[str, str], list[GenerationRow]] = {}
    for row in rows:
        for flag in row.flags:
            flagged.setdefault((flag.name, flag.remedy), []).append(row)
    lines = [
        [name, str(len(flagged_rows)), next(flag.detail for flag in flagged_rows[0].flags if flag.name == name), remedy]
        for (name, remedy), flagged_rows in flagged.items()
    ]
    if not lines:
        return []
    grades = Counter(row.grade for row in rows if row.grade)
    counts = ", ".join(f"{number} {grade}" for grade, number in sorted(grades.items()))
    heads: list[tuple[str, Align]] = [("flag", "left"), ("rows", "right"), ("example", "left")]
    return [f"Grades: {counts}.", text_table([*heads, ("what to do", "left")], lines)]


def _known_duration_blocks(summary: Summary) -> list[DocumentBlock]:
    """The rows of a known duration: the error of the loop."""
    rows = [row for row in summary.generations if row.status == "measured" and is_calibration(row)]
    lines = [
        [
            row.case_id,
            _setting_duration_text(row, "prefill_ns"),
            _ms(row.ttft_ns),
            _setting_duration_text(row, "step_ns"),
            _ms(row.itl_ns),
        ]
        for row in rows
    ]
    heads: list[tuple[str, Align]] = [("case", "left"), ("prefill of", "right"), ("TTFT ms", "right")]
    table = text_table([*heads, ("step of", "right"), ("ITL ms", "right")], lines)
    return titled_blocks("Known durations", table, level=3) if lines else []


def _setting_duration_text(row: GenerationRow, name: str) -> str:
    value = row.placement.settings.get(name) if row.placement else None
    return duration(value) if isinstance(value, int | float) else units.ABSENT


def _ms(times: object) -> str:
    median = getattr(times, "median", None)
    return units.ABSENT if median is None else f"{median / 1e6:.4f}"


def _unmeasured(summary: Summary) -> list[DocumentBlock]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for row in summary.generations:
        if row.status != "measured":
            groups.setdefault((row.status, row.reason or "", row.hint or ""), []).append(row.case_id)
    lines = [
        [status, cases[0] if len(cases) == 1 else f"{cases[0]} and {len(cases) - 1} more", reason, hint or units.ABSENT]
        for (status, reason, hint), cases in groups.items()
    ]
    heads: list[tuple[str, Align]] = [(name, "left") for name in ("status", "case", "reason", "what to do")]
    return titled_blocks("Not measured", text_table(heads, lines), level=3) if lines else []
