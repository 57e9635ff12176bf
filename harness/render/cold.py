"""What a backend costs before its first answer, and how many requests repay it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from harness.core.schemas import ColdCosts, EngineRecord, ExportRecord, Row
from harness.render import units
from harness.render.engines import Engines, engine_of
from harness.render.markdown import table
from harness.render.series import setting_columns
from harness.render.units import ABSENT, SECOND


def export_ns(row: Row, export: ExportRecord | None, engine: EngineRecord | None = None) -> float | None:
    """Export time of the ONNX file that the row loaded or its engine was built from, in ns; None for neither."""
    onnx = engine is not None or any(name.endswith(".onnx") for name in row.artifacts)
    if export is None or not onnx:
        return None
    # Files of other precisions are made from the fp32 one, so theirs comes on top.
    steps = [seconds for name, seconds in export.seconds.items() if name in {"onnx", f"onnx-{row.precision}"}]
    return sum(steps) * 1e9 if steps else None


def until_first_answer_ns(cold: ColdCosts) -> int:
    """What a new process spends until its first answer, in ns; a file's export is spent once, before."""
    return cold.load + (cold.compile or 0) + cold.first_inference


def break_even(row: Row, baseline: Row | None, export: ExportRecord | None, engine: EngineRecord | None = None) -> str:
    """The same as `break_even_requests`, as a table shows it."""
    found = break_even_requests(row, baseline, export, engine)
    if found is None:
        return ABSENT
    if isinstance(found, str):
        return found
    return units.whole(found) if found else "at once"


def break_even_requests(
    row: Row, baseline: Row | None, export: ExportRecord | None, engine: EngineRecord | None
) -> int | Literal["never", "unclear"] | None:
    """How many requests (batches) pay back what this row costs more than the baseline before its first answer.

    engine: what was built for the row, whose build comes on top of the export. None where there is nothing to compare.
    """
    if baseline is None or row is baseline or row.speedup is None or not _timed_cold(row) or not _timed_cold(baseline):
        return None
    interval = row.speedup.ci95
    if interval is not None and interval.low <= 1 <= interval.high:
        return "unclear"
    assert row.latency_ns and baseline.latency_ns and row.cold_ns and baseline.cold_ns  # noqa: PT018, S101 - above
    gain_ns = baseline.latency_ns.median - row.latency_ns.median
    extra_ns = until_first_answer_ns(row.cold_ns) + (export_ns(row, export, engine) or 0)
    extra_ns += engine.build_s * 1e9 if engine else 0
    extra_ns -= until_first_answer_ns(baseline.cold_ns)
    if gain_ns <= 0:
        return "never"
    return 0 if extra_ns <= 0 else math.ceil(extra_ns / gain_ns)


def cold_table(
    rows: Sequence[Row], by_id: Mapping[str, Row], export: ExportRecord | None, engines: Engines | None = None
) -> str:
    """Export, engine, load, compile, first inference, their sum and the requests that repay it, one line a row.

    engines: Summary.engines; the engine's column stands only where a row loaded one.
    """
    by_length = any(row.sequence_length for row in rows)
    settings = setting_columns(rows)
    built = {row.case_id: engine for row in rows if (engine := engine_of(row, export, engines or {}))}
    lines = []
    for row in rows:
        if row.cold_ns is None or row.grade == "F":
            continue
        baseline = by_id.get(row.speedup.baseline) if row.speedup else None
        engine = built.get(row.case_id)
        exported = export_ns(row, export, engine)
        cached = " (cached)" if row.cold_ns.compile_cached else ""
        lines.append(
            [
                row.backend,
                row.precision,
                *(cell(row) for cell in settings.values()),
                str(row.batch_size),
                *([str(row.sequence_length or ABSENT)] if by_length else []),
                units.in_unit(exported, SECOND),
                *([_build_s(engine)] if built else []),
                units.in_unit(row.cold_ns.load, SECOND),
                units.in_unit(row.cold_ns.compile, SECOND) + cached,
                units.in_unit(row.cold_ns.first_inference, SECOND),
                units.in_unit(until_first_answer_ns(row.cold_ns), SECOND),
                break_even(row, baseline, export, engine),
            ]
        )
    headers = ["backend", "precision", *settings, "batch", *(["seq"] if by_length else []), "export s"]
    headers += [*(["engine s"] if built else []), "load s", "compile s"]
    headers += ["first inference s", "until first answer s", "break-even requests"]
    return table(headers, lines) if lines else ""


def _build_s(engine: EngineRecord | None) -> str:
    return ABSENT if engine is None else units.significant(engine.build_s)


def _timed_cold(row: Row) -> bool:
    return row.latency_ns is not None and row.cold_ns is not None
