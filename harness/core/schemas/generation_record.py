"""Generation: cases of the plan, a decoder's export, generation/<case_id>/<round>.json, rows of the summary."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from harness.core.schemas.export_record import Artifact, ExportFailure, OnnxArtifact
from harness.core.schemas.raw_record import Block, Clock, ColdCosts, CpuUse, Measured, Memory, Placement, RawBase, Stops
from harness.core.schemas.vocabulary import (
    Amount,
    Checks,
    Count,
    Device,
    FileName,
    Flag,
    Grade,
    Interval,
    NotNegative,
    Precision,
    Record,
    Sha256,
    Share,
    Status,
    UsageSummary,
    Weights,
)

DecoderKind = Literal["causal", "seq2seq"]
"""`seq2seq`: the prompt goes through an encoder, and the decoder starts from one start token."""


class GenerationCase(Record):
    """One case of generation: a model on a backend with its shape. It generates greedily and ignores the end token."""

    case_id: FileName
    model: str
    slug: FileName
    backend: str
    device: Device
    precision: Precision
    batch_size: Annotated[int, Field(ge=1)]
    prompt_length: Annotated[int, Field(ge=1)]
    """Tokens of each prompt of the batch."""
    new_tokens: Annotated[int, Field(ge=1)]
    """Tokens that each sequence gets, N: the first from the pass over the prompt, N - 1 from decode steps."""
    weights: Weights
    setting: str = "default"
    skip_reason: str | None = None
    """Set where the combination cannot run; such a case is reported and never started."""


class GenerationOptions(Record):
    """How each case of generation is measured, besides the plan's Measurement (rounds, seed, threads, time limits)."""

    requests: Annotated[int, Field(ge=2, le=10_000)] = 8
    """Least number of timed requests of a process; a request is one batch from its prompts to its last tokens."""
    warmups: Annotated[int, Field(ge=1, le=1_000)] = 3
    """Least number of full requests before timing. Their last three must agree (Measurement.steady_tolerance)."""
    max_s: Annotated[float, Field(gt=0, le=86_400)] = 20.0
    """Longest timed part of one process; requests beyond `requests` start only within it."""
    prompts: str | None = None
    """File with a prompt a line, or with lines `<prompt tokens> <new tokens>`, which a plan no longer names; None: our
    own sentences."""
    prompts_sha256: Sha256 | None = None
    """Of that file, at planning."""


class DecoderShape(Record):
    """The sizes of a decoder that decide its cache."""

    kind: DecoderKind
    layers: int
    """Layers of the decoder."""
    heads: int
    """Query heads."""
    kv_heads: int
    head_dim: int
    hidden: int
    vocabulary: int
    longest: int | None
    """Most positions of prompt and output together (of a seq2seq model: of each of them); None without a limit."""
    start_token: int | None = None
    """First input of a seq2seq decoder."""

    def cache_elements(self, prompt_length: int, new_tokens: int) -> int:
        """Elements of the keys and values of one sequence after its last token.

        The last token's own key and value are never made: causal 2·layers·kv_heads·head_dim·(P + N - 1); seq2seq the
        same for the decoder's N inputs (start token, N - 1 tokens) and P encoder positions.
        """
        positions = prompt_length + new_tokens - (0 if self.kind == "seq2seq" else 1)
        return 2 * self.layers * self.kv_heads * self.head_dim * positions


class PromptSet(Record):
    """Prompts of one length, and what fp32 eager answers to the first of them."""

    prompt_length: int
    new_tokens: int
    """Tokens of the reference; cases with fewer use its beginning."""
    samples: int
    """Number of different prompts."""
    prompts: Artifact
    """`prompts-p<length>.npz`: ids (samples, prompt_length) int64."""
    reference: Artifact
    """`generation-reference-p<length>.npz`: tokens (referenced, new_tokens) int64; logits (referenced, new_tokens,
    vocabulary) float32, where logits[:, k] decided tokens[:, k]; margins (referenced, new_tokens) float32: top-1 less
    top-2 logit."""
    referenced: int
    """Number of prompts with a reference: the first ones."""
    rounding: dict[Precision, float] = {}
    """By precision: how far its rounding alone takes logits from the reference, as the largest relative L2 of a step:
    by the module itself in that precision, in one pass without a cache over prompt and reference tokens. Only for
    precisions that a case asked for; empty in older files."""
    source: str
    """Origin of the prompts, in words."""
    prompt_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds of a prompt in the reference's pass over its prompts, from which the time of a plan is expected. None in
    older records."""
    step_s: Annotated[float, Field(gt=0)] | None = None
    """Mean seconds of its decode steps, each of `referenced` sequences. None for one token, and in older records."""
    real_text: bool
    """False for seeded random ids."""


class GenerationExport(Record):
    """The files of one model for generation, in models/<slug>/<folder>/: generation.json is this record."""

    schema_version: Literal[1] = 1
    request_sha256: str
    folder: FileName | None = None
    model: str
    slug: FileName
    weights: Weights
    weight_source: str
    shape: DecoderShape
    parameters: int
    """Elements of all weights, tied ones once."""
    read_parameters: int
    """Elements that a decode step reads: without lookup tables that are not also the output layer."""
    module: Artifact
    """weights.safetensors, fp32, tied weights once."""
    configuration: Artifact
    """config.json of transformers."""
    tokenizer: tuple[Artifact, ...] = ()
    """Files of tokenizer/; empty where the model has none here."""
    gguf: Artifact | None = None
    """The quantised file that the weights were made from, for backends that read it."""
    onnx: dict[str, OnnxArtifact] = {}
    """Decoder files with past and present keys and values, by precision, or `<precision>-<form>`."""
    refused: dict[str, ExportFailure] = {}
    """Files that could not be made, by their key in `onnx`."""
    sets: tuple[PromptSet, ...]
    versions: dict[str, str]
    seconds: dict[str, float]

    def files(self) -> tuple[Artifact, ...]:
        """Every file that the record vouches for."""
        onnx = tuple(file for artifact in self.onnx.values() for file in artifact.files())
        prompts = tuple(file for prompts in self.sets for file in (prompts.prompts, prompts.reference))
        gguf = () if self.gguf is None else (self.gguf,)
        return (self.module, self.configuration, *self.tokenizer, *gguf, *onnx, *prompts)

    def prompt_set(self, prompt_length: int, new_tokens: int) -> PromptSet | None:
        """The prompts of that length whose reference is long enough; None where there are none."""
        fitting = (
            prompts
            for prompts in self.sets
            if prompts.prompt_length == prompt_length and prompts.new_tokens >= new_tokens
        )
        return next(fitting, None)


class GeneratedRequest(Record):
    """One timed request: a batch of prompts, each with N tokens."""

    prompts: tuple[int, ...]
    """Rows of the prompt set, one a sequence."""
    prompts_sha256: Sha256
    """Of the ids that were passed in, int64 in C order."""
    start_ns: int
    """t_0 on the process's clock: prompt ids on the host, before prefill() is called."""
    token_ns: tuple[int, ...]
    """t_1 … t_N: the ids of the k-th tokens of the whole batch are on the host."""
    tokens: tuple[tuple[int, ...], ...]
    """Token ids, (batch, N)."""

    @model_validator(mode="after")
    def _in_order(self) -> GeneratedRequest:
        instants = (self.start_ns, *self.token_ns)
        if not self.token_ns or any(later < earlier for earlier, later in pairwise(instants)):
            raise ValueError("its tokens come before their predecessors, or there are none")
        return self

    @property
    def steps_ns(self) -> tuple[int, ...]:
        """The N - 1 ITLs; of a one-token output its TTFT."""
        if len(self.token_ns) == 1:
            return (self.token_ns[0] - self.start_ns,)
        return tuple(later - earlier for earlier, later in pairwise(self.token_ns))


class TokenParity(Record):
    """Agreement of a backend's tokens with fp32 eager (harness/statistics/parity.py)."""

    sequences: Amount
    steps: Amount
    """Steps compared, over all sequences: each with the reference's tokens as inputs (teacher forcing)."""
    max_abs: NotNegative | None
    """Largest difference of any logit; None where a logit is not finite."""
    relative_l2: NotNegative | None
    """Of the worst step of any sequence."""
    cosine: float | None
    """Of the worst step of any sequence."""
    nonfinite: Amount
    forced_agreement: Share
    """Share of the forced steps with the reference's token on top."""
    free_sequences: Amount
    """Sequences that were compared without teacher forcing: those of timed requests."""
    free_equal: Amount
    """Of those, with the same tokens to the end."""
    first_difference: int | None = None
    """Earliest step, from 1, at which a free sequence has another token; None without one."""
    first_margin: float | None = None
    """The reference's top-1 less top-2 logit at that step."""
    first_moved: float | None = None
    """The measured difference there under teacher forcing: by how much the gap between these two tokens moved at most
    (twice the largest difference of a logit of that step)."""
    unexplained: Amount = 0
    """First differing tokens, and forced steps, whose margin is larger than the measured difference: the tokens are
    wrong, not only close."""


class ReuseCheck(Record):
    """Requests that a decoder with a stale or a kept cache answers wrongly or too fast."""

    compared: Amount
    """Sequences whose tokens were compared after another prompt had filled the cache."""
    unequal: Amount
    """Of these, with other tokens than before: the cache was not emptied, or the answer is not deterministic."""
    repeated_ns: tuple[Amount, ...] = ()
    """TTFT of a prompt that was generated from just before, …"""
    fresh_ns: tuple[Amount, ...] = ()
    """… and of a new prompt, in pairs: a kept prefix makes the first faster."""


class Generated(RawBase):
    """The samples of one process."""

    status: Literal["generated"] = "generated"
    artifacts: dict[str, str]
    """sha256 of each loaded file, by file name."""
    threads: Count
    clock: Clock
    warmups: tuple[GeneratedRequest, ...]
    requests: Annotated[tuple[GeneratedRequest, ...], Field(min_length=1)]
    """The timed requests, in order; each has other prompts than the one before."""
    steady: bool
    """The last three warm-ups agreed."""
    stop: Literal["requests", "time limit"]
    cache_bytes: Amount
    """Bytes of the keys and values after the last token of a request, as the backend measures them."""
    parity: TokenParity | None
    """None where the backend computes nothing."""
    reuse: ReuseCheck | None
    """None where the backend computes nothing."""
    placement: Placement
    memory: Memory
    cold_ns: ColdCosts
    """first_inference: from the prompt ids to the last token of the first request."""
    cpu_use: CpuUse
    stops: Stops | None
    notes: tuple[str, ...] = ()

    @property
    def latency_ns(self) -> tuple[int, ...]:
        """Its samples for the checks that a record of `run` has, too: every ITL, of one-token outputs every TTFT."""
        return tuple(value for request in self.requests for value in request.steps_ns)

    @property
    def warmup_ns(self) -> tuple[int, ...]:
        """Times between tokens of the warm-up, in ns."""
        return tuple(value for request in self.warmups for value in request.steps_ns)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """A block for each request: its samples, which lie without a gap."""
        return tuple(
            Block(iterations=len(request.steps_ns), wall_ns=sum(request.steps_ns)) for request in self.requests
        )

    @property
    def parity_timed(self) -> TokenParity | None:
        """The comparison, which has the timed tokens."""
        return self.parity


TimedRecord = Measured | Generated
"""A process's record with samples, whatever they are of: the checks of the machine read both."""


def ids_digest(ids: Iterable[Iterable[int]]) -> str:
    """sha256 of token ids, as int64 little-endian in C order."""
    digest = hashlib.sha256()
    for row in ids:
        digest.update(b"".join(int(token).to_bytes(8, "little", signed=True) for token in row))
    return digest.hexdigest()


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
    checks: Checks = {}
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
