"""The first paragraph of the report, derived by rules: who is fastest, where that can be told at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.schemas import Row, Summary
from harness.render import ranking, units, ways
from harness.render.conditions import machine, threads
from harness.render.group import listed
from harness.render.series import named

MAX_MODELS = 8
"""Models named in the paragraph; a paragraph of a hundred is not read."""


def nothing(summary: Summary) -> str:
    """The paragraph of a summary without a verdict."""
    if all(row.status == "missing" for row in summary.rows):
        return "Nothing is measured yet."
    return "Nothing was measured that may be ranked; the tables below say why."


@dataclass(frozen=True)
class Verdict:
    """What is said of one model at its smallest shape: `where: said`, then figures where one is the fastest.

    fastest: the winner, None where there is none.
    """

    where: str
    said: str
    figures: str = ""
    fastest: Row | None = None

    @property
    def sentence(self) -> str:
        """For a paragraph, in Markdown."""
        if self.fastest is None:
            return f"{self.where}: {self.said}."
        return f"**{self.where}: {self.said}**, {self.figures}."


def headline(summary: Summary) -> str:
    """One paragraph: for each model, the fastest backend at its smallest shape, or between which it is undecided."""
    sentences = [verdict.sentence for verdict in verdicts(summary)]
    if not sentences:
        return nothing(summary)
    if len(sentences) > MAX_MODELS:
        sentences = [*sentences[:MAX_MODELS], f"{len(sentences) - MAX_MODELS} more models stand below."]
    return " ".join([measured_on(summary), *sentences])


def verdicts(summary: Summary) -> list[Verdict]:
    """One for each model with a row that may be ranked, in the plan's order."""
    tables = ranking.by_table(summary.rows)
    # The first table of each model alone: boundaries and modes answer different questions, and have their own tables.
    first = {key[:3]: rows for key, rows in reversed(tables)}
    return [verdict for key, rows in tables if rows is first[key[:3]] and (verdict := _of_table(rows))]


def measured_on(summary: Summary) -> str:
    """The machine and the threads, in one sentence."""
    return f"Measured on {machine(summary.environments)} with {threads(summary.rows)}."


def _of_table(rows: Sequence[Row]) -> Verdict | None:
    (sequence, batch), group = ranking.by_shape(rows)[0]
    candidates = ranking.contenders(group)
    if not candidates:
        return None
    way = f" ({ways.short(rows[0])})" if ways.short(rows[0]) else ""
    where = f"{rows[0].model}{way} at batch {batch}{f', sequence length {sequence}' if sequence else ''}"
    fastest = ranking.winner(group)
    if fastest is not None:
        return Verdict(where, f"{named(fastest)} is fastest", f"{_latency(fastest)}{_gain(fastest)}", fastest)
    doubtful = ranking.doubtful_leaders(group)
    if doubtful:
        read = listed([f"{named(row)} ({_latency(row)})" for row in doubtful], last="and")
        ranked = listed([f"{named(row)} ({_latency(row)})" for row in candidates], last="or")
        be = "is" if len(doubtful) == 1 else "are"
        said = f"no winner, because {read} may be fastest and {be} flagged; of what is ranked, {ranked} leads"
        return Verdict(where, said)
    if len(candidates) == 1:
        return Verdict(where, f"only {named(candidates[0])} may be ranked, {_latency(candidates[0])}")
    names = [f"{named(row)} ({_latency(row)})" for row in candidates]
    return Verdict(where, f"no clear winner: {', '.join(names[:-1])} or {names[-1]}")


def _latency(row: Row) -> str:
    per_batch = " per batch" if row.mode == "offline" else ""
    return f"{units.duration(row.latency_ns.median)}{per_batch}" if row.latency_ns else units.ABSENT


def _gain(row: Row) -> str:
    if row.speedup is None or row.speedup.baseline == row.case_id:
        return ""
    ends = f" (95% CI {units.interval(row.speedup.ci95)})" if row.speedup.ci95 else ""
    doubt = ", which is grade C" if ranking.is_doubtful(row) else ""
    return f", {ranking.speedup(row)} times the speed of the baseline{doubt}{ends}"
