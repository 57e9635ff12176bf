"""The latency table of one model, the terminal's table of all models, and results.csv (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from harness.aggregation.flags import flag_names
from harness.aggregation.grades import names_of
from harness.aggregation.roofline import CPU_CLEARLY_SHORTER, MIN_SHARE
from harness.core import units
from harness.core.schemas import ExportRecord, Latency, Row, Summary
from harness.core.units import ABSENT, VOID, TimeUnit
from harness.reporting import ranking
from harness.reporting.csv_identity import Line, case_line, has_figures
from harness.reporting.figures import ANSWERS, CSV_UNITS, DEVICE, LEAST_SAMPLES, MEMORY, SPEED, Figure, columns
from harness.reporting.prose import boundaries
from harness.reporting.prose.weights import weight_notes
from harness.reporting.ranking import USUAL
from harness.reporting.table import Column, Table, case_columns, figure_column, word_column
from harness.reporting.tables.cold_start_table import Engines, engine_of
from harness.reporting.tables.custom_metrics_table import Metrics, csv_columns, metric_columns
from harness.reporting.writers.markdown import escape
from harness.reporting.writers.terminal import table_text
from harness.statistics.estimators import least_in_process


def latency_table(
    rows: Sequence[Row],
    export: ExportRecord | None = None,
    engines: Engines | None = None,
    metrics: Metrics | None = None,
) -> Table[Row]:
    """Latency, throughput, speed-up, parity, memory and grade of the rows of one table (ranking.by_table).

    export: of the table's model; engines: Summary.engines. Where rows differ in precision, these give the sizes of the
    loaded files, and how those of int8 were quantised. metrics: Summary.custom.
    """
    note = "\n\n".join(map(escape, table_notes(rows, export, engines or {})))
    return Table(latency_columns(rows, export, engines, metrics), rows, note=note)


def table_notes(rows: Sequence[Row], export: ExportRecord | None, engines: Engines) -> list[str]:
    """Paragraphs below a latency table."""
    return [*doubt_notes(rows), *weight_notes(rows, export, engines)]


def doubt_notes(rows: Sequence[Row]) -> list[str]:
    """The meaning of the mark beside a speed-up, where any row has it."""
    return [ranking.DOUBT_MEANS] if any(map(ranking.is_doubtful, rows)) else []


def latency_columns(
    rows: Sequence[Row],
    export: ExportRecord | None = None,
    engines: Engines | None = None,
    metrics: Metrics | None = None,
) -> list[Column[Row]]:
    """The columns of `latency_table`: identity, median and interval, speed-up and accuracy, the other figures that
    figures.py has for this table, the size of the loaded file where a row is below fp32, metrics of plugins, the grade.

    The cosine only where a row is below fp32 and none is of a trained classifier, which has its top-1 instead.
    """
    unit = units.time_unit(row.latency_ns.median for row in rows if row.latency_ns)
    file_bytes = file_sizes(rows, export, engines or {})
    shown = [
        *case_columns(rows),
        Column[Row](time_name(rows[0], unit), _median(unit, winning_ids(rows))),
        _interval(unit),
    ]
    for figures in (DECISIVE, SPEED_COLUMNS, [figure for figure in ANSWERS if figure not in DECISIVE]):
        shown += figure_columns(figures, rows, unit)
    if _any_reduced(rows) and file_bytes:
        shown.append(Column("file MiB", lambda row: units.in_mib(file_bytes.get(row.case_id))))
    shown += figure_columns(MEMORY, rows, unit)
    shown += [_unless_void(column) for column in metric_columns(rows, metrics or {})]
    shown.append(word_column("grade", _grade))
    return shown


DECISIVE = tuple(figure for figure in (*SPEED, *ANSWERS) if figure.key in ("speedup", "cosine", "top1_agreement"))
"""How much faster, and what that costs: beside the median, since a screen cuts a wide table on its right."""

SPEED_COLUMNS = (*DEVICE, *(figure for figure in SPEED if figure not in (*DEVICE, *DECISIVE)))
"""A GPU's own times before the host's percentiles."""


def figure_columns(figures: Iterable[Figure[Row]], rows: Sequence[Row], unit: TimeUnit) -> list[Column[Row]]:
    """The columns of the figures that have one in these rows. unit: of the host's latency.

    Void rows show "void" for a figure of speed.
    """
    shown = []
    for figure in figures:
        known = any(figure.value(row) is not None for row in rows)
        if figure.latency_table == "never" or (figure.latency_table == "where known" and not known):
            continue
        made = SPECIAL[figure.key](figure, rows, unit) if figure.key in SPECIAL else figure_column(figure, unit)
        if made is not None:
            shown.append(_unless_void(made) if figure in SPEED else made)
    return shown


def winning_ids(rows: Sequence[Row]) -> set[str]:
    """Case ids of the rows of one table that are clearly the fastest of their shape."""
    return {winner.case_id for _, group in ranking.by_shape(rows) if (winner := ranking.winner(group))}


TERMINAL_COLUMNS = 120
"""Characters of a line, without its flags, beyond which the terminal's table leaves out the device's time."""


def terminal_table(summary: Summary) -> str:
    """A line per case: model, batch, then latency; the time by a GPU's own clock if it fits, else where to find it."""
    tables = ranking.by_table(summary.rows)
    rows = [row for _, group in tables for row in group]
    winners = {case_id for _, group in tables for case_id in winning_ids(group)}
    unit = units.time_unit(row.latency_ns.median for row in rows if row.latency_ns)
    shown = _terminal_columns(rows, unit, winners)
    notes = [*(["*: clearly the fastest of its model and batch."] if winners else []), *doubt_notes(rows)]
    letters = [*shown[:-1], word_column("grade", lambda row: row.grade or ABSENT)]
    device = f"device {unit.name}"
    without = [column for column in shown if column.header != device]
    if len(without) < len(shown) and max(map(len, table_text(Table(letters, rows)).splitlines())) > TERMINAL_COLUMNS:
        shown = without
        notes.append(f"Left out for the width of a line: {device}; see summary.csv or report.md.")
    return "\n\n".join([table_text(Table(shown, rows)), *notes])


def _terminal_columns(rows: Sequence[Row], unit: TimeUnit, winners: set[str]) -> list[Column[Row]]:
    def median(row: Row) -> str:
        return ("* " if row.case_id in winners else "") + _timed(
            row, lambda interval: units.in_unit(interval.median, unit)
        )

    def short(column: Column[Row]) -> Column[Row]:
        return replace(column, cell=_short_setting) if column.header == "setting" else column

    offline = any(row.mode == "offline" for row in rows)  # their batches have no latency
    return [
        word_column("model", lambda row: " ".join([row.model, boundaries.short_mode(row)]).strip()),
        *map(short, case_columns(rows)),
        Column(f"{'time' if offline else 'median'} {unit.name}", median),
        _interval(unit),
        *figure_columns(DEVICE, rows, unit)[:1],
        Column("samples/s", _unless_void(Column("", lambda row: units.significant(row.throughput_per_s))).cell),
        Column("speed-up", lambda row: VOID if row.grade == "F" else ranking.speedup(row)),
        word_column("grade", lambda row: " ".join([row.grade or ABSENT, *flag_names(row)])),
    ]


def _short_setting(row: Row) -> str:
    return "" if row.setting == USUAL else row.setting


def time_name(row: Row, unit: TimeUnit) -> str:
    """The name of a table's headline: a latency, or the time per batch of a block."""
    return f"time per batch (throughput mode) {unit.name}" if row.mode == "offline" else f"median {unit.name}"


def file_sizes(rows: Sequence[Row], export: ExportRecord | None, engines: Engines) -> dict[str, int]:
    """Case id → size on disk of the ONNX file, weights or engine that a row loaded; rows without a file are absent."""
    if export is None:
        return {}
    files = export.files_of_model()
    sizes = {row.case_id: sum(file.size_bytes for file in files if file.path in row.artifacts) for row in rows}
    built = {row.case_id: engine for row in rows if (engine := engine_of(row, export, engines))}
    sizes |= {case_id: engine.engine.size_bytes for case_id, engine in built.items()}
    return {case_id: size for case_id, size in sizes.items() if size}


def _timed(row: Row, figure: Callable[[Latency], str]) -> str:
    if row.grade == "F":
        return VOID
    return figure(row.latency_ns) if row.latency_ns else ABSENT


def _unless_void(column: Column[Row]) -> Column[Row]:
    return replace(column, cell=lambda row: VOID if row.grade == "F" else column.cell(row))


def _interval(unit: TimeUnit) -> Column[Row]:
    return Column("95% CI", lambda row: _timed(row, lambda latency: units.interval(latency.ci95, unit.ns)))


def _median(unit: TimeUnit, winners: set[str]) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        text = _timed(row, lambda latency: units.in_unit(latency.median, unit))
        if row.grade == "C":
            return f"*{text}*"
        return f"**{text}**" if row.case_id in winners else text

    return cell


def _percentile(figure: Figure[Row], rows: Sequence[Row], unit: TimeUnit) -> Column[Row] | None:
    """A percentile, or the number of samples that it needs. None where no row has samples of single batches."""
    name = figure.label

    def cell(row: Row) -> str:
        if row.latency_ns is None:
            return ABSENT
        value = figure.number(row)
        if value is not None:
            return units.in_unit(value, unit)
        if row.latency_ns.n < LEAST_SAMPLES[name]:
            return f"needs {LEAST_SAMPLES[name]} samples"
        return f"needs {least_in_process(int(name[1:]) / 100)} samples a process"

    return Column(f"{name} {unit.name}", cell) if has_percentiles(rows) else None


def has_percentiles(rows: Iterable[Row]) -> bool:
    """Whether a table of these rows has columns of percentiles: any has samples of single batches."""
    return any(row.latency_ns and row.latency_ns.p50 is not None for row in rows)


def _rounds(figure: Figure[Row], rows: Sequence[Row], _unit: TimeUnit) -> Column[Row] | None:
    """Number of rounds and why there are no more, where any row has others than were planned."""
    if all(row.stopped in ("planned rounds", None) for row in rows):
        return None
    return Column(figure.label, lambda row: f"{row.latency_ns.rounds} ({row.stopped})" if row.latency_ns else ABSENT)


def _part(figure: Figure[Row], rows: Sequence[Row], _unit: TimeUnit) -> Column[Row]:
    """Median of a part of e2e and its share of the whole, in a unit of its own, as parts differ greatly."""
    part = boundaries.PARTS[figure.label]
    unit = units.time_unit(part(row.split).median_ns for row in rows if row.split)

    def cell(row: Row) -> str:
        if row.split is None:
            return ABSENT
        return f"{units.in_unit(part(row.split).median_ns, unit)} ({part(row.split).share:.1%})"

    return Column(f"{figure.label} {unit.name} (share)", cell)


def _samples_per_s(figure: Figure[Row], rows: Sequence[Row], _unit: TimeUnit) -> Column[Row]:
    return figure_column(replace(figure, label=f"{units.SAMPLE_NAMES[rows[0].kind]}/s"))


def _cosine(figure: Figure[Row], rows: Sequence[Row], _unit: TimeUnit) -> Column[Row] | None:
    (top1,) = (figure for figure in ANSWERS if figure.key == "top1_agreement")
    by_top1 = any(top1.value(row) is not None for row in rows)
    return figure_column(figure) if _any_reduced(rows) and not by_top1 else None


def _any_reduced(rows: Sequence[Row]) -> bool:
    return any(row.precision != "fp32" for row in rows)


def _speedup(row: Row) -> str:
    if row.speedup is None:
        return ABSENT
    if row.speedup.baseline == row.case_id:
        return "1 (baseline)"
    ends = f" {units.interval(row.speedup.ci95)}" if row.speedup.ci95 else ""
    return f"{ranking.speedup(row)}{ends}"


def _grade(row: Row) -> str:
    return f"{row.grade or ABSENT} {', '.join(flag_names(row))}".strip()


Special = Callable[[Figure[Row], Sequence[Row], TimeUnit], Column[Row] | None]

SPECIAL: dict[str, Special] = {
    **{f"latency_{name}": _percentile for name in LEAST_SAMPLES},
    **{f"{name}_median": _part for name in boundaries.PARTS},
    "rounds": _rounds,
    "throughput_items": _samples_per_s,
    "speedup": lambda figure, _rows, _unit: Column(figure.label, _speedup),
    "cosine": _cosine,
}
"""Figure → its column, where that says more than the value; None: no column in these rows."""


def latency_lines(summary: Summary) -> list[Line]:
    """A line for each row of the latency tables, in their order."""
    tables = ranking.by_table(summary.rows)
    winners = {case_id for _, rows in tables for case_id in winning_ids(rows)}
    lines = []
    for key, rows in tables:
        sizes = file_sizes(rows, summary.exports.get(key.model), summary.engines)
        for row in rows:
            file: Line = {"file_bytes": sizes.get(row.case_id)}
            figures = [columns(some, row, CSV_UNITS) for some in (SPEED, ANSWERS)]
            memory = columns(MEMORY, row, CSV_UNITS)
            remarks: Line = {
                "clearly_fastest": row.case_id in winners,
                "flags": " ".join(names_of(row.flags)),
            }
            lines.append(case_line(summary, row, remarks, *figures, file, memory, _custom(summary, row)))
    return lines


def _custom(summary: Summary, row: Row) -> Line:
    """Figures of plugins, with the column names of summary.csv."""
    return {name: figure(row) if has_figures(row) else None for name, figure in csv_columns(summary).items()}


def guide_lines(rows: Iterable[Row]) -> list[str]:
    """Explanations of these columns, where the table has them."""
    rows = list(rows)
    timed = [row for row in rows if row.device_ns is not None]
    lines = {
        "device": "**device, enqueue**: the same inferences by the GPU's event clock (between two events on the "
        "backend's own stream), and the host's time until the last of their work was submitted; medians of process "
        "medians. The median beside them is the host's: from before the submission until all is known to be done.",
        "transfer": "**H2D, compute, D2H**: the copy from pinned host memory, the pass, and the copy back, by events. "
        "**copies hidden**: share of the copies' time that ran behind computing, 1 − (time per batch − compute) / "
        "(H2D + D2H), time per batch being wall time by batches.",
        "setting": "**setting**: the named way in which the backend ran (`configs/README.md`). Where several were "
        "tried, the fastest of round 1 got the other rounds and is in the tables; the others are listed below.",
        "roofline": f"**of the best, of the best copy**: shares of the best matrix product and the best copy that were "
        f"measured on this GPU. **limit**: *compute* or *memory* where one share is {MIN_SHARE:.0%} or more, *host* "
        "where submitting takes as long as running. Below both, *launch* where at least half of the time does not grow "
        "with the batch (many small kernels, each waiting for the one before), and *kernels* where it does (slow "
        "kernels, or intermediate results that go through memory); – where only one batch size was measured.",
        "roofline of a CPU": "**of the best, of the best copy**: shares of the best matrix products and copies that "
        "were measured on this CPU with as many threads, each multiplying on its own; no precision counts as "
        "slower than fp32, by way of which a library may compute. The time is that of a pass: of the e2e boundary the "
        "inference alone, of the modes offline and pipelined wall time a batch. A copy's share may pass 100% where "
        "weights stay in a cache; a product's may where the clock was higher than while the limits were measured, and "
        f"from {1 / CPU_CLEARLY_SHORTER:.0%} on the row is void. **limit**: *compute* where the product's share is "
        f"{MIN_SHARE:.0%} or more, *memory* where the copy's is larger and the least traffic of a pass exceeds the "
        "last-level cache; – where neither is near: small operators, slow kernels, intermediate results.",
    }
    there = {
        "device": bool(timed),
        "transfer": any(row.device_ns and row.device_ns.h2d is not None for row in timed),
        "setting": any(row.setting != "default" for row in timed),
        "roofline": any(row.roofline for row in timed),
        "roofline of a CPU": any(row.roofline for row in rows if row.device == "cpu"),
    }
    return [line for name, line in lines.items() if there[name]]
