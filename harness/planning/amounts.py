"""Reads shares and durations of the command line: `0.5%`, `10m` (pure)."""

from __future__ import annotations

import re

from harness.core.errors import UsageError
from harness.core.schemas.plan_record import MOST_S
from harness.core.text import shortened

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def share(text: str) -> float:
    """`0.5%` or `0.005`; UsageError unless it is between 0 and 1."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*(%?)", text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < value < 1:
        raise UsageError(
            f"`{shortened(text, 40)}` is not a share between 0 and 1.",
            "Write it as per cent or as a fraction: 0.5% or 0.005.",
        )
    return value


def duration_s(text: str) -> float:
    """`90s`, `10m` or `1.5h`, in seconds; UsageError for anything else, also for a number without a unit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip())
    seconds = float(match[1]) * SECONDS[match[2]] if match else 0.0
    if not 0 < seconds <= MOST_S:
        problem = "is not a time" if seconds <= 0 else f"is more than {MOST_S / 86_400:g} days"
        raise UsageError(f"`{shortened(text, 40)}` {problem}.", "Write it with its unit: 90s, 10m or 1.5h.")
    return seconds


_DELAYS_NS = {"us": 1e3, "ms": 1e6, "s": 1e9}


def delay_ns(text: str) -> int:
    """`2ms`, `500us` or `0`, in nanoseconds; UsageError for anything else, also for a number without a unit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s)|0", text.strip())
    if not match:
        raise UsageError(f"`{shortened(text, 40)}` is not a delay.", "Write it with its unit: MAX_DELAY=2ms or 500us.")
    return round(float(match[1]) * _DELAYS_NS[match[2]]) if match[1] else 0


def rate(text: str) -> float:
    """Requests a second; UsageError unless it is a number above 0."""
    if (value := _number(text)) <= 0:
        raise UsageError(
            f"A rate of {shortened(text, 40)} requests a second gives no load.", "Write rates above 0: RATES=50,100."
        )
    return value


def price(text: str) -> float:
    """Price of an hour; UsageError unless it is a number above 0."""
    if (value := _number(text)) <= 0:
        raise UsageError(f"`{shortened(text, 40)}` is not the price of an hour.", "Write a number: PRICE=2.50.")
    return value


def _number(text: str) -> float:
    """The number, or 0 for a text that is none or too large."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if value < 1e9 else 0.0
