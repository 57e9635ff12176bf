"""Dates in records: when something was measured, never how long it took."""

from __future__ import annotations

from datetime import datetime, timezone


def utc_now() -> str:
    """This second in UTC, as ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")  # noqa: UP017 - the TensorRT side also runs under 3.10
