"""Dates in records: the time of a measurement, never its duration."""

from __future__ import annotations

from datetime import datetime, timezone


def utc_now() -> str:
    """The current second in UTC, as ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")  # noqa: UP017 - the TensorRT side also runs under 3.10


def seconds_between(earlier: str, later: str) -> float:
    """Seconds from the earlier date to the later; negative where they are in the opposite order."""
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def since_1970_s(date: str) -> float:
    """Seconds from the start of 1970 in UTC to a date, as other programs count time."""
    return datetime.fromisoformat(date).timestamp()
