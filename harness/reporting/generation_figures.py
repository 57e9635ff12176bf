"""The figures of a row of generation, each declared once, as those of other rows in figures.py (pure).

Times are in nanoseconds, sizes in bytes, energies in joules. Definitions: docs/generation.md.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.core.schemas import GenerationRow, Interval, TokenTimes
from harness.reporting.figures import Figure, Value

Times = Callable[[GenerationRow], TokenTimes | None]


def _times(key: str, times: Times, words: str) -> tuple[Figure[GenerationRow], ...]:
    """p50, p95, p99 and the largest of one kind of time."""

    def part(name: str) -> Callable[[GenerationRow], Value]:
        return lambda row: getattr(times(row), name, None)

    def over_processes(row: GenerationRow) -> Interval | None:
        found = times(row)
        return None if found is None else found.ci95

    def over_requests(name: str) -> Callable[[GenerationRow], Interval | None]:
        def interval(row: GenerationRow) -> Interval | None:
            found = times(row)
            return None if found is None else found.requests_ci95.get(name)

        return interval

    return (
        Figure(f"{key}_p50", "time", f"{words}: median of the process medians.", part("p50"), over_processes),
        Figure(f"{key}_p95", "time", f"{words}: 95th percentile.", part("p95"), over_requests("p95")),
        Figure(f"{key}_p99", "time", f"{words}: 99th percentile.", part("p99"), over_requests("p99")),
        Figure(f"{key}_max", "time", f"{words}: the longest.", part("max")),
        Figure(f"{key}_values", "count", f"{words}: number of values.", part("n")),
    )


def _rate(key: str, name: str, doc: str) -> Figure[GenerationRow]:
    return Figure(key, "rate", doc, lambda row: getattr(row.rates, name, None))


def _cache(key: str, name: str, doc: str) -> Figure[GenerationRow]:
    return Figure(key, "bytes", doc, lambda row: getattr(row.cache, name, None))


def _quarter(number: int) -> Figure[GenerationRow]:
    def of(row: GenerationRow) -> Value:
        quarters = None if row.context is None else row.context.quarters
        return None if quarters is None else quarters[number]

    return Figure(f"itl_quarter_{number + 1}", "time", f"Mean ITL in quarter {number + 1} of the output.", of)


GENERATION: tuple[Figure[GenerationRow], ...] = (
    *_times("ttft", lambda row: row.ttft_ns, "Time to the first token"),
    *_times("itl", lambda row: row.itl_ns, "Time between tokens"),
    Figure(
        "tpot",
        "time",
        "Time per token after the first: (t_N - t_1) / (N - 1) of a request, median of the process medians.",
        lambda row: getattr(row.tpot_ns, "p50", None),
        lambda row: getattr(row.tpot_ns, "ci95", None),
    ),
    *map(_quarter, range(4)),
    Figure(
        "itl_slope",
        "time",
        "Growth of the ITL with each 1,000 tokens of context.",
        lambda row: getattr(row.context, "slope_ns_per_1000", None),
        lambda row: getattr(row.context, "slope_ci95", None),
    ),
    Figure(
        "tokens",
        "rate",
        "All tokens of timed requests by the time from the first prompt to the last token.",
        lambda row: getattr(row.rates, "total", None),
        lambda row: getattr(row.rates, "total_ci95", None),
    ),
    _rate("sequence_tokens", "per_sequence", "Tokens of one sequence after its first one."),
    _rate("decode_tokens", "decode", "The same of the whole batch."),
    _rate("prefill_tokens", "prefill", "Prompt tokens of a batch by the time to its first tokens."),
    Figure(
        "cache",
        "bytes",
        "Keys and values after the last token, measured.",
        lambda row: getattr(row.cache, "measured", None),
    ),
    Figure("cache_formula", "bytes", "The same, computed.", lambda row: getattr(row.cache, "formula", None)),
    Figure(
        "memory_roof", "share", "Share of the best measured copy that a decode step reads.", lambda row: row.roof_share
    ),
    Figure(
        "energy_per_token",
        "energy",
        "Of the GPU alone, its idle power subtracted.",
        lambda row: getattr(row.energy, "joules_per_token", None),
    ),
    Figure(
        "forced_relative_l2",
        "ratio",
        "Distance of logits from fp32 eager with the same inputs, the worst step.",
        lambda row: getattr(row.parity, "relative_l2", None),
    ),
    Figure(
        "first_difference",
        "count",
        "Earliest token that differs from fp32 eager's.",
        lambda row: getattr(row.parity, "first_difference", None),
    ),
    Figure(
        "generation_peak_memory", "bytes", "Peak resident memory of the case's process.", lambda row: row.memory_bytes
    ),
)
"""In the order of the CSV file."""

LIMITS = {
    "tokens": "tokens_per_s",
    "sequence_tokens": "sequence_tokens_per_s",
    "decode_tokens": "decode_tokens_per_s",
    "prefill_tokens": "prefill_tokens_per_s",
}
"""Names of thresholds where they are not the figure's key."""
