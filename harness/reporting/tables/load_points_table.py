"""The measured loads of each scenario, and where their time went (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Literal

from harness.core.schemas import LoadedPoint, LoadRow, MapCell, Summary
from harness.reporting import units
from harness.reporting.figures import CSV_UNITS, LOADED, REPLAYED, columns
from harness.reporting.labels import Line, where
from harness.reporting.load_groups import (
    batching,
    bounded_percentile,
    computing,
    is_sound,
    names,
    percentile_ns,
    percentile_text,
    ranked,
)
from harness.reporting.table import Column, Table, filled, words
from harness.reporting.units import ABSENT, TimeUnit


@dataclass(frozen=True)
class Loaded:
    """One line: a row, one of its points, and the name of the row in its group."""

    row: LoadRow
    point: LoadedPoint
    name: str

    @property
    def load(self) -> str:
        """The rate asked for, the number of clients, or nothing."""
        if self.point.clients is not None:
            return units.count(self.point.clients, "client")
        return ABSENT if self.point.asked_per_s is None else units.significant(self.point.asked_per_s)


def lines_of(rows: Sequence[LoadRow]) -> list[Loaded]:
    """Every point of every row with sound figures, rows in the order of ranked."""
    called = names(rows)
    return [Loaded(row, point, called[row.load_id]) for row in ranked(rows) for point in row.points]


def points_table(rows: Sequence[LoadRow]) -> Table[Loaded] | None:
    """Latency, verdict and goodput of each load of one group; None without a sound row."""
    lines = lines_of(rows)
    if not lines:
        return None
    unit = _unit(lines)
    server = rows[0].scenario == "server"
    batch = rows[0].scenario in ("multi-stream", "offline")
    shown: list[Column[Loaded]] = [
        words("backend", lambda line: line.name),
        Column("load/s" if server else "load", lambda line: line.load),
        Column("× predicted", lambda line: units.significant(line.point.factor)),
        Column("batch", lambda line: str(line.row.max_batch) if batch else ABSENT),
        Column("achieved/s", lambda line: units.significant(line.point.achieved_per_s)),
        Column("samples/s", lambda line: units.significant(line.point.samples_per_s) if batch else ABSENT),
        _percentile("p50", unit),
        _percentile("p90", unit),
        _percentile("p99", unit),
        *_token_columns(lines),
        *_over_columns(lines),
        words("verdict", lambda line: f"**{line.point.verdict}**" if line.point.verdict else ABSENT),
        words("LoadGen's rule", lambda line: line.point.loadgen or ABSENT),
        Column(f"LoadGen's estimate {unit.name}", lambda line: units.in_unit(line.point.loadgen_estimate_ns, unit)),
        Column("goodput/s", lambda line: units.significant(line.point.goodput_per_s)),
        Column("failed", lambda line: str(line.point.failed) if line.point.failed else ABSENT),
    ]
    return Table(filled(shown, lines), lines, note=_note(lines, server))


def parts_table(rows: Sequence[LoadRow]) -> Table[Loaded] | None:
    """Queue, compute and what was added at each load of one server group, beside its replay; None without a row."""
    lines = [line for line in lines_of(rows) if line.row.scenario == "server"]
    if not lines:
        return None
    unit = _unit(lines)
    shown: list[Column[Loaded]] = [
        words("backend", lambda line: line.name),
        Column("load/s", lambda line: line.load),
        Column("scheduled/s", lambda line: units.significant(line.point.scheduled_per_s)),
        Column("mean batch", lambda line: ABSENT if line.row.endpoint else units.significant(line.point.mean_batch)),
        _time(f"queue p99 {unit.name}", unit, lambda point: point.queue_p99_ns),
        _time(f"compute p50 {unit.name}", unit, lambda point: point.compute_p50_ns),
        _time(f"compute p99 {unit.name}", unit, lambda point: point.compute_p99_ns),
        _time(f"dispatch p99 {unit.name}", unit, lambda point: point.dispatch_p99_ns),
        _time(f"unseen p99 {unit.name}", unit, lambda point: point.unseen_p99_ns),
        _time(f"added p99 {unit.name}", unit, lambda point: point.added_p99_ns),
        Column("p50 / replay", lambda line: units.significant(line.point.reality_over_replay.get("p50"))),
        Column("p99 / replay", lambda line: units.significant(line.point.reality_over_replay.get("p99"))),
        Column("in the band", _in_band),
    ]
    looked = any(line.point.unseen_p99_ns is not None for line in lines)
    unseen = "Unseen: from the last look that did not see the end of a batch to the one that did. " if looked else ""
    note = (
        "Queue: scheduled instant to the start of the batch. Dispatch: lateness of a start from idle, or of the thread "
        f"that issues batches in flight. {unseen}Added: latency "
        "minus that of the same batches with their recorded compute times and nothing else. Replay: the prediction at "
        "this load from service times of a closed loop; a ratio above 1 means that the service is slower under load. "
        "In the band: replications whose p99 is in replay's 90% band."
    )
    return Table(filled(shown, lines), lines, note=note)


def point_lines(summary: Summary) -> list[Line]:
    """A line for each measured load of each sound row."""
    return [
        about_load(summary, row, {"point": one.point, "clients": one.clients}, columns(LOADED, one, CSV_UNITS))
        for row in summary.loads
        if is_sound(row)
        for one in row.points
    ]


def replay_lines(summary: Summary) -> list[Line]:
    """A line for each simulated load: of the row's own policy, and of every policy of the map."""
    found = []
    for row in summary.loads:
        if not is_sound(row):
            continue
        own = MapCell(
            max_batch=row.max_batch,
            max_delay_ns=row.max_delay_ns,
            rate_per_s=row.predicted_peak_per_s,
            points=row.predicted,
        )
        for cell in (own, *row.map):
            policy: Line = {
                "policy_max_batch": cell.max_batch,
                "policy_max_delay_ms": cell.max_delay_ns / units.MILLISECOND.ns,
                "policy_predicted_peak_per_s": cell.rate_per_s,
            }
            found += [about_load(summary, row, policy, columns(REPLAYED, point, CSV_UNITS)) for point in cell.points]
    return found


def about_load(summary: Summary, row: LoadRow, *figures: Line) -> Line:
    """A whole line about one load case: its conditions, figures, and where they were measured."""
    line = who_loaded(row)
    for part in figures:
        line |= part
    return {**line, "threads": row.threads, **where(summary)}


def who_loaded(row: LoadRow) -> Line:
    """The first columns: the load case."""
    return {
        "load_id": row.load_id,
        "model": row.model,
        "weights": row.weights,
        "backend": row.backend,
        "setting": row.setting,
        "device": row.device,
        "precision": row.precision,
        "sequence_length": row.sequence_length,
        "scenario": row.scenario,
        "bound": row.bounds_text or None,
        "max_batch": row.max_batch,
        "batching": row.batching,
        "max_delay_ms": row.max_delay_ns / units.MILLISECOND.ns,
        "workers": row.workers,
        "in_flight": row.in_flight,
        "method": row.method,
        "prompt_tokens": row.prompt_length,
        "new_tokens": row.new_tokens,
        "length_pairs": len(row.lengths) or None,
    }


def policy_name(row: LoadRow) -> str:
    """Batching, and workers or batches in flight of a row in words."""
    return ", ".join(filter(None, (batching(row), computing(row))))


def _unit(lines: Sequence[Loaded]) -> TimeUnit:
    found = [percentile_ns(line.point, "p50") for line in lines]
    return units.time_unit(value for value in found if value is not None)


def _percentile(name: str, unit: TimeUnit) -> Column[Loaded]:
    return Column(f"{name} {unit.name}", lambda line: percentile_text(line.point.latency.get(name), unit))


def _time(header: str, unit: TimeUnit, of: Callable[[LoadedPoint], float | None]) -> Column[Loaded]:
    return Column(header, lambda line: units.in_unit(of(line.point), unit))


def _over(line: Loaded) -> str:
    point = line.point
    if point.over_share is None:
        return ABSENT
    share = f"{point.over_share:.2%}"
    return share if point.over_low is None else f"{share} [{point.over_low:.2%}, {point.over_high or 0:.2%}]"


def _over_columns(lines: Sequence[Loaded]) -> list[Column[Loaded]]:
    """The share over the bound, or over each of several."""
    bounds = list(dict.fromkeys(one.bound for line in lines for one in line.point.judged))
    if not bounds:
        return [Column("over the bound", _over)]

    def share(line: Loaded, bound: str) -> str:
        found = next((one for one in line.point.judged if one.bound == bound), None)
        if found is None:
            return ABSENT
        ends = "" if found.over_low is None else f" [{found.over_low:.2%}, {found.over_high or 0:.2%}]"
        return f"{found.over_share:.2%}{ends}"

    return [Column(f"over {bound}", partial(share, bound=bound)) for bound in bounds]


def _token_columns(lines: Sequence[Loaded]) -> list[Column[Loaded]]:
    """Times of tokens, where a line has any."""
    found = [line.point.tokens for line in lines if line.point.tokens is not None]
    if not found:
        return []

    def times(of: Literal["ttft", "itl"]) -> list[Column[Loaded]]:
        known = [one.ns for tokens in found if (one := getattr(tokens, of).get("p50")) and one.ns is not None]
        unit = units.time_unit(known)
        shown = {0.5, 0.99, *(bound.quantile for line in lines for bound in line.row.bounds if bound.of == of)}
        return [
            Column(
                f"{of.upper()} {name} {unit.name}",
                partial(lambda line, name: percentile_text(bounded_percentile(line.point, of, name), unit), name=name),
            )
            for name in (f"p{100 * share:g}" for share in sorted(shown))
        ]

    return [
        *times("ttft"),
        *times("itl"),
        Column("tokens/s", lambda line: _tokens_per_s(line.point)),
        Column("useful", lambda line: _useful(line.point)),
    ]


def _tokens_per_s(point: LoadedPoint) -> str:
    return ABSENT if point.tokens is None else units.significant(point.tokens.tokens_per_s)


def _useful(point: LoadedPoint) -> str:
    share = None if point.tokens is None else point.tokens.useful_share
    return ABSENT if share is None else f"{share:.0%}"


def _tokens_note(lines: Sequence[Loaded]) -> str:
    if not any(line.point.tokens for line in lines):
        return ""
    return (
        " TTFT: scheduled instant to the first token; ITL: every time between two tokens of a request; failed requests "
        "have infinite ones. Useful: tokens asked for of those that the batches computed. Goodput: requests within "
        "every bound; within an ITL bound is a request with at most the allowed share of its own ITLs over it."
    )


def _in_band(line: Loaded) -> str:
    return ABSENT if line.point.in_band is None else f"{line.point.in_band} of {line.point.replications}"


def _control_note(explained: Sequence[float]) -> str:
    """On the control variate, where the share of a line is adjusted by it."""
    if not explained:
        return ""
    return (
        " The luck of the schedules is taken out of this share by replay of each of them (control variate), which "
        f"explains {median(explained):.0%} of the variance between replications, median of these lines."
    )


def _loadgen_note(lines: Sequence[Loaded]) -> str:
    """On early stopping, where a line has LoadGen's verdict."""
    if not any(line.point.loadgen for line in lines):
        return ""
    return (
        " LoadGen's rule: its percentile and early stopping, which takes latencies as independent: it is too certain."
    )


def _note(lines: Sequence[Loaded], server: bool) -> str:
    first = lines[0].point
    explained = [line.point.over_explained for line in lines if line.point.over_explained is not None]
    counts = sorted({line.point.replications for line in lines})
    runs = f"{units.either(counts, 'replication')} of about {first.requests // max(1, first.replications):,} requests"
    if not server:
        return (
            f"{runs} a line. Latency from the start of a query: a closed loop has no scheduled instants, so it does "
            "not show queueing. Percentiles: median over replications."
        )
    return (
        f"{runs} a line, each with a seed of its own and an empty queue at its start. Latency from the scheduled "
        "instant. Over the bound: share of all scheduled requests, with one-sided 99% ends by Student's t over "
        "replications; PASS where the upper end is within the allowed share, FAIL where the lower end is above it."
        f"{_control_note(explained)}{_loadgen_note(lines)}{_tokens_note(lines)}"
    )
