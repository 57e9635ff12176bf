"""Limits on single figures: `[selector:]metric<limit`, parsed strictly, and the rows judged by them (pure).

latency_p50<100ms                          every row
minilm-l6/onnxruntime:latency_p95<8ms      a model and a backend
minilm-l6/openvino/fp32/b1/s128/e2e:…      further parts: precision, batch, sequence length of texts, boundary, mode
minilm-l6/openvino/fp32/server:load_peak>=50/s      a load case, by its scenario; metrics that begin with load_
*/b1:throughput>=50/s                      shell patterns; * also matches a slash
gpt2/torch-eager/fp32/b1/p128/n64:itl_p50<20ms      of generation: precision, batch, tokens of prompt and output
gpt2/endpoint/fp32/server:ttft_p99<200ms      the same names of generation under load: at the only load, or the peak
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Generic, Literal, TypeVar

from harness.aggregation import flags, grades
from harness.aggregation.flags import is_calibration
from harness.comparison.verdicts import Margins
from harness.core.errors import UsageError
from harness.core.schemas import GenerationRow, Interval, Judgement, LoadRow, Quantity, Row
from harness.core.text import short_names
from harness.reporting.figures import FIGURES, GENERATION, LIMITS, LOAD, Figure, Kind, Thing
from harness.reporting.load_groups import is_sound, peak_point
from harness.statistics.estimators import PERCENTILE_MIN_SAMPLES, least_in_process

UNITS: Mapping[Quantity, Mapping[str, float]] = {
    "ns": {"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9},
    "per_s": {"/s": 1},
    "bytes": {"MiB": 1 << 20, "GiB": 1 << 30},
    "ratio": {"": 1, "x": 1},
}
"""Units of limits. Both signs for micro that keyboards produce are accepted."""

_FORM = re.compile(
    r"(?:(?P<selector>.+):)?(?P<metric>\w+)\s*(?P<operator><=|>=|<|>)\s*(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)\s*(?P<unit>\S*)"
)
LIST = "list"
"""In place of limits: the user asks which metrics there are."""
_USUAL = ("latency_p50", "latency_p99", "throughput", "speedup", "memory", "load_peak", "ttft_p99", "itl_p50")
_MOST_NAMED = 12
"""Rows that a hint lists at most."""
_EXAMPLES = "THRESHOLD='latency_p50<100ms', THRESHOLD='minilm-l6/onnxruntime:throughput>=1000/s'"


Judged = TypeVar("Judged", bound=Row | LoadRow | GenerationRow)


@dataclass(frozen=True)
class LimitedFigure(Generic[Thing]):
    """A figure of a row or of a load case, and the unit of limits on it."""

    quantity: Quantity
    figure: Figure[Thing]


@dataclass(frozen=True)
class Threshold:
    """One limit. `limit`: in nanoseconds, samples per second or bytes, or without a unit. `text`: the user's text."""

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
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"`{text}` is not a threshold: [model/backend:]metric<limit.", f"For example {_EXAMPLES}.")
    name, unit = match["metric"], match["unit"]
    quantities = {key: figure.quantity for key, figure in METRICS.items()}
    quantities |= {key: figure.quantity for key, figure in LOAD_METRICS.items()}
    quantities |= {key: figure.quantity for key, figure in TOKEN_METRICS.items()}
    if name not in quantities:
        longer = [known for known in quantities if len(name) > 2 and known.startswith(name)]
        near = longer[:3] or difflib.get_close_matches(name, quantities, n=3, cutoff=0.7)
        some = f"Did you mean {' or '.join(near)}?" if near else f"Usual are {', '.join(_USUAL)}."
        raise UsageError(
            f"`{text}`: there is no metric `{name}`.", f"{some} `make compare THRESHOLD={LIST}` lists all."
        )
    units = UNITS[quantities[name]]
    if unit not in units:
        known = ", ".join(filter(None, units))
        problem = f"cannot be in `{unit}`" if unit else "needs a unit"
        raise UsageError(f"`{text}`: {name} {problem}.", f"Write it {'without a unit or ' * ('' in units)}in {known}.")
    limit = float(match["number"]) * units[unit]
    if not math.isfinite(limit):
        raise UsageError(f"`{text}`: {match['number']} is too large.", f"For example {_EXAMPLES}.")
    return Threshold(text.strip(), match["selector"], name, _operator(match["operator"]), limit)


def parse_all(texts: Sequence[str]) -> list[Threshold]:
    """Parse options that each hold one threshold, or several separated by `;`; empty options are ignored."""
    return [parse(part) for text in texts for part in text.split(";") if part.strip()]


def parse_share(option: str, text: str) -> float:
    """A share written as a percentage; UsageError otherwise, because both 5 and 0.05 could mean 5%."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share < 1:
        raise UsageError(f"{option} {text} is not between 0% and 100%.", f"Write it as per cent: {option} 5%.")
    return share


def parse_margins(equivalence: str, max_regression: str | None) -> Margins:
    """Both margins of a comparison. Raises UsageError, also where the slow-down that is accepted is the smaller one."""
    same = parse_share("--equivalence", equivalence)
    allowed = same if max_regression is None else parse_share("--max-regression", max_regression)
    if allowed < same:
        raise UsageError(
            f"--max-regression {max_regression} is inside the margin of equivalence, {equivalence}.",
            f"Name a smaller margin too: EQUIVALENCE={max_regression}.",
        )
    return Margins(same, allowed)


def _judge_generation(threshold: Threshold, rows: Sequence[GenerationRow]) -> list[Judgement]:
    """Rows of generation that the threshold selects; UsageError where there is none."""
    meant = _selected(threshold, rows, _parts_of_generation)
    meant = [row for row in meant if not any(flag.name == flags.CALIBRATION for flag in row.flags)]
    if not meant:
        raise UsageError(
            f"`{threshold.text}` matches no row of generation.", _there(threshold, rows, _parts_of_generation)
        )
    relevant = [row for row in meant if row.status != "skipped"] or meant
    return [_judged_generation(threshold, row) for row in relevant]


def _parts_of_generation(row: GenerationRow) -> tuple[str, ...]:
    return row.backend, row.precision, f"b{row.batch_size}", f"p{row.prompt_length}", f"n{row.new_tokens}"


def _judged_generation(threshold: Threshold, row: GenerationRow) -> Judgement:
    metric = TOKEN_METRICS[threshold.metric]
    value = metric.figure.number(row)
    reason = None
    uncertain = {flag.name for flag in row.flags if flag.caps_at not in grades.RANKED} == {flags.UNCERTAIN}
    if row.status != "measured":
        reason = flags.status_text(row)
    elif row.grade not in grades.RANKED and not (row.grade == "C" and uncertain):
        reason = flags.grade_text(row)
    elif value is None:
        reason = "this row has no such figure: too few values, or one token"
    return _judgement(threshold, row.case_id, metric.quantity, value, metric.figure.ends(row), reason)


def judge(
    threshold: Threshold,
    rows: Sequence[Row],
    loads: Sequence[LoadRow] = (),
    generations: Sequence[GenerationRow] = (),
) -> list[Judgement]:
    """Judge every row, load case or row of generation that the threshold selects; UsageError where there is none.

    Backends that compute nothing are never selected. Skipped rows, which cannot be measured here, and rows without such
    a figure (rows of the mode offline have no latency) are selected only if there is no other row.
    """
    if threshold.metric in LOAD_METRICS:
        return _judge_loads(threshold, loads)
    if threshold.metric in TOKEN_METRICS:
        loaded = TOKENS_OF_LOADS.get(threshold.metric)
        served = [row for row in loads if row.new_tokens is not None] if loaded else []
        under_load = _judge_loads(replace(threshold, metric=loaded), served) if loaded and served else []
        return [*_judge_generation(threshold, generations), *under_load] if generations or not served else under_load
    computing = [row for row in rows if not is_calibration(row)]
    meant = _selected(threshold, computing, _parts)
    if not meant:
        raise UsageError(f"`{threshold.text}` matches no row.", _there(threshold, computing, _parts))
    relevant = [row for row in meant if row.status != "skipped" and not _pointless(threshold.metric, row)] or meant
    return [_row_judgement(threshold, row) for row in relevant]


def _judge_loads(threshold: Threshold, loads: Sequence[LoadRow]) -> list[Judgement]:
    """Load cases whose scenario has such a figure; where none has, UsageError."""
    metric = LOAD_METRICS[threshold.metric]
    known = [row for row in loads if row.status != "skipped" and metric.figure.applies(row)]
    meant = _selected(threshold, known, _parts_of_load)
    if not meant:
        raise UsageError(
            f"`{threshold.text}` matches no load case.", _there(threshold, known, _parts_of_load, usual_depth=None)
        )
    return [_judged_load(threshold, metric, row) for row in meant]


def _parts_of_load(row: LoadRow) -> tuple[str, ...]:
    return row.backend, row.precision, row.scenario


def _judged_load(threshold: Threshold, metric: LimitedFigure[LoadRow], row: LoadRow) -> Judgement:
    reason = None
    if not is_sound(row):
        reason = f"void: {row.void}" if row.void else f"{row.status}: {row.reason}"
    value = metric.figure.number(row)
    if reason is None and value is None:
        reason = "this load case has no such figure"
        if threshold.metric == "load_peak" or (threshold.metric in TOKENS_OF_LOADS.values() and not peak_point(row)):
            reason = "no load passed the bound"
    return _judgement(threshold, row.load_id, metric.quantity, value, metric.figure.ends(row), reason)


def _parts(row: Row) -> tuple[str, ...]:
    sequence = [f"s{row.sequence_length}"] if row.sequence_length else []
    return row.backend, row.precision, f"b{row.batch_size}", *sequence, row.boundary, row.mode


def _selected(threshold: Threshold, rows: Sequence[Judged], parts: Callable[[Judged], tuple[str, ...]]) -> list[Judged]:
    """Rows whose name begins as the selector, with the full name of the model or the short one that tables show.

    parts: of a row's name, behind the model.
    """
    selector = threshold.selector
    if selector is None:
        return [*rows]
    short = short_names(row.model for row in rows)

    def is_meant(row: Judged) -> bool:
        beginnings = (accumulate((model, *parts(row)), "{}/{}".format) for model in {row.model, short[row.model]})
        return any(fnmatchcase(name, selector) for names in beginnings for name in names)

    return [row for row in rows if is_meant(row)]


def _there(
    threshold: Threshold,
    rows: Sequence[Judged],
    parts: Callable[[Judged], tuple[str, ...]],
    usual_depth: int | None = 1,
) -> str:
    """What a selector can name: all parts of the rows of its model and backend; where it has no row of them,
    `usual_depth` parts behind the model, all of them if None."""
    beginning = "/".join((threshold.selector or "").split("/")[:2])
    near = _selected(replace(threshold, selector=beginning), rows, parts)
    short, depth = short_names(row.model for row in rows), None if near else usual_depth
    names = sorted({"/".join((short[row.model], *parts(row)[:depth])) for row in near or rows})
    more = ", …" if len(names) > _MOST_NAMED else ""
    return f"The results hold {', '.join(names[:_MOST_NAMED]) or 'none'}{more}."


def _row_judgement(threshold: Threshold, row: Row) -> Judgement:
    metric = METRICS[threshold.metric]
    value, interval = _figure(metric, row)
    reason = (
        _unsound(row)
        or _rests_on_c(threshold.metric, row)
        or (_withheld(threshold.metric, row) if value is None else None)
    )
    return _judgement(threshold, row.case_id, metric.quantity, value, interval, reason)


def _judgement(
    threshold: Threshold,
    case_id: str,
    quantity: Quantity,
    value: float | None,
    interval: Interval | None,
    reason: str | None,
) -> Judgement:
    """The judgement of a figure, which counts only where there is no reason against it."""
    known = value if reason is None else None
    holds = known is not None and threshold.holds(known)
    return Judgement(
        threshold=threshold.text,
        case_id=case_id,
        outcome="UNKNOWN" if known is None else "PASS" if holds else "FAIL",
        quantity=quantity,
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
        return flags.status_text(row)
    if row.grade in grades.RANKED or flags.only_uncertain(row):
        return None
    return flags.grade_text(row)


def _rests_on_c(name: str, row: Row) -> str | None:
    """Reason why a ratio is not certain: it is based on a disturbed row (grade C)."""
    if name != "speedup" or row.speedup is None or row.speedup.baseline_grade != "C":
        return None
    return f"its baseline {row.speedup.baseline} is grade C"


def _pointless(name: str, row: Row) -> bool:
    """True where the boundary, mode or device of a row has no such figure."""
    return not METRICS[name].figure.applies(row)


def _withheld(name: str, row: Row) -> str:
    if row.mode == "offline" and name.startswith("latency"):
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


def _figure(metric: LimitedFigure[Row], row: Row) -> tuple[float | None, Interval | None]:
    value = metric.figure.value(row)
    return (value, metric.figure.ends(row)) if isinstance(value, (int, float)) else (None, None)


_QUANTITIES: Mapping[Kind, Quantity] = {
    "time": "ns",
    "rate": "per_s",
    "bytes": "bytes",
    "ratio": "ratio",
    "price": "ratio",
}
_SHORT = {"throughput_items": "throughput", "peak_memory": "memory"}

METRICS: Mapping[str, LimitedFigure[Row]] = {
    _SHORT.get(figure.key, figure.key): LimitedFigure(_QUANTITIES[figure.kind], figure)
    for figure in FIGURES
    if figure.kind in _QUANTITIES
}
"""Name → metric: every time, rate, size and ratio of a row."""

LOAD_METRICS: Mapping[str, LimitedFigure[LoadRow]] = {
    figure.key: LimitedFigure(_QUANTITIES[figure.kind], figure) for figure in LOAD if figure.kind in _QUANTITIES
}
"""The same of a load case: load_peak, load_cost_per_million and others."""

TOKENS_OF_LOADS = {
    **{f"{of}_{name}": f"load_{of}_{name}" for of in ("ttft", "itl") for name in ("p50", "p99")},
    "tokens_per_s": "load_tokens",
}
"""Names that rows of generation share with load cases that generate → the figure of a load case."""

TOKEN_METRICS: Mapping[str, LimitedFigure[GenerationRow]] = {
    LIMITS.get(figure.key, figure.key): LimitedFigure(_QUANTITIES[figure.kind], figure)
    for figure in GENERATION
    if figure.kind in _QUANTITIES
}
"""The same of a row of generation: ttft_p99, itl_p50, tokens_per_s and others."""
