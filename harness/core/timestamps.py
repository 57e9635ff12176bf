"""Dates in records: when something was measured, never how long it took."""

from __future__ import annotations

from datetime import datetime, timezone


def utc_now() -> str:
    """This second in UTC, as ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")  # noqa: UP017 - the TensorRT side also runs under 3.10


def seconds_between(earlier: str, later: str) -> float:
    """From one date to another; negative where they stand the other way round."""
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def since_1970_s(date: str) -> float:
    """Seconds from the start of 1970 in UTC to a date, as other programs count time."""
    return datetime.fromisoformat(date).timestamp()
