"""Cold start: its cost for each backend, the engines behind it, and how many requests repay it (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from harness.core import units
from harness.core.schemas import EngineRecord, ExportRecord, Interval, Latency, LoadRow, Row, ShapeProfile, Summary
from harness.core.units import ABSENT, SECOND, too_wide_to_print
from harness.reporting import ranking
from harness.reporting.csv_identity import (
    RESTS_ON_C,
    Line,
    case_line,
    has_figures,
    in_time_unit,
    interval_columns,
    run_columns,
    sound_rows,
)
from harness.reporting.figures import COLD, CSV_SECONDS, columns, until_first_answer_ns
from harness.reporting.table import Column, Table, case_columns, figure_column, word_column
from harness.statistics.estimators import difference_interval

Engines = Mapping[str, EngineRecord]
"""Summary.engines: `<slug>/<path below the model's folder>` → the record."""

MAX_NAMED = 3
"""Number of named layers that were kept in fp32; summary.json has all."""


def engine_of(row: Row | LoadRow, export: ExportRecord | None, engines: Engines) -> EngineRecord | None:
    """The engine among the files that a row loaded; None where it loaded none."""
    if export is None:
        return None
    paths = (f"{export.slug}/{path}" for path in row.artifacts)
    return next((engines[path] for path in paths if path in engines), None)


def engines_table(rows: Sequence[Row], export: ExportRecord | None, engines: Engines) -> Table[EngineRecord] | None:
    """One line per engine that any of the rows loaded; None without engines."""
    engine_records = {engine.key: engine for row in rows if (engine := engine_of(row, export, engines))}
    if not engine_records:
        return None
    made = dict.fromkeys(f"TensorRT {engine.tensorrt}, {_flags(engine)}" for engine in engine_records.values())
    return Table(_COLUMNS, list(engine_records.values()), f"Engines, by {' / '.join(made)}:")


def shape_range(profiles: Mapping[str, ShapeProfile]) -> str:
    """Range of shapes, once where all inputs share it: `1x128 … 8x128 … 128x128`, or the only shape."""
    return " / ".join(dict.fromkeys(_range(profile) for profile in profiles.values()))


def _range(profile: ShapeProfile) -> str:
    ends = (profile.minimum, profile.optimum, profile.maximum)
    # Minimum, optimum and maximum without duplicates, in order: an optimum is often one of the ends.
    return " … ".join(dict.fromkeys("x".join(map(str, shape)) for shape in ends))


def _kept_layers_text(layers: Sequence[str]) -> str:
    if not layers:
        return "none"
    more = f", … ({len(layers)})" if len(layers) > MAX_NAMED else ""
    return ", ".join(layers[:MAX_NAMED]) + more


def _flags(engine: EngineRecord) -> str:
    return ", ".join(f"{name} {text}" for name, text in engine.builder.items()) or "its own defaults"


def _precisions_text(engine: EngineRecord) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(engine.precisions.items()))


_COLUMNS: Sequence[Column[EngineRecord]] = (
    word_column("engine", lambda engine: PurePosixPath(engine.engine.path).stem),
    word_column("precision", lambda engine: engine.request.precision),
    word_column("profile", lambda engine: shape_range(engine.request.profiles)),
    Column("build s", lambda engine: units.significant(engine.build_s)),
    Column("MiB", lambda engine: units.in_mib(engine.engine.size_bytes)),
    Column("layers", lambda engine: str(engine.layers)),
    word_column("by precision", _precisions_text),
    word_column("kept in fp32", lambda engine: _kept_layers_text(engine.kept_fp32)),
)


def engine_lines(summary: Summary) -> list[Line]:
    """A line for each engine that a row loaded."""
    built: dict[str, tuple[Row, EngineRecord]] = {}
    for row in summary.rows:
        if engine := engine_of(row, summary.exports.get(row.model), summary.engines):
            built.setdefault(engine.key, (row, engine))
    return [
        {"model": row.model, "weights": row.weights, **_built(engine), **run_columns(summary)}
        for row, engine in built.values()
    ]


def _built(engine: EngineRecord) -> Line:
    return {
        "engine": PurePosixPath(engine.engine.path).stem,
        "precision": engine.request.precision,
        "shapes": shape_range(engine.request.profiles),
        "build_s": engine.build_s,
        "file_bytes": engine.engine.size_bytes,
        "layers": engine.layers,
        "layers_by_precision": _pairs(engine.precisions),
        "kept_in_fp32": " ".join(engine.kept_fp32),
        "relative_l2": engine.parity.relative_l2,
        "tensorrt": engine.tensorrt,
        "builder": _pairs(engine.builder),
        "gpu": engine.gpu,
        "driver": engine.driver,
    }


def _pairs(pairs: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(pairs.items()))


def export_ns(row: Row, export: ExportRecord | None, engine: EngineRecord | None = None) -> float | None:
    """Export time of the ONNX file that the row loaded or its engine was built from, in ns; None without a file."""
    onnx = engine is not None or any(name.endswith(".onnx") for name in row.artifacts)
    if export is None or not onnx:
        return None
    # Files of other precisions are made from the fp32 file, so their time is added to its time.
    steps = [seconds for name, seconds in export.seconds.items() if name in {"onnx", f"onnx-{row.precision}"}]
    return sum(steps) * 1e9 if steps else None


@dataclass(frozen=True)
class BreakEven:
    """Whether a row repays its slower cold start than the baseline, and after how many requests.

    requests: batches; 0 where it starts no later, None where it is not repaid. interval: 95%, from the interval of the
    difference of the medians, with the cost as measured; None with one process. cached: a compile cache of the row or
    the baseline was warm, so that this was no first start. doubtful: the row or the baseline is grade C.
    """

    outcome: Literal["repaid", "at once", "never", "not proven"]
    requests: int | None = None
    interval: Interval | None = None
    cached: bool = False
    doubtful: bool = False

    def __str__(self) -> str:
        """Text for a table: `~450 [380, 560] (cached)`."""
        doubt = ranking.DOUBT if self.doubtful and self.outcome != "not proven" else ""
        cached = CACHED if self.cached else ""
        return f"{doubt}{requests(self.requests, self.interval) if self.requests else self.outcome}{cached}"


CACHED = " (cached)"


def requests(count: int, interval: Interval | None) -> str:
    """A number of requests with its interval; of a wide interval only the upper end, the latest break-even."""
    if interval is None:
        return f"{units.whole(count)} (no interval)"
    if too_wide_to_print(interval):
        return f"at most {units.whole(math.ceil(interval.high))}"
    return f"{units.whole(count)} {units.interval(interval, end=lambda end: units.whole(math.ceil(end)))}"


def repaid_after(cost_ns: float, slow: Latency, fast: Latency) -> tuple[int, Interval | None] | None:
    """Requests after which the time that `fast` saves over `slow` has repaid a cost > 0, and their 95% interval.

    None where `fast` may take as long as `slow`, by the interval of the difference. The requests have an interval only
    where both latencies have one.
    """
    gain_ns = slow.median - fast.median
    if slow.ci95 is None or fast.ci95 is None:
        return (math.ceil(cost_ns / gain_ns), None) if gain_ns > 0 else None
    gain = difference_interval(slow.median, slow.ci95, fast.median, fast.ci95)
    if gain.low <= 0:
        return None
    return math.ceil(cost_ns / gain_ns), Interval(low=cost_ns / gain.high, high=cost_ns / gain.low)


def break_even(
    row: Row, baseline: Row | None, export: ExportRecord | None, engine: EngineRecord | None = None
) -> BreakEven | None:
    """Whether and when a row repays its slower start.

    engine: of the row; its build time is added to the export. None where there is nothing to compare.
    """
    if baseline is None or row is baseline or row.speedup is None:
        return None
    fast, slow, costs, saved = row.latency_ns, baseline.latency_ns, row.cold_ns, baseline.cold_ns
    if fast is None or slow is None or costs is None or saved is None:
        return None
    cost_ns = until_first_answer_ns(costs) + (export_ns(row, export, engine) or 0)
    cost_ns += engine.build_s * 1e9 if engine else 0
    cost_ns -= until_first_answer_ns(saved)
    even = BreakEven(
        outcome := _outcome(cost_ns, slow, fast),
        requests=0 if outcome == "at once" else None,
        cached=bool(costs.compile_cached or saved.compile_cached),
        doubtful=ranking.is_doubtful(row),
    )
    repaid = repaid_after(cost_ns, slow, fast) if outcome == "repaid" else None
    return replace(even, requests=repaid[0], interval=repaid[1]) if repaid else even


def _outcome(cost_ns: float, slow: Latency, fast: Latency) -> Literal["repaid", "at once", "never", "not proven"]:
    if repaid_after(1.0, fast, slow) is not None or fast.median == slow.median:
        return "never"
    if repaid_after(1.0, slow, fast) is None:
        return "not proven"
    return "repaid" if cost_ns > 0 else "at once"


def cold_table(
    rows: Sequence[Row], by_id: Mapping[str, Row], export: ExportRecord | None, engines: Engines | None = None
) -> Table[Row] | None:
    """Export, engine, load, compile, first inference, their sum and the requests that repay it; None without rows.

    engines: Summary.engines; the table has the engine's column only where a row loaded an engine.
    """
    shown = [row for row in rows if row.cold_ns is not None]
    if not shown:
        return None
    built = {row.case_id: engine for row in rows if (engine := engine_of(row, export, engines or {}))}
    repaid = {row.case_id: break_even(row, _baseline(row, by_id), export, built.get(row.case_id)) for row in shown}
    shown_columns = [
        *case_columns(rows),
        Column[Row]("export s", lambda row: units.in_unit(export_ns(row, export, built.get(row.case_id)), SECOND)),
        *([Column[Row]("engine s", lambda row: _build_s(built.get(row.case_id)))] if built else []),
        *(_marked(figure_column(figure, SECOND), figure in _HOLD_COMPILING) for figure in COLD if figure.label),
        Column[Row]("break-even requests", lambda row: str(repaid[row.case_id] or ABSENT)),
    ]
    return Table(shown_columns, shown, note=_notes([repayment for repayment in repaid.values() if repayment]))


_HOLD_COMPILING = tuple(figure for figure in COLD if figure.key in ("compile", "until_first_answer"))


def _marked(column: Column[Row], holds_compiling: bool) -> Column[Row]:
    """The column with a mark where an earlier cache made compiling short."""
    if not holds_compiling:
        return column

    def cell(row: Row) -> str:
        return column.cell(row) + (CACHED if row.cold_ns and row.cold_ns.compile_cached else "")

    return Column(column.header, cell)


def _baseline(row: Row, by_id: Mapping[str, Row]) -> Row | None:
    return by_id.get(row.speedup.baseline) if row.speedup else None


def _notes(repayments: Sequence[BreakEven]) -> str:
    """The meaning of the marks beside the figures; empty without marks."""
    cached = (
        "(cached): a compile cache was warm in every process, so that a first start takes longer than this. In the "
        "last column it was that of the row or of the baseline; what repays a first start is not known."
    )
    notes = [
        *([cached] if any(repayment.cached for repayment in repayments) else []),
        *([ranking.DOUBT_MEANS] if any(repayment.doubtful for repayment in repayments) else []),
    ]
    return "\n\n".join(notes)


def _build_s(engine: EngineRecord | None) -> str:
    return ABSENT if engine is None else units.significant(engine.build_s)


def cold_lines(summary: Summary) -> list[Line]:
    """A line for each row that has cold-start costs."""
    by_id = {row.case_id: row for row in summary.rows}
    return [case_line(summary, row, costs) for row in sound_rows(summary) if (costs := cold_costs(summary, row, by_id))]


def cold_costs(summary: Summary, row: Row, by_id: dict[str, Row]) -> Line:
    """Export, engine, load, compile, first inference in s, and the break-even; empty for a void row.

    by_id: all rows of the summary, for baselines.
    """
    export = summary.exports.get(row.model)
    if row.cold_ns is None or not has_figures(row):
        return {}
    engine = engine_of(row, export, summary.engines)
    baseline = _baseline(row, by_id)
    repaid = break_even(row, baseline, export, engine)
    return {
        "export_s": in_time_unit(export_ns(row, export, engine), SECOND),
        "engine_build_s": engine.build_s if engine else None,
        **columns(COLD, row, CSV_SECONDS),
        "break_even": repaid.outcome if repaid else None,
        "break_even_requests": repaid.requests if repaid else None,
        **interval_columns("break_even_requests", repaid.interval if repaid else None),
        "break_even_against": baseline.case_id if baseline else None,
        "break_even_compile_cached": repaid.cached if repaid else None,
        f"break_even{RESTS_ON_C}": repaid.doubtful if repaid else None,
    }
