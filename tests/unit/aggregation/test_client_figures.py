"""Figures of streams: failed requests count with an infinite first chunk."""

from __future__ import annotations

from typing import Any

import pytest

from harness.aggregation.client_figures import client_figures
from harness.core.schemas import Clock, Replication
from harness.core.schemas.load_record import ClientFigures

MS = 1_000_000


def figures(failed: tuple[int, ...], first_ms: list[float]) -> ClientFigures:
    """Of one replication of completions: request i starts at i ms, and has two steps 1 ms apart."""
    count = len(first_ms)
    start = [number * MS for number in range(count)]
    first = [at + round(time * MS) if time > 0 else -1 for at, time in zip(start, first_ms, strict=True)]
    unseen = dict.fromkeys(("serialise_ns", "send_ns", "server_queue_ns", "server_compute_ns"), (-1,) * count)
    zero = dict.fromkeys(("request_bytes", "answer_bytes", "connections", "waited", "most_in_flight", "compared"), 0)
    streamed = [at for at in first if at >= 0]
    offsets = [0]
    for at in first:
        offsets.append(offsets[-1] + 2 * (at >= 0))
    client: dict[str, Any] = {
        **unseen,
        **zero,
        "connect_ns": (0,) * count,
        "first_ns": first,
        "equal": 0,
        "steps": {
            "offsets": offsets,
            "at_ns": [time for at in streamed for time in (at, at + MS)],
            "tokens": (1,) * (2 * len(streamed)),
        },
    }
    common = {"load_id": "l", "settings_id": "s", "load_sha256": "d", "artifacts_id": "a", "started_at": "now"}
    record = Replication.model_validate(
        {
            **common,
            "environment_id": None,
            "point": "all",
            "number": 1,
            "scenario": "single-stream",
            "workers": 1,
            "max_batch": 1,
            "max_delay_ns": 0,
            "seed": 1,
            "threads": 1,
            "clock": Clock(name="simulated", resolution_ns=1, overhead_ns=0),
            "requests": count,
            "sizes": (1,) * count,
            "ready_ns": start,
            "start_ns": start,
            "done_ns": [at + 9 * MS for at in start],
            "worker": (0,) * count,
            "failed": failed,
            "client": client,
        }
    )
    results = client_figures([record])
    assert results is not None
    return results


def test_the_first_chunk_of_complete_streams() -> None:
    results = figures((), [3, 1, 2])
    assert (results.first_p50_ns, results.first_p50_infinite, results.first_p99_infinite) == (2 * MS, False, False)
    assert results.step_p50_ns == MS


@pytest.mark.parametrize("broken", [1.0, -1.0])
def test_a_failed_request_has_an_infinite_first_chunk_also_where_its_stream_began(broken: float) -> None:
    results = figures((0,), [broken, 2, 3])
    assert (results.first_p50_ns, results.first_p50_infinite) == (3 * MS, False)
    assert (results.first_p99_ns, results.first_p99_infinite) == (None, True)
    assert results.step_p50_ns == MS


def test_where_every_request_failed_both_are_infinite() -> None:
    results = figures((0, 1), [-1, -1])
    assert (results.first_p50_ns, results.first_p50_infinite) == (None, True)
    assert (results.first_p99_ns, results.first_p99_infinite) == (None, True)
