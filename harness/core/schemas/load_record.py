"""Load: cases of the plan, raw records below results/load/<load_id>/ with what the client of an endpoint recorded of
each request, and rows of the summary.

A load case is one model on one backend that serves requests in one scenario. Closed loops (single-stream, multi-stream,
concurrency, offline) have no scheduled instants; only the server scenario has.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.schemas.generation_record import TokenParity
from harness.core.schemas.raw_record import Clock, CpuUse, OutputsTime, Parity, Placement, Repeats
from harness.core.schemas.vocabulary import (
    Amount,
    Count,
    Device,
    FileName,
    Interval,
    Kind,
    MessageLines,
    MessageText,
    NotNegative,
    Precision,
    Record,
    SettingsId,
    Sha256,
    Status,
    Weights,
)

FailureKind = Literal[
    "timeout",
    "refused",
    "closed",
    "network",
    "rejected",
    "server error",
    "redirect",
    "malformed",
    "too large",
    "wrong output",
]
"""timeout       no complete answer before the deadline
refused       no server at the port
closed        the server ended the connection before the answer was complete
network       any other failure of the connection: name, route, TLS
rejected      status 4xx: the server did not accept the request
server error  status 5xx
redirect      status 3xx: never followed, because the other address was not named by the user
malformed     an answer that the protocol does not allow
too large     an answer above the limit of size
wrong output  a complete answer that cannot be compared with the reference, or a completion of another length"""


class RequestFailures(Record):
    """Failed requests of one kind."""

    requests: tuple[int, ...]
    """Their places in the arrays of the replication."""
    first: MessageText
    """In the words of the server or the system."""


class StreamTimes(Record):
    """Steps of all streams, one after the other; request i has those from offsets[i] to offsets[i + 1]."""

    offsets: tuple[int, ...]
    at_ns: tuple[int, ...]
    """Since the start of the replication."""
    tokens: tuple[int, ...]
    """Of each step; -1 where the server does not say."""


class ServerSums(Record):
    """A server's own sums over the replication (Triton's statistics extension)."""

    requests: int
    failed: int
    executions: int
    """Batches that ran."""
    queue_ns: int
    compute_input_ns: int
    compute_infer_ns: int
    compute_output_ns: int


class ClientTimes(Record):
    """Instants of each request, in the order of the schedule; -1: not reached, or not visible."""

    serialise_ns: tuple[int, ...]
    """Making the payload."""
    send_ns: tuple[int, ...]
    """Handing it to the kernel."""
    connect_ns: tuple[int, ...]
    """Opening a connection within the request; 0: an open one was used again."""
    first_ns: tuple[int, ...]
    """Since the start of the replication: head of the answer, or the first chunk of a stream."""
    server_queue_ns: tuple[int, ...]
    """As the server reports it in the answer."""
    server_compute_ns: tuple[int, ...]
    request_bytes: int
    """Of all requests together; likewise the answers."""
    answer_bytes: int
    connections: int
    waited: int
    """Requests that were due while the most requests in flight were waiting for answers."""
    most_in_flight: int
    compared: int
    """Answers that were compared with the reference."""
    equal: int | None = None
    """Completions: compared answers with the same tokens, or text, as greedy fp32."""
    failures: dict[FailureKind, RequestFailures] = {}
    steps: StreamTimes | None = None
    server: ServerSums | None = None


class ClientFigures(Record):
    """Figures of the client and of the server's own report, over all requests of a point."""

    serialise_p50_ns: float | None
    send_p50_ns: float | None
    """None where the protocol hides it (gRPC)."""
    connections: int
    """The most of a replication."""
    reopened: int
    """Requests that had to open a connection."""
    waited: int
    compared: int
    equal: int | None = None
    request_bytes_mean: float
    answer_bytes_mean: float
    failures: dict[FailureKind, int] = {}
    server_queue_ns: float | None = None
    """Mean of a request by the server's own report; None where it has none. Likewise the others."""
    server_compute_ns: float | None = None
    server_batch: float | None = None
    """Mean requests of an execution."""
    first_p50_ns: float | None = None
    """Streams: scheduled instant to the first chunk (TTFT where a chunk has one token). A failed request counts with an
    infinite time. None where the percentile is infinite, or where nothing was streamed."""
    first_p99_ns: float | None = None
    first_p50_infinite: bool = False
    first_p99_infinite: bool = False
    step_p50_ns: float | None = None
    """Streams: gap between two chunks (ITL where a chunk has one token)."""
    step_p99_ns: float | None = None
    tokens_per_step: float | None = None
    """None where the server does not say."""


Scenario = Literal["single-stream", "multi-stream", "server", "offline", "concurrency"]
"""MLPerf's four scenarios, and a closed loop with several clients."""

LoadVerdict = Literal["PASS", "FAIL", "UNDECIDED", "LOAD NOT REACHED"]
"""PASS and FAIL: the share of requests over the bound is below or above the allowed share, by its one-sided 99% ends
(harness/serving/load_verdict.py); UNDECIDED: neither is shown; LOAD NOT REACHED: the dispatch delay shows that this
load was not offered."""

LoadGenResult = Literal["VALID", "INVALID"]
"""Of MLPerf LoadGen's rule: its percentile is within the bound, and early stopping has enough requests."""

LoadMethod = Literal["replications", "loadgen"]
"""`replications`: several short replications of each load, each with a seed of its own, on raw exponential gaps.
`loadgen`: one long run of each load on LoadGen's schedule, with its durations and counts."""

Batching = Literal["static", "continuous"]
"""Of generation. `static`: a batch runs to its longest output. `continuous`: a request joins the running batch before
its next step, and leaves with its last token."""

MOST_BATCH = 4096
MOST_WORKERS = 64
MOST_REPLICATIONS = 200
MOST_REQUESTS = 1_000_000


MOST_LENGTHS = 64
"""Most different prompt lengths of a distribution: each has prompts and reference answers of its own."""

Bounded = Literal["latency", "ttft", "itl"]
"""What a bound is on: the latency of a request, its time to the first token, or its times between tokens."""

Lengths = tuple[tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]], ...]
"""(prompt tokens, new tokens) of requests: a distribution, from which each request draws a pair."""


class LatencyBound(Record):
    """A limit for a percentile of the latency, such as p99<50ms, or of a token's time, such as ttft_p99<500ms."""

    quantile: Annotated[float, Field(gt=0, lt=1)]
    limit_ns: Annotated[int, Field(ge=1)]
    of: Bounded = "latency"

    @property
    def text(self) -> str:
        """The bound as a user writes it: p99<50ms, ttft_p99<500ms."""
        name, size = next(((name, size) for name, size in _UNITS if self.limit_ns >= size), _UNITS[-1])
        kind = "" if self.of == "latency" else f"{self.of}_"
        return f"{kind}p{100 * self.quantile:g}<{self.limit_ns / size:g}{name}"

    @property
    def allowed(self) -> float:
        """Largest share of requests over the limit: 0.01 for p99."""
        return round(1 - self.quantile, 12)


_UNITS = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))


class Bounds(Record):
    """The bounds of a load case, or of its row. Its verdict needs all of them."""

    bound: LatencyBound | None
    further_bounds: tuple[LatencyBound, ...] = ()
    """Bounds beside the first one."""

    @property
    def bounds(self) -> tuple[LatencyBound, ...]:
        """All bounds, in the order that the user wrote."""
        return () if self.bound is None else (self.bound, *self.further_bounds)

    @property
    def bounds_text(self) -> str:
        """The bounds as a user writes them: `ttft_p99<500ms, itl_p99<50ms`; empty without a bound."""
        return ", ".join(bound.text for bound in self.bounds)


class LoadCase(Bounds):
    """One deployment (model, backend, precision, batching, workers) in one scenario."""

    load_id: FileName
    model: str
    slug: FileName
    backend: str
    device: Device
    precision: Precision
    sequence_length: Annotated[int, Field(ge=1)] | None
    weights: Weights
    setting: str = "default"
    scenario: Scenario
    bound: LatencyBound | None = None
    """Only of the server scenario, which always has one."""
    max_batch: Annotated[int, Field(ge=1, le=MOST_BATCH)] = 1
    """Server and offline: most requests of a batch. Multi-stream: samples of a query. Else 1."""
    batching: Batching = "static"
    max_delay_ns: Annotated[int, Field(ge=0)] = 0
    """Server: how long the first request of a batch waits at most for others; 0: the batch is what has arrived."""
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] = 1
    """Threads that take batches, each with backend objects of its own. In the concurrency scenario the largest of
    `clients`; 1 with in_flight."""
    in_flight: Annotated[int, Field(ge=1, le=MOST_WORKERS)] | None = None
    """Server, offline: batches in flight that one thread issues to a library that computes asynchronously; None:
    workers wait for their batches."""
    rates: tuple[float, ...] = ()
    """Server: requests a second; empty: `factors` of the predicted peak."""
    factors: tuple[float, ...] = (0.9, 1.0, 1.1)
    clients: tuple[int, ...] = ()
    """Concurrency: numbers of clients, each with one request in flight."""
    method: LoadMethod = "replications"
    replications: Annotated[int, Field(ge=1, le=MOST_REPLICATIONS)] = 10
    requests: Annotated[int, Field(ge=1, le=MOST_REQUESTS)] = 2000
    """Most requests of a replication."""
    replication_s: Annotated[float, Field(gt=0)] = 4.0
    """Longest replication, by its schedule; a shorter schedule has fewer requests. With `loadgen`: the shortest."""
    service_s: Annotated[float, Field(gt=0)] = 2.0
    """Longest measurement of the service times of one batch size."""
    price_per_hour: Annotated[float, Field(gt=0)] | None = None
    """Price of the machine; decides the cost of a million requests."""
    skip_reason: str | None = None
    """Set where the combination cannot run; such a case is reported and never started."""
    endpoint: str | None = None
    """Address of a running service (harness/endpoints/target.py); None: a backend serves in a process of our own."""
    prompt_length: Annotated[int, Field(ge=1)] | None = None
    """Generation, here or by a running service: tokens of each prompt, and tokens that are asked for; of a distribution
    the largest. None: a request has arrays."""
    new_tokens: Annotated[int, Field(ge=1)] | None = None
    lengths: Lengths = ()
    """The distribution of both, where they differ between requests."""

    @property
    def pairs(self) -> Lengths:
        """(prompt tokens, new tokens) that a request may have; empty where it has arrays."""
        if self.prompt_length is None or self.new_tokens is None:
            return ()
        return self.lengths or ((self.prompt_length, self.new_tokens),)

    @property
    def replayed(self) -> bool:
        """Whether its service times are replayed: of arrays, by backends in a process of our own."""
        return self.scenario == "server" and self.endpoint is None and self.new_tokens is None

    @property
    def generates_here(self) -> bool:
        """Whether a decoder in a process of our own serves it."""
        return self.new_tokens is not None and self.endpoint is None

    @property
    def parallel(self) -> int:
        """Batches that are computed at the same time at most."""
        return self.in_flight or self.workers

    @property
    def sets(self) -> int:
        """Sets of backend objects, each with one of every prepared size. On a GPU each batch in flight has its own."""
        return self.parallel if self.device == "cuda" else self.workers


class LoadBase(Record):
    """The start of every raw record of load."""

    schema_version: Literal[1] = 1
    load_id: FileName
    settings_id: SettingsId
    load_sha256: str
    """Digest of the load case (harness/planning/load_cases.py): a record of another case is not used."""
    artifacts_id: str
    """Digest of the files that were loaded, by name: records of one export belong together."""
    started_at: str
    environment_id: str | None


class GuardTimes(Record):
    """Pairs of neighbouring blocks, as usual and in another way: of each block the mean time of a dispatch in ns, the
    median of a request where a running service is loaded."""

    usual_ns: tuple[NotNegative, ...]
    other_ns: tuple[NotNegative, ...]
    copy_ns: NotNegative | None = None
    """Repeated input: mean time in which one thread copies an input in rotation, which may come from the memory. None
    in older records, and of a running service."""


class ServiceRun(LoadBase):
    """results/load/<load_id>/service.json: service times by prepared batch size, measured in a closed loop.

    With several workers, or batches in flight, all of them work at the same time, on the same batch size.
    """

    status: Literal["measured"] = "measured"
    artifacts: dict[str, str]
    """sha256 of each loaded file, by file name, of all prepared sizes together."""
    threads: Count
    workers: int
    """With in_flight: batches in flight."""
    clock: Clock
    load_ns: dict[int, Amount]
    """By prepared batch size: load, compile and first inference of the first worker."""
    service_ns: dict[int, tuple[Amount, ...]]
    """By prepared batch size: time of each dispatch, in the order measured; of several workers one after the other."""
    repeat_input: GuardTimes | None = None
    """Batch size 1: other = the same stored input each time. None where nothing is computed."""
    repeats: Repeats | None = None
    """Smallest batch size: new inputs in the memory of stored ones. None in older records, and where nothing is
    computed or tokens are generated here."""
    outputs_time: OutputsTime | None = None
    """Smallest batch size: of outputs() after single passes. None as `repeats`."""
    cpu_use: CpuUse | None = None
    """While service times were measured. None in older records, and of a running service."""
    other_order: GuardTimes | None = None
    """Batch size 1: other = the inputs in another random order."""
    parity: dict[int, Parity]
    """By prepared batch size: all stored inputs against the fp32 reference; empty where nothing is computed."""
    placement: Placement
    """Of the largest prepared size."""
    peak_rss_bytes: Amount
    token_parity: TokenParity | None = None
    """Of decoders: logits and tokens against fp32 eager before anything is timed, the worst of all prepared sizes."""
    rounding: float | None = None
    """Relative L2 distance of logits that the precision alone makes of the prompts (PromptSet), the largest."""
    notes: tuple[str, ...] = ()


class JoinedPasses(Record):
    """The passes of continuous batching: a request joins by a pass of its own over its prompt, and a step gives every
    running request one token."""

    steps: int
    tokens: int
    """Tokens that all passes computed, those of empty slots included."""


class GeneratedBatches(Record):
    """Lengths of the requests and instants of the tokens of a replication that a decoder served.

    A batch runs until its longest output is complete: request i of batch j gets its k-th token at token_ns[j][k - 1],
    and its slot stays taken after its last token.
    """

    prompt_tokens: tuple[int, ...]
    """Of each scheduled request; likewise new_tokens."""
    new_tokens: tuple[int, ...]
    slots: tuple[int, ...]
    """Of each batch: sequences of the decoder that ran it, with those that no request uses."""
    token_ns: tuple[tuple[int, ...], ...]
    """Of each batch, in ns since the start of the replication; a failed batch has none."""
    parity: TokenParity | None = None
    """Tokens of served requests against fp32 eager, where it has an answer. None where nothing is computed."""
    joined: JoinedPasses | None = None
    """Continuous batching: each request is a batch of its own, which starts when it joins."""


class Replication(LoadBase):
    """results/load/<load_id>/<point>/<number>.json: one replication of one load, all instants in ns since its start.

    Requests are served in the order of their arrival, so batch j holds the next `sizes[j]` requests, and the arrays of
    the batches are enough: request i starts and ends with its batch. Requests beyond the last batch were not served
    before the time limit; they count with an infinite latency, as those of failed batches do.
    """

    status: Literal["measured"] = "measured"
    point: FileName
    number: Annotated[int, Field(ge=1)]
    scenario: Scenario
    rate_per_s: float | None = None
    """Server: the rate that the schedule was drawn for."""
    clients: int | None = None
    """Concurrency: clients of this point."""
    workers: int
    """With in_flight: batches in flight, which `worker` below numbers too."""
    max_batch: int
    max_delay_ns: int
    seed: int
    """Of the schedule, and of the order of the inputs."""
    schedule_sha256: str | None = None
    """Digest of `scheduled_ns` (harness/serving/arrivals.py)."""
    threads: int
    clock: Clock
    scheduled_ns: tuple[int, ...] = ()
    """Server: the scheduled instant of each request, sorted. Empty in closed loops."""
    requests: int
    """Requests scheduled, or sent by the closed loop."""
    sizes: tuple[int, ...]
    """Requests of each batch, in the order of their requests (closed loop: in the order of their start)."""
    ready_ns: tuple[int, ...]
    """The instant from which the batch could start: the policy closed it, and its worker was free."""
    start_ns: tuple[int, ...]
    done_ns: tuple[int, ...]
    worker: tuple[int, ...]
    failed: tuple[int, ...] = ()
    """Places of failed batches in these arrays."""
    unseen_ns: tuple[int, ...] = ()
    """One thread that issues on a GPU: from the last look that did not see the batch complete to done_ns. Its end lies
    in between. Empty elsewhere."""
    error: MessageText | None = None
    """Of the first failed batch."""
    timed_out: bool = False
    """True where the time limit ended it before every request was served."""
    parity: Parity | None = None
    """Of the last batch of each backend object, against the fp32 reference. None where nothing is computed."""
    client: ClientTimes | None = None
    """Of an endpoint: what its client recorded of each request. ready_ns is then the scheduled instant, start_ns the
    issue, and each request is a batch of its own."""
    new_tokens: tuple[int, ...] = ()
    """Of completions whose lengths differ: tokens that each request asked for."""
    generated: GeneratedBatches | None = None
    """Of decoders. A request is done with its own last token, which is not the end of its batch."""

    @property
    def impossible(self) -> str | None:
        """Why no service can have had these times; None where one can."""
        arrays = (self.sizes, self.ready_ns, self.start_ns, self.done_ns, self.worker)
        if len({len(values) for values in arrays}) > 1:
            return "its batches have more sizes than times, or fewer"
        if min(self.sizes, default=1) < 1 or sum(self.sizes) > self.requests:
            return "its batches have other numbers of requests than were scheduled"
        lost, pairs = frozenset(self.failed), enumerate(zip(self.start_ns, self.done_ns, strict=True))
        if any(start > done for place, (start, done) in pairs if place not in lost):
            return "its batches end before they start"
        if self.scheduled_ns and len(self.scheduled_ns) != self.requests:
            return "its schedule has another number of requests"
        return None


class LoadFailure(LoadBase):
    """results/load/<load_id>/failed.json: why a load case has no, or not all, records."""

    status: Literal["failed"] = "failed"
    error: MessageText
    hint: MessageText
    phase: str
    stderr_tail: MessageLines


class PointEnergy(Record):
    """Energy of a GPU during some replications of one point, idle power included."""

    energy_j: float
    window_ns: int
    numbers: tuple[int, ...]
    """Numbers of its replications."""


class LoadEnergy(LoadBase):
    """results/load/<load_id>/energy.json: the GPU's energy counter around each replication."""

    status: Literal["measured"] = "measured"
    gpu: str
    uuid: str
    idle_w: float
    """Mean power before the first process used the GPU."""
    points: dict[str, PointEnergy]


class PredictedPoint(Record):
    """One rate in replay: medians over simulated replications, and the 5-95% band of a single replication."""

    rate_per_s: float
    p50_ns: float
    p99_ns: float
    p50_band_ns: Interval
    p99_band_ns: Interval
    mean_ns: float
    over_share: float
    over_error: float = 0.0
    """Standard error of over_share over the simulated replications."""
    goodput_per_s: float
    mean_batch: float
    utilisation: float


class MapCell(Record):
    """A cell of the batching map: the predicted peak of one policy."""

    max_batch: int
    max_delay_ns: int
    rate_per_s: float | None
    """None where no load meets the bound."""
    points: tuple[PredictedPoint, ...] = ()
    """Loads at the same rates for all policies."""


class Prediction(LoadBase):
    """results/load/<load_id>/prediction.json: replay of simulated arrivals on the measured service times."""

    status: Literal["measured"] = "measured"
    service_sha256: Sha256
    """Content of service.json without its seal."""
    bound: LatencyBound
    seed: int
    peak_per_s: float | None
    """Highest rate that meets the bound; None where no load does."""
    peak_interval: Interval | None = None
    """95%, from resampled service times."""
    capacity_per_s: float | None = None
    """Rate that keeps every worker busy with full batches."""
    points: tuple[PredictedPoint, ...] = ()
    """The curve, and the rates of the real replications."""
    map: tuple[MapCell, ...] = ()


class LoadPercentile(Record):
    """A percentile of the latency: the median over replications of each replication's percentile."""

    ns: float | None
    """None where it is infinite (failed or unserved requests), or where too few requests were made."""
    infinite: bool = False
    interval: Interval | None = None
    """95% over replications."""


class JudgedBound(Record):
    """One bound of a load: shares of scheduled requests (ITL: of times between tokens) over its limit."""

    bound: str
    over_share: float
    over_low: float | None
    over_high: float | None
    verdict: LoadVerdict


class TokenLoad(Record):
    """Times of tokens of one load, from the scheduled instant: medians over replications, as for the latency.

    Failed requests have an infinite TTFT, and all their ITLs are infinite.
    """

    ttft: dict[str, LoadPercentile]
    """By name: p50, p90, p99."""
    itl: dict[str, LoadPercentile] = {}
    """Over all times between tokens of a replication. Empty where a step of a stream has not one token, and where every
    output has one."""
    tokens_per_s: float
    """Tokens of completed requests a second, from the first scheduled instant (or start) to the last completion."""
    one_token: int = 0
    """Requests of one token, which have no ITL."""
    useful_share: float | None = None
    """Of decoders: tokens that were asked for / tokens that the batches computed, padding included."""


class LoadedPoint(Record):
    """One real load of a row: all its replications together. Denominators are scheduled requests."""

    point: str
    factor: float | None = None
    """Of the predicted peak, where the rate was chosen by it."""
    clients: int | None = None
    asked_per_s: float | None = None
    scheduled_per_s: float | None = None
    achieved_per_s: float
    """Requests completed a second, from the first scheduled instant (or start) to the last completion."""
    samples_per_s: float
    """The same for samples: multi-stream has several in a request."""
    replications: int
    requests: int
    failed: int
    """Failed or not served before the time limit."""
    latency: dict[str, LoadPercentile]
    """p50, p90, p99 from the scheduled instant (server) or from the start (closed loop), and the bound's own."""
    queue_p99_ns: float | None = None
    """Scheduled instant to start of the batch."""
    compute_p50_ns: float
    """Start of the batch to its end."""
    compute_p99_ns: float
    dispatch_p99_ns: float | None = None
    """Dispatch delay: how late a batch started after it was ready."""
    unseen_p99_ns: float | None = None
    """One thread that issues on a GPU: by how much the end of a batch was noticed late at most."""
    added_p99_ns: float | None = None
    """Self-check: latency minus that of the same batches replayed with their own recorded service times."""
    mean_batch: float
    """Requests of a batch; continuous batching: requests that a step gives a token."""
    goodput: float | None = None
    """Share of the scheduled requests within the bound."""
    goodput_per_s: float | None = None
    over_share: float | None = None
    """Mean over replications; with a control variate adjusted by it, so it may differ from 1 - goodput."""
    over_explained: float | None = None
    """Part of the variance between replications that replay of their own schedules explains. None: not adjusted."""
    over_low: float | None = None
    over_high: float | None = None
    """One-sided 99% bounds of the share over the bound."""
    verdict: LoadVerdict | None = None
    """PASS only where every bound passes, FAIL where one fails."""
    judged: tuple[JudgedBound, ...] = ()
    """Each bound, where there are several or where the bound is on tokens."""
    tokens: TokenLoad | None = None
    """Only for loads of generation."""
    loadgen: LoadGenResult | None = None
    loadgen_estimate_ns: float | None = None
    """Closed loops by LoadGen's rules: its upper estimate of p90 (single-stream) or p99 (multi-stream)."""
    predicted: PredictedPoint | None = None
    """Replay at this rate."""
    reality_over_replay: dict[str, float] = {}
    """By percentile (p50, p99)."""
    in_band: int | None = None
    """Replications whose p99 lies in replay's 5-95% band."""
    parity: Parity | None = None
    client: ClientFigures | None = None
    """Of an endpoint."""
    joules_per_request: float | None = None
    """On a GPU that counts its energy: (energy - idle power x time) / completed requests; in multi-stream
    / their samples, as for the cost. None for a running service."""


class Guard(Record):
    """A ratio of times that should be 1, with its 95% interval."""

    name: Literal["repeat-input", "other-order", "other-seed"]
    ratio: float
    interval: Interval | None


class LoadRow(Bounds):
    """A load case with its figures."""

    load_id: str
    model: str
    backend: str
    device: Device
    precision: Precision
    sequence_length: int | None
    weights: Weights
    setting: str
    kind: Kind
    scenario: Scenario
    method: LoadMethod
    bound: LatencyBound | None
    max_batch: int
    batching: Batching = "static"
    max_delay_ns: int
    workers: int
    in_flight: int | None = None
    status: Status
    reason: str | None = None
    """Why a row is skipped, failed or missing, or why points are missing."""
    hint: str | None = None
    void: str | None = None
    """Why the figures do not count: outputs are outside the tolerance, or a repeated input is faster."""
    points: tuple[LoadedPoint, ...] = ()
    service_median_ns: dict[int, float] = {}
    """By prepared batch size."""
    predicted_peak_per_s: float | None = None
    predicted_interval: Interval | None = None
    capacity_per_s: float | None = None
    predicted: tuple[PredictedPoint, ...] = ()
    """The curve of replay."""
    map: tuple[MapCell, ...] = ()
    peak_pass_per_s: float | None = None
    """Highest rate with PASS: the lower end of the peak."""
    peak_fail_per_s: float | None = None
    """Lowest rate with FAIL above it: the upper end of the peak."""
    guards: tuple[Guard, ...] = ()
    price_per_hour: float | None = None
    cost_per_million: float | None = None
    """At the highest rate with PASS; offline, at its throughput."""
    joules_per_request: float | None = None
    """On a GPU that counts its energy; at the same rate."""
    idle_w: float | None = None
    """Its power before the first process used it, which is subtracted."""
    parity: Parity | None = None
    placement: Placement | None = None
    threads: int | None = None
    memory_bytes: int | None = None
    """Peak resident memory of the process with the backend objects of all prepared sizes; None of a running service."""
    environment_ids: tuple[str, ...] = ()
    artifacts: dict[str, str] = {}
    endpoint: str | None = None
    """Address of a running service; such a row is never ranked with rows of backends in a process of our own."""
    prompt_length: int | None = None
    new_tokens: int | None = None
    lengths: Lengths = ()
    token_parity: TokenParity | None = None
    notes: tuple[str, ...] = ()
