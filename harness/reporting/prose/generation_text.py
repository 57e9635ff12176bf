"""The part of a report on generation: conditions, a table and charts a model, flags, what was not measured (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from harness.core.schemas import GenerationRow, Summary
from harness.reporting import units
from harness.reporting.prose.conditions import machine, versions
from harness.reporting.table import texts
from harness.reporting.tables.generation_table import by_model, generation_table, is_known_duration, named, shape
from harness.reporting.units import duration, significant
from harness.reporting.writers.markdown import escape, section, table_text
from harness.reporting.writers.terminal import table_text as terminal_table

Images = Mapping[str, Sequence[tuple[str, str]]]
"""Model → (alternative text, path relative to the report) of its charts."""


def generation_text(summary: Summary, images: Images | None = None, level: int = 3) -> str:
    """Everything on generation as Markdown; empty without a planned case. level: of the models' headings."""
    if not summary.generations:
        return ""
    parts = [generation_conditions(summary)]
    for model, rows in by_model(summary.generations).items():
        charts = "\n\n".join(f"![{escape(text)}]({path})" for text, path in (images or {}).get(model, ()))
        parts.append(
            section(
                model,
                fastest(rows),
                _about(rows),
                table_text(generation_table(rows)),
                charts,
                _flags(rows),
                level=level,
            )
        )
    parts += [_known_durations(summary), _unmeasured(summary)]
    return "\n\n".join(part for part in parts if part)


def generation_first(summary: Summary) -> str:
    """The part on the first page: conditions, and for each model the fastest and its table."""
    if not summary.generations:
        return ""
    parts = [
        section(model, fastest(rows), table_text(generation_table(rows)), level=3)
        for model, rows in by_model(summary.generations).items()
    ]
    return section("Generation", generation_conditions(summary), *parts, _unmeasured(summary))


def generation_conditions(summary: Summary) -> str:
    """One line with the conditions of all rows; empty where nothing was measured."""
    rows = [row for row in summary.generations if row.status == "measured"]
    if not rows:
        return "No case of generation was measured."
    threads = units.either(sorted({row.threads for row in rows if row.threads}), "thread")
    rounds = {row.ttft_ns.rounds for row in rows if row.ttft_ns}
    span = units.either(sorted(rounds), "round") if rounds else ""
    parts = [
        machine(summary.environments),
        threads,
        versions(summary.environments),
        "greedy, end token ignored, one batch at a time, prompts differ in every request",
        f"{span}, each in a fresh process" if span else "",
        f"plan {summary.plan_id}",
    ]
    return f"Conditions: {' · '.join(part for part in parts if part)}."


def short_generation_conditions(summary: Summary) -> str:
    """The same for a chart."""
    return generation_conditions(summary).removeprefix("Conditions: ")


def fastest(rows: Sequence[GenerationRow]) -> str:
    """One sentence a shape: the ranked row with the most tokens a second of one sequence, and its tokens."""
    lines = []
    for place in dict.fromkeys(map(shape, rows)):
        ours = [row for row in rows if shape(row) == place and row.grade in ("A", "B") and row.itl_ns is not None]
        if not ours:
            continue
        best = min(ours, key=lambda row: row.itl_ns.median if row.itl_ns else 0.0)
        others = [row for row in ours if row is not best]
        clear = bool(others) and all(_apart(best, row) for row in others)
        mark = "**" if clear else ""
        rate = "" if best.rates is None else f", {significant(best.rates.per_sequence)} tokens/s a sequence"
        step = duration(best.itl_ns.median) if best.itl_ns else ""
        prompt, new, batch = place
        lines.append(
            f"- batch {batch}, {prompt} + {new} tokens: {mark}{named(best)}{mark} {step} a token{rate}"
            + ("" if clear or not others else " (not clearly)")
        )
    return "\n".join(lines)


def terminal_generation(summary: Summary) -> str:
    """The tables for a terminal; empty without a measured row."""
    found = [
        f"{model}\n{terminal_table(generation_table(rows))}" for model, rows in by_model(summary.generations).items()
    ]
    return "\n\n".join(found)


def _apart(best: GenerationRow, other: GenerationRow) -> bool:
    ours = best.itl_ns.ci95 if best.itl_ns else None
    theirs = other.itl_ns.ci95 if other.itl_ns else None
    return ours is not None and theirs is not None and ours.high < theirs.low


def _about(rows: Sequence[GenerationRow]) -> str:
    prompts = list(dict.fromkeys(row.prompts for row in rows if row.prompts))
    weights = "random weights" if rows[0].weights == "seeded" else f"{rows[0].weights} weights"
    note = ""
    if rows[0].weights == "seeded":
        note = " Random weights have nearly equal logits, so that rounding changes tokens often."
    return f"{weights.capitalize()}. Prompts: {'; '.join(prompts)}.{note}"


def _flags(rows: Sequence[GenerationRow]) -> str:
    found: dict[tuple[str, str], list[GenerationRow]] = {}
    for row in rows:
        for flag in row.flags:
            found.setdefault((flag.name, flag.remedy), []).append(row)
    lines = [
        [name, str(len(ours)), next(flag.detail for flag in ours[0].flags if flag.name == name), remedy]
        for (name, remedy), ours in found.items()
    ]
    if not lines:
        return ""
    grades = Counter(row.grade for row in rows if row.grade)
    counts = ", ".join(f"{number} {grade}" for grade, number in sorted(grades.items()))
    table = texts([("flag", "left"), ("rows", "right"), ("the first of them", "left"), ("what to do", "left")], lines)
    return f"Grades: {counts}.\n\n{table_text(table)}"


def _known_durations(summary: Summary) -> str:
    """The rows of a known duration: the error of the loop."""
    rows = [row for row in summary.generations if row.status == "measured" and is_known_duration(row)]
    lines = [
        [row.case_id, _known(row, "prefill_ns"), _ms(row.ttft_ns), _known(row, "step_ns"), _ms(row.itl_ns)]
        for row in rows
    ]
    if not lines:
        return ""
    heads = ("case", "prefill of", "TTFT ms", "step of", "ITL ms")
    return section(
        "Known durations",
        table_text(texts([(name, "left" if name == "case" else "right") for name in heads], lines)),
        level=3,
    )


def _known(row: GenerationRow, name: str) -> str:
    value = row.placement.settings.get(name) if row.placement else None
    return duration(value) if isinstance(value, int | float) else units.ABSENT


def _ms(times: object) -> str:
    median = getattr(times, "median", None)
    return units.ABSENT if median is None else f"{median / 1e6:.4f}"


def _unmeasured(summary: Summary) -> str:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for row in summary.generations:
        if row.status != "measured":
            groups.setdefault((row.status, row.reason or "", row.hint or ""), []).append(row.case_id)
    lines = [
        [status, cases[0] if len(cases) == 1 else f"{cases[0]} and {len(cases) - 1} more", reason, hint or units.ABSENT]
        for (status, reason, hint), cases in groups.items()
    ]
    heads = ("status", "case", "reason", "what to do")
    table = texts([(name, "left") for name in heads], lines)
    return section("Not measured", table_text(table), level=3) if lines else ""
