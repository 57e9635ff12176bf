"""The page of a large run (pure): the answer of each model, and its rows and charts, unpacked when they are opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from harness.aggregation.flags import slug_of
from harness.core import units
from harness.core.schemas import Comparison, Grade, Status, Summary
from harness.core.text import paragraphs
from harness.reporting import ranking
from harness.reporting.first_page import GRADES, SHOWN, answer_cells, answers, mark_notes
from harness.reporting.html import embedded
from harness.reporting.html.comparison_section import comparison_section
from harness.reporting.html.page import Section, chapters, closing_sections, document, has_wide, prose
from harness.reporting.prose import conditions
from harness.reporting.table import Align, DocumentBlock, text_table
from harness.reporting.writers import html
from harness.reporting.writers.markdown import section, table_text

MAX_COMPARED = 1_000
"""Compared rows of the page, the worst first; comparison.json has all."""


@dataclass(frozen=True)
class ModelPart:
    """The report's content about one model.

    cells: of its line in the table of answers; rows: by status; grades: of measured rows. packed: its sections of the
    page, compressed and in base64. wide: whether units.WIDE occurs in them. beside: its conditions, as one line.
    """

    model: str
    anchor: str
    cells: tuple[str, ...]
    rows: Counter[Status]
    grades: Counter[Grade]
    packed: str
    wide: bool
    beside: str


def model_part(summary: Summary, with_plots: bool) -> ModelPart:
    """The part of one model. summary: with its rows alone."""
    tables = ranking.by_table(summary.rows)
    anchor = f"model-{slug_of(summary.rows[0])}"
    sections = list(chapters(summary, tables, with_plots, anchor))
    answered = answers(summary, 1)
    return ModelPart(
        model=summary.rows[0].model,
        anchor=anchor,
        cells=tuple(answer_cells(answered[0])) if answered else (f"{summary.rows[0].model}: no answer", "", "", "", ""),
        rows=Counter(row.status for row in summary.rows),
        grades=Counter(row.grade for row in summary.rows if row.grade),
        packed=embedded.compressed("\n".join(section.markup for section in sections)),
        wide=has_wide(sections),
        beside=conditions.run_conditions(summary),
    )


def headings(baseline: str) -> list[tuple[str, Align]]:
    """Headings of the table of answers."""
    words = ("model", "fastest with the same answers (fp32)", "fastest at all", "what that costs")
    return [*((word, "left") for word in words), (SHOWN.get(baseline, baseline), "right"), ("cases", "right")]


def title(summary: Summary, parts: Sequence[ModelPart]) -> str:
    """`500 models, 100,000 cases on AMD EPYC`."""
    total = sum(part.rows.total() for part in parts)
    return f"{units.count(len(parts), 'model')}, {total:,} cases on {conditions.processor_name(summary.environments)}"


def certainty_text(parts: Sequence[ModelPart]) -> str:
    """Cases with and without figures, and the number of rows of each grade."""
    statuses: Counter[Status] = sum((part.rows for part in parts), Counter())
    grades: Counter[Grade] = sum((part.grades for part in parts), Counter())
    counts = ", ".join(f"{number:,} {grade} ({GRADES[grade]})" for grade, number in sorted(grades.items()))
    cases = ", ".join(f"{number:,} {status}" for status, number in statuses.items())
    return f"**How sure**: {cases}. Grades: {counts}."


def models_report(summary: Summary, parts: Sequence[ModelPart], page: str, details: str) -> str:
    """report.md of a large run: a line a model. page, details: names of the other files of the report."""
    lines = [[*part.cells, f"{part.rows.total():,}"] for part in parts]
    more = (
        f"The cases and charts of each model are in [{page}]({page}); `make report ONLY=<name>` writes the whole "
        f"report of one. The environment: [{details}]({details})."
    )
    answers_table = table_text(text_table(headings(summary.baseline_backend), lines))
    baseline = SHOWN.get(summary.baseline_backend, summary.baseline_backend)
    note = " ".join(["Smallest shape of each model. Medians of a batch.", *mark_notes(lines, baseline)])
    return (
        section(title(summary, parts), _conditions(parts), certainty_text(parts), answers_table, note, more, level=1)
        + "\n"
    )


def models_details(summary: Summary, parts: Sequence[ModelPart]) -> str:
    """report-details.md of a large run: what its models share."""
    notes = "\n".join(f"- {note}" for note in summary.notes)
    shared = section("Environment", conditions.environment_table(summary.environments))
    body = [section("Notes", notes) if notes else "", shared]
    return paragraphs((f"# {title(summary, parts)}: details", *body)) + "\n"


def models_page(
    summary: Summary, parts: Sequence[ModelPart], comparison: Comparison | None, with_plots: bool, meta: Markup
) -> str:
    """The whole page. summary: without rows. meta: the stamp of the summary."""
    sections = []
    if comparison:
        worst = sorted(comparison.rows, key=lambda row: -abs((row.ratio or 1.0) - 1))[:MAX_COMPARED]
        content = comparison_section(comparison.model_copy(update={"rows": tuple(worst)}), _conditions(parts))
        content["groups"] = []
        more = len(comparison.rows) - len(worst)
        content["remarks"] = [*content["remarks"], *([f"{more:,} more rows in comparison.json."] if more else [])]
        sections.append(Section("comparison", "Comparison", "compared.html.j2", content))
    blocks: list[DocumentBlock] = [_conditions(parts), certainty_text(parts)]
    sections.append(prose("summary", "Summary", *blocks))
    lines = [([html.inline(cell) for cell in part.cells], part) for part in parts]
    content = {"headers": headings(summary.baseline_backend), "lines": lines}
    sections.append(Section("models", "Models", "models.html.j2", content))
    if summary.notes:
        sections.append(Section("notes", "Notes", "list.html.j2", {"notes": summary.notes}))
    sections += closing_sections(summary, has_wide(sections) or any(part.wide for part in parts))
    return document(summary, sections, title(summary, parts), with_plots, meta)


def _conditions(parts: Sequence[ModelPart]) -> str:
    """The conditions where all models share them, else those of the first with a word about the others."""
    conditions = list(dict.fromkeys(part.beside for part in parts if part.beside))
    return " ".join(
        [*conditions[:1], *(["Other models have other conditions: see each."] if len(conditions) > 1 else [])]
    )
