"""CSV lines of what rows are in the report for: speed, faithfulness and memory, cost before the first answer (pure)."""

from __future__ import annotations

from harness.core.schemas import Latency, Row, Summary
from harness.measure.rows import is_calibration
from harness.render import cold, ranking, units
from harness.render.csv_lines import RESTS_ON_C, Line, about, ends, is_sound, per, sound_rows
from harness.render.custom import csv_columns
from harness.render.engines import engine_of
from harness.render.tables import file_sizes
from harness.render.units import MILLISECOND, SECOND
from harness.render.ways import PARTS


def results(summary: Summary) -> list[Line]:
    """A line for each row of the latency tables, in their order."""
    tables = ranking.by_table(summary.rows)
    winners = {
        found.case_id
        for _, rows in tables
        for _, group in ranking.by_shape(rows)
        if (found := ranking.winner(group)) is not None
    }
    lines = []
    for key, rows in tables:
        sizes = file_sizes(rows, summary.exports.get(key[0]), summary.engines)
        for row in rows:
            loaded: Line = {"file_bytes": sizes.get(row.case_id), "peak_memory_bytes": row.memory_bytes}
            remarks: Line = {
                "clearly_fastest": row.case_id in winners,
                "flags": " ".join(dict.fromkeys(flag.name for flag in row.flags)),
            }
            lines.append(about(summary, row, remarks, speed(row), faithfulness(row), loaded, _custom(summary, row)))
    return lines


def _custom(summary: Summary, row: Row) -> Line:
    """Figures of plugins, in the words of summary.csv."""
    return {name: figure(row) if is_sound(row) else None for name, figure in csv_columns(summary).items()}


def calibration(summary: Summary) -> list[Line]:
    """A line for each case that computes nothing: what the harness itself costs."""
    rows = [row for row in summary.rows if row.status == "measured" and is_calibration(row)]
    return [about(summary, row, _latency(row.latency_ns)) for row in rows]


def cold_start(summary: Summary) -> list[Line]:
    """A line for each row that told what it cost until its first answer."""
    by_id = {row.case_id: row for row in summary.rows}
    return [about(summary, row, costs) for row in sound_rows(summary) if (costs := cold_costs(summary, row, by_id))]


def cold_costs(summary: Summary, row: Row, by_id: dict[str, Row]) -> Line:
    """Export, engine, load, compile, first inference in s, and when they are repaid; empty for a row that is void.

    by_id: all rows of the summary, for baselines.
    """
    costs, export = row.cold_ns, summary.exports.get(row.model)
    if costs is None or not is_sound(row):
        return {}
    engine = engine_of(row, export, summary.engines)
    baseline = by_id.get(row.speedup.baseline) if row.speedup else None
    repaid = cold.break_even(row, baseline, export, engine)
    return {
        "export_s": per(cold.export_ns(row, export, engine), SECOND),
        "engine_build_s": engine.build_s if engine else None,
        "load_s": per(costs.load, SECOND),
        "compile_s": per(costs.compile, SECOND),
        "compile_cached": costs.compile_cached,
        "first_inference_s": per(costs.first_inference, SECOND),
        "until_first_answer_s": per(cold.until_first_answer_ns(costs), SECOND),
        "break_even": repaid.outcome if repaid else None,
        "break_even_requests": repaid.requests if repaid else None,
        **ends("break_even_requests", repaid.interval if repaid else None, None),
        "break_even_against": baseline.case_id if baseline else None,
        "break_even_compile_cached": repaid.cached if repaid else None,
        f"break_even{RESTS_ON_C}": repaid.doubtful if repaid else None,
    }


def speed(row: Row) -> Line:
    """Every figure of time and rate; all empty for a row that is void.

    A row in offline mode has no latency: its time is one of a batch in a block, under a name of its own.
    """
    row = row if is_sound(row) else row.model_copy(update=_VOID)
    offline = row.mode == "offline"
    return {
        **_latency(None if offline else row.latency_ns),
        **_middle("batch_time", row.latency_ns if offline else None),
        "rounds": row.latency_ns.rounds if row.latency_ns else None,
        "samples": row.latency_ns.n if row.latency_ns else None,
        "stopped": row.stopped,
        **_device(row),
        **_split(row),
        "throughput_items_per_s": row.throughput_per_s,
        **{f"throughput_ci95_{end}_items_per_s": getattr(row.throughput_ci95, end, None) for end in ("low", "high")},
        "items": units.ITEMS[row.kind],
        "throughput_tokens_per_s": _tokens_per_s(row),
        "speedup": row.speedup.ratio if row.speedup else None,
        **ends("speedup", row.speedup.ci95 if row.speedup else None, None),
        "speedup_against": row.speedup.baseline if row.speedup else None,
        f"speedup{RESTS_ON_C}": ranking.is_doubtful(row) if row.speedup else None,
    }


_VOID = {
    "latency_ns": None,
    "device_ns": None,
    "split": None,
    "speedup": None,
    "throughput_per_s": None,
    "throughput_ci95": None,
}


def faithfulness(row: Row) -> Line:
    """How far the answers are from those of fp32 PyTorch."""
    parity = row.parity
    return {
        "relative_l2": parity.relative_l2 if parity else None,
        "cosine": parity.cosine if parity else None,
        # Near-tied logits of random weights flip on rounding alone: their agreement would mislead.
        "top1_agreement_share": parity.top1_agreement if parity and row.weights != "seeded" else None,
    }


def _latency(found: Latency | None) -> Line:
    names = ("p50", "p90", "p95", "p99", "max")
    return {
        **_middle("latency", found),
        **{f"latency_{name}_ms": per(getattr(found, name) if found else None, MILLISECOND) for name in names},
    }


def _middle(name: str, found: Latency | None) -> Line:
    """Median of the process medians, and its interval over processes."""
    median = f"{name}_median"
    return {
        f"{median}_ms": per(found.median if found else None, MILLISECOND),
        **ends(median, found.ci95 if found else None, MILLISECOND),
    }


def _device(row: Row) -> Line:
    times = row.device_ns
    return {
        "device_median_ms": per(times.device if times else None, MILLISECOND),
        **ends("device_median", times.device_ci95 if times else None, MILLISECOND),
        **{
            f"{name}_ms": per(getattr(times, name) if times else None, MILLISECOND)
            for name in ("h2d", "compute", "d2h")
        },
        "copies_hidden_share": times.overlap if times else None,
        "enqueue_ms": per(times.enqueue if times else None, MILLISECOND),
    }


def _split(row: Row) -> Line:
    line: Line = {}
    for name, part in PARTS.items():
        line[f"{name}_median_ms"] = per(part(row.split).median_ns, MILLISECOND) if row.split else None
        line[f"{name}_share"] = part(row.split).share if row.split else None
    return line


def _tokens_per_s(row: Row) -> float | None:
    if row.throughput_per_s is None or row.sequence_length is None:
        return None
    return row.throughput_per_s * row.sequence_length
