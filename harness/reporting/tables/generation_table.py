"""Generation: one table a model, and its lines for CSV (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.aggregation.flags import is_calibration
from harness.core import units
from harness.core.schemas import GenerationRow, Interval, Summary, TokenTimes
from harness.core.units import ABSENT, MILLISECOND, VOID, significant
from harness.reporting.csv_identity import Line, case_columns, run_columns
from harness.reporting.figures import CSV_UNITS, GENERATION, columns
from harness.reporting.ranking import USUAL
from harness.reporting.table import Column, Table, filled_columns, word_column


def by_model(rows: Iterable[GenerationRow]) -> dict[str, list[GenerationRow]]:
    """Measured rows that compute something, by model in the plan's order; each sorted by shape, the fastest first."""
    rows_of: dict[str, list[GenerationRow]] = {}
    for row in rows:
        if row.status == "measured" and not is_calibration(row):
            rows_of.setdefault(row.model, []).append(row)
    return {model: sorted(model_rows, key=_order) for model, model_rows in rows_of.items()}


def generation_row_name(row: GenerationRow) -> str:
    """Backend and precision, with a setting other than the usual."""
    return f"{row.backend} {row.precision}" + ("" if row.setting == USUAL else f" ({row.setting})")


def shape(row: GenerationRow) -> tuple[int, int, int]:
    """Prompt length, new tokens, batch: only rows of one shape are compared."""
    return row.prompt_length, row.new_tokens, row.batch_size


def generation_table(rows: Sequence[GenerationRow]) -> Table[GenerationRow]:
    """The table of one model's rows (by_model)."""
    several = any(row.setting != USUAL for row in rows)
    shown: list[Column[GenerationRow]] = [
        word_column("backend", lambda row: row.backend),
        word_column("precision", lambda row: row.precision),
        *([word_column("setting", lambda row: row.setting)] if several else []),
        Column("batch", lambda row: str(row.batch_size)),
        Column("prompt", lambda row: str(row.prompt_length)),
        Column("new", lambda row: str(row.new_tokens)),
        Column("TTFT ms", lambda row: _time(row, row.ttft_ns)),
        Column("ITL ms", lambda row: _time(row, row.itl_ns)),
        Column("95% CI", lambda row: _interval(row.itl_ns or row.ttft_ns)),
        word_column("tokens", tokens_text),
        Column("p95", lambda row: _percentile(row.itl_ns, "p95")),
        Column("p99", lambda row: _percentile(row.itl_ns, "p99")),
        Column("µs/1k", slope_text),
        Column("tok/s", lambda row: _rate(row, "per_sequence")),
        Column("tok/s in all", lambda row: _rate(row, "total")),
        Column("prefill tok/s", lambda row: _rate(row, "prefill")),
        Column("cache MiB", cache_text),
    ]
    optional: list[Column[GenerationRow]] = [
        Column("memory roof", lambda row: units.whole_percent(row.roof_share)),
        Column("J/token", lambda row: significant(row.energy.joules_per_token) if row.energy else ABSENT),
    ]
    return Table([*shown, *filled_columns(optional, rows), word_column("grade", _grade)], rows, note=NOTE)


NOTE = (
    "TTFT: from the prompt ids on the host to the first token ids there. ITL: between tokens, N − 1 a request; its 95% "
    "interval is over processes. µs/1k: growth of the ITL with 1,000 tokens of context (unclear: its interval has 0). "
    "tok/s: of one sequence after its first token; in all: every token of the batch, prefill included. Cache: keys and "
    "values after the last token, against the formula. Tokens: against PyTorch fp32 (docs/generation.md)."
)


def slope_text(row: GenerationRow) -> str:
    """µs of ITL per 1,000 tokens of context, where its interval does not contain 0."""
    slope_ns = None if row.context is None else row.context.slope_ns_per_1000
    if slope_ns is None:
        return ABSENT
    ends = row.context.slope_ci95 if row.context else None
    return "unclear" if ends is None or ends.low <= 0 <= ends.high else significant(slope_ns / 1e3)


def cache_text(row: GenerationRow) -> str:
    """MiB measured; times the formula's where a backend reserves more or less."""
    if row.cache is None:
        return ABSENT
    text = units.in_mib(row.cache.measured)
    if not row.cache.formula or row.cache.measured == row.cache.formula:
        return text
    return f"{text} ({row.cache.measured / row.cache.formula:.3g}× formula)"


def tokens_text(row: GenerationRow) -> str:
    """How the tokens compare with fp32 eager's."""
    parity = row.parity
    if parity is None:
        return "not compared"
    if parity.unexplained:
        return f"**wrong** ({parity.unexplained})"
    if parity.free_equal == parity.free_sequences:
        return "equal"
    return f"equal to {(parity.first_difference or 1) - 1}, margin {significant(parity.first_margin, 2)}"


def generation_lines(summary: Summary) -> list[Line]:
    """A line for each measured row that is not void, with all figures."""
    return [
        {
            **case_columns(row),
            "prompt_length": row.prompt_length,
            "new_tokens": row.new_tokens,
            "grade": row.grade,
            **columns(GENERATION, row, CSV_UNITS),
            "prompts": row.prompts,
            "threads": row.threads,
            **run_columns(summary),
        }
        for row in summary.generations
        if row.status == "measured" and row.ttft_ns is not None
    ]


def _grade(row: GenerationRow) -> str:
    return ABSENT if row.grade is None else row.grade


def _order(row: GenerationRow) -> tuple[tuple[int, int, int], int, float, str]:
    place = {"A": 0, "B": 0, "C": 1}.get(row.grade or "", 2)
    headline = row.itl_ns or row.ttft_ns
    return (shape(row), place, headline.median if headline else 0.0, row.case_id)


def _time(row: GenerationRow, times: TokenTimes | None) -> str:
    if row.void is not None:
        return VOID
    return ABSENT if times is None else significant(times.median / MILLISECOND.ns)


def _interval(times: TokenTimes | None) -> str:
    interval: Interval | None = None if times is None else times.ci95
    return units.interval(interval, MILLISECOND.ns)


def _percentile(times: TokenTimes | None, name: str) -> str:
    time_ns = None if times is None else getattr(times, name)
    return units.in_unit(time_ns, MILLISECOND)


def _rate(row: GenerationRow, name: str) -> str:
    return VOID if row.void is not None else significant(getattr(row.rates, name, None))
