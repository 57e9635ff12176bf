"""Reads shares and durations of the command line: `0.5%`, `10m` (pure)."""

from __future__ import annotations

import re

from harness.core.errors import UsageError
from harness.core.schemas.plan_record import MOST_S
from harness.core.text import shortened

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def share(text: str) -> float:
    """`0.5%` or `0.005`; UsageError unless it is between 0 and 1."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*(%?)", text.strip())
    value = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0 < value < 1:
        raise UsageError(
            f"`{shortened(text, 40)}` is not a share between 0 and 1.",
            "Write it as per cent or as a fraction: 0.5% or 0.005.",
        )
    return value


def duration_s(text: str) -> float:
    """`90s`, `10m` or `1.5h`, in seconds; UsageError for anything else, also for a number without a unit."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip())
    seconds = float(found[1]) * SECONDS[found[2]] if found else 0.0
    if not 0 < seconds <= MOST_S:
        what = "is not a time" if seconds <= 0 else f"is more than {MOST_S / 86_400:g} days"
        raise UsageError(f"`{shortened(text, 40)}` {what}.", "Write it with its unit: 90s, 10m or 1.5h.")
    return seconds
