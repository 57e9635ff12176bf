"""The sections on load: the answer in one line a group, and all tables of the details (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.core import units
from harness.core.schemas import LoadRow, Summary
from harness.core.text import paragraphs
from harness.reporting.load_groups import (
    SCENARIOS,
    LoadGroup,
    batching_text,
    by_group,
    highest_load,
    is_sound,
    load_names,
    ranked_loads,
    workers_text,
)
from harness.reporting.prose.conditions import library_versions, machine_text, padded_inputs
from harness.reporting.prose.weights import weight_notes
from harness.reporting.table import DocumentBlock, Table, titled_blocks
from harness.reporting.tables.load_tables import (
    cheapest_table,
    client_table,
    guards_table,
    is_clear,
    parts_table,
    peak_text,
    points_table,
)
from harness.reporting.writers import terminal
from harness.reporting.writers.markdown import escape

MAX_LINES = 6
"""Lines of the answer on the first page."""

Images = Mapping[LoadGroup, Sequence[tuple[str, str]]]
"""Group → (alternative text, path) of its charts."""


def load_answer(summary: Summary) -> str:
    """The load answers of the first page: the highest verified load of each server group, else the throughput; empty
    without loads."""
    lines = [_answer(key, rows) for key, rows in by_group(summary.loads)]
    shown = [line for line in lines if line]
    if not shown:
        return ""
    more = f"{units.count(len(shown) - MAX_LINES, 'more line')} in the details." if len(shown) > MAX_LINES else ""
    listed = "\n".join(f"- {line}" for line in shown[:MAX_LINES])
    return paragraphs(("**Load**, [highest PASS, lowest FAIL] in requests/s:", listed, more))


def _answer(key: LoadGroup, rows: Sequence[LoadRow]) -> str:
    lines = ranked_loads(rows)
    if not lines or key.scenario not in ("server", "offline"):
        return ""
    first, called = lines[0], load_names(lines, policy=False)
    name = f"**{called[first.load_id]}**" if is_clear(lines) else called[first.load_id]
    others = f"; {units.count(len(lines) - 1, 'other deployment')} in the details" if len(lines) > 1 else ""
    promising = max(lines[1:], key=lambda row: row.predicted_peak_per_s or 0.0, default=first)
    if promising.peak_pass_per_s is None and (promising.predicted_peak_per_s or 0.0) > highest_load(first) > 0:
        rate = units.significant(promising.predicted_peak_per_s)
        others = f"; not verified: {called[promising.load_id]}, predicted {rate}{others}"
    cost = f", a million requests cost {units.significant(first.cost_per_million)}" if first.cost_per_million else ""
    if key.scenario == "offline":
        rate = f"{units.significant(highest_load(first))} {units.SAMPLE_NAMES[first.kind]}/s offline"
        return f"{group_title(key)}: {name} {rate} (batch {first.max_batch}){cost}{others}"
    batches = "no batching" if batching_text(first) == "none" else f"batches {batching_text(first)}"
    policy = "its own batching" if key.service else ", ".join(filter(None, (batches, workers_text(first))))
    peak = peak_text(first)
    if first.peak_pass_per_s is None and first.predicted_peak_per_s is not None:
        peak += f", predicted {units.significant(first.predicted_peak_per_s)}"
    return f"{group_title(key)}: {name} {peak} ({policy}){cost}{others}"


def group_title(key: LoadGroup) -> str:
    """`minilm-l6, 128 tokens, p99<50ms`."""
    length = f"{key.sequence_length} tokens" if key.sequence_length else ""
    weights = "random weights" if key.weights == "seeded" else ""
    service = "running service" if key.service else ""
    return ", ".join(filter(None, (escape(key.model), length, weights, key.bits, key.bound, service)))


def load_conditions(summary: Summary, rows: Sequence[LoadRow]) -> str:
    """The conditions that accompany figures of load. Of a running service its machine and its libraries are unknown."""
    if served := [row.placement for row in rows if row.endpoint and row.placement]:
        known = sorted({f"{row.provider}, payload {row.settings.get('payload')}" for row in served})
        client = f"client on {machine_text(summary.environments)}"
        return " · ".join([f"service: {', '.join(map(escape, known))}", client, f"plan {summary.plan_id}"]) + "."
    threads = sorted({row.threads for row in rows if row.threads})
    parts = [
        machine_text(summary.environments),
        units.either(threads, "thread") if threads else "",
        library_versions(summary.environments),
        "one process a case, model only",
        *padded_inputs(summary, rows),
        f"plan {summary.plan_id}",
    ]
    return " · ".join(part for part in parts if part) + "."


def load_section(summary: Summary, images: Images) -> list[DocumentBlock]:
    """All groups with their tables and charts; empty without load rows."""
    blocks: list[DocumentBlock] = []
    for key, rows in by_group(summary.loads):
        shown = [f"![{escape(text)}]({path})" for text, path in images.get(key, ())]
        blocks += titled_blocks(
            f"{group_title(key)}: {SCENARIOS[key.scenario]}", *load_tables(summary, rows, shown), level=3
        )
    lost = rows_without_figures(summary)
    return [*blocks, *(titled_blocks("Without a result", _list_text(lost), level=3) if lost else [])]


def load_tables(summary: Summary, rows: Sequence[LoadRow], images: Sequence[str] = ()) -> list[DocumentBlock]:
    """The tables of one group, with images after the first."""
    weights = weight_notes(rows, summary.exports.get(rows[0].model), summary.engines)
    blocks: list[DocumentBlock | None] = [
        f"Conditions: {load_conditions(summary, rows)}",
        cheapest_table(rows),
        *images,
        points_table(rows),
        parts_table(rows),
        client_table(rows),
        guards_table(rows),
        *map(escape, weights),
        _list_text(_notes(rows)),
    ]
    return [block for block in blocks if block]


def terminal_loads(summary: Summary) -> str:
    """A table a group for the terminal: peaks of a server, else the measured loads."""
    blocks = []
    for key, rows in by_group(summary.loads):
        table: Table[Any] | None = cheapest_table(rows) or points_table(rows)
        if table is not None:
            blocks.append(
                f"{group_title(key)}: {SCENARIOS[key.scenario]}\n\n{terminal.table_text(table).replace('**', '')}"
            )
    return "\n\n".join(blocks)


def _list_text(lines: Sequence[str]) -> str:
    return "\n".join(f"- {escape(line)}" for line in lines)


def _notes(rows: Sequence[LoadRow]) -> list[str]:
    """Each note once, after the names of its rows."""
    called = load_names(rows)
    names: dict[str, list[str]] = {}
    for row in ranked_loads(rows):
        for note in row.notes:
            names.setdefault(note, []).append(called[row.load_id])
    return [f"{'; '.join(named)}: {note}" for note, named in names.items()]


def rows_without_figures(summary: Summary) -> list[str]:
    """A line for each row whose figures are missing or do not count."""
    return [
        f"{row.model}, {row.scenario}, {row.backend} {row.precision}: {why_without_figures(row)}"
        for row in summary.loads
        if not is_sound(row)
    ]


def why_without_figures(row: LoadRow) -> str:
    """The status of a row without figures that count, its reason, and what to do."""
    if row.void:
        return f"void: {row.void}"
    reason = f"{row.status}: {row.reason or 'no reason on record'}"
    return f"{reason.removesuffix('.')}. {row.hint}" if row.hint else reason
