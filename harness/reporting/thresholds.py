"""Limits on single figures: `[selector:]metric<limit`, parsed strictly, and the rows judged by them (pure).

latency_p50<100ms                          every row
minilm-l6/onnxruntime:latency_p95<8ms      a model and a backend
minilm-l6/openvino/fp32/b1/s128/e2e:…      further parts: precision, batch, sequence length of texts, boundary, mode
*/b1:throughput>=50/s                      shell patterns; * also matches a slash
gpt2/torch-eager/fp32/b1/p128/n64:itl_p50<20ms      of generation: precision, batch, tokens of prompt and output
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Literal

from harness.aggregation import flags
from harness.aggregation.flags import is_calibration
from harness.core.errors import UsageError
from harness.core.schemas import GenerationRow, Interval, Judgement, Quantity, Row, Summary
from harness.reporting.figures import FIGURES, Figure, Kind
from harness.reporting.generation_figures import GENERATION, LIMITS
from harness.statistics.estimators import PERCENTILE_MIN_SAMPLES, least_in_process

UNITS: Mapping[Quantity, Mapping[str, float]] = {
    "ns": {"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9},
    "per_s": {"/s": 1},
    "bytes": {"MiB": 1 << 20, "GiB": 1 << 30},
    "ratio": {"": 1, "x": 1},
}
"""Units of limits. Both signs for micro that keyboards produce are accepted."""

_FORM = re.compile(
    r"(?:(?P<selector>.+):)?(?P<metric>\w+)\s*(?P<operator><=|>=|<|>)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>\S*)"
)
_EXAMPLES = "--threshold 'latency_p50<100ms', --threshold 'minilm-l6/onnxruntime:throughput>=1000/s'"


@dataclass(frozen=True)
class LimitedFigure:
    """A figure of a row, and the unit of limits on it."""

    quantity: Quantity
    figure: Figure[Row]


@dataclass(frozen=True)
class Threshold:
    """One limit. `limit`: in nanoseconds, items per second or bytes, or without a unit. `text`: the user's text."""

    text: str
    selector: str | None
    metric: str
    operator: Literal["<", "<=", ">", ">="]
    limit: float

    def holds(self, value: float) -> bool:
        """Whether a value keeps the limit."""
        return {
            "<": value < self.limit,
            "<=": value <= self.limit,
            ">": value > self.limit,
            ">=": value >= self.limit,
        }[self.operator]


def parse(text: str) -> Threshold:
    """Parse one threshold; UsageError names the part that is invalid."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"`{text}` is not a threshold: [model/backend:]metric<limit.", f"For example {_EXAMPLES}.")
    name, unit = found["metric"], found["unit"]
    if name not in METRICS and name not in TOKEN_METRICS:
        known = ", ".join([*METRICS, *TOKEN_METRICS])
        raise UsageError(f"`{text}`: there is no metric `{name}`.", f"Metrics are {known}.")
    units = UNITS[quantity_of(name)]
    if unit not in units:
        known = ", ".join(unit or "no unit" for unit in units)
        problem = f"cannot be in `{unit}`" if unit else "needs a unit"
        raise UsageError(f"`{text}`: {name} {problem}.", f"Write it in {known}.")
    limit = float(found["number"]) * units[unit]
    return Threshold(text.strip(), found["selector"], name, _operator(found["operator"]), limit)


def parse_all(texts: Sequence[str]) -> list[Threshold]:
    """Parse options that each hold one threshold, or several separated by `;`; empty options are ignored."""
    return [parse(part) for text in texts for part in text.split(";") if part.strip()]


def parse_share(option: str, text: str) -> float:
    """A share written as a percentage; UsageError otherwise, because both 5 and 0.05 could mean 5%."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    share = float(found[1]) / 100 if found else 0.0
    if not 0 < share < 1:
        raise UsageError(f"{option} {text} is not between 0% and 100%.", f"Write it as per cent: {option} 5%.")
    return share


def quantity_of(metric: str) -> Quantity:
    """The quantity of a metric of rows, or of rows of generation."""
    return METRICS[metric].quantity if metric in METRICS else TOKEN_METRICS[metric].quantity


def judge_any(threshold: Threshold, summary: Summary) -> list[Judgement]:
    """Judge the rows that have the threshold's metric."""
    if threshold.metric in METRICS:
        return judge(threshold, summary.rows)
    return judge_generation(threshold, summary.generations)


def judge_generation(threshold: Threshold, rows: Sequence[GenerationRow]) -> list[Judgement]:
    """Judge every row of generation that the threshold selects; UsageError where there is none."""
    meant = [row for row in rows if threshold.selector is None or _selects_generation(threshold.selector, row)]
    meant = [row for row in meant if not any(flag.name == flags.CALIBRATION for flag in row.flags)]
    if not meant:
        there = ", ".join(sorted({f"{row.model}/{row.backend}" for row in rows})) or "no row of generation"
        raise UsageError(f"`{threshold.text}` matches no row.", f"The results hold {there}.")
    owed = [row for row in meant if row.status != "skipped"] or meant
    return [_judged_generation(threshold, row) for row in owed]


def _selects_generation(selector: str, row: GenerationRow) -> bool:
    shape = (f"b{row.batch_size}", f"p{row.prompt_length}", f"n{row.new_tokens}")
    parts = (row.model, row.backend, row.precision, *shape)
    return any(fnmatchcase(name, selector) for name in accumulate(parts, "{}/{}".format))


def _judged_generation(threshold: Threshold, row: GenerationRow) -> Judgement:
    metric = TOKEN_METRICS[threshold.metric]
    value = metric.figure.number(row)
    reason = None
    uncertain = {flag.name for flag in row.flags if flag.caps_at not in flags.RANKED} <= {flags.UNCERTAIN}
    if row.status != "measured":
        reason = f"{row.status}: {row.reason}" if row.reason else row.status
    elif row.grade not in flags.RANKED and not (row.grade == "C" and uncertain):
        reason = f"grade {row.grade}: {', '.join(dict.fromkeys(flag.name for flag in row.flags))}"
    elif value is None:
        reason = "this row has no such figure: too few values, or one token"
    known = value if reason is None else None
    holds = known is not None and threshold.holds(known)
    interval = metric.figure.ends(row) if known is not None else None
    return Judgement(
        threshold=threshold.text,
        case_id=row.case_id,
        outcome="UNKNOWN" if known is None else "PASS" if holds else "FAIL",
        quantity=metric.quantity,
        value=known,
        limit=threshold.limit,
        ci95=interval,
        clear=None if interval is None else threshold.holds(interval.low) == threshold.holds(interval.high) == holds,
        reason=reason,
    )


def judge(threshold: Threshold, rows: Sequence[Row]) -> list[Judgement]:
    """Judge every row that the threshold selects; UsageError where there is none.

    Backends that compute nothing are never selected. Skipped rows, which cannot be measured here, and rows without such
    a figure (rows of the mode offline have no latency) are selected only if there is no other row.
    """
    computing = [row for row in rows if not is_calibration(row)]
    meant = [row for row in computing if threshold.selector is None or _selects(threshold.selector, row)]
    if not meant:
        there = ", ".join(sorted({f"{row.model}/{row.backend}" for row in computing})) or "nothing"
        raise UsageError(f"`{threshold.text}` matches no row.", f"The results hold {there}.")
    owed = [row for row in meant if row.status != "skipped" and not _pointless(threshold.metric, row)] or meant
    return [_judged(threshold, row) for row in owed]


def _selects(selector: str, row: Row) -> bool:
    sequence = [f"s{row.sequence_length}"] if row.sequence_length else []
    parts = (row.model, row.backend, row.precision, f"b{row.batch_size}", *sequence, row.boundary, row.mode)
    return any(fnmatchcase(name, selector) for name in accumulate(parts, "{}/{}".format))


def _judged(threshold: Threshold, row: Row) -> Judgement:
    metric = METRICS[threshold.metric]
    value, interval = _figure(metric, row)
    reason = (
        _unsound(row)
        or _rests_on_c(threshold.metric, row)
        or (_withheld(threshold.metric, row) if value is None else None)
    )
    known = value if reason is None else None
    holds = known is not None and threshold.holds(known)
    return Judgement(
        threshold=threshold.text,
        case_id=row.case_id,
        outcome="UNKNOWN" if known is None else "PASS" if holds else "FAIL",
        quantity=metric.quantity,
        value=known,
        limit=threshold.limit,
        ci95=interval if known is not None else None,
        clear=None
        if known is None or interval is None
        else threshold.holds(interval.low) == threshold.holds(interval.high) == holds,
        reason=reason,
    )


def _unsound(row: Row) -> str | None:
    if row.status != "measured":
        return f"{row.status}: {row.reason}" if row.reason else row.status
    if row.grade in flags.RANKED or flags.only_uncertain(row):
        return None
    return f"grade {row.grade}: {', '.join(dict.fromkeys(flag.name for flag in row.flags))}"


def _rests_on_c(name: str, row: Row) -> str | None:
    """Reason why a ratio is not certain: it is based on a disturbed row (grade C)."""
    if name != "speedup" or row.speedup is None or row.speedup.baseline_grade != "C":
        return None
    return f"its baseline {row.speedup.baseline} is grade C"


def _pointless(name: str, row: Row) -> bool:
    """True where the boundary, mode or device of a row has no such figure."""
    return not METRICS[name].figure.applies(row)


def _withheld(name: str, row: Row) -> str:
    if _pointless(name, row):
        return "offline mode has no latency of single batches"
    tail = name.rpartition("_p")[2]
    quantile = int(tail) / 100 if tail.isdigit() else 0.0
    least = PERCENTILE_MIN_SAMPLES.get(quantile)
    if least is not None and row.latency_ns is not None:
        if row.latency_ns.n < least:
            return f"withheld: {row.latency_ns.n} samples, {least} needed; raise measurement.min_samples or the rounds"
        few = least_in_process(quantile)
        return f"withheld: a process has fewer than {few} samples; raise measurement.min_samples"
    return "this row has no such figure"


def _operator(text: str) -> Literal["<", "<=", ">", ">="]:
    match text:
        case "<" | "<=" | ">" | ">=":
            return text
    raise AssertionError(text)  # the pattern allows no other values


def _figure(metric: LimitedFigure, row: Row) -> tuple[float | None, Interval | None]:
    value = metric.figure.value(row)
    return (value, metric.figure.ends(row)) if isinstance(value, (int, float)) else (None, None)


_QUANTITIES: Mapping[Kind, Quantity] = {"time": "ns", "rate": "per_s", "bytes": "bytes", "ratio": "ratio"}
_SHORT = {"throughput_items": "throughput", "peak_memory": "memory"}

METRICS: Mapping[str, LimitedFigure] = {
    _SHORT.get(figure.key, figure.key): LimitedFigure(_QUANTITIES[figure.kind], figure)
    for figure in FIGURES
    if figure.kind in _QUANTITIES
}
"""Name → metric: every time, rate, size and ratio of a row."""


@dataclass(frozen=True)
class LimitedTokenFigure:
    """A figure of a row of generation, and the unit of limits on it."""

    quantity: Quantity
    figure: Figure[GenerationRow]


TOKEN_METRICS: Mapping[str, LimitedTokenFigure] = {
    LIMITS.get(figure.key, figure.key): LimitedTokenFigure(_QUANTITIES[figure.kind], figure)
    for figure in GENERATION
    if figure.kind in _QUANTITIES
}
"""The same of rows of generation."""
