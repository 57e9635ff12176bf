"""What to do with the numbers, derived by rules from the rows; each recommendation names the rows it rests on (pure).

Speed is only ever compared between rows of grade A or B, within one table (model, weights, device, boundary, mode) and
sequence length, and beyond their intervals. A rule that cannot tell stays silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from harness.core.schemas import ExportRecord, Row, Summary
from harness.measure.rows import is_calibration
from harness.render import ranking, units
from harness.render.advice_batch import best_batch, fixed_cost, saturation
from harness.render.advice_choice import backend_choice, precision_choice, start_up_cost
from harness.render.advice_gpu import engine_cost, launches
from harness.render.advice_memory import page_faults
from harness.render.group import Group, Recommendation
from harness.reporting.writers.markdown import escape

MAX_GROUPS = 8
"""Models and sequence lengths with recommendations; nobody reads a hundred."""

MAX_NAMED = 4
"""Rows that are named one by one; the others are those of the batch sizes and backends that the text names."""

DISTURBANCES = (
    *("COTENANT", "STEAL", "CPU_QUOTA", "OVERSUBSCRIBED", "THERMAL", "HW_SLOWDOWN", "POWER_CAP"),
    *("CLOCK_DRIFT", "MAJOR_FAULTS", "STARVED", "STOPPED", "AFFINITY_CHANGED", "UNWATCHED"),
)

RULES: Sequence[Callable[[Group], Iterable[Recommendation]]] = (
    backend_choice,
    precision_choice,
    best_batch,
    saturation,
    fixed_cost,
    start_up_cost,
    page_faults,
    launches,
    engine_cost,
)


def recommend(summary: Summary) -> list[Recommendation]:
    """Everything that the rules find, the machine first."""
    found = list(disturbed(summary.rows))
    for group in groups(summary)[:MAX_GROUPS]:
        found += [one for rule in RULES for one in rule(group)]
    return found


def recommendations_text(summary: Summary) -> str:
    """The list for the report; empty where no rule has anything to say."""
    blocks: dict[str, list[str]] = {}
    for one in recommend(summary):
        named = ", ".join(f"`{case_id}`" for case_id in one.case_ids[:MAX_NAMED])
        more = len(one.case_ids) - MAX_NAMED
        others = f" and {units.count(more, 'more row')}" if more > 0 else ""
        blocks.setdefault(one.about, []).append(f"- **{one.rule}**: {escape(one.text)} *Based on* {named}{others}.")
    parts = [f"{about}:\n\n" + "\n".join(lines) for about, lines in blocks.items()]
    if parts and len(groups(summary)) > MAX_GROUPS:
        parts.append(f"The rules were applied to the first {MAX_GROUPS} models and sequence lengths.")
    return "\n\n".join(parts)


def groups(summary: Summary) -> list[Group]:
    """The rows that may be compared with each other, by table and sequence length."""
    by_id: Mapping[str, Row] = {row.case_id: row for row in summary.rows}
    tables = ranking.by_table(summary.rows)
    several = {key[0] for key, _ in tables if sum(key[0] == other[0] for other, _ in tables) > 1}
    found = []
    for key, rows in tables:
        for length in sorted({row.sequence_length or 0 for row in rows}):
            ours = [row for row in rows if (row.sequence_length or 0) == length]
            sound = tuple(row for row in ours if ranking.is_ranked(row))
            flagged = tuple(row for row in ours if row.grade == ranking.UNRANKED)
            export: ExportRecord | None = summary.exports.get(key[0])
            if sound:
                title = _title(key, length, key[0] in several)
                limit = summary.latency_limit_ms
                found.append(Group(title, sound, by_id, export, limit, summary.engines, flagged))
    return found


def _title(key: ranking.TableKey, length: int, several: bool) -> str:
    parts = [
        key.model,
        *([f"{key.boundary} {key.mode}"] if several else []),
        *([f"sequence {length}"] if length else []),
    ]
    return ", ".join(parts)


def disturbed(rows: Sequence[Row]) -> Iterable[Recommendation]:
    """What disturbed the measuring, by cause: the one rule that looks at flagged rows, because it compares nothing."""
    ours = [row for row in rows if row.status == "measured" and not row.tried]
    measured = [row for row in ours if not is_calibration(row)]
    for name in DISTURBANCES:
        found = [(row, flag) for row in measured for flag in row.flags if flag.name == name]
        if found:
            ids = tuple(dict.fromkeys(row.case_id for row, _ in found))
            text = f"in {len(ids)} of {units.count(len(measured), 'row')}. {found[0][1].remedy}"
            yield Recommendation("The machine", name, text, ids)
