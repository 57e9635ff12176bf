"""The shortest of several calls, on a clock that a test moves."""

from __future__ import annotations

import pytest

from harness.timing import clock


def test_the_shortest_call_counts_and_the_span_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    durations = iter([50, 30, 40, 5, 1])

    def work() -> None:
        nonlocal now
        now += next(durations)

    monkeypatch.setattr(clock, "now_ns", lambda: now)
    assert clock.shortest_ns(work, 100) == 30  # the third call passes 100
    assert clock.shortest_ns(work, 0, min_calls=2) == 1
