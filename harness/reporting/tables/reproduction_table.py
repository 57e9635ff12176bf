"""A reproduction as Markdown and as a terminal table, and a claim in words (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.core import units
from harness.core.schemas import Claim, Differing, ReproducedRow, Reproduction
from harness.core.text import paragraphs
from harness.reporting.table import Column, Table, word_column
from harness.reporting.writers import markdown
from harness.reporting.writers import terminal as terminal_writer
from harness.reporting.writers.markdown import escape, section

TERMINAL_DIFFERENCES = 20
"""Lines of the terminal that name conditions; reproduction.md has all of them, the decisive ones first."""


def listed(name: str, claim: Claim) -> str:
    """A claim in words, for the list of all claims."""
    lines = [f"{name}: {claim.title}", f"  device      {' or '.join(claim.cards)}"]
    parts = [
        units.count(len(claim.values), "value") if claim.values else f"the rows of {claim.results}",
        units.count(len(claim.ratios), "ratio") if claim.ratios else "",
        units.count(len(claim.orders), "order") if claim.orders else "",
        "context only" if claim.context else "",
    ]
    lines.append(f"  holds       {', '.join(part for part in parts if part)}")
    lines += [f"  {key:<11} {text}" for key, text in _condition_texts({**claim.conditions, **claim.versions}).items()]
    lines.append(f"  source      {_source(claim)}")
    return "\n".join(lines)


def headline(reproduction: Reproduction) -> str:
    """One line: the number of rows of each verdict."""
    counts = Counter(row.verdict for row in reproduction.rows)
    return f"{reproduction.claim}: " + ", ".join(f"{number} {verdict}" for verdict, number in counts.items()) + "."


def terminal(reproduction: Reproduction) -> str:
    """The table, the reasons of verdicts, and the differences in conditions."""
    numbers = _numbered(reproduction.rows)
    return "\n".join(
        [
            f"{reproduction.title}",
            f"Published: {_device_and_source(reproduction)}",
            f"Measured:  {reproduction.here or 'nothing'}",
            "",
            terminal_writer.table_text(_table(reproduction.rows, numbers)),
            "",
            *[f"{name}: {reason}" for name, reason in _reasons(reproduction.rows)],
            *[
                f"[{number}] {_difference(difference)}"
                for difference, number in list(numbers.items())[:TERMINAL_DIFFERENCES]
            ],
            *_more(len(numbers)),
            *_remarks(reproduction),
        ]
    )


def document(reproduction: Reproduction) -> str:
    """The whole reproduction as Markdown."""
    numbers = _numbered(reproduction.rows)
    conditions = [f"- {key}: {escape(text)}" for key, text in _condition_texts(reproduction.conditions).items()]
    reasons = [f"- {escape(name)}: {escape(reason)}" for name, reason in _reasons(reproduction.rows)]
    differences = [f"{number}. {escape(_difference(difference))}" for difference, number in numbers.items()]
    parts = [
        section(reproduction.title, f"**{headline(reproduction)}**", *_remarks(reproduction), level=1),
        section(
            "Conditions",
            f"Published: {_device_and_source(reproduction)}",
            "\n".join(conditions),
            f"Measured: {reproduction.here}",
        ),
        section("Published and measured", markdown.table_text(_table(reproduction.rows, numbers))),
        section("Why", "\n".join(reasons)) if reasons else "",
        section("Conditions that differ", "\n".join(differences)) if differences else "",
        section("How to read this", _guide(reproduction.rows, numbered=bool(numbers))),
    ]
    return paragraphs(parts) + "\n"


def _more(count: int) -> list[str]:
    rest = count - TERMINAL_DIFFERENCES
    return [f"… and {rest:,} more conditions in reproduction.md"] if rest > 0 else []


_KINDS = {
    "value": "A value is judged on the GPU that it was published for, under the published conditions: reproduced where "
    "the measured 95% interval reaches the published value ± its tolerance (its own interval where the source gives "
    "one, else 5%).",
    "ratio": "A ratio is per sample and judged on any machine: ± 10%.",
    "order": "An order is reproduced where every step is clear.",
}
"""How each kind of row is judged."""


def _guide(rows: Sequence[ReproducedRow], numbered: bool) -> str:
    """How the rows are judged. numbered: whether conditions have numbers."""
    kinds = {row.kind for row in rows}
    lines = [text for kind, text in _KINDS.items() if kind in kinds]
    if kinds - {"order"}:
        lines.append(
            "An interval wider than what it is held against decides nothing (against a published interval: one wider "
            "than that and than ± 5%)."
        )
    if numbered:
        lines.append("The numbers under `differs` name the conditions that were not the same.")
    if any(ends and units.too_wide_to_print(ends) for row in rows for ends in (row.ci95, row.published_ci95)):
        lines.append(units.wide_means("reproduction.json"))
    return " ".join(lines)


def _table(rows: Sequence[ReproducedRow], numbers: dict[Differing, int]) -> Table[ReproducedRow]:
    def relative(row: ReproducedRow) -> str:
        return units.significant(row.measured / row.published if row.measured and row.published else None)

    def differs(row: ReproducedRow) -> str:
        differences = ", ".join(str(number) for number in sorted(numbers[difference] for difference in row.differences))
        return differences or ("nothing" if row.measured else units.ABSENT)

    columns = [
        word_column("verdict", lambda row: row.verdict),
        word_column("case", lambda row: row.name),
        Column[ReproducedRow]("unit", lambda row: row.unit),
        Column("published", _published),
        Column("measured", lambda row: units.significant(row.measured)),
        Column("95% CI", lambda row: units.interval(row.ci95)),
        Column("measured / published", relative),
        Column("differs", differs),
    ]
    return Table(columns, rows)


def _published(row: ReproducedRow) -> str:
    """A published figure with all its digits; with an interval, or calculated from two figures, in our format."""
    if row.published is None:
        return units.ABSENT
    if row.published_ci95 is not None:
        return f"{units.significant(row.published)} {units.interval(row.published_ci95)}"
    return units.significant(row.published) if row.kind == "ratio" else f"{row.published:,.6g}"


def _numbered(rows: Sequence[ReproducedRow]) -> dict[Differing, int]:
    differences = dict.fromkeys(difference for row in rows for difference in row.differences)
    return {difference: number for number, difference in enumerate(differences, start=1)}


def _reasons(rows: Sequence[ReproducedRow]) -> list[tuple[str, str]]:
    """(names, reason): rows with the same reason are grouped."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.reason:
            groups.setdefault(row.reason, []).append(row.name)
    return [(", ".join(names), reason) for reason, names in groups.items()]


def _difference(differing: Differing) -> str:
    return f"{differing.name}: published {differing.published}, here {differing.here}"


def _remarks(reproduction: Reproduction) -> list[str]:
    judged = [row for row in reproduction.rows if row.kind != "value" and row.verdict != "NOT COMPARABLE"]
    if any(difference.refuses for row in judged for difference in row.differences):
        return ["Ratios and orders were judged under other conditions than published: weaker evidence either way."]
    return []


def _device_and_source(reproduction: Reproduction) -> str:
    parts = (reproduction.source.title, reproduction.source.date, reproduction.source.url)
    return f"{reproduction.card}; " + ", ".join(part for part in parts if part)


def _source(claim: Claim) -> str:
    return ", ".join(part for part in (claim.source.title, claim.source.date, claim.source.url) if part)


def _condition_texts(conditions: dict[str, str]) -> dict[str, str]:
    return {key.replace("_", " "): text for key, text in conditions.items()}
