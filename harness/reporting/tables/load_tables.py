"""The tables of load: measured loads and where their time went, highest loads and costs, client, guards (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Literal

from harness.core import units
from harness.core.schemas import JudgedBound, LoadedPoint, LoadRow, MapCell, Summary
from harness.core.schemas.load_record import ClientFigures
from harness.core.units import ABSENT, MICROSECOND, MILLISECOND, TimeUnit
from harness.reporting.csv_identity import Line, full_line
from harness.reporting.figures import CSV_UNITS, LOAD, LOADED, REPLAYED, columns
from harness.reporting.load_groups import (
    batching_text,
    bounded_percentile,
    is_sound,
    knee_of,
    load_names,
    percentile_ns,
    percentile_text,
    ranked_loads,
    workers_text,
)
from harness.reporting.table import Column, Table, explained, explained_table, filled_columns, word_column
from harness.serving.load_verdict import LATE_SHARE


@dataclass(frozen=True)
class LoadLine:
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


def lines_of(rows: Sequence[LoadRow]) -> list[LoadLine]:
    """Every point of every row with sound figures, rows in the order of ranked."""
    called = load_names(rows)
    return [LoadLine(row, point, called[row.load_id]) for row in ranked_loads(rows) for point in row.points]


def points_table(rows: Sequence[LoadRow]) -> Table[LoadLine] | None:
    """Latency, verdict and goodput of each load of one group; None without a sound row."""
    lines = lines_of(rows)
    if not lines:
        return None
    unit = _unit(lines)
    server = rows[0].scenario == "server"
    batch = rows[0].scenario in ("multi-stream", "offline")
    shown: list[Column[LoadLine]] = [
        word_column("backend", lambda line: line.name),
        Column("load/s" if server else "load", lambda line: line.load),
        word_column("verdict", lambda line: f"**{line.point.verdict}**" if line.point.verdict else ABSENT),
        Column("× predicted", lambda line: units.significant(line.point.factor)),
        Column("batch", lambda line: str(line.row.max_batch) if batch else ABSENT),
        Column("achieved/s", lambda line: units.significant(line.point.achieved_per_s)),
        Column("samples/s", lambda line: units.significant(line.point.samples_per_s) if batch else ABSENT),
        _percentile("p50", unit),
        _percentile("p90", unit),
        _percentile("p99", unit),
        *_token_columns(lines),
        *_over_columns(lines),
        word_column("LoadGen's rule", lambda line: line.point.loadgen or ABSENT),
        Column(f"LoadGen's estimate {unit.name}", lambda line: units.in_unit(line.point.loadgen_estimate_ns, unit)),
        Column("goodput/s", lambda line: units.significant(line.point.goodput_per_s)),
        Column("failed", lambda line: str(line.point.failed) if line.point.failed else ABSENT),
    ]
    filled = filled_columns(shown, lines)
    return Table(filled, lines, note=f"{_note(lines, server)} {explained(filled, _point_notes(lines, server))}")


def parts_table(rows: Sequence[LoadRow]) -> Table[LoadLine] | None:
    """Queue, compute and what was added at each load of one server group, beside its replay; None without a row."""
    lines = [line for line in lines_of(rows) if line.row.scenario == "server"]
    if not lines:
        return None
    unit = _unit(lines)
    shown: list[Column[LoadLine]] = [
        word_column("backend", lambda line: line.name),
        Column("load/s", lambda line: line.load),
        Column("scheduled/s", lambda line: units.significant(line.point.scheduled_per_s)),
        Column("mean batch", lambda line: ABSENT if line.row.endpoint else units.significant(line.point.mean_batch)),
        _time("queue p99", unit, "load_queue_p99"),
        _time("compute p50", unit, "load_compute_p50"),
        _time("compute p99", unit, "load_compute_p99"),
        _time("dispatch p99", unit, "load_dispatch_p99"),
        _time("unseen p99", unit, "load_unseen_p99"),
        _time("added p99", unit, "load_added_p99"),
        Column("p50 / replay", lambda line: units.significant(_figure(line, "load_reality_by_replay_p50"))),
        Column("p99 / replay", lambda line: units.significant(_figure(line, "load_reality_by_replay_p99"))),
        Column("in the band", _band_text),
    ]
    return explained_table(shown, lines, _PARTS)


_PARTS = {
    "scheduled/s": "Scheduled: rate of the drawn schedules.",
    "queue": "Queue: scheduled instant to the start of the batch.",
    "dispatch": "Dispatch: lateness of a start from idle, or of the thread that issues batches in flight.",
    "unseen": "Unseen: from the last look that did not see the end of a batch to the one that did.",
    "added": "Added: latency minus that of the same batches with their recorded compute times and nothing else.",
    "p50 / replay": "Replay: the prediction at this load from service times of a closed loop; a ratio above 1 means "
    "that the service is slower under load.",
    "in the band": "In the band: replications whose p99 is in replay's 90% band.",
}
"""By the beginning of a header."""


def point_lines(summary: Summary) -> list[Line]:
    """A line for each measured load of each sound row."""
    return [
        load_line(summary, row, {"point": point.point, "clients": point.clients}, columns(LOADED, point, CSV_UNITS))
        for row in summary.loads
        if is_sound(row)
        for point in row.points
    ]


def replay_lines(summary: Summary) -> list[Line]:
    """A line for each simulated load: of the row's own policy, and of every policy of the map."""
    lines = []
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
            lines += [load_line(summary, row, policy, columns(REPLAYED, point, CSV_UNITS)) for point in cell.points]
    return lines


def load_line(summary: Summary, row: LoadRow, *figures: Line) -> Line:
    """A whole line about one load case: its conditions, figures, and where they were measured."""
    return full_line(summary, load_identity_columns(row), figures, row.threads)


def load_identity_columns(row: LoadRow) -> Line:
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
    return ", ".join(filter(None, (batching_text(row), workers_text(row))))


def _unit(lines: Sequence[LoadLine]) -> TimeUnit:
    times = [percentile_ns(line.point, "p50") for line in lines]
    return units.time_unit(value for value in times if value is not None)


def _percentile(name: str, unit: TimeUnit) -> Column[LoadLine]:
    return Column(f"{name} {unit.name}", lambda line: percentile_text(line.point.latency.get(name), unit))


def _time(name: str, unit: TimeUnit, key: str) -> Column[LoadLine]:
    return Column(f"{name} {unit.name}", lambda line: units.in_unit(_figure(line, key), unit))


_FIGURES = {figure.key: figure for figure in LOADED}


def _figure(line: LoadLine, key: str) -> float | None:
    """The value of a figure of figures.py."""
    return _FIGURES[key].number(line.point)


def _over(counted: LoadedPoint | JudgedBound | None) -> str:
    """The share over a bound with its interval."""
    if counted is None or counted.over_share is None:
        return ABSENT
    ends = "" if counted.over_low is None else f" [{counted.over_low:.2%}, {counted.over_high or 0:.2%}]"
    return f"{counted.over_share:.2%}{ends}"


def _over_columns(lines: Sequence[LoadLine]) -> list[Column[LoadLine]]:
    """The share over the bound, or over each of several."""
    bounds = list(dict.fromkeys(judged.bound for line in lines for judged in line.point.judged))
    if not bounds:
        return [Column("over the bound", lambda line: _over(line.point))]

    def share(line: LoadLine, bound: str) -> str:
        return _over(next((judged for judged in line.point.judged if judged.bound == bound), None))

    return [Column(f"over {bound}", partial(share, bound=bound)) for bound in bounds]


def _token_columns(lines: Sequence[LoadLine]) -> list[Column[LoadLine]]:
    """Times of tokens, where a line has any."""
    tokens_of = [line.point.tokens for line in lines if line.point.tokens is not None]
    if not tokens_of:
        return []

    def times(of: Literal["ttft", "itl"]) -> list[Column[LoadLine]]:
        known = [
            percentile.ns
            for tokens in tokens_of
            if (percentile := getattr(tokens, of).get("p50")) and percentile.ns is not None
        ]
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


def _band_text(line: LoadLine) -> str:
    return ABSENT if line.point.in_band is None else f"{line.point.in_band} of {line.point.replications}"


def _point_notes(lines: Sequence[LoadLine], server: bool) -> dict[str, str]:
    """The explanations of the columns of points_table, by the beginning of the header."""
    explained_shares = [line.point.over_explained for line in lines if line.point.over_explained is not None]
    over = (
        "Over the bound: share of all scheduled requests, with one-sided 99% ends by Student's t over replications, or "
        "by the binomial limits of all requests where these are further out; PASS where the upper end is within the "
        "allowed share, FAIL where the lower end is above it."
    )
    if explained_shares:
        over += (
            " The luck of the schedules is taken out of this share by replay of each of them (control variate), which "
            f"explains {median(explained_shares):.0%} of the variance between replications, median of these lines."
        )
    several = max(len(line.row.bounds) for line in lines) > 1
    good = f"within {'every' if several else 'the'} bound, a second of the {'schedule' if server else 'run'}"
    if any(bound.of == "itl" for line in lines for bound in line.row.bounds):
        good += "; within an ITL bound is one with at most the allowed share of its own ITLs over it"
    return {
        "achieved": "Achieved: completed requests a second, until the last completion.",
        "p50": "Percentiles: median over replications, with its 95% interval.",
        "TTFT": "TTFT: scheduled instant to the first token; a failed request has an infinite one.",
        "ITL": "ITL: every time between two tokens of a request; a failed request has an infinite one.",
        "useful": "Useful: tokens asked for of those that the batches computed.",
        "over": over,
        "LoadGen's rule": "LoadGen's rule: its percentile and early stopping, which takes latencies as independent: it "
        "is too certain.",
        "LoadGen's estimate": "LoadGen's estimate: an upper limit of the percentile that it reports.",
        "goodput": f"Goodput: requests {good}.",
    }


def _note(lines: Sequence[LoadLine], server: bool) -> str:
    counts = sorted({line.point.replications for line in lines})
    requests = [line.point.requests // max(1, line.point.replications) for line in lines]
    runs = f"{units.either(counts, 'replication')} of about {_range_text(min(requests), max(requests))} requests"
    if not server:
        return (
            f"{runs} a line. Latency from the start of a query: a closed loop has no scheduled instants, so it does "
            "not show queueing."
        )
    return (
        f"{runs} a line, each with a seed of its own and an empty queue at its start. Latency from the scheduled "
        f"instant.{_late_note(lines)}"
    )


def _range_text(least: int, most: int) -> str:
    """`2,000`, or `50 to 2,000` where the ends differ by more than a tenth, as random schedules do not."""
    return f"{least:,} to {most:,}" if most > 1.1 * least else f"{least:,}"


def _late_note(lines: Sequence[LoadLine]) -> str:
    """On loads that were not offered as scheduled, where a line is one."""
    if all(line.point.verdict != "LOAD NOT REACHED" for line in lines):
        return ""
    return (
        f" LOAD NOT REACHED: requests were dispatched late, the dispatch p99 is above {LATE_SHARE:.0%} of the bound, "
        "so nothing is decided about this load, whatever was achieved."
    )


def cheapest_table(rows: Sequence[LoadRow]) -> Table[LoadRow] | None:
    """The server rows of one group, the cheapest within the bound first; None without a sound row.

    Bold: clearly the first, which is where its highest PASS is not below the lowest FAIL of any other row.
    """
    lines = [row for row in ranked_loads(rows) if row.scenario == "server"]
    if not lines:
        return None
    called, first = load_names(lines, policy=False), lines[0]
    clear = is_clear(lines)

    def name(row: LoadRow) -> str:
        return f"**{called[row.load_id]}**" if clear and row is first else called[row.load_id]

    shown: list[Column[LoadRow]] = [
        word_column("backend", name),
        word_column("batching", policy_name),
        Column("peak/s, verified", peak_text),
        Column("predicted/s", _predicted),
        Column("knee/s", lambda row: units.significant(knee_of(row))),
        Column("capacity/s", lambda row: units.significant(row.capacity_per_s)),
        Column("price an hour", lambda row: _money(row.price_per_hour)),
        Column("per million requests", lambda row: _money(row.cost_per_million)),
        Column("J/request", lambda row: units.significant(row.joules_per_request)),
    ]
    idle = sorted({f"{row.idle_w:.0f} W" for row in lines if row.idle_w is not None})
    notes = _PEAKS | {"J/request": f"Energy: the GPU's counter, less {' or '.join(idle)} idle."}
    return explained_table(shown, lines, notes)


_PEAKS = {
    "peak/s": "Peak: [highest PASS, lowest FAIL] of the measured loads.",
    "predicted/s": "Predicted: replay of the measured service times, with its 95% interval.",
    "knee/s": "Knee: the load with the largest rate by mean latency.",
    "capacity/s": "Capacity: all workers always busy.",
    "per million": "A million requests at the highest PASS, in the currency of PRICE.",
}
"""By the beginning of a header."""


def is_clear(lines: Sequence[LoadRow]) -> bool:
    """Whether the first of some ranked rows has a peak that no other can reach: its PASS is at or above their FAILs."""
    first, others = lines[0], lines[1:]
    if not others or first.peak_pass_per_s is None or len({row.price_per_hour for row in lines}) > 1:
        return False
    return all(row.peak_fail_per_s is not None and row.peak_fail_per_s <= first.peak_pass_per_s for row in others)


def peak_text(row: LoadRow) -> str:
    """`[59.6, 72.8]`; where one end was not reached, its word."""
    if not row.points:
        return "no load meets it"
    if row.peak_pass_per_s is None and row.peak_fail_per_s is None:
        return "not verified"
    if row.peak_pass_per_s is None:
        return f"below {units.significant(row.peak_fail_per_s)}"
    if row.peak_fail_per_s is None:
        return f"{units.significant(row.peak_pass_per_s)} or more"
    return f"[{units.significant(row.peak_pass_per_s)}, {units.significant(row.peak_fail_per_s)}]"


def load_lines(summary: Summary) -> list[Line]:
    """A line for each load case with sound figures."""
    return [load_line(summary, row, columns(LOAD, row, CSV_UNITS)) for row in summary.loads if is_sound(row)]


def _predicted(row: LoadRow) -> str:
    if row.predicted_peak_per_s is None:
        return "no load" if row.predicted else ABSENT
    ends = f" {units.interval(row.predicted_interval)}" if row.predicted_interval else ""
    return f"{units.significant(row.predicted_peak_per_s)}{ends}"


def _money(value: float | None) -> str:
    return ABSENT if value is None else units.significant(value)


def client_table(rows: Sequence[LoadRow]) -> Table[LoadLine] | None:
    """A line for each load of one group of running services; None for backends in a process of our own."""
    lines = [line for line in lines_of(rows) if line.point.client is not None]
    if not lines:
        return None
    shown: list[Column[LoadLine]] = [
        word_column("service", lambda line: line.name),
        Column("load", lambda line: line.load),
        _client_time("payload p50", MICROSECOND, lambda client: client.serialise_p50_ns),
        _client_time("send p50", MICROSECOND, lambda client: client.send_p50_ns),
        _number("request kB", lambda client: client.request_bytes_mean / 1e3),
        _number("answer kB", lambda client: client.answer_bytes_mean / 1e3),
        _number("connections", lambda client: client.connections),
        _number("opened again", lambda client: client.reopened or None),
        _number("waited for a thread", lambda client: client.waited or None),
        _client_time("server's queue", MILLISECOND, lambda client: client.server_queue_ns),
        _client_time("server's compute", MILLISECOND, lambda client: client.server_compute_ns),
        _number("server's batch", lambda client: client.server_batch),
        _client_time(
            "first chunk p50",
            MILLISECOND,
            lambda client: math.inf if client.first_p50_infinite else client.first_p50_ns,
        ),
        _client_time(
            "first chunk p99",
            MILLISECOND,
            lambda client: math.inf if client.first_p99_infinite else client.first_p99_ns,
        ),
        _client_time("step p50", MILLISECOND, lambda client: client.step_p50_ns),
        _client_time("step p99", MILLISECOND, lambda client: client.step_p99_ns),
        _number("tokens a step", lambda client: client.tokens_per_step),
        _number("compared", lambda client: client.compared),
        _number("the same text", lambda client: client.equal),
        word_column("failures", _failures),
    ]
    return explained_table(shown, lines, _CLIENT)


_CLIENT = {
    "payload": "Payload: making the bytes of a request.",
    "send": "Send: handing them to the kernel; gRPC does not show it.",
    "server's": "Server's queue, compute and batch: means by its own report.",
    "compared": "Compared: answers held against the fp32 reference.",
    "the same text": "The same text: completions with the tokens or text of greedy fp32.",
    "step": "A step is a chunk of a stream: only with one token a step are its times TTFT and ITL.",
}
"""By the beginning of a header."""


def client_lines(summary: Summary) -> list[Line]:
    """A line for each measured load of a running service."""
    return [
        load_line(summary, row, {"endpoint": row.endpoint, "point": point.point}, _columns(point.client))
        for row in summary.loads
        if is_sound(row)
        for point in row.points
        if point.client is not None
    ]


def _columns(client: ClientFigures) -> Line:
    line: Line = {
        name.replace("_ns", "_ms"): value / MILLISECOND.ns if name.endswith("_ns") and value is not None else value
        for name, value in client
        if name != "failures"
    }
    return {**line, "failures": "; ".join(f"{kind}: {count}" for kind, count in client.failures.items())}


def _failures(line: LoadLine) -> str:
    client = line.point.client
    return ", ".join(f"{count} {kind}" for kind, count in client.failures.items()) if client else ABSENT


def _number(header: str, of: Callable[[ClientFigures], float | None]) -> Column[LoadLine]:
    def cell(line: LoadLine) -> str:
        value = of(line.point.client) if line.point.client else None
        return ABSENT if value is None else units.significant(value)

    return Column(header, cell)


def _client_time(header: str, unit: TimeUnit, of: Callable[[ClientFigures], float | None]) -> Column[LoadLine]:
    def cell(line: LoadLine) -> str:
        value = of(line.point.client) if line.point.client else None
        return "∞" if value == math.inf else units.in_unit(value, unit)

    return Column(f"{header} {unit.name}", cell)


GUARDS = ("repeat-input", "other-order", "other-seed")


def guards_table(rows: Sequence[LoadRow]) -> Table[LoadRow] | None:
    """Each row's ratios with their intervals; None where no row has any."""
    lines = [row for row in ranked_loads(rows) if row.guards]
    if not lines:
        return None
    called = load_names(lines)
    shown = [word_column("backend", lambda row: called[row.load_id]), *map(_column, GUARDS)]
    note = (
        "Times divided by those of usual requests, with 95% intervals: the same input again and again, another order "
        "of the inputs, schedules of another seed. Far below 1, work was skipped."
    )
    return Table(filled_columns(shown, lines), lines, note=note)


def _column(name: str) -> Column[LoadRow]:
    def cell(row: LoadRow) -> str:
        measured = next((guard for guard in row.guards if guard.name == name), None)
        if measured is None:
            return ABSENT
        ends = f" {units.interval(measured.interval)}" if measured.interval else ""
        return f"{units.significant(measured.ratio)}{ends}"

    return Column(name, cell)
