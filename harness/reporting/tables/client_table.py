"""What the client of a running service saw beside the latency: payload, connections, the server's report, streams."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from harness.core.schemas import LoadRow, Summary
from harness.core.schemas.client_record import ClientFigures
from harness.reporting import units
from harness.reporting.labels import Line
from harness.reporting.load_groups import is_sound
from harness.reporting.table import Column, Table, filled, words
from harness.reporting.tables.load_points_table import Loaded, about_load, lines_of
from harness.reporting.units import ABSENT, MILLISECOND, TimeUnit

MICROSECOND = units.time_unit([1_000.0])


def client_table(rows: Sequence[LoadRow]) -> Table[Loaded] | None:
    """A line for each load of one group of running services; None for backends in a process of our own."""
    lines = [line for line in lines_of(rows) if line.point.client is not None]
    if not lines:
        return None
    shown: list[Column[Loaded]] = [
        words("service", lambda line: line.name),
        Column("load", lambda line: line.load),
        _time("payload p50", MICROSECOND, lambda found: found.serialise_p50_ns),
        _time("send p50", MICROSECOND, lambda found: found.send_p50_ns),
        _number("request kB", lambda found: found.request_bytes_mean / 1e3),
        _number("answer kB", lambda found: found.answer_bytes_mean / 1e3),
        _number("connections", lambda found: found.connections),
        _number("opened again", lambda found: found.reopened or None),
        _number("waited for a thread", lambda found: found.waited or None),
        _time("server's queue", MILLISECOND, lambda found: found.server_queue_ns),
        _time("server's compute", MILLISECOND, lambda found: found.server_compute_ns),
        _number("server's batch", lambda found: found.server_batch),
        _time(
            "first chunk p50", MILLISECOND, lambda found: math.inf if found.first_p50_infinite else found.first_p50_ns
        ),
        _time(
            "first chunk p99", MILLISECOND, lambda found: math.inf if found.first_p99_infinite else found.first_p99_ns
        ),
        _time("step p50", MILLISECOND, lambda found: found.step_p50_ns),
        _time("step p99", MILLISECOND, lambda found: found.step_p99_ns),
        _number("tokens a step", lambda found: found.tokens_per_step),
        _number("compared", lambda found: found.compared),
        _number("the same text", lambda found: found.equal),
        words("failures", _failures),
    ]
    note = (
        "Payload: making the bytes of a request. Send: handing them to the kernel; gRPC does not show it. Server's "
        "queue, compute and batch: means by its own report. Compared: answers held against the fp32 reference; of "
        "completions those with the same tokens or text as greedy fp32 are counted. A step "
        "is a chunk of a stream: only with one token a step are its times TTFT and ITL."
    )
    return Table(filled(shown, lines), lines, note=note)


def client_lines(summary: Summary) -> list[Line]:
    """A line for each measured load of a running service."""
    return [
        about_load(summary, row, {"endpoint": row.endpoint, "point": point.point}, _columns(point.client))
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


def _failures(line: Loaded) -> str:
    client = line.point.client
    return ", ".join(f"{count} {kind}" for kind, count in client.failures.items()) if client else ABSENT


def _number(header: str, of: Callable[[ClientFigures], float | None]) -> Column[Loaded]:
    def cell(line: Loaded) -> str:
        value = of(line.point.client) if line.point.client else None
        return ABSENT if value is None else units.significant(value)

    return Column(header, cell)


def _time(header: str, unit: TimeUnit, of: Callable[[ClientFigures], float | None]) -> Column[Loaded]:
    def cell(line: Loaded) -> str:
        value = of(line.point.client) if line.point.client else None
        return "∞" if value == math.inf else units.in_unit(value, unit)

    return Column(f"{header} {unit.name}", cell)
