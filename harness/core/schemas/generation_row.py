"""The summary's rows of generation: GenerationRow. Definitions: docs/generation.md."""

from __future__ import annotations

from harness.core.schemas.generation_record import ReuseCheck, TokenParity
from harness.core.schemas.raw_record import Clock, ColdCosts, Placement
from harness.core.schemas.row_parts import Check, Flag, FlagName, Interval, UsageSummary
from harness.core.schemas.vocabulary import Device, Grade, Precision, Record, Status, Weights


class TokenTimes(Record):
    """Statistics of one kind of time (TTFT, ITL, TPOT) of a row, in nanoseconds.

    Each figure is the median over processes of each process's figure; n counts the values of all processes.
    """

    median: float
    ci95: Interval | None
    """Of the median, over processes; None with one process."""
    p50: float
    p95: float | None
    p99: float | None
    """None where the processes together have too few values (130 for p95, 662 for p99)."""
    max: float
    mean: float
    n: int
    requests: int
    """Requests that the values come from: values of one request are not independent."""
    rounds: int
    process_medians: tuple[float, ...]
    requests_ci95: dict[str, Interval] = {}
    """By name (p50, p95, p99): bootstrap over the requests of all processes."""


class ContextTimes(Record):
    """How the ITL grows with the context."""

    quarters: tuple[float, float, float, float] | None
    """Mean ITL in the four quarters of the output, ns; None with fewer than four ITLs a request."""
    slope_ns_per_1000: float | None
    """Least-squares slope, ns of ITL per 1,000 tokens of context; None with fewer than eight ITLs a request."""
    slope_ci95: Interval | None = None
    """Over processes."""


class TokenRates(Record):
    """Tokens a second; each is the median over processes."""

    per_sequence: float | None
    """(N - 1) / (t_N - t_1), mean over requests of a process; None for one-token outputs."""
    total: float
    """All tokens of the timed requests / the sum of their end-to-end times: token-weighted, prefill included."""
    total_ci95: Interval | None = None
    """Over processes."""
    decode: float | None
    """Batch size x per_sequence; None for one-token outputs."""
    prefill: float
    """Prompt tokens of a batch / TTFT."""


class CacheSize(Record):
    """Bytes of keys and values after the last token."""

    measured: int
    formula: int
    """2 x layers x kv heads x head size x positions x batch x bytes of an element (DecoderShape.cache_elements)."""


class TokenEnergy(Record):
    """Energy on a GPU, by its own counter, idle power taken off."""

    joules_per_token: float
    idle_w: float
    gpu: str


class GenerationRow(Record):
    """One case of generation. A row of grade F has no times: they are in `void`."""

    case_id: str
    model: str
    backend: str
    device: Device
    precision: Precision
    batch_size: int
    prompt_length: int
    new_tokens: int
    weights: Weights
    setting: str = "default"
    status: Status
    grade: Grade | None = None
    reason: str | None = None
    """Why a row is skipped, failed or missing."""
    hint: str | None = None
    ttft_ns: TokenTimes | None = None
    itl_ns: TokenTimes | None = None
    """None for one-token outputs."""
    tpot_ns: TokenTimes | None = None
    """The same."""
    context: ContextTimes | None = None
    rates: TokenRates | None = None
    cache: CacheSize | None = None
    energy: TokenEnergy | None = None
    roof_share: float | None = None
    """Bytes of the weights and the cache that a decode step reads / ITL / the best measured copy."""
    parity: TokenParity | None = None
    reuse: ReuseCheck | None = None
    placement: Placement | None = None
    memory_bytes: int | None = None
    cold_ns: ColdCosts | None = None
    threads: int | None = None
    clock: Clock | None = None
    real_text: bool | None = None
    """Whether the prompts are text, not random ids."""
    prompts: str | None = None
    """Origin of the prompts, in words."""
    artifacts: dict[str, str] = {}
    flags: tuple[Flag, ...] = ()
    checks: dict[FlagName, Check] = {}
    usage: UsageSummary | None = None
    notes: tuple[str, ...] = ()
    void: VoidGeneration | None = None
    """Only for a row of grade F."""


class VoidGeneration(Record):
    """Figures of a row of grade F."""

    ttft_ns: TokenTimes | None = None
    itl_ns: TokenTimes | None = None
    tpot_ns: TokenTimes | None = None
    context: ContextTimes | None = None
    rates: TokenRates | None = None
    energy: TokenEnergy | None = None
    roof_share: float | None = None


GenerationRow.model_rebuild()
