"""Several devices of one host at once: scaling, interference, stragglers, rows disturbed by neighbours (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.aggregation.scaling import (
    DISTURBED_ABOVE,
    FULL_OVERLAP,
    STRAGGLES_BELOW,
    Disturbance,
    Scaling,
    SlotScaling,
    disturbance,
    scaling,
)
from harness.core import units
from harness.core.schemas import Copies, DeviceSlot, NeighbourSample, Row, Summary
from harness.core.units import ABSENT
from harness.reporting.csv_identity import Line, identity_columns, in_time_unit, interval_columns, run_columns
from harness.reporting.prose.boundaries import short_mode
from harness.reporting.prose.conditions import library_versions, machine_text
from harness.reporting.ranking import setting_columns
from harness.reporting.table import Column, Table, filled_columns, word_column
from harness.statistics.estimators import median
from harness.statistics.ratios import Ratio

MAX_ROWS = 120
"""Rows of the table by device; the CSV file has all."""


@dataclass(frozen=True)
class Scaled:
    """A case with its record and figures."""

    row: Row
    copies: Copies
    figures: Scaling


def scaled_cases(summary: Summary) -> list[Scaled]:
    """The cases that ran on all devices, in the order of the rows."""
    measured = [(row, summary.copies[row.case_id]) for row in summary.rows if row.case_id in summary.copies]
    return [Scaled(row, copies, figures) for row, copies in measured if (figures := scaling(copies))]


def devices_in_words(slots: Sequence[DeviceSlot]) -> str:
    """`4 GPUs` or `2 shares of the CPUs`."""
    return units.count(len(slots), "GPU") if slots[0].device == "cuda" else f"{len(slots)} shares of the CPUs"


def scaling_title(summary: Summary) -> str:
    """Heading of the section; empty where no case ran on several devices."""
    first = next(iter(summary.copies.values()), None)
    slots = first.slots if first else summary.neighbours.slots if summary.neighbours else ()
    return f"{devices_in_words(slots)} at once" if slots else ""


def scaling_table(summary: Summary) -> Table[Scaled] | None:
    """A row for each case: throughput of all devices, scaling efficiency, interference, stragglers."""
    cases = scaled_cases(summary)
    if not cases:
        return None
    columns = [
        *_case_columns(cases),
        Column("alone, sum /s", lambda case: units.significant(case.figures.alone_per_s)),
        Column("together /s", lambda case: units.significant(case.figures.together_per_s)),
        Column("efficiency", lambda case: _percent(case.figures.efficiency.value)),
        Column("95% CI", lambda case: _percents(case.figures.efficiency)),
        Column("latency together ÷ alone", lambda case: f"{case.figures.interference.value:.3f}"),
        Column("95% CI", lambda case: _ends(case.figures.interference)),
        word_column("stragglers", _stragglers),
    ]
    return Table(filled_columns(columns, cases), cases, _conditions(summary, cases), _note(summary, cases))


def devices_table(summary: Summary) -> Table[tuple[Scaled, SlotScaling]] | None:
    """A row for each case and device."""
    slots = [(case, slot) for case in scaled_cases(summary) for slot in case.figures.slots]
    if not slots:
        return None
    shown = slots[:MAX_ROWS]
    unit = units.time_unit([slot.alone_ns for _, slot in shown])
    columns: list[Column[tuple[Scaled, SlotScaling]]] = [
        *(
            Column(column.header, _case_cell(column), column.align)
            for column in _case_columns([scaled for scaled, _ in shown])
        ),
        word_column("device", lambda pair: pair[1].slot.name),
        word_column("CPUs", lambda pair: cpus_in_words(pair[1].slot)),
        Column("alone /s", lambda pair: units.significant(pair[1].alone_per_s)),
        Column("together /s", lambda pair: units.significant(pair[1].together_per_s)),
        Column(f"alone {unit.name}", lambda pair: units.in_unit(pair[1].alone_ns, unit)),
        Column(f"together {unit.name}", lambda pair: units.in_unit(pair[1].together_ns, unit)),
        Column("together ÷ alone", lambda pair: f"{pair[1].slowdown.value:.3f}"),
        Column("95% CI", lambda pair: _ends(pair[1].slowdown)),
    ]
    more = len(slots) - len(shown)
    note = f"{units.count(more, 'more row')} in tables/devices.csv (`make share`)." if more else ""
    return Table(columns, shown, note=note)


def scaling_lines(summary: Summary) -> list[Line]:
    """A line for each case that ran on all devices."""
    return [
        {
            **identity_columns(case.row),
            "devices": len(case.copies.slots),
            "rounds": case.figures.rounds,
            "alone_sum_per_s": case.figures.alone_per_s,
            "together_per_s": case.figures.together_per_s,
            **_ratio("efficiency", case.figures.efficiency),
            **_ratio("latency_together_over_alone", case.figures.interference),
            "least_overlap": case.figures.overlap,
            "stragglers": _stragglers(case),
            "failed_processes": len(case.copies.failures),
            **run_columns(summary),
        }
        for case in scaled_cases(summary)
    ]


def device_lines(summary: Summary) -> list[Line]:
    """A line for each case and device."""
    return [
        {
            **identity_columns(case.row),
            "name": slot.slot.name,
            "gpu": slot.slot.gpu,
            "uuid": slot.slot.uuid,
            "cpus": " ".join(map(str, slot.slot.cpus)),
            "cpus_near": slot.slot.near,
            "alone_per_s": slot.alone_per_s,
            "together_per_s": slot.together_per_s,
            "alone_latency_s": in_time_unit(slot.alone_ns, units.SECOND),
            "together_latency_s": in_time_unit(slot.together_ns, units.SECOND),
            **_ratio("latency_together_over_alone", slot.slowdown),
            **_ratio("alone_throughput_over_median", slot.against["alone"]),
            **_ratio("together_throughput_over_median", slot.against["together"]),
            "straggles": " ".join(slot.straggles),
            **run_columns(summary),
        }
        for case in scaled_cases(summary)
        for slot in case.figures.slots
    ]


def case_label(row: Row) -> str:
    """A case in a few words, for a chart."""
    sequence = f" s{row.sequence_length}" if row.sequence_length else ""
    setting = "" if row.setting == "default" else f" {row.setting}"
    mode = f" {short_mode(row)}" if short_mode(row) else ""
    return f"{row.model} {row.backend} {row.precision}{setting} b{row.batch_size}{sequence}{mode}"


def cpus_in_words(slot: DeviceSlot) -> str:
    """`0–15`, `0` or `all`; separate ranges with commas."""
    ranges: list[list[int]] = []
    for cpu in slot.cpus:
        if ranges and cpu == ranges[-1][-1] + 1:
            ranges[-1][-1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in ranges) or "all"


def _case_columns(cases: Sequence[Scaled]) -> list[Column[Scaled]]:
    rows = [case.row for case in cases]
    settings = setting_columns(rows)
    columns = [
        word_column("model", lambda case: case.row.model),
        word_column("backend", lambda case: case.row.backend),
        word_column("precision", lambda case: case.row.precision),
        *(word_column(name, _row_cell(cell)) for name, cell in settings.items()),
        Column("batch", lambda case: str(case.row.batch_size)),
        Column("seq", lambda case: str(case.row.sequence_length or ABSENT)),
        word_column("boundary, mode", lambda case: short_mode(case.row) or "compute"),
    ]
    uniform = {"boundary, mode"} if len({short_mode(row) for row in rows}) == 1 else set()
    return [column for column in filled_columns(columns, cases) if column.header not in uniform]


def _row_cell(cell: Callable[[Row], str]) -> Callable[[Scaled], str]:
    return lambda case: cell(case.row)


def _case_cell(column: Column[Scaled]) -> Callable[[tuple[Scaled, SlotScaling]], str]:
    return lambda pair: column.cell(pair[0])


def _stragglers(scaled: Scaled) -> str:
    return "; ".join(
        f"{slot.slot.name} {' and '.join(slot.straggles)}" for slot in scaled.figures.slots if slot.straggles
    )


def _conditions(summary: Summary, cases: Sequence[Scaled]) -> str:
    slots = cases[0].copies.slots
    near = "near CPUs of its own" if all(slot.near for slot in slots) else "an equal share of the CPUs"
    pinned = f"each process on {near}" if all(slot.cpus for slot in slots) else "all processes on all CPUs"
    rounds = sorted({case.figures.rounds for case in cases})
    parts = [
        machine_text(summary.environments),
        library_versions(summary.environments),
        devices_in_words(slots),
        pinned,
        f"{units.either(rounds, 'round')} of fresh processes, windows of {cases[0].copies.window_s:g} s",
    ]
    return f"Conditions: {' · '.join(part for part in parts if part)}."


def _note(summary: Summary, cases: Iterable[Scaled]) -> str:
    notes = [
        "Efficiency: samples per second of all devices together, divided by the sum of each alone. Intervals: over "
        "rounds. Each process works alone and together, in mirrored order. A straggler has a throughput whose whole "
        f"interval is below {STRAGGLES_BELOW:.0%} of the median device's.",
    ]
    apart = [case for case in cases if not case.figures.ran_together]
    if apart:
        least = min(case.figures.overlap for case in apart)
        notes.append(
            f"In {units.count(len(apart), 'case')} the devices worked at the same time for less than "
            f"{FULL_OVERLAP:.0%} of a window (at least {least:.0%}): the interference is a lower bound there."
        )
    failed = sum(len(copies.failures) for copies in summary.copies.values())
    if failed:
        notes.append(f"{units.count(failed, 'process', 'processes')} failed; their rounds do not count.")
    return " ".join(notes)


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _percents(ratio: Ratio) -> str:
    return units.interval(ratio.ci95, end=_percent)


def _ends(ratio: Ratio) -> str:
    return units.interval(ratio.ci95, end=lambda end: f"{end:.3f}")


def _ratio(name: str, ratio: Ratio) -> Line:
    return {name: ratio.value, **interval_columns(name, ratio.ci95)}


def neighbours_table(summary: Summary) -> Table[NeighbourSample] | None:
    """A row for each case that was measured alone again; None where no matrix was spread."""
    check = summary.neighbours
    if check is None:
        return None
    rows = {row.case_id: row for row in summary.rows}
    samples = [sample for sample in check.samples if sample.case_id in rows and disturbance(sample)]
    unit = units.time_unit([median(sample.alone_ns) for sample in samples])
    columns = [
        word_column("case", lambda sample: case_label(rows[sample.case_id])),
        word_column("device", lambda sample: check.slots[sample.slot].name),
        Column(f"beside others {unit.name}", lambda sample: units.in_unit(median(sample.spread_ns), unit)),
        Column(f"alone {unit.name}", lambda sample: units.in_unit(median(sample.alone_ns), unit)),
        Column("beside ÷ alone", lambda sample: f"{disturbance_of(sample).value:.3f}"),
        Column("95% CI", _sample_ends),
        word_column("neighbours", lambda sample: disturbance_of(sample).verdict),
    ]
    if not samples:
        columns = [word_column("case", lambda sample: sample.case_id)]
    whole_s, sum_s = check.wall_s, sum(check.busy_s)
    conditions = (
        f"The cases were spread over {devices_in_words(check.slots)}: {units.duration(whole_s * 1e9)} of wall time for "
        f"{units.duration(sum_s * 1e9)} of measuring. {units.count(len(samples), 'case')} at random were measured "
        "alone again, on the same device and CPUs."
    )
    note = (
        f"Not disturbed: the whole interval lies within ±{DISTURBED_ABOVE - 1:.0%}; disturbed: it lies above. Rows of "
        "one model may be of different devices; rows that are compared by speed-up are of one."
    )
    return Table(columns, samples, conditions, note)


def neighbour_lines(summary: Summary) -> list[Line]:
    """A line for each case that was measured alone again."""
    check = summary.neighbours
    rows: Mapping[str, Row] = {row.case_id: row for row in summary.rows}
    return [
        {
            **identity_columns(rows[sample.case_id]),
            "name": check.slots[sample.slot].name,
            "beside_latency_s": in_time_unit(median(sample.spread_ns), units.SECOND),
            "alone_latency_s": in_time_unit(median(sample.alone_ns), units.SECOND),
            "beside_over_alone": disturbed.value,
            **interval_columns("beside_over_alone", disturbed.ci95),
            "verdict": disturbed.verdict,
            **run_columns(summary),
        }
        for sample in (check.samples if check else ())
        if check and sample.case_id in rows and (disturbed := disturbance(sample))
    ]


def disturbance_of(sample: NeighbourSample) -> Disturbance:
    """The slow-down of a sample that was measured on both sides."""
    disturbed = disturbance(sample)
    if disturbed is None:
        raise ValueError(f"{sample.case_id} was not measured on both sides")
    return disturbed


def _sample_ends(sample: NeighbourSample) -> str:
    return units.interval(disturbance_of(sample).ci95, end=lambda end: f"{end:.3f}")
