"""Dates in records: when something was measured, never how long it took."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """This second in UTC, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
