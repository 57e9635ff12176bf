"""Groups load rows that may be compared, names them, and orders them (pure).

Rows of one group serve the same model in the same scenario under the same bound; they differ in backend, precision,
batching, and workers or batches in flight. A closed loop has no scheduled instants, so it never shares a table with the
server scenario. Nor does a running service share one with backends in a process of our own: its figures contain a
network and a client.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from harness.core import units
from harness.core.schemas import LoadedPoint, LoadPercentile, LoadRow, Scenario
from harness.core.schemas.load_record import Bounded
from harness.serving.peak_prediction import knee

SCENARIOS: Mapping[Scenario, str] = {
    "server": "Server: Poisson arrivals",
    "single-stream": "Single-stream: the next request when the previous is done",
    "multi-stream": "Multi-stream: queries of several samples, one after the other",
    "concurrency": "Closed loop: several clients, each with one request in flight",
    "offline": "Offline: all samples at once",
}
"""Scenario → its heading, in the order of the report."""


class LoadGroup(NamedTuple):
    """Model, scenario, bound as text (empty without one), device, weights and sequence length; service: of running
    services; bits: `int4` where the weights of the model's file have 4 bits, which are not ranked with others."""

    model: str
    scenario: Scenario
    bound: str
    device: str
    weights: str
    sequence_length: int | None
    service: bool = False
    bits: str = ""


def group_of(row: LoadRow) -> LoadGroup:
    """The group that a row belongs to."""
    bound = row.bounds_text
    service = row.endpoint is not None
    bits = row.precision if row.precision == "int4" else ""
    return LoadGroup(row.model, row.scenario, bound, row.device, row.weights, row.sequence_length, service, bits)


def by_group(rows: Iterable[LoadRow]) -> list[tuple[LoadGroup, list[LoadRow]]]:
    """Measured rows by group: groups of a model side by side, in the plan's order; scenarios as in SCENARIOS."""
    groups: dict[LoadGroup, list[LoadRow]] = {}
    for row in rows:
        if row.status == "measured":
            groups.setdefault(group_of(row), []).append(row)
    models, order = list(dict.fromkeys(key.model for key in groups)), list(SCENARIOS)
    return sorted(groups.items(), key=lambda other: (models.index(other[0].model), order.index(other[0].scenario)))


def is_sound(row: LoadRow) -> bool:
    """True where the row was measured and its figures count."""
    return row.status == "measured" and row.void is None


def batching_text(row: LoadRow) -> str:
    """`none`, `up to 8`, `up to 8, waits 2 ms`: largest batch and largest delay; multi-stream: samples of a query.

    Of generation `up to 8, static` or `continuous`. Of a running service its own, which is unknown.
    """
    if row.endpoint is not None:
        return "its own"
    if row.max_batch == 1:
        return "none"
    delay = f", waits {delay_text(row.max_delay_ns)}" if row.max_delay_ns else ""
    return f"up to {row.max_batch}{delay}{f', {row.batching}' if row.new_tokens is not None else ''}"


def workers_text(row: LoadRow) -> str:
    """`2 workers`, `2 in flight`; empty for one worker."""
    if row.in_flight is not None:
        return f"{row.in_flight} in flight"
    return units.count(row.workers, "worker") if row.workers > 1 else ""


def delay_text(delay_ns: float) -> str:
    """`2 ms`, as a user writes a delay."""
    return f"{delay_ns / units.MILLISECOND.ns:g} ms"


def load_names(rows: Sequence[LoadRow], policy: bool = True) -> dict[str, str]:
    """load_id → backend and precision, with the setting where rows differ in it; policy: batching and workers too."""
    settings = {row.setting for row in rows} != {"default"}
    batches, workers = (policy and len(set(map(of, rows))) > 1 for of in (batching_text, workers_text))
    workers = policy and (workers or any(row.in_flight for row in rows))
    by_id = {}
    for row in rows:
        parts = [
            f"{row.backend} {row.precision}" if row.endpoint is None else service_name(row.endpoint),
            lengths_text(row),
            row.setting if settings and row.setting != "default" else "",
            ("no batching" if row.max_batch == 1 else f"batch {batching_text(row)}") if batches else "",
            workers_text(row) or "1 worker" if workers else "",
        ]
        by_id[row.load_id] = ", ".join(part for part in parts if part)
    return by_id


def lengths_text(row: LoadRow) -> str:
    """`128 + 64 tokens` of prompt and output; of a distribution `16 to 128 + 8 to 64 tokens`. Empty for arrays."""
    if row.prompt_length is None:
        return ""
    parts = [f"{row.prompt_length}", f"{row.new_tokens}"]
    if row.lengths:
        parts = [_span([pair[place] for pair in row.lengths]) for place in (0, 1)]
    return f"{' + '.join(parts)} tokens"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"


def deployment(row: LoadRow) -> str:
    """Backend, or name of the running service: what has a colour of its own."""
    return row.backend if row.endpoint is None else service_name(row.endpoint)


def service_name(endpoint: str) -> str:
    """`kserve+http 127.0.0.1:8000`, of an address."""
    scheme, _, rest = endpoint.partition("://")
    return f"{scheme} {rest.partition('/')[0]}"


def highest_load(row: LoadRow) -> float:
    """The rank of a row in its group: the verified peak of a server, else samples a second; 0 without either."""
    if row.scenario == "server":
        return row.peak_pass_per_s or 0.0
    return max((point.samples_per_s for point in row.points), default=0.0)


def ranked_loads(rows: Iterable[LoadRow]) -> list[LoadRow]:
    """Sound rows, the cheapest first where prices are known, else the highest load first, verified before predicted."""
    sound = [row for row in rows if is_sound(row)]

    def order(row: LoadRow) -> tuple[float, float, float]:
        cost = math.inf if row.cost_per_million is None else row.cost_per_million
        return (cost, -highest_load(row), -(row.predicted_peak_per_s or 0.0))

    return sorted(sound, key=order)


def single_point(row: LoadRow) -> LoadedPoint | None:
    """The point of a row that has only one."""
    return row.points[0] if len(row.points) == 1 else None


def peak_point(row: LoadRow) -> LoadedPoint | None:
    """The only point of a row, or the point of the highest load that passed."""
    at_peak = (
        point for point in row.points if point.asked_per_s is not None and point.asked_per_s == row.peak_pass_per_s
    )
    return single_point(row) or next(at_peak, None)


def knee_of(row: LoadRow) -> float | None:
    """The knee of the replayed curve, per second; None where the curve does not reach it."""
    return knee([point.rate_per_s for point in row.predicted], [point.mean_ns for point in row.predicted])


def percentile_ns(point: LoadedPoint, name: str) -> float | None:
    """A percentile of a load's latency in ns, as infinite_ns."""
    return infinite_ns(point.latency.get(name))


def bounded_percentile(point: LoadedPoint, of: Bounded, name: str) -> LoadPercentile | None:
    """A percentile of the latency, TTFT or ITL; None where it is unknown."""
    if of == "latency":
        return point.latency.get(name)
    return None if point.tokens is None else (point.tokens.ttft if of == "ttft" else point.tokens.itl).get(name)


def infinite_ns(percentile: LoadPercentile | None) -> float | None:
    """The value of a percentile in ns: infinite where failed requests reach it, None where it is withheld."""
    if percentile is None:
        return None
    return math.inf if percentile.infinite else percentile.ns


def of_enough(point: LoadedPoint, p99: float | None) -> float | None:
    """A p99 of a load's requests or batches; None where that of the latency is withheld, because they are too few."""
    return None if is_withheld(point.latency.get("p99")) else p99


def is_withheld(percentile: LoadPercentile | None) -> bool:
    """Whether a percentile has no value because its requests are too few."""
    return percentile is not None and percentile.ns is None and not percentile.infinite


def percentile_text(percentile: LoadPercentile | None, unit: units.TimeUnit) -> str:
    """A percentile with its interval over replications."""
    if percentile is None or is_withheld(percentile):
        return units.ABSENT
    if percentile.ns is None or percentile.infinite:
        return "∞"
    ends = f" {units.interval(percentile.interval, unit.ns)}" if percentile.interval else ""
    return f"{units.in_unit(percentile.ns, unit)}{ends}"
