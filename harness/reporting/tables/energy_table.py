"""The energy of the rows of one table, from the separate energy pass (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.core import units
from harness.core.schemas import Energy, Row, Summary
from harness.reporting.csv_identity import Line, case_line, sound_rows
from harness.reporting.figures import CSV_SECONDS, ENERGY, ENERGY_WINDOW, Figure, columns
from harness.reporting.table import Column, Table, case_columns, figure_column

_A_SAMPLE = {"image": "an image", "text": "a sequence", "tensor": "a sample"}


def energy_table(rows: Sequence[Row], energies: Mapping[str, Energy]) -> Table[Row] | None:
    """Joules per batch and per sample of each metered row, the method, the number of other rows; None without any."""
    sound = [row for row in rows if row.latency_ns is not None]
    measured = [row for row in sound if row.case_id in energies]
    if not measured:
        return None
    shown = [
        _column(_with_sample_word(figure, measured[0]), energies)
        for figure in (*ENERGY, *ENERGY_WINDOW)
        if figure.label
    ]
    how = _method_text([energies[row.case_id] for row in measured])
    return Table([*case_columns(measured), *shown], measured, how, _missing(len(sound) - len(measured)))


def energy_lines(summary: Summary) -> list[Line]:
    """A line for each row whose energy was measured."""
    rows = [row for row in sound_rows(summary) if row.case_id in summary.energies]
    return [case_line(summary, row, joules(summary.energies[row.case_id])) for row in rows]


def joules(energy: Energy) -> Line:
    """Energy per batch and per sample, idle power subtracted, and the measurement that it is based on."""
    return columns((*ENERGY, *ENERGY_WINDOW), energy, CSV_SECONDS)


def _column(figure: Figure[Energy], energies: Mapping[str, Energy]) -> Column[Row]:
    column = figure_column(figure)
    return Column(column.header, lambda row: column.cell(energies[row.case_id]))


def _with_sample_word(figure: Figure[Energy], row: Row) -> Figure[Energy]:
    """The figure with the model's word for a sample."""
    return replace(figure, label=_A_SAMPLE[row.kind]) if figure.label == "a sample" else figure


def _missing(number: int) -> str:
    return f"Without a figure yet: {units.count(number, 'row')} of this table; `make energy` goes on." if number else ""


def _method_text(energies: Sequence[Energy]) -> str:
    window = _span_text([f"{energy.window_ns / 1e9:.1f}" for energy in energies])
    idle = _span_text([f"{energy.idle_w:.0f}" for energy in energies])
    before = _span_text([f"{energy.idle_ns / 1e9:.0f}" for energy in energies])
    gpus = ", ".join(dict.fromkeys(energy.gpu for energy in energies))
    return (
        f"Conditions: {gpus}, back to back in a pass of its own, by the GPU's energy counter over {window} s a row; "
        f"{idle} W idle, measured over {before} s before, are subtracted. The host's own power is not in it."
    )


def _span_text(numbers: Sequence[str]) -> str:
    """`80`, or `79 to 84`."""
    ends = (min(numbers, key=float), max(numbers, key=float))
    return " to ".join(dict.fromkeys(ends))
