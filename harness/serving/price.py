"""Cost of requests from the price of an hour (pure)."""

from __future__ import annotations

import math

from harness.core.errors import UsageError

MILLION = 1_000_000
HOUR_S = 3600


def per_million(price_per_hour: float, rate_per_s: float) -> float:
    """Price of a million requests at this rate, in the currency of the price. UsageError for a price that is none."""
    if not (math.isfinite(price_per_hour) and price_per_hour >= 0):
        raise UsageError(f"{price_per_hour:g} is not the price of an hour.", "Write a number: PRICE=2.50.")
    if not (math.isfinite(rate_per_s) and rate_per_s > 0):
        raise UsageError("Without a rate a request has no price.", "Ask for a rate above 0.")
    return price_per_hour / (rate_per_s * HOUR_S) * MILLION
