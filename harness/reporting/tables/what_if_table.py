"""The most effective changes for a model, each with its evidence: for the report and for a terminal (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tabulate import tabulate

from harness.core import units
from harness.core.schemas import Row, Summary
from harness.core.text import paragraphs
from harness.profiling.read_profiles import Profiled
from harness.profiling.what_if import (
    ChangeKind,
    Improvement,
    PartsProfiles,
    WhatIf,
    what_if,
)
from harness.reporting.csv_identity import Line, interval_columns, run_columns
from harness.reporting.prose.recommendations import accuracy_loss_text
from harness.reporting.ranking import UNRANKED, row_name
from harness.reporting.table import DocumentBlock, text_table, titled_blocks

MAX_LISTS = 8
"""Largest number of models and sequence lengths with a list, the same as for recommendations."""

_EXPLAINED = (
    "Gain: how many times faster one sample is than in the row `from`, by the medians. Gains of several changes do "
    "not multiply. "
    "*Measured*: the other row, with the 95% interval of their ratio. *Upper bound*: if that part of the profile took "
    "no time (Amdahl's law); a real change brings less. Rows of grade C are left out."
)


def what_if_section(summary: Summary, profiles: PartsProfiles) -> list[DocumentBlock]:
    """The lists for the report, a section per model; empty where nothing was measured.

    profiles: of the summary's cases, where they exist.
    """
    lists = what_if(summary.rows, profiles, summary.baseline_backend)
    by_id = {row.case_id: row for row in summary.rows}
    parts = [
        block
        for model in lists[:MAX_LISTS]
        for block in titled_blocks(_title(model), _elsewhere(model, summary), *_changes(model, by_id), level=3)
    ]
    more = len(lists) - MAX_LISTS
    after = f"{units.count(more, 'more list is', 'more lists are')} left out." if more > 0 else ""
    return [_EXPLAINED, *parts, *([after] if after else [])] if parts else []


def terminal_what_if(summary: Summary, profiles: PartsProfiles) -> str:
    """The lists for a terminal, without the evidence."""
    lists = what_if(summary.rows, profiles, summary.baseline_backend)[:MAX_LISTS]
    by_id = {row.case_id: row for row in summary.rows}
    return paragraphs(_plain(model, by_id, _elsewhere(model, summary)) for model in lists)


def _title(model: WhatIf) -> str:
    weights = " (random weights)" if model.weights == "seeded" else ""
    length = f", sequence {model.sequence_length}" if model.sequence_length else ""
    return f"{model.model}{weights}{length} on {model.device}"


def _elsewhere(model: WhatIf, summary: Summary) -> str:
    """Why a list does not start from the row that a reader expects; empty where it does."""
    baselines = [
        row
        for row in summary.rows
        if (row.model, row.weights, row.device, row.sequence_length)
        == (model.model, model.weights, model.device, model.sequence_length)
        and (row.boundary, row.mode, row.status, row.tried) == ("compute", "sync", "measured", False)
        and (row.backend, row.precision) == (summary.baseline_backend, "fp32")
    ]
    # The plan's first of several settings, as for speed-ups.
    expected = min(baselines, key=lambda row: row.batch_size, default=None)
    if expected is None or expected.grade != UNRANKED or not model.changes:
        return ""
    return f"The baseline, {_row_text(expected)}, is grade C: no gain is computed from it."


def _changes(model: WhatIf, by_id: Mapping[str, Row]) -> tuple[DocumentBlock, DocumentBlock]:
    if model.reason is not None:
        return f"No gain is known: {model.reason}.", _left_out_text(model)
    headers = ("gain", "evidence", "rule", "from", "to", "based on")
    lines = [[*_cells(change, by_id), _ids(change)] for change in model.changes]
    return text_table([(header, "left") for header in headers], lines), _left_out_text(model)


def _left_out_text(model: WhatIf) -> str:
    """Existing profiles that give no upper bound."""
    if not model.left_out:
        return ""
    return f"No bound is taken from {'; '.join(f'`{case_id}`: {why}' for case_id, why in model.left_out)}."


def _plain(model: WhatIf, by_id: Mapping[str, Row], elsewhere: str) -> str:
    after = " ".join(filter(None, (elsewhere, model.reason)))
    lines = [[" ", *_cells(change, by_id)] for change in model.changes]
    changes = tabulate(lines, tablefmt="plain", disable_numparse=True, colalign=("left",) * 6) if lines else ""
    left_out = _left_out_text(model).replace("`", "")
    return "\n".join(filter(None, (f"What if, {_title(model)}: {after}".rstrip(), changes, left_out)))


def _cells(change: Improvement, by_id: Mapping[str, Row]) -> list[str]:
    start = by_id[change.start]
    end = by_id[change.end] if change.end else start
    gain, how = f"{units.significant(change.gain)}×", "upper bound"
    if change.interval is not None:
        gain, how = f"{gain} {units.interval(change.interval)}", "measured"
    return [gain, how, change.rule, _row_text(start), _SAYS[change.rule](change, start, end)]


def _row_text(row: Row) -> str:
    return f"{row_name(row)}, batch {row.batch_size}"


def _ids(change: Improvement) -> str:
    return ", ".join(f"`{case_id}`" for case_id in (change.start, change.end) if case_id)


def _other_way(_: Improvement, __: Row, end: Row) -> str:
    return f"{row_name(end)}{_latency(end)}"


def _precision(_: Improvement, start: Row, end: Row) -> str:
    return f"{row_name(end)}{_latency(end)}, at {accuracy_loss_text([end])} from fp32"


def _batch(_: Improvement, start: Row, end: Row) -> str:
    times = (end.latency_ns.median / start.latency_ns.median) if end.latency_ns and start.latency_ns else None
    setting = "" if end.setting == start.setting else f" ({end.setting})"
    return f"batch {end.batch_size}{setting}{_latency(end)}; a batch takes {units.significant(times)} times as long"


def _fusion(change: Improvement, _: Row, end: Row) -> str:
    return (
        f"fuse what does not multiply: {row_name(end)} has no node of {units.count(change.modules, 'module')}, "
        f"{units.percent(change.share)} of the time here"
    )


def _layout(change: Improvement, _: Row, __: Row) -> str:
    return f"no copies that only reorder tensors: {units.percent(change.share)} of the time"


def _launches(change: Improvement, _: Row, __: Row) -> str:
    return (
        f"no waits for launches (a CUDA graph): in {units.percent(change.share)} of the measured latency no kernel runs"
    )


def _latency(row: Row) -> str:
    return f": {units.duration(row.latency_ns.median)} a batch" if row.latency_ns else ""


_SAYS: Mapping[ChangeKind, Callable[[Improvement, Row, Row], str]] = {
    "backend": _other_way,
    "setting": _other_way,
    "threads": _other_way,
    "precision": _precision,
    "backend and precision": _precision,
    "batch size": _batch,
    "fusion": _fusion,
    "layout": _layout,
    "launches": _launches,
}


def what_if_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each of the largest changes of a model, measured in another row or bounded by a profile."""
    parts = {case.row.case_id: case.parts for case in cases if case.parts}
    lists = what_if(summary.rows, parts, summary.baseline_backend)
    return [{**_change_line(model, change), **run_columns(summary)} for model in lists for change in model.changes]


def _change_line(model: WhatIf, change: Improvement) -> Line:
    return {
        "model": model.model,
        "weights": model.weights,
        "device": model.device,
        "sequence_length": model.sequence_length,
        "rule": change.rule,
        "known_how": "measured" if change.interval else "at most",
        "gain": change.gain,
        **interval_columns("gain", change.interval),
        "from_case_id": change.start,
        "to_case_id": change.end,
        "time_share": change.share,
        "modules_fused": change.modules or None,
    }
