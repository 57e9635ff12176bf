"""The first page of a report: the fastest backend, its loss of accuracy, and how certain this is (pure).

The same answers appear in report.md, in the terminal at the end of a command, at the top of report.html, in the README
and in the line of `--json`. Everything else is in the details (harness/reporting/details.py).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from harness.aggregation.flags import (
    MAX_INTERVAL_HALF_WIDTH,
    MAX_RANKED_HALF_WIDTH,
    is_accuracy_known,
    median_ns,
)
from harness.core import units
from harness.core.schemas import Grade, LoadRow, Row, Status, Summary
from harness.core.units import MAX_PRINTED_FACTOR, too_wide_to_print
from harness.reporting import ranking
from harness.reporting.csv_identity import sound_rows
from harness.reporting.load_groups import is_sound
from harness.reporting.prose import boundaries
from harness.reporting.prose.conditions import (
    page_conditions,
    processor_name,
    rounds_text,
    threads_text,
    tokens_text,
)
from harness.reporting.prose.generation_text import generation_first
from harness.reporting.prose.load_answer import load_answer, load_conditions, why_without_figures
from harness.reporting.prose.recommendations import further_rounds_text, joined_words
from harness.reporting.ranking import TableKey, backend_and_setting, row_name
from harness.reporting.table import Align, DocumentBlock, text_table
from harness.reporting.tables.scaling_tables import neighbours_table, scaling_table
from harness.reporting.writers.markdown import blocks_text, escape, section, table_text
from harness.statistics.estimators import P95_MIN_SAMPLES, relative_interval_half_width

MAX_ANSWERS = 12
"""Lines of the answer table. Where all batch sizes need more, it has the smallest batch size of each model."""

MAX_MODELS = 8
"""Models whose answer appears in the terminal and in the cards of the page."""

MAX_ROWS = 40
"""Rows of the table of all cases; where there are more, it shows the smallest batch size of each model."""

MAX_NAMED = 3
"""Largest number of backends that an answer names."""

MAX_REASONS = 4
"""Largest number of reasons of cases without a result."""

WIDE = " (wide)"
"""In place of an interval that is too wide to be printed as digits."""

FULL = "fp32"
"""The precision whose answers count as the same …"""

MAX_SAME_DISTANCE = 1e-4
"""… up to this relative L2 distance, its default tolerance. A configuration may have a wider one."""

NOT_CHECKED = "accuracy not checked"
"""In place of a loss of accuracy that is not known."""

SHOWN: Mapping[str, str] = {"torch-eager": "PyTorch eager"}
"""Header of the baseline's column, by backend."""

LINKED = (
    *("Generation", "Recommendations", "What if", "Load", "Profile", "Not measured", "How to read this"),
    "Environment",
)
"""Sections of the details that the first page links to."""

GRADES: Mapping[Grade, str] = {
    "A": f"every check passed, within ±{MAX_INTERVAL_HALF_WIDTH:.0%}",
    "B": "right, but less certain",
    "C": f"disturbed, or wider than ±{MAX_RANKED_HALF_WIDTH:.0%}: not ranked",
    "F": "void: wrong answers, or something else ran",
}


@dataclass(frozen=True)
class Choice:
    """The fastest of some rows of one shape.

    rows: the fastest, or every ranked row that may be as fast (ranking.contenders). flagged: rows of grade C that may
    be as fast. clear: the intervals of all other rows lie above that of the fastest. others: the grades of all rows but
    one of the fastest. apart: ranked rows were not all measured in turn.
    """

    rows: tuple[Row, ...]
    flagged: tuple[Row, ...]
    clear: bool
    others: tuple[Grade, ...]
    apart: bool = False

    @property
    def named(self) -> tuple[Row, ...]:
        """The rows to print: all that may be the fastest, ordered by their medians. Where the first has no interval, as
        after one round, all others may be as fast: then it alone."""
        if self.without_interval:
            return self.rows[:1]
        return tuple(sorted((*self.rows, *self.flagged), key=median_ns))

    @property
    def without_interval(self) -> bool:
        """True where only the medians say which row is the fastest."""
        if len(self.rows) < 2 or self.flagged:
            return False
        latency = self.rows[0].latency_ns
        return latency is not None and latency.ci95 is None

    @property
    def has_rivals(self) -> bool:
        """Whether there is a decision to make: at least two rows are not void."""
        return any(grade != "F" for grade in self.others)


@dataclass(frozen=True)
class ModelAnswer:
    """The result of a run for one model at one shape.

    same: the fastest fp32 row; fastest: the fastest of all rows. baseline: the baseline backend in fp32, None without
    a figure. rivals: rows of this shape except the first.
    """

    model: str
    where: str
    same: Choice
    fastest: Choice
    baseline: Row | None
    rivals: int

    @property
    def is_same(self) -> bool:
        """True where no lower precision may be faster."""
        same, fastest = self.same, self.fastest
        return bool(fastest.named) and (same.rows, same.flagged) == (fastest.rows, fastest.flagged)


@dataclass(frozen=True)
class AnswerCard:
    """An answer as a card of the page: `where: text`, then figures where a single row is the fastest.

    fastest: the winner, None where there is none.
    """

    where: str
    text: str
    figures: str = ""
    fastest: Row | None = None


def first_page(summary: Summary, details: str, headings: Sequence[str], charts: Sequence[tuple[str, str]] = ()) -> str:
    """report.md: answers and how certain they are, one chart, one table of all cases.

    details: path of the details, relative to the report; headings: of its sections, some of which are linked. charts:
    (alternative text, path) of the charts of the whole run.
    """
    links = [f"[{name}]({details}#{name.lower().replace(' ', '-')})" for name in LINKED if name in headings]
    more = f"More: {' · '.join([f'[all tables and charts]({details})', *links])}"
    images = "\n\n".join(f"![{escape(text)}]({path})" for text, path in charts)
    conditions = page_conditions(summary) or (load_conditions(summary, summary.loads) if summary.loads else "")
    parts = (
        conditions,
        answer(summary) if summary.rows or not summary.generations else "",
        load_answer(summary),
        images,
        case_table(summary),
        energy_text(summary),
        scaling_table(summary),
        neighbours_table(summary),
        *generation_first(summary),
        more,
    )
    return section(title(summary), *parts, level=1) + "\n"


def title(summary: Summary) -> str:
    """`3 models on AMD EPYC, 2 threads · 28 Nov 2026`; the configuration's title where nothing is measured."""
    rows = [row for _, group in ranking.by_table(summary.rows) for row in group]
    if not rows:
        return _load_title(summary)
    models = list(dict.fromkeys(row.model for row in rows))
    name = models[0] if len(models) == 1 else f"{len(models)} models"
    return f"{name} on {processor_name(summary.environments)}, {threads_text(rows)} · {_dates(summary)}"


def _load_title(summary: Summary) -> str:
    """`minilm-l6 under load on AMD EPYC`; the configuration's title where no load is measured either."""
    models = list(dict.fromkeys(row.model for row in summary.loads if row.status == "measured"))
    name = models[0] if len(models) == 1 else f"{len(models)} models"
    return f"{name} under load on {processor_name(summary.environments)}" if models else summary.title


def answer(summary: Summary) -> str:
    """The answers, how certain they are, and the cases without a result, as Markdown."""
    return blocks_text((answer_table(summary), certainty_text(summary), without_result(summary)))


def answers(summary: Summary, most: int = MAX_ANSWERS) -> list[ModelAnswer]:
    """Answers for each model in the plan's order, in its first boundary and mode, at each shape with several rows.

    Only at the smallest shape where these would be more than `most`; never more than `most`.
    """
    by_table = [[_answer(summary, *shape) for shape in ranking.by_shape(rows)] for rows in _first_tables(summary)]
    rivalling = [
        [answer for answer in table_answers if answer.rivals] or table_answers[:1] for table_answers in by_table
    ]
    every_shape = sum(map(len, rivalling)) <= most
    return [answer for table_answers in rivalling for answer in (table_answers if every_shape else table_answers[:1])][
        :most
    ]


def answer_table(summary: Summary, most: int = MAX_ANSWERS) -> DocumentBlock:
    """One line per answer, at most `most`; a sentence where nothing is ranked or measured."""
    shown = answers(summary, most)
    if not shown:
        return no_answer(summary)
    baseline = SHOWN.get(summary.baseline_backend, summary.baseline_backend)
    names = ("model", f"fastest with the same answers ({FULL})", "fastest at all", "what that costs")
    headers: list[tuple[str, Align]] = [*((name, "left") for name in names), (baseline, "right")]
    lines = list(map(answer_cells, shown))
    table = text_table(headers, lines)
    notes = [f"Medians of a batch{_other_modes(summary)}.", *mark_notes(lines, baseline)]
    if (more := len(_first_tables(summary)) - len({answer.model for answer in shown})) > 0:
        notes.append(f"{units.count(more, 'more model')} in the details.")
    return replace(table, note=" ".join(notes))


def mark_notes(lines: Iterable[Sequence[str]], baseline: str) -> list[str]:
    """The meaning of the marks that occur in lines of answers. baseline: its name in the header."""
    cells = " ".join(cell for line in lines for cell in line)
    meanings = {
        "×": f"×: speed-up over {baseline} {FULL}.",
        "**": "**Bold**: clearly the fastest.",
        ranking.DOUBT: ranking.DOUBT_MEANS,
    }
    return [meaning for mark, meaning in meanings.items() if mark in cells]


def answer_cells(answer: ModelAnswer) -> list[str]:
    """An answer as a line of the table."""
    return [
        answer.where,
        fastest_in_words(answer.same, backend_and_setting),
        "the same" if answer.is_same else fastest_in_words(answer.fastest, row_name),
        accuracy_loss(answer.fastest.named) if answer.fastest.named else units.ABSENT,
        _baseline(answer.baseline),
    ]


def no_answer(summary: Summary) -> str:
    """Sentence for a summary without an answer; empty for loads or generation alone, whose sections answer."""
    if summary.copies:
        return "No row was measured by itself: the table below has the cases that ran on all devices at once."
    if not summary.rows and (load_answer(summary) or summary.generations):
        return ""
    if not summary.rows and any(row.status == "measured" for row in summary.loads):
        return "The details have the loads."
    if any(row.status == "measured" for row in summary.rows):
        return "Only backends that compute nothing were measured. The details have their times."
    if {row.status for row in summary.rows} | {row.status for row in summary.loads} <= {"missing"}:
        return "Nothing is measured yet."
    return "No case was measured."


def certainty_text(summary: Summary) -> str:
    """Rounds, number of rows of each grade, and the command for narrower intervals; empty where nothing is measured."""
    rows = [row for _, group in ranking.by_table(summary.rows) for row in group]
    if not rows:
        return ""
    grades = sorted(Counter(row.grade for row in rows if row.grade).items())
    counts = ", ".join(f"{number} {grade} ({GRADES[grade]})" for grade, number in grades)
    rounds, further = rounds_text(summary, rows), further_rounds_text(summary)
    return f"**How sure**: {rounds} of each case. Grades: {counts}. {further}".strip()


EXPORT_ABOVE = "the export failed, see above"


def without_result(summary: Summary, after_export: bool = False) -> str:
    """Cases that were skipped, failed or are missing, with their reasons; empty without any.

    after_export: the reader has the reasons of exports that failed above.
    """
    groups: dict[tuple[Status, str], list[Row]] = {}
    for row in summary.rows:
        if row.status != "measured":
            reason = EXPORT_ABOVE if after_export and _is_of_export(row) else row.reason or "no reason on record"
            groups.setdefault((row.status, reason), []).append(row)
    order = ("failed", "missing", "skipped")
    ordered = sorted(groups.items(), key=lambda item: order.index(item[0][0]))
    lines = _first_reasons(
        [(f"{_cases(status, rows)}: {escape(reason)}", len(rows)) for (status, reason), rows in ordered], "more case"
    )
    lines += _loads_without_result(summary, after_export)
    if summary.notes:
        lines.append(f"{units.count(len(summary.notes), 'note')} in the details")
    return "\n".join(f"- {line}" for line in lines) if len(lines) > 1 else "".join(lines)


def _loads_without_result(summary: Summary, after_export: bool) -> list[str]:
    """Load cases without figures that count, with their reasons."""
    groups: dict[str, list[str]] = {}
    for row in summary.loads:
        if not is_sound(row):
            above = after_export and _is_of_export(row)
            reason = f"{row.status}: {EXPORT_ABOVE}" if above else why_without_figures(row)
            groups.setdefault(reason, []).append(f"{row.backend} {row.precision} of {row.model}")
    lines = []
    for reason, names in groups.items():
        who = _first_words([*dict.fromkeys(names)])
        cases = units.count(len(names), "load case")
        lines.append((f"{cases} without a result ({who}), {escape(reason)}", len(names)))
    return _first_reasons(lines, "more load case")


def _first_reasons(lines: Sequence[tuple[str, int]], more: str) -> list[str]:
    """The first lines, each with its number of cases, and how many cases the others have. more: `more case`."""
    rest = sum(cases for _, cases in lines[MAX_REASONS:])
    last = [f"{units.count(rest, more)} without a result in the details"] if rest else []
    return [*(line for line, _ in lines[:MAX_REASONS]), *last]


def _is_of_export(row: Row | LoadRow) -> bool:
    return (row.reason or "").startswith("export: ")


def case_table(summary: Summary) -> str:
    """One line per case: model, backend, precision, batch, median, p95, speed-up, accuracy, grade."""
    tables = ranking.by_table(summary.rows)
    rows = [row for _, group in tables for row in group]
    more = 0
    if len(rows) > MAX_ROWS:
        shown = [row for table in _first_tables(summary) for row in ranking.by_shape(table)[0][1]][:MAX_ROWS]
        more, rows = len(rows) - len(shown), shown
    if not rows:
        return ""
    unit = units.time_unit(row.latency_ns.median for row in rows if row.latency_ns)
    winners = {
        winner.case_id for _, ours in tables for _, group in ranking.by_shape(ours) if (winner := ranking.winner(group))
    }
    figures = ("batch", f"median {unit.name} ±", f"p95 {unit.name}", "speed-up", "accuracy")
    headers: list[tuple[str, Align]] = [(name, "left") for name in ("model", "backend", "precision")]
    headers += [*((name, "right") for name in figures), ("grade", "left")]
    lines = [[_place(summary, row), *_case_cells(row, unit, row.case_id in winners)] for row in rows]
    text = table_text(text_table(headers, lines))
    notes = "±: the longer side of the 95% interval. Accuracy: top-1 agreement or cosine against PyTorch fp32"
    notes += ", of ONNX files against ONNX Runtime without optimisations." if _has_files(summary, rows) else "."
    if WIDE in text:
        notes += f" {WIDE.strip()}: its ends are more than ×{MAX_PRINTED_FACTOR:g} apart."
    if more:
        notes += f" {units.count(more, 'more row')} (larger batches, other boundaries and modes) in the details."
    if ranking.DOUBT in text:
        notes += f" {ranking.DOUBT_MEANS}"
    return f"{text}\n\n{notes}"


def energy_text(summary: Summary) -> str:
    """That rows have energy, which is in the details; empty without any."""
    metered = sum(row.case_id in summary.energies for row in sound_rows(summary))
    return f"Energy by the GPU's counter, of {units.count(metered, 'row')}: in the details." if metered else ""


def _has_files(summary: Summary, rows: Sequence[Row]) -> bool:
    """Whether a row is of a user's ONNX file, which has no module in PyTorch."""
    return any(row.model in summary.exports and summary.exports[row.model].module is None for row in rows)


def fastest_in_words(choice: Choice, name: Callable[[Row], str]) -> str:
    """The fastest row with its time and speed-up; or all rows that may be the fastest, and why this is not decided.

    name: gives the name of a row.
    """
    if not choice.named:
        return units.ABSENT
    first = choice.named[0]
    if choice.clear:
        return f"**{name(first)}** {_time(first)}{_speedup(first)}"
    if not choice.has_rivals:
        alone = "only valid row" if choice.others else "only row"
        return f"{name(first)} {_time(first)}{_speedup(first)} ({alone}{', grade C' if choice.flagged else ''})"
    if len(choice.named) == 1 and choice.rows:
        if choice.without_interval:
            why = "lowest median, no interval"
        else:
            worse = joined_words(sorted(set(choice.others)), last="or")
            why = "not measured in turn with all others" if choice.apart else f"others are grade {worse}"
        return f"{name(first)} {_time(first)}{_speedup(first)} ({why})"
    if not choice.flagged:
        times = dict.fromkeys((_time(first), _time(choice.named[-1])))
        return f"{_first_words([name(row) for row in choice.named], 'or')}, {' to '.join(times)}"
    words = [f"{name(row)} {_time(row)}{' (grade C)' if row.grade == ranking.UNRANKED else ''}" for row in choice.named]
    return f"undecided: {_first_words(words, 'or')}"


def has_same_answers(row: Row) -> bool:
    """Whether a row that is not void has the answers of fp32."""
    distance = None if row.parity is None else row.parity.furthest
    near = distance is None or distance <= MAX_SAME_DISTANCE
    return row.precision == FULL and near and is_accuracy_known(row)


def accuracy_loss(rows: Sequence[Row]) -> str:
    """Loss of the least accurate row against fp32: the share of answers that change, or its cosine."""
    reduced = [row for row in rows if not has_same_answers(row)]
    if not reduced:
        return "nothing"
    if not all(map(is_accuracy_known, reduced)):
        return NOT_CHECKED
    agreements = [agreement for row in reduced if (agreement := _top1(row)) is not None]
    cosines = [row.parity.cosine for row in reduced if row.parity and row.parity.cosine is not None]
    if len(agreements) == len(reduced):
        changed = math.ceil(round((1 - min(agreements)) * 1000, 6)) / 10  # never rounded to nothing
        text = f"{changed:.1f}% of answers change" if changed else "no answer changes"
    elif len(cosines) == len(reduced):
        text = f"cosine {units.cosine(min(cosines))}"
    else:
        return NOT_CHECKED
    return text if len(reduced) == 1 else f"{text} (the least accurate)"


def accuracy_text(row: Row) -> str:
    """Agreement with the reference: top-1 of a trained classifier, else the cosine."""
    if row.grade == "F" or row.parity is None:
        return units.ABSENT
    if not is_accuracy_known(row):
        return "not checked"
    agreement = _top1(row)
    return f"cosine {units.cosine(row.parity.cosine)}" if agreement is None else f"top-1 {units.percent(agreement)}"


def answer_cards(summary: Summary) -> list[AnswerCard]:
    """One card for each model with a figure, at its smallest shape, in the plan's order."""
    return [_card(answer) for answer in _smallest(summary)]


def terminal_answer(summary: Summary, after_export: bool = False) -> str:
    """The answers for the smallest shape of each model, and how certain they are, without Markdown.

    after_export: as of without_result.
    """
    shown = _smallest(summary)
    if not shown:
        return _plain([no_answer(summary), without_result(summary, after_export), load_answer(summary)])
    baseline = SHOWN.get(summary.baseline_backend, summary.baseline_backend)
    blocks = []
    for answer in shown[:MAX_MODELS]:
        same = fastest_in_words(answer.same, backend_and_setting)
        if answer.baseline is not None:  # an ONNX file has no PyTorch rows
            same += f"; {baseline}: {_baseline(answer.baseline)}"
        fastest = (
            "the same"
            if answer.is_same
            else f"{fastest_in_words(answer.fastest, row_name)}; {accuracy_loss(answer.fastest.named)}"
        )
        blocks.append(f"{answer.where}\n  fastest, same answers ({FULL})   {same}\n  fastest at all{' ' * 17}{fastest}")
    if len(shown) > MAX_MODELS:
        blocks.append(f"{len(shown) - MAX_MODELS} more models in the report.")
    if any(ranking.DOUBT in block for block in blocks):
        blocks.append(ranking.DOUBT_MEANS)
    return _plain([*blocks, certainty_text(summary), without_result(summary, after_export), load_answer(summary)])


def _plain(blocks: Sequence[str]) -> str:
    """Blocks for a terminal, without Markdown and empty ones."""
    return "\n".join(filter(None, blocks)).replace("**", "").replace("`", "").replace("\\|", "|")


def outcome(exit_code: int, plan_id: str | None, summary: Summary | None) -> str:
    """One line of JSON: exit code, plan, rows by status and by grade, and the fastest row of each model.

    Values that need a plan or a summary are null where the run ended before it existed.
    """
    fields: dict[str, Any] = {"exit_code": exit_code, "plan_id": plan_id, "rows": None, "grades": None, "fastest": None}
    if summary is not None:
        fields["rows"] = Counter(row.status for row in summary.rows)
        fields["grades"] = Counter(row.grade for row in summary.rows if row.grade)
        fields["fastest"] = {rows[0].model: _fastest(ranking.by_shape(rows)[0][1]) for rows in _first_tables(summary)}
    return json.dumps(fields)


def _fastest(group: Sequence[Row]) -> dict[str, Any] | None:
    """The fastest row of one shape, and whether others may be as fast; None where no row may be ranked."""
    choice = _choice(group)
    if not choice.rows or (latency := choice.rows[0].latency_ns) is None:
        return None
    return {
        "case_id": choice.rows[0].case_id,
        "median_ms": latency.median / units.MILLISECOND.ns,
        "grade": choice.rows[0].grade,
        "undecided": choice.has_rivals and not choice.clear,
    }


def _first_tables(summary: Summary) -> list[Sequence[Row]]:
    """The first table of each model: boundaries and modes answer different questions and have separate tables."""
    first: dict[TableKey, Sequence[Row]] = {}
    for key, rows in ranking.by_table(summary.rows):
        first.setdefault(key.without("boundary", "mode"), rows)
    return list(first.values())


def _other_modes(summary: Summary) -> str:
    """Boundary and mode of the answers where the run has several; otherwise the conditions name them."""
    if len({boundaries.boundary_and_mode(key) for key, _ in ranking.by_table(summary.rows)}) < 2:
        return ""
    modes = dict.fromkeys(boundaries.brief_mode(rows[0]) for rows in _first_tables(summary))
    return f", {joined_words(list(modes), last='or')}"


def _smallest(summary: Summary) -> list[ModelAnswer]:
    shown = [_answer(summary, *ranking.by_shape(rows)[0]) for rows in _first_tables(summary)]
    return [answer for answer in shown if answer.fastest.named]


def _answer(summary: Summary, shape: tuple[int, int], group: Sequence[Row]) -> ModelAnswer:
    length, batch = shape
    parts = (_model(summary, group[0]), f"batch {batch}", tokens_text(summary, group[0].model, length))
    same = [row for row in group if has_same_answers(row)]
    baseline = (
        row for row in group if (row.backend, row.precision) == (summary.baseline_backend, FULL) and row.latency_ns
    )
    where = ", ".join(filter(None, parts))
    return ModelAnswer(group[0].model, where, _choice(same), _choice(group), next(baseline, None), len(group) - 1)


def _choice(rows: Sequence[Row]) -> Choice:
    contenders, flagged = tuple(ranking.contenders(rows)), tuple(ranking.doubtful_leaders(rows))
    first = next(iter((*contenders, *flagged)), None)
    others = tuple(row.grade or "F" for row in rows if row is not first)
    return Choice(contenders, flagged, ranking.winner(rows) is not None, others, ranking.measured_apart(rows))


def _card(answer: ModelAnswer) -> AnswerCard:
    fastest, lost = answer.fastest, "" if answer.is_same else accuracy_loss(answer.fastest.named)
    differs = answer.same.named and not answer.is_same
    same = f"with the same answers ({FULL}): {fastest_in_words(answer.same, backend_and_setting)}" if differs else ""
    if fastest.clear:
        winner = fastest.rows[0]
        parts = [_time(winner), _gain(winner), lost, same]
        return AnswerCard(
            answer.where, f"{row_name(winner)} is fastest", ", ".join(filter(None, parts)).replace("**", ""), winner
        )
    words = fastest_in_words(fastest, row_name)
    undecided = words if fastest.flagged or not fastest.has_rivals else f"no clear winner: {words}"
    text = "; ".join(filter(None, (undecided, lost, same)))
    return AnswerCard(answer.where, text.replace("**", ""))


def _gain(row: Row) -> str:
    gain = ranking.gain(row)
    if gain is None:
        return ""
    ends = f" (95% CI {units.interval(gain.ci95)})" if gain.ci95 else ""
    doubt = ", which is grade C" if ranking.is_doubtful(row) else ""
    return f"{ranking.speedup(row)} times the speed of the baseline{doubt}{ends}"


def _model(summary: Summary, row: Row) -> str:
    """The model, with its weights where other rows have trained weights, and with an unusual boundary or mode."""
    mixed = len({other.weights for other in summary.rows}) > 1
    weights = "random weights" if mixed and row.weights == "seeded" else ""
    besides = ", ".join(filter(None, (weights, boundaries.short_mode(row))))
    return f"{row.model} ({besides})" if besides else row.model


def _place(summary: Summary, row: Row) -> str:
    return ", ".join(filter(None, (_model(summary, row), tokens_text(summary, row.model, row.sequence_length))))


def _case_cells(row: Row, unit: units.TimeUnit, wins: bool) -> list[str]:
    words = [backend_and_setting(row), row.precision, str(row.batch_size)]
    if row.latency_ns is None:
        return [*words, "void", "void", "void", accuracy_text(row), row.grade or units.ABSENT]
    median = f"{units.in_unit(row.latency_ns.median, unit)}{_half_width(row)}"
    return [
        *words,
        f"**{median}**" if wins else median,
        _p95(row, unit),
        units.ABSENT if row.speedup is None else f"{ranking.speedup(row)}×",
        accuracy_text(row),
        row.grade or units.ABSENT,
    ]


def _half_width(row: Row) -> str:
    if row.latency_ns is None or row.latency_ns.ci95 is None:
        return ""
    if too_wide_to_print(row.latency_ns.ci95):
        return WIDE
    width = relative_interval_half_width(row.latency_ns.ci95, row.latency_ns.median)
    return f" ±{width:.1%}" if width < 0.1 else f" ±{width:.0%}"


def _p95(row: Row, unit: units.TimeUnit) -> str:
    if row.latency_ns is None or row.mode == "offline":
        return units.ABSENT
    if row.latency_ns.p95 is None:
        return f"needs {P95_MIN_SAMPLES} samples" if row.latency_ns.n < P95_MIN_SAMPLES else "too few samples"
    return units.in_unit(row.latency_ns.p95, unit)


def _time(row: Row) -> str:
    return units.duration(row.latency_ns.median) if row.latency_ns else units.ABSENT


def _speedup(row: Row) -> str:
    return "" if ranking.gain(row) is None else f", {ranking.speedup(row)}×"


def _baseline(row: Row | None) -> str:
    if row is None:
        return units.ABSENT
    return f"{_time(row)} (grade C)" if row.grade == ranking.UNRANKED else _time(row)


def _top1(row: Row) -> float | None:
    # Near-tied logits of random weights flip through rounding alone: their agreement would mislead.
    return None if row.weights == "seeded" or row.parity is None else row.parity.top1_agreement


def _first_words(words: Sequence[str], last: str = "and") -> str:
    """`a, b, c and 2 more`: at most MAX_NAMED of the words."""
    more = len(words) - MAX_NAMED
    return joined_words([*words[:MAX_NAMED], *([f"{more} more"] if more > 0 else [])], last)


def _cases(status: Status, rows: Sequence[Row]) -> str:
    backends = sorted({f"{row.backend} {row.precision}" for row in rows})
    who = _first_words(backends) if len(backends) <= MAX_NAMED else units.count(len(backends), "backend")
    state = {"failed": "failed", "missing": "not measured", "skipped": "skipped"}.get(status, status)
    return f"{units.count(len(rows), 'case')} {state} ({who} of {_first_words(sorted({row.model for row in rows}))})"


def _dates(summary: Summary) -> str:
    days = [date.fromisoformat(text[:10]) for text in (summary.measured_from, summary.measured_to) if text]
    return " to ".join(dict.fromkeys(f"{day.day} {day:%b} {day.year}" for day in days))
