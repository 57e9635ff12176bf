"""Groups rows that may be compared, orders them, and decides whether one of them wins.

Rows are only ranked within one model, shape, device, boundary and mode, and only with grade A or B.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from harness.aggregation.across_rows import MEASURED_APART
from harness.aggregation.flags import GroupKey, is_calibration, median_ns
from harness.aggregation.grades import RANKED
from harness.comparison.verdicts import EQUIVALENCE
from harness.core import units
from harness.core.schemas import Row, Speedup

UNRANKED = "C"
"""Disturbed or uncertain: the row's figures appear in the table, but it is not ranked."""

DOUBT = "~"
"""Mark before a ratio that is based on a row of grade C."""

DOUBT_MEANS = f"{DOUBT}: based on a row of grade C, this one or the baseline."

TableKey = GroupKey
"""Key of one table: model, weights, device, boundary, mode."""


def table_key(row: Row) -> TableKey:
    """The table that a row belongs to."""
    return GroupKey.of(row).without("sequence_length", "batch_size", "backend", "precision", "setting")


def shape(row: Row) -> tuple[int, int]:
    """(sequence length or 0, batch size): within a table, only rows of one shape compete."""
    return (row.sequence_length or 0, row.batch_size)


def is_ranked(row: Row) -> bool:
    """True where the row may win."""
    return row.latency_ns is not None and row.grade in RANKED


def gain(row: Row) -> Speedup | None:
    """The speed-up of a row over another one; None for the baseline itself."""
    return None if row.speedup is None or row.speedup.baseline == row.case_id else row.speedup


def is_doubtful(row: Row) -> bool:
    """True where a row's speed-up, and all that follows from it, is based on a row of grade C."""
    over = gain(row)
    return over is not None and UNRANKED in (row.grade, over.baseline_grade)


def speedup(row: Row) -> str:
    """The ratio to the baseline without its interval; marked where it is based on a row of grade C."""
    if row.speedup is None:
        return units.missing(row)
    return f"{DOUBT if is_doubtful(row) else ''}{units.significant(row.speedup.ratio)}"


def by_table(rows: Iterable[Row]) -> list[tuple[TableKey, list[Row]]]:
    """Measured rows that compute something, by table in the plan's order, each sorted for reading.

    Settings that were slower than another in round 1 are left out: they had one process. They are in
    tables/tried_settings_table.py.
    """
    tables: dict[TableKey, list[Row]] = {}
    for row in rows:
        if row.status == "measured" and not row.tried and not is_calibration(row):
            tables.setdefault(table_key(row), []).append(row)
    models = list(dict.fromkeys(key[:3] for key in tables))
    keys = sorted(tables, key=lambda key: models.index(key[:3]))  # keeps the tables of a model together
    return [(key, sorted(tables[key], key=_reading_order)) for key in keys]


def every_by_table(rows: Iterable[Row]) -> dict[TableKey, list[Row]]:
    """All rows by table, also those that are not in it."""
    tables: dict[TableKey, list[Row]] = {}
    for row in rows:
        tables.setdefault(table_key(row), []).append(row)
    return tables


def by_shape(rows: Sequence[Row]) -> list[tuple[tuple[int, int], list[Row]]]:
    """Rows of one table by shape, smallest first."""
    return [(key, list(group)) for key, group in groupby(sorted(rows, key=_reading_order), key=shape)]


def contenders(rows: Iterable[Row]) -> list[Row]:
    """The fastest ranked row of one shape, and every row that may be just as fast: their intervals overlap, or their
    medians are equal within EQUIVALENCE, as in every comparison.

    A row without an interval overlaps with all, because its true latency is unknown.
    """
    ranked = sorted((row for row in rows if is_ranked(row)), key=median_ns)
    return [row for row in ranked if row is ranked[0] or _overlap(ranked[0], row)]


def doubtful_leaders(rows: Iterable[Row]) -> list[Row]:
    """Flagged rows of one shape (grade C) that look at least as fast as the fastest ranked row: they cannot win, but no
    row may be called faster than they are."""
    group = list(rows)
    best = contenders(group)[:1]
    flagged = [row for row in group if row.grade == UNRANKED and row.latency_ns is not None]
    return sorted((row for row in flagged if not best or _may_lead(row, best[0])), key=median_ns)


def winner(rows: Iterable[Row]) -> Row | None:
    """The fastest row of one shape where its interval lies below those of all others, and its median by more than
    EQUIVALENCE; None where it is unclear, or where ranked rows were not all measured in turn."""
    group = list(rows)
    candidates = contenders(group)
    rivals = sum(is_ranked(row) for row in group)
    unclear = rivals < 2 or doubtful_leaders(group) or measured_apart(group)
    return candidates[0] if len(candidates) == 1 and not unclear else None


def measured_apart(rows: Iterable[Row]) -> bool:
    """Whether a ranked row was measured at another time than others: the machine may have been in another state."""
    return any(flag.name == MEASURED_APART for row in rows if is_ranked(row) for flag in row.flags)


def _overlap(first: Row, second: Row) -> bool:
    first_interval = first.latency_ns.ci95 if first.latency_ns else None
    second_interval = second.latency_ns.ci95 if second.latency_ns else None
    if first_interval is None or second_interval is None or first_interval.high >= second_interval.low:
        return True
    return median_ns(second) <= (1 + EQUIVALENCE) * median_ns(first)


def _may_lead(flagged: Row, best: Row) -> bool:
    # A row without an interval has only its median, which is weaker evidence than an interval.
    interval = flagged.latency_ns.ci95 if flagged.latency_ns else None
    return median_ns(flagged) <= median_ns(best) or (interval is not None and _overlap(best, flagged))


def _reading_order(row: Row) -> tuple[tuple[int, int], int, float, str]:
    # Flagged rows appear below the ranked rows of their shape, void rows last.
    place = {"A": 0, "B": 0, "C": 1}.get(row.grade or "", 2)
    return (shape(row), place, median_ns(row), row.case_id)


USUAL = "default"


def series_name(row: Row) -> str:
    """Backend and precision: one series over batch sizes, with the fastest setting at each."""
    return f"{row.backend} {row.precision}"


def backend_and_setting(row: Row) -> str:
    """Backend, and its setting where that is not the default."""
    return row.backend if row.setting == USUAL else f"{row.backend} ({row.setting})"


def row_name(row: Row) -> str:
    """Backend, precision and setting, for a sentence about this row: `tensorrt fp16 (static+graph)`."""
    return series_name(row) if row.setting == USUAL else f"{series_name(row)} ({row.setting})"


def setting_columns(rows: Iterable[Row]) -> dict[str, Callable[[Row], str]]:
    """Header → cell of the setting, where any row has another setting than the default."""
    return {"setting": lambda row: row.setting} if any(row.setting != USUAL for row in rows) else {}


def series_labels(rows: Sequence[Row]) -> dict[str, str]:
    """Case id → label in a chart: backend and precision, and the setting where these two are not unique."""
    places = [_place(row) for row in rows]
    counts = Counter(places)
    doubtful = {series_name(row) for row, place in zip(rows, places, strict=True) if counts[place] > 1}
    named = [(row, series_name(row)) for row in rows]
    return {row.case_id: f"{label} {row.setting}" if label in doubtful else label for row, label in named}


def line_numbers(rows: Iterable[Row]) -> dict[str, int]:
    """Label → its number among the lines of its backend and precision, from 0; the default setting comes first."""
    ordered = sorted(rows, key=lambda row: (row.setting != USUAL, row.setting))
    names = series_labels(ordered)
    lines: dict[str, dict[str, None]] = {}
    for row in ordered:
        lines.setdefault(series_name(row), {})[names[row.case_id]] = None
    return {label: number for settings in lines.values() for number, label in enumerate(settings)}


def drawable(rows: Iterable[Row]) -> list[Row]:
    """All rows except those without a figure where another setting of the same backend, precision and shape has one.

    A failed or void setting appears in the tables; in a chart it would cover the setting that works.
    """
    group = list(rows)
    if all(map(_has_figure, group)):
        return group
    figures = {_place(row) for row in group if _has_figure(row)}
    return [row for row in group if _has_figure(row) or _place(row) not in figures]


def _has_figure(row: Row) -> bool:
    return row.latency_ns is not None


def _place(row: Row) -> GroupKey:
    return GroupKey.of(row).without("setting")
