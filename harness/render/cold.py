"""What a backend costs before its first answer, and how many requests repay it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.core.schemas import ColdCosts, EngineRecord, ExportRecord, Interval, Latency, Row
from harness.measure.grades import too_wide_to_print
from harness.measure.stats import difference_interval
from harness.render import ranking, units
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


@dataclass(frozen=True)
class BreakEven:
    """Whether a row repays what it costs more than the baseline before its first answer, and after how many requests.

    requests: batches; 0 where it starts no later, None where it is not repaid. interval: 95%, from that of the
    difference of the medians, the cost as it was measured; None with one process. cached: a compile cache was warm, the
    row's or the baseline's, so that this is not about a first start. doubtful: the row or the baseline is grade C.
    """

    outcome: Literal["repaid", "at once", "never", "not proven"]
    requests: int | None = None
    interval: Interval | None = None
    cached: bool = False
    doubtful: bool = False

    def __str__(self) -> str:
        """As a table shows it: `~450 [380, 560] (cached)`."""
        doubt = ranking.DOUBT if self.doubtful and self.outcome != "not proven" else ""
        cached = CACHED if self.cached else ""
        return f"{doubt}{requests(self.requests, self.interval) if self.requests else self.outcome}{cached}"


CACHED = " (cached)"


def requests(count: int, interval: Interval | None) -> str:
    """A number of requests with its interval; of a wide one the upper end, by which they are repaid at the latest."""
    if interval is None:
        return f"{units.whole(count)} (no interval)"
    if too_wide_to_print(interval):
        return f"at most {units.whole(math.ceil(interval.high))}"
    return f"{units.whole(count)} {units.interval(interval, end=lambda end: units.whole(math.ceil(end)))}"


def repaid_after(cost_ns: float, slow: Latency, fast: Latency) -> tuple[int, Interval | None] | None:
    """Requests after which what `fast` takes less than `slow` has repaid a cost > 0, and their 95% interval.

    None where the interval of the difference leaves open that `fast` takes as long. Without an interval on both sides
    there is none of the requests.
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

    engine: what was built for the row, whose build comes on top of the export. None where there is nothing to compare.
    """
    if baseline is None or row is baseline or row.speedup is None:
        return None
    fast, slow, costs, saved = row.latency_ns, baseline.latency_ns, row.cold_ns, baseline.cold_ns
    if fast is None or slow is None or costs is None or saved is None:
        return None
    cost_ns = until_first_answer_ns(costs) + (export_ns(row, export, engine) or 0)
    cost_ns += engine.build_s * 1e9 if engine else 0
    cost_ns -= until_first_answer_ns(saved)
    found = BreakEven(
        outcome := _outcome(cost_ns, slow, fast),
        requests=0 if outcome == "at once" else None,
        cached=bool(costs.compile_cached or saved.compile_cached),
        doubtful=ranking.is_doubtful(row),
    )
    repaid = repaid_after(cost_ns, slow, fast) if outcome == "repaid" else None
    return replace(found, requests=repaid[0], interval=repaid[1]) if repaid else found


def _outcome(cost_ns: float, slow: Latency, fast: Latency) -> Literal["repaid", "at once", "never", "not proven"]:
    if repaid_after(1.0, fast, slow) is not None or fast.median == slow.median:
        return "never"
    if repaid_after(1.0, slow, fast) is None:
        return "not proven"
    return "repaid" if cost_ns > 0 else "at once"


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
    found: list[BreakEven] = []
    for row in rows:
        if row.cold_ns is None:
            continue
        baseline = by_id.get(row.speedup.baseline) if row.speedup else None
        engine = built.get(row.case_id)
        exported = export_ns(row, export, engine)
        cached = CACHED if row.cold_ns.compile_cached else ""
        repaid = break_even(row, baseline, export, engine)
        found += [repaid] if repaid else []
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
                units.in_unit(until_first_answer_ns(row.cold_ns), SECOND) + cached,
                ABSENT if repaid is None else str(repaid),
            ]
        )
    headers = ["backend", "precision", *settings, "batch", *(["seq"] if by_length else []), "export s"]
    headers += [*(["engine s"] if built else []), "load s", "compile s"]
    headers += ["first inference s", "until first answer s", "break-even requests"]
    return "\n\n".join([table(headers, lines), *_notes(found)]) if lines else ""


def _notes(found: Sequence[BreakEven]) -> list[str]:
    """What the marks beside the figures mean, where there are any."""
    cached = (
        "(cached): a compile cache was warm in every process, so that a first start takes longer than this. In the "
        "last column it was that of the row or of the baseline; what repays a first start is not known."
    )
    return [
        *([cached] if any(one.cached for one in found) else []),
        *([ranking.DOUBT_MEANS] if any(one.doubtful for one in found) else []),
    ]


def _build_s(engine: EngineRecord | None) -> str:
    return ABSENT if engine is None else units.significant(engine.build_s)
