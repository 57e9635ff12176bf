"""What rows are called in tables, sentences and charts, where a backend may have run with several settings (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from harness.core.schemas import Row
from harness.measure.rows import GroupKey

USUAL = "default"


def name(row: Row) -> str:
    """Backend and precision: one series over batch sizes, whichever setting was the fastest at each."""
    return f"{row.backend} {row.precision}"


def named(row: Row) -> str:
    """The same for a sentence about this very row, its setting with it: `tensorrt fp16 (static+graph)`."""
    return name(row) if row.setting == USUAL else f"{name(row)} ({row.setting})"


def setting_columns(rows: Iterable[Row]) -> dict[str, Callable[[Row], str]]:
    """Header → cell of the setting, where any row has one that is not the usual."""
    return {"setting": lambda row: row.setting} if any(row.setting != USUAL for row in rows) else {}


def labels(rows: Sequence[Row]) -> dict[str, str]:
    """Case id → label in a chart: backend and precision, and the setting where they alone do not tell rows apart."""
    places = [_place(row) for row in rows]
    doubtful = {name(row) for row, place in zip(rows, places, strict=True) if places.count(place) > 1}
    return {row.case_id: f"{name(row)} {row.setting}" if name(row) in doubtful else name(row) for row in rows}


def line_numbers(rows: Iterable[Row]) -> dict[str, int]:
    """Label → its number among the lines of its backend and precision, from 0; the usual setting comes first."""
    found = sorted(rows, key=lambda row: (row.setting != USUAL, row.setting))
    names = labels(found)
    lines: dict[str, dict[str, None]] = {}
    for row in found:
        lines.setdefault(name(row), {})[names[row.case_id]] = None
    return {label: number for ours in lines.values() for number, label in enumerate(ours)}


def drawable(rows: Iterable[Row]) -> list[Row]:
    """Rows without those that have no figure while another setting of the same backend, precision and shape has one.

    A setting that failed or is void stands in the tables; in a chart it would cover the one that works.
    """
    found = list(rows)
    figures = {_place(row) for row in found if _has_figure(row)}
    return [row for row in found if _has_figure(row) or _place(row) not in figures]


def _has_figure(row: Row) -> bool:
    return row.latency_ns is not None


def _place(row: Row) -> GroupKey:
    return GroupKey.of(row).without("setting")
